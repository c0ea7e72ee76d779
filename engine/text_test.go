package engine_test

import (
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/zoo-sdk/zoo/engine"
	"github.com/zoo-sdk/zoo/internal/fault"
)

// pieces is a decoder whose token i is the i-th piece; the last piece is what Flush returns.
type pieces []string

func (p pieces) Push(id int32) string { return p[id] }
func (p pieces) Flush() string        { return p[len(p)-1] }

// stream runs pieces through a text stream and returns what every call gave.
func stream(t testing.TB, p pieces, stops []string) (out []string, stopped bool) {
	t.Helper()
	s, err := engine.NewTextStream(p, stops)
	if err != nil {
		t.Fatal(err)
	}
	for i := range len(p) - 1 {
		out = append(out, s.Push(int32(i)))
	}
	out = append(out, s.Flush())
	return out, s.Stopped()
}

func TestTextStream(t *testing.T) {
	for _, tc := range []struct {
		name    string
		pieces  pieces
		stops   []string
		want    []string
		stopped bool
	}{
		{"no stop strings", pieces{"a", "", "b", ""}, nil, []string{"a", "", "b", ""}, false},
		{"rest of the decoder", pieces{"a", "\ufffd"}, nil, []string{"a", "\ufffd"}, false},
		{"not found", pieces{"abc", "def", ""}, []string{"x"}, []string{"abc", "def", ""}, false},
		{"inside a piece", pieces{"ab#cd", "ef", ""}, []string{"#"}, []string{"ab", "", ""}, true},
		{"whole piece", pieces{"ab", "#", "ef", ""}, []string{"#"}, []string{"ab", "", "", ""}, true},
		{"across pieces", pieces{"one#", "#", "#two", ""}, []string{"###"}, []string{"one", "", "", ""}, true},
		{"held back and given", pieces{"a#", "#", "b", ""}, []string{"###"}, []string{"a", "", "##b", ""}, false},
		{"held back at the end", pieces{"a#", "#", ""}, []string{"###"}, []string{"a", "", "##"}, false},
		{"completed by the decoder's rest", pieces{"a#", "#", "#"}, []string{"###"}, []string{"a", "", ""}, true},
		{"overlaps itself", pieces{"aab", "aab", "aac", ""}, []string{"aabaac"}, []string{"", "aab", "", ""}, true},
		{"first by its end", pieces{"abcd", ""}, []string{"abcd", "bc"}, []string{"a", ""}, true},
		{"longest of equal ends", pieces{"xabc", ""}, []string{"c", "abc", "bc"}, []string{"x", ""}, true},
		{"longest holds", pieces{"a", "b", "x", ""}, []string{"bc", "abc"}, []string{"", "", "abx", ""}, false},
		{"whole characters", pieces{"日", "本", "語", ""}, []string{"本語"}, []string{"日", "", "", ""}, true},
		{"characters that share bytes", pieces{"è", "é", ""}, []string{"é!"}, []string{"è", "", "é"}, false},
		{"at the beginning", pieces{"#a", ""}, []string{"#"}, []string{"", ""}, true},
		{"the same twice", pieces{"a#", ""}, []string{"#", "#"}, []string{"a", ""}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, stopped := stream(t, tc.pieces, tc.stops)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if stopped != tc.stopped {
				t.Errorf("stopped %t, want %t", stopped, tc.stopped)
			}
		})
	}
}

func TestTextStreamRefusesStops(t *testing.T) {
	for _, stops := range [][]string{{""}, {"ok", ""}, {"\xff"}, {"a\xe6\x97"}} {
		if _, err := engine.NewTextStream(pieces{""}, stops); !errors.Is(err, fault.ErrUsage) {
			t.Errorf("stops %q: error %v, want a usage error", stops, err)
		}
	}
}

// cut returns text up to the stop string that is complete first, and whether there is one.
func cut(text string, stops []string) (string, bool) {
	for end := range len(text) + 1 {
		longest := 0
		for _, s := range stops {
			if strings.HasSuffix(text[:end], s) {
				longest = max(longest, len(s))
			}
		}
		if longest > 0 {
			return text[:end-longest], true
		}
	}
	return text, false
}

func FuzzTextStream(f *testing.F) {
	f.Add("one two three", "two", "e t", uint64(0x5a5a))
	f.Add("aaaaaaaab", "aaab", "ab", uint64(0xffff))
	f.Add("日本語テキスト", "語テ", "キ", uint64(0x124))
	f.Add("", "x", "y", uint64(0))
	f.Fuzz(func(t *testing.T, text, stop1, stop2 string, borders uint64) {
		text = strings.ToValidUTF8(text, "\ufffd")
		stops := []string{stop1, stop2}
		for _, s := range stops {
			if s == "" || !utf8.ValidString(s) {
				t.Skip()
			}
		}
		p := pieces{""} // a border before a character where the bit of its number is set
		n := 0
		for _, r := range text {
			if borders>>(n%64)&1 == 1 {
				p = append(p, "")
			}
			p[len(p)-1] += string(r)
			n++
		}
		out, stopped := stream(t, p, stops)
		want, found := cut(text, stops)
		if got := strings.Join(out, ""); got != want || stopped != found {
			t.Errorf("pieces %q, stops %q: got %q and %t, want %q and %t", p, stops, got, stopped, want, found)
		}
		for _, piece := range out {
			if !utf8.ValidString(piece) {
				t.Errorf("pieces %q, stops %q: %q is half a character", p, stops, piece)
			}
		}
	})
}

// TestTextStreamIsLinear holds back almost everything, for the longest time.
func TestTextStreamIsLinear(t *testing.T) {
	const n = 1 << 20
	p := make(pieces, n+1)
	for i := range n {
		p[i] = "a"
	}
	stops := []string{strings.Repeat("a", n/2) + "b"}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	// To go through what is held back for each piece takes longer than this each time; a
	// machine that stands still for a while makes it slow once.
	const limit = 5 * time.Second
	tries, took := 0, limit+1
	for ; tries < 3 && took > limit; tries++ {
		begin := time.Now()
		out, stopped := stream(t, p, stops)
		took = time.Since(begin)
		if stopped || len(strings.Join(out, "")) != n {
			t.Errorf("stopped %t with %d bytes, want all %d", stopped, len(strings.Join(out, "")), n)
		}
	}
	runtime.ReadMemStats(&after)
	if took > limit {
		t.Errorf("took %v for %d pieces, and more than %v each time", took, n, limit)
	}
	// A copy of what is held back for each piece would be 2^38 bytes.
	if got := after.TotalAlloc - before.TotalAlloc; got > uint64(tries)*256*n {
		t.Errorf("%d bytes are allocated for %d pieces", got, n)
	}
}
