package download

import (
	"net/url"
	"strings"
	"testing"
	"time"
)

func TestSameOrigin(t *testing.T) {
	tests := []struct {
		a, b string
		want bool
	}{
		{"https://hub.example/a", "https://HUB.example/b?c", true},
		{"https://hub.example", "https://hub.example:443", true},
		{"http://hub.example:80", "http://hub.example", true},
		{"https://hub.example", "http://hub.example", false},
		{"https://hub.example:8443", "http://hub.example:8443", false},
		{"https://hub.example", "https://hub.example:444", false},
		{"https://hub.example", "https://cdn.hub.example", false},
		{"https://hub.example", "https://hub.example.evil", false},
		{"https://hub.example", "https://hub.example@evil", false},
		{"http://[::1]:80", "http://[::1]", true},
	}
	for _, test := range tests {
		a, err := url.Parse(test.a)
		if err != nil {
			t.Fatal(err)
		}
		b, err := url.Parse(test.b)
		if err != nil {
			t.Fatal(err)
		}
		if got := sameOrigin(a, b); got != test.want || sameOrigin(b, a) != test.want {
			t.Errorf("sameOrigin(%s, %s) = %v", test.a, test.b, got)
		}
	}
}

func TestParseContentRange(t *testing.T) {
	tests := []struct {
		text       string
		from, size int64
		ok         bool
	}{
		{"bytes 0-9/10", 0, 10, true},
		{"bytes 5-9/10", 5, 10, true},
		{"bytes 5-8/*", 5, -1, true},
		{"", 0, 0, false},
		{"bytes", 0, 0, false},
		{"bytes */10", 0, 0, false},
		{"items 5-9/10", 0, 0, false},
		{"bytes 9-5/10", 0, 0, false},
		{"bytes 5-10/10", 0, 0, false},
		{"bytes -5-9/10", 0, 0, false},
		{"bytes 5-9/x", 0, 0, false},
		{"bytes 5-9", 0, 0, false},
		{"bytes 99999999999999999999-1/2", 0, 0, false},
	}
	for _, test := range tests {
		if from, size, ok := parseContentRange(test.text); from != test.from || size != test.size || ok != test.ok {
			t.Errorf("parseContentRange(%q) = %d, %d, %v", test.text, from, size, ok)
		}
	}
}

func TestParseETag(t *testing.T) {
	sha, git := strings.Repeat("0a", 32), strings.Repeat("0b", 20)
	tests := []struct{ text, sha, git string }{
		{`"` + sha + `"`, sha, ""},
		{`W/"` + git + `"`, "", git},
		{git, "", git},
		{`"` + sha + `-5"`, "", ""},
		{strings.ToUpper(sha), "", ""},
		{"", "", ""},
		{`"`, "", ""},
	}
	for _, test := range tests {
		if s, g := parseETag(test.text); s != test.sha || g != test.git {
			t.Errorf("parseETag(%q) = %q, %q", test.text, s, g)
		}
	}
}

func TestTags(t *testing.T) {
	tests := []struct{ linked, etag, tag string }{
		{`"l"`, `"e"`, `"l" "e"`},
		{`"l"`, "", `"l" `},
		{"", `"e"`, ` "e"`},
		{"", `W/"e"`, ""}, // a weak one resumes nothing
		{"", `""`, ""},
		{"", "", ""},
		{`"a b"`, `"e"`, ""},
		{"", `"a b"`, ""},
	}
	for _, test := range tests {
		tag := joinTag(test.linked, test.etag)
		if tag != test.tag {
			t.Errorf("joinTag(%q, %q) = %q, want %q", test.linked, test.etag, tag, test.tag)
		}
		if l, e := splitTag(tag); tag != "" && (l != test.linked || e != test.etag) {
			t.Errorf("splitTag(%q) = %q, %q", tag, l, e)
		}
	}
}

func TestParseRetryAfter(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	tests := []struct {
		text string
		want time.Duration
	}{
		{"0", 0},
		{"7", 7 * time.Second},
		{"-7", 0},
		{"1.5", 0},
		{"", 0},
		{"soon", 0},
		{"Fri, 02 Jan 2026 03:05:05 GMT", time.Minute},
		{"Fri, 02 Jan 2026 03:03:05 GMT", 0},
		{"99999999999999999999", 0},
	}
	for _, test := range tests {
		if got := parseRetryAfter(test.text, now); got != test.want {
			t.Errorf("parseRetryAfter(%q) = %s, want %s", test.text, got, test.want)
		}
	}
}

func TestOneLine(t *testing.T) {
	tests := []struct{ text, want string }{
		{"  plain  \nmore", "plain"},
		{"\x1b[31mred\x07\u202e", "[31mred"},
		{"ümlaut", "ümlaut"},
		{strings.Repeat("é", 1000), strings.Repeat("é", 150) + "…"},
		{"x" + strings.Repeat("é", 1000), "x" + strings.Repeat("é", 149) + "…"},
		{"", ""},
	}
	for _, test := range tests {
		if got := oneLine(test.text); got != test.want {
			t.Errorf("oneLine(%.20q) = %q", test.text, got)
		}
	}
}
