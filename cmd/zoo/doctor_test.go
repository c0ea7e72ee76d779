package main

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/zoo-sdk/zoo/sdk"
)

// TestDiagnoseMetal prints checks as they end, and how it went.
func TestDiagnoseMetal(t *testing.T) {
	t.Parallel()
	good := []sdk.MetalCheck{
		{Name: "device", Detail: "a good one", Took: 12 * time.Millisecond},
		{Name: "kernels", Detail: "100 kernels", Took: 2500 * time.Millisecond},
	}
	bad := append(good[:1:1],
		sdk.MetalCheck{Name: "arithmetic", Err: errors.New("a/b is 3"), Took: time.Millisecond},
		sdk.MetalCheck{Name: "arrival", Detail: "9 tokens", Err: errors.New("all at the end")})
	failed := &sdk.FailedChecksError{Checks: 3, Failed: []string{"arithmetic", "arrival"}}
	for _, test := range []struct {
		name   string
		json   bool
		checks []sdk.MetalCheck
		err    error
		code   int
		want   string
	}{
		{"good", false, good, nil, exitDone, `device      a good one (12 ms)
kernels     100 kernels (2.5 s)
ok
`},
		{"bad", false, bad, failed, exitOther, `device      a good one (12 ms)
arithmetic  FAILED: a/b is 3 (1 ms)
arrival     FAILED: all at the end; 9 tokens (0 ms)
`},
		{"interrupted", false, good[:1], errInterrupted, exitInterrupted, "device      a good one (12 ms)\n"},
		{"good JSON", true, good, nil, exitDone, `{
  "ok": true,
  "checks": [
    {
      "name": "device",
      "ok": true,
      "detail": "a good one",
      "seconds": 0.012
    },
    {
      "name": "kernels",
      "ok": true,
      "detail": "100 kernels",
      "seconds": 2.5
    }
  ]
}
`},
		{"bad JSON", true, bad[1:2], failed, exitOther, `{
  "ok": false,
  "problem": "2 of 3 checks failed: arithmetic, arrival",
  "checks": [
    {
      "name": "arithmetic",
      "ok": false,
      "detail": "",
      "problem": "a/b is 3",
      "seconds": 0.001
    }
  ]
}
`},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var out, stderr bytes.Buffer
			a := &app{streams: streams{out: &out, err: &stderr}}
			a.progress = newProgress(a)
			f := doctorFlags{metal: true, how: sdk.MetalOptions{Synthetic: "x"}, json: test.json}
			err := a.diagnoseMetal(t.Context(), f, func(_ context.Context, how sdk.MetalOptions, report func(sdk.MetalCheck)) error {
				if how.Synthetic != "x" {
					t.Errorf("%+v", how)
				}
				for _, c := range test.checks {
					report(c)
				}
				return test.err
			})
			if exitCode(err) != test.code {
				t.Errorf("error %v", err)
			}
			if diff := cmp.Diff(test.want, out.String()); diff != "" {
				t.Error(diff)
			}
		})
	}
}
