package download_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/download"
	"github.com/zoo-sdk/zoo/internal/fault"
)

const secret = "hf_abcdefghijklmnopqrstuvwxyz"

// seen collects the Authorization headers that a server gets.
type seen struct {
	mu      sync.Mutex
	headers []string
}

func (s *seen) note(r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.headers = append(s.headers, r.Header.Get("Authorization"))
}

// TestTokenStaysHome redirects from a hub to another host, and back, over real
// connections: only the hub may see the token.
func TestTokenStaysHome(t *testing.T) {
	data := content(1, 300_000)
	var atHub, atCDN seen
	var hubServer *httptest.Server
	cdn := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		atCDN.note(r)
		if r.Header.Get("Cookie") != "" || r.Header.Get("Referer") != "" {
			t.Errorf("the other host gets %v", r.Header)
		}
		switch r.URL.Path {
		case "/file":
			serveBytes(w, r, data, `"x"`)
		case "/back":
			http.Redirect(w, r, hubServer.URL+"/direct", http.StatusTemporaryRedirect)
		default:
			http.Error(w, "denied to "+r.Header.Get("Authorization"), http.StatusForbidden)
		}
	}))
	defer cdn.Close()
	hubServer = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		atHub.note(r)
		http.SetCookie(w, &http.Cookie{Name: "session", Value: "x", Path: "/"})
		switch r.URL.Path {
		case "/owner/name/resolve/main/direct", "/direct":
			serveBytes(w, r, data, `"x"`)
		case "/owner/name/resolve/main/renamed":
			http.Redirect(w, r, "/owner/name/resolve/main/direct", http.StatusMovedPermanently)
		default:
			w.Header().Set("X-Linked-Size", strconv.Itoa(len(data)))
			w.Header().Set("X-Linked-Etag", strconv.Quote(sha256Hex(data)))
			target := strings.TrimPrefix(r.URL.Path, "/owner/name/resolve/main/")
			http.Redirect(w, r, cdn.URL+"/"+target+"?X-Signature=secret-signature", http.StatusFound)
		}
	}))
	defer hubServer.Close()
	tests := []struct {
		path         string
		atHub, atCDN int
		want         error
	}{
		{"direct", 1, 0, nil},
		{"renamed", 2, 0, nil},
		{"file", 1, 1, nil},
		{"back", 2, 1, nil},
		{"denied", 1, 1, fault.ErrNotPermitted},
	}
	for _, token := range []download.Token{secret, ""} {
		for _, test := range tests {
			t.Run(fmt.Sprintf("%s, token %v", test.path, token != ""), func(t *testing.T) {
				atHub.headers, atCDN.headers = nil, nil
				var log bytes.Buffer
				jar, err := cookiejar.New(nil)
				if err != nil {
					t.Fatal(err)
				}
				origin := &download.Hub{Endpoint: hubServer.URL, Token: token, Client: &http.Client{Jar: jar}}
				logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
				logger.Debug("origin", "origin", origin, "token", origin.Token, "value", *origin)
				_, err = download.Fetch(t.Context(), download.Request{
					Source: hubSource("main", catalog.File{Path: test.path}), Origins: []download.Origin{origin}, Dir: t.TempDir(), Logger: logger,
				})
				if !errors.Is(err, test.want) || (err == nil) != (test.want == nil) {
					t.Errorf("error %v, want %v", err, test.want)
				}
				if len(atHub.headers) != test.atHub || len(atCDN.headers) != test.atCDN {
					t.Errorf("%d requests at the hub, %d at the other host, want %d and %d", len(atHub.headers), len(atCDN.headers), test.atHub, test.atCDN)
				}
				want := ""
				if token != "" {
					want = "Bearer " + secret
				}
				for _, h := range atHub.headers {
					if h != want {
						t.Errorf("the hub gets %q, want %q", h, want)
					}
				}
				for _, h := range atCDN.headers {
					if h != "" {
						t.Errorf("the other host gets %q", h)
					}
				}
				text := log.String() + fmt.Sprint(err) + fault.Hint(err)
				for _, leak := range []string{secret, "secret-signature"} {
					if strings.Contains(text, leak) {
						t.Errorf("%q is told: %s", leak, text)
					}
				}
			})
		}
	}
}

// TestUnreachable checks that an address that holds a secret is not told when the
// connection fails.
func TestUnreachable(t *testing.T) {
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	hubServer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, gone.URL+"/x?X-Signature=secret-signature", http.StatusFound)
	}))
	defer hubServer.Close()
	for _, endpoint := range []string{gone.URL, hubServer.URL} {
		var log bytes.Buffer
		_, err := download.Fetch(t.Context(), download.Request{
			Source: hubSource("main", catalog.File{Path: "a"}), Dir: t.TempDir(), MaxTries: 2,
			Origins: []download.Origin{&download.Hub{Endpoint: endpoint, Token: secret}},
			Logger:  slog.New(slog.NewTextHandler(&log, nil)),
		})
		checkFailure(t, err, &download.NetworkError{})
		if text := log.String() + fmt.Sprint(err); strings.Contains(text, "secret-signature") || strings.Contains(text, secret) {
			t.Errorf("a secret is told: %s", text)
		}
		if !strings.Contains(log.String(), "trying again") {
			t.Errorf("log %s", log.String())
		}
	}
}

// TestCertificate checks that a server with an unknown certificate is not tried again.
func TestCertificate(t *testing.T) {
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	server.StartTLS()
	defer server.Close()
	rec := &recorder{t: t}
	_, err := download.Fetch(t.Context(), download.Request{
		Source: hubSource("main", catalog.File{Path: "a"}), Dir: t.TempDir(), Progress: rec.add,
		Origins: []download.Origin{&download.Hub{Endpoint: server.URL}},
	})
	checkFailure(t, err, &download.NetworkError{})
	if len(rec.events) != 0 {
		t.Errorf("events %+v", rec.events)
	}
}

func TestTokenPrints(t *testing.T) {
	token := download.Token(secret)
	wrapped := struct {
		Token download.Token
		Hub   *download.Hub
	}{token, &download.Hub{Token: token}}
	encoded, err := json.Marshal(wrapped.Token)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{
		fmt.Sprint(token), fmt.Sprintf("%v %+v %#v %q %s", token, token, token, token, token),
		fmt.Sprintf("%v %+v %#v", wrapped, wrapped, wrapped), fmt.Sprintf("%+v", *wrapped.Hub), string(encoded),
	} {
		if strings.Contains(text, secret) || strings.Contains(text, secret[3:]) {
			t.Errorf("the token prints in %s", text)
		}
	}
	if s := download.Token("").String(); s != "" {
		t.Errorf("the empty token prints as %q", s)
	}
}
