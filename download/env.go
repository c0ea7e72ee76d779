package download

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/zoo-sdk/zoo/internal/fault"
)

// DefaultEndpoint is the hub that is asked unless HF_ENDPOINT names another.
const DefaultEndpoint = "https://huggingface.co"

// maxTokenBytes bounds a token and the file that it is read from.
const maxTokenBytes = 4096

// Token is a hub's access token. It prints as "[redacted]" in every form of
// formatting and logging; only a conversion to string shows it.
type Token string

// redacted stands in for a token.
const redacted = "[redacted]"

// String hides the token.
func (t Token) String() string {
	if t == "" {
		return ""
	}
	return redacted
}

// GoString hides the token from %#v.
func (t Token) GoString() string { return fmt.Sprintf("%q", t.String()) }

// LogValue hides the token from package log/slog.
func (t Token) LogValue() slog.Value { return slog.StringValue(t.String()) }

// MarshalText hides the token from encoders.
func (t Token) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// Environment is what decides which origins there are.
type Environment struct {
	// Getenv looks up a variable; nil takes os.Getenv.
	Getenv func(name string) string
	// Offline leaves the hub out.
	Offline bool
	// Dirs are checkpoint folders that the user points at; they come first.
	Dirs []string
	// Client makes the hub's requests; nil takes a fresh one that honours the proxy
	// variables.
	Client *http.Client
	// UserAgent is sent to the hub; "" sends "zoo".
	UserAgent string
}

// StandardOrigins returns the usual origins in their order: the user's folders, the
// embedded files, the cache of the hub's own tools, and, unless offline, the hub.
// HF_HUB_OFFLINE set to 1, true, yes or on is offline too. Its error is fault.ErrUsage, for an HF_ENDPOINT that
// is no http address.
func StandardOrigins(env Environment) ([]Origin, error) {
	getenv := env.Getenv
	if getenv == nil {
		getenv = os.Getenv
	}
	var origins []Origin
	for _, d := range env.Dirs {
		origins = append(origins, Dir(d))
	}
	origins = append(origins, Embedded())
	if dir, err := HubCacheDir(getenv); err == nil {
		origins = append(origins, HubCache(dir))
	}
	if env.Offline || isTrue(getenv("HF_HUB_OFFLINE")) {
		return origins, nil
	}
	hub := &Hub{Endpoint: getenv("HF_ENDPOINT"), Token: TokenFromEnvironment(getenv), Client: env.Client, UserAgent: env.UserAgent}
	if _, err := hub.endpoint(); err != nil {
		return nil, err
	}
	return append(origins, hub), nil
}

// HubCacheDir returns where the hub's own tools keep their cache: HF_HUB_CACHE, the
// older HUGGINGFACE_HUB_CACHE, HF_HOME/hub, XDG_CACHE_HOME/huggingface/hub, or
// ~/.cache/huggingface/hub. The folder need not exist. The error is fault.ErrNotFound
// when there is no home folder either.
func HubCacheDir(getenv func(name string) string) (string, error) {
	for _, name := range []string{"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"} {
		if dir := getenv(name); dir != "" {
			return expandHome(dir, getenv), nil
		}
	}
	home, err := hubHome(getenv)
	if err != nil {
		return "", err
	}
	return filepath.Join(home, "hub"), nil
}

// TokenFromEnvironment returns the token that the hub's own tools would use:
// HF_TOKEN, the older HUGGING_FACE_HUB_TOKEN, or the content of the file HF_TOKEN_PATH
// (HF_HOME/token when unset), where their login leaves it; or "". It is read, never
// written. HF_HUB_DISABLE_IMPLICIT_TOKEN leaves the file out.
func TokenFromEnvironment(getenv func(name string) string) Token {
	for _, name := range []string{"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"} {
		if t := cleanToken(getenv(name)); t != "" {
			return t
		}
	}
	if isTrue(getenv("HF_HUB_DISABLE_IMPLICIT_TOKEN")) {
		return ""
	}
	path := expandHome(getenv("HF_TOKEN_PATH"), getenv)
	if path == "" {
		home, err := hubHome(getenv)
		if err != nil {
			return ""
		}
		path = filepath.Join(home, "token")
	}
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxTokenBytes))
	if err != nil {
		return ""
	}
	return cleanToken(string(data))
}

// cleanToken trims a token and drops one that cannot stand in a header.
func cleanToken(s string) Token {
	s = strings.TrimSpace(s)
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return ""
		}
	}
	return Token(s)
}

// hubHome returns the folder of the hub's own tools.
func hubHome(getenv func(string) string) (string, error) {
	if dir := getenv("HF_HOME"); dir != "" {
		return expandHome(dir, getenv), nil
	}
	if dir := getenv("XDG_CACHE_HOME"); dir != "" {
		return filepath.Join(expandHome(dir, getenv), "huggingface"), nil
	}
	home := homeDir(getenv)
	if home == "" {
		return "", fmt.Errorf("no home folder for the hub's cache: %w", fault.ErrNotFound)
	}
	return filepath.Join(home, ".cache", "huggingface"), nil
}

// homeDir returns the user's home folder, or "".
func homeDir(getenv func(string) string) string {
	if runtime.GOOS == "windows" {
		return getenv("USERPROFILE")
	}
	return getenv("HOME")
}

// expandHome replaces a leading "~".
func expandHome(path string, getenv func(string) string) string {
	if rest, ok := strings.CutPrefix(path, "~"); ok && (rest == "" || rest[0] == '/' || os.IsPathSeparator(rest[0])) {
		if home := homeDir(getenv); home != "" {
			return filepath.Join(home, rest)
		}
	}
	return path
}

// isTrue reads a switch as the hub's own tools do.
func isTrue(s string) bool {
	switch strings.ToUpper(s) {
	case "1", "ON", "YES", "TRUE":
		return true
	}
	return false
}

// parseEndpoint checks the address of a hub.
func parseEndpoint(endpoint string) (*url.URL, error) {
	u, err := url.Parse(strings.TrimRight(endpoint, "/"))
	switch {
	case err != nil:
		// The parser's error would repeat the text, which may hold a password.
		err = errors.New("it cannot be parsed")
	case u.Scheme != "http" && u.Scheme != "https":
		err = errors.New("it does not start with https:// or http://")
	case u.Host == "":
		err = errors.New("it has no host")
	case u.User != nil:
		err = errors.New("it holds a user name")
	case u.RawQuery != "" || u.Fragment != "":
		err = errors.New("it has a query or a fragment")
	default:
		return u, nil
	}
	return nil, fault.WithHint(fmt.Errorf("hub endpoint: %w: %w", err, fault.ErrUsage), "set HF_ENDPOINT to an address such as "+DefaultEndpoint+", or unset it")
}
