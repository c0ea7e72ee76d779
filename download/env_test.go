package download_test

import (
	"errors"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/zoo-sdk/zoo/download"
	"github.com/zoo-sdk/zoo/internal/fault"
)

// environment looks variables up in a map.
func environment(vars map[string]string) func(string) string {
	return func(name string) string { return vars[name] }
}

// home is the variable that names the home folder.
func home() string {
	if runtime.GOOS == "windows" {
		return "USERPROFILE"
	}
	return "HOME"
}

func TestHubCacheDir(t *testing.T) {
	h := home()
	tests := []struct {
		vars map[string]string
		want string
	}{
		{map[string]string{h: "/u"}, "/u/.cache/huggingface/hub"},
		{map[string]string{h: "/u", "XDG_CACHE_HOME": "/x"}, "/x/huggingface/hub"},
		{map[string]string{h: "/u", "XDG_CACHE_HOME": "/x", "HF_HOME": "/hf"}, "/hf/hub"},
		{map[string]string{h: "/u", "HF_HOME": "~/hf"}, "/u/hf/hub"},
		{map[string]string{h: "/u", "HF_HOME": "~other/hf"}, "~other/hf/hub"},
		{map[string]string{h: "/u", "HF_HOME": "/hf", "HUGGINGFACE_HUB_CACHE": "/old"}, "/old"},
		{map[string]string{h: "/u", "HF_HUB_CACHE": "/new", "HUGGINGFACE_HUB_CACHE": "/old"}, "/new"},
		{map[string]string{}, ""},
	}
	for _, test := range tests {
		got, err := download.HubCacheDir(environment(test.vars))
		if filepath.ToSlash(got) != test.want || (err == nil) != (test.want != "") || err != nil && !errors.Is(err, fault.ErrNotFound) {
			t.Errorf("%v: %q, %v, want %q", test.vars, got, err, test.want)
		}
	}
}

func TestTokenFromEnvironment(t *testing.T) {
	dir := t.TempDir()
	writeFiles(t, dir, map[string][]byte{"hf/token": []byte("from-home\n"), "other": []byte(" from-path \n"), "bad": []byte("a\nb")})
	hf, other := filepath.Join(dir, "hf"), filepath.Join(dir, "other")
	tests := []struct {
		vars map[string]string
		want download.Token
	}{
		{map[string]string{}, ""},
		{map[string]string{"HF_TOKEN": " a\r\n"}, "a"},
		{map[string]string{"HF_TOKEN": "a", "HUGGING_FACE_HUB_TOKEN": "b", "HF_HOME": hf}, "a"},
		{map[string]string{"HUGGING_FACE_HUB_TOKEN": "b", "HF_HOME": hf}, "b"},
		{map[string]string{"HF_HOME": hf}, "from-home"},
		{map[string]string{"HF_HOME": hf, "HF_TOKEN_PATH": other}, "from-path"},
		{map[string]string{"HF_HOME": hf, "HF_HUB_DISABLE_IMPLICIT_TOKEN": "1"}, ""},
		{map[string]string{"HF_TOKEN": "a", "HF_HUB_DISABLE_IMPLICIT_TOKEN": "1"}, "a"},
		{map[string]string{"HF_TOKEN_PATH": filepath.Join(dir, "none")}, ""},
		{map[string]string{"HF_TOKEN_PATH": filepath.Join(dir, "bad")}, ""},
		{map[string]string{"HF_TOKEN_PATH": dir}, ""},
		// What could break out of a header is no token.
		{map[string]string{"HF_TOKEN": "a\r\nX-Evil: 1"}, ""},
	}
	for _, test := range tests {
		if got := download.TokenFromEnvironment(environment(test.vars)); got != test.want {
			t.Errorf("%v: %q, want %q", test.vars, string(got), string(test.want))
		}
	}
}

func TestStandardOrigins(t *testing.T) {
	vars := map[string]string{home(): "/u", "HF_HUB_CACHE": "/cache", "HF_TOKEN": "a"}
	with := func(name, value string) map[string]string {
		m := map[string]string{name: value}
		for k, v := range vars {
			if _, ok := m[k]; !ok {
				m[k] = v
			}
		}
		return m
	}
	local := []string{"folder /one", "folder /two", "embedded files", "hub cache /cache"}
	tests := []struct {
		name string
		env  download.Environment
		want []string
	}{
		{"usual", download.Environment{Getenv: environment(vars)}, append(local[2:4:4], "hub https://huggingface.co")},
		{"folders", download.Environment{Getenv: environment(vars), Dirs: []string{"/one", "/two"}}, append(local[:4:4], "hub https://huggingface.co")},
		{"offline", download.Environment{Getenv: environment(vars), Offline: true}, local[2:]},
		{"offline by variable", download.Environment{Getenv: environment(with("HF_HUB_OFFLINE", "true"))}, local[2:]},
		{"endpoint", download.Environment{Getenv: environment(with("HF_ENDPOINT", "http://localhost:8080/hf/"))}, append(local[2:4:4], "hub http://localhost:8080/hf")},
		{"bad endpoint, offline", download.Environment{Getenv: environment(with("HF_ENDPOINT", "x")), Offline: true}, local[2:]},
		{"no home", download.Environment{Getenv: environment(nil)}, []string{"embedded files", "hub https://huggingface.co"}},
	}
	for _, test := range tests {
		origins, err := download.StandardOrigins(test.env)
		if err != nil {
			t.Errorf("%s: %v", test.name, err)
		}
		var got []string
		for i, o := range origins {
			got = append(got, o.Name())
			if o.Network() != (i == len(origins)-1 && strings.HasPrefix(o.Name(), "hub http")) {
				t.Errorf("%s: Network of %q = %v", test.name, o.Name(), o.Network())
			}
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
	}
	for _, bad := range []string{"huggingface.co", "ftp://x", "https://", "https://user:password@x", "https://x?token=password", "https://x/#password", "https://x\x7fpassword"} {
		_, err := download.StandardOrigins(download.Environment{Getenv: environment(with("HF_ENDPOINT", bad))})
		if !errors.Is(err, fault.ErrUsage) || !strings.Contains(fault.Hint(err), "HF_ENDPOINT") || strings.Contains(err.Error(), "password") {
			t.Errorf("endpoint %q: %v", bad, err)
		}
		_, _, err = (&download.Hub{Endpoint: bad}).Open(t.Context(), hubSource("main"), pin("a", nil), download.Position{})
		if !errors.Is(err, fault.ErrUsage) {
			t.Errorf("hub at %q: %v", bad, err)
		}
	}
	if _, err := download.StandardOrigins(download.Environment{Offline: true}); err != nil {
		t.Errorf("the process's own environment: %v", err)
	}
}
