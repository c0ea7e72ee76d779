package plugintest_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/zoo-sdk/zoo/plugins/plugintest"
	"github.com/zoo-sdk/zoo/zoo"
)

// reader is sound, but reads all of config.json for a plan.
func reader() wrong {
	return wrong{fetch: func(ctx context.Context, req zoo.FetchRequest) (zoo.FetchPlan, error) {
		if req.Dir != "" {
			_, _ = os.ReadFile(filepath.Join(req.Dir, zoo.ConfigFile))
		}
		return sound{}.Fetch(ctx, req)
	}}
}

// fetches leaves all parts of the suite out but the plan.
func fetches(part string) bool { return slices.Contains([]string{"describe", "fetch"}, part) }

// TestReader finds that huge files are read, in this process and in one of its own.
func TestReader(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long under the race detector")
	}
	for _, where := range []string{"in this process", "in a process of its own"} {
		t.Run(where, func(t *testing.T) {
			o := soundOptions(t)
			o.Part = fetches
			var p zoo.Plugin = reader()
			if where != "in this process" {
				if p, o.Process = client(t, "reader"); o.Process.Confine == nil {
					t.Skip("no process is confined on this system")
				}
			}
			err := plugintest.Test(t.Context(), p, o)
			found := plugintest.Findings(err)
			for _, f := range found {
				if f.Rule != plugintest.RuleFetchHostile {
					t.Errorf("a finding about something else: %v", f)
				}
			}
			// With all files or that one in a folder, for each of two releases.
			if len(found) != 4 {
				t.Errorf("%d findings: %v", len(found), err)
			}
		})
	}
}

// held keeps what was allocated from being optimised away.
var held atomic.Pointer[[]byte]

// TestNeighbours lets others in the process take memory during calls of a plugin that takes little.
func TestNeighbours(t *testing.T) {
	o := soundOptions(t)
	o.Part = fetches
	var calls atomic.Int64
	err := plugintest.Test(t.Context(), wrong{fetch: func(ctx context.Context, req zoo.FetchRequest) (zoo.FetchPlan, error) {
		info, err := os.Stat(filepath.Join(req.Dir, zoo.ConfigFile))
		if err == nil && info.Size() >= 256<<20 && calls.Add(1)%3 != 0 {
			others := make([]byte, 300<<20)
			held.Store(&others)
			held.Store(nil)
		}
		return sound{}.Fetch(ctx, req)
	}}, o)
	if err != nil || calls.Load() == 0 {
		t.Errorf("after %d calls: %v", calls.Load(), err)
	}
}
