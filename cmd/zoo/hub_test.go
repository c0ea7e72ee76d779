package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"time"
)

// hubKey finds the hub of a script.
type hubKey struct{}

// hubCommit is the commit that the hub's branch main stands for.
const hubCommit = "0123456789abcdef0123456789abcdef01234567"

// hubCatalog lists the demo as the hub has it, by a branch and with the digest of
// the weights alone.
const hubCatalog = `schema: 1
models:
  - name: hubby
    title: The demo from a hub
    aliases: [hub-demo]
    releases:
      - version: 1.2.0
        plugin: {name: gemma4e2b, constraint: ^1}
        licence: {spdx: Apache-2.0, url: "https://example.org/licence"}
        source:
          kind: hub
          repository: hub/demo
          revision: main
          files:
            - path: config.json
            - path: generation_config.json
            - path: tokenizer.json
            - path: tokenizer_config.json
            - path: chat_template.jinja
            - path: model.safetensors
              size: 2655188
              sha256: c71faeefa4df3e48f0c658edc1dbbde009e11a0b74a21d42905583452d6f827f
`

// shardedRepository is the repository of a model in the built-in catalog, as which the
// hub serves a small checkpoint of the same layout, in shards.
const shardedRepository = "google/gemma-4-E4B-it-qat-q4_0-unquantized"

// fakeHub serves the demo's files, and those of [shardedRepository], as a hub does. Its modes are
//
//	ok       everything is served
//	token    401 without a token, 403 with one
//	missing  404
//	down     504 with a pause that is too long to wait for
//	flaky    504 once for each file
//	half     half of the weights, or of a plugin, and then nothing more
//	other    other bytes than before under another commit
type fakeHub struct {
	server *httptest.Server
	// files has the files of each repository.
	files map[string]fs.FS

	mu     sync.Mutex
	mode   string
	log    strings.Builder
	failed map[string]bool
}

// start begins to serve the files of repositories.
func (h *fakeHub) start(files map[string]fs.FS) {
	h.files, h.failed = files, map[string]bool{}
	h.server = httptest.NewServer(h)
}

// setMode changes the mode.
func (h *fakeHub) setMode(mode string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mode = mode
}

// requests returns what was asked for, a line each.
func (h *fakeHub) requests() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.log.String()
}

// ServeHTTP implements http.Handler.
func (h *fakeHub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	mode := h.mode
	fmt.Fprintf(&h.log, "%s %s range %q token %q\n", r.Method, r.URL.Path, r.Header.Get("Range"), r.Header.Get("Authorization"))
	first := !h.failed[r.URL.Path]
	h.failed[r.URL.Path] = true
	h.mu.Unlock()

	repository, rest, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/resolve/")
	files, ok := h.files[repository]
	revision, path, _ := strings.Cut(rest, "/")
	switch {
	case !ok || mode == "missing":
		http.Error(w, "no such repository", http.StatusNotFound)
		return
	case mode == "token" && r.Header.Get("Authorization") == "":
		http.Error(w, "access to "+repository+" is restricted", http.StatusUnauthorized)
		return
	case mode == "token":
		http.Error(w, "you have not accepted the licence", http.StatusForbidden)
		return
	case mode == "down":
		w.Header().Set("Retry-After", "86400")
		http.Error(w, "gateway timeout", http.StatusGatewayTimeout)
		return
	case mode == "flaky" && first:
		http.Error(w, "gateway timeout", http.StatusGatewayTimeout)
		return
	}
	data, err := fs.ReadFile(files, path)
	if err != nil {
		http.Error(w, "no such file", http.StatusNotFound)
		return
	}
	commit := hubCommit
	if mode == "other" {
		commit = strings.Repeat("f", 40)
		if path == "chat_template.jinja" {
			data = append(data, ' ')
		}
	}
	if revision != "main" && revision != commit {
		http.Error(w, "no such revision", http.StatusNotFound)
		return
	}
	w.Header().Set("X-Repo-Commit", commit)
	w.Header().Set("ETag", fmt.Sprintf(`"%x"`, sha256.Sum256(data)))
	if mode == "half" && (path == "model.safetensors" || repository == pluginRepository) {
		w.Header().Set("Content-Length", fmt.Sprint(len(data)))
		_, _ = w.Write(data[:len(data)/2])
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		return
	}
	http.ServeContent(w, r, path, time.Time{}, bytes.NewReader(data))
}
