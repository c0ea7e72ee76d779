package main

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"

	"github.com/rogpeppe/go-internal/testscript"
)

// pluginRepository is the repository in which the hub has the plugins of tests.
const pluginRepository = "makers/tinyfam"

// pluginVersions are the versions of the plugin of tests, and what the linker sets for
// them: one breaks the contract, one is another program as version 1.0.0, and one calls
// itself a newer version of a plugin that is built in.
var pluginVersions = []struct{ version, flags string }{
	{"1.0.0", ""}, {"1.1.0", ""}, {"1.2.0-untitled", " -X main.title="},
	{"1.0.0-other", " -X main.version=1.0.0 -X main.title=Another"}, {"1.9.0", " -X main.name=gemma4e2b"},
}

// pluginsDir is the folder that builtPlugins has made, or "".
var pluginsDir string

// builtPlugins builds the plugin of tests in all its versions, and returns the folder
// of the programs.
var builtPlugins = sync.OnceValues(func() (dir string, err error) {
	if dir, err = os.MkdirTemp("", "zoo-cmd-plugins-"); err != nil {
		return "", err
	}
	pluginsDir = dir
	for _, v := range pluginVersions {
		cmd := exec.Command("go", "build", "-ldflags", "-s -w -X main.version="+v.version+v.flags, "-o", filepath.Join(dir, pluginProgram(v.version)), "../../sdk/testdata/plugin")
		if out, err := cmd.CombinedOutput(); err != nil {
			return dir, fmt.Errorf("build the plugin of tests: %w\n%s", err, out)
		}
	}
	return dir, nil
})

// pluginProgram names the program of a version.
func pluginProgram(version string) string {
	name := "tinyfam-" + version
	if runtime.GOOS == "windows" {
		name += ".exe"
	}
	return name
}

// pluginCatalog lists a model of the plugin of tests, whose version 1.0.0 is there for
// this machine, and 1.2.0 for another. The digest is that of 1.0.0.
const pluginCatalog = `schema: 1
models:
  - name: tiny
    title: The demo as a model of another family
    releases:
      - version: 1.0.0
        plugin: {name: tinyfam, constraint: ^1}
        licence: {spdx: MIT, url: "https://example.org/licence"}
        source:
          kind: embedded
          repository: demo
          files:
            - path: config.json
            - path: generation_config.json
            - path: tokenizer.json
            - path: tokenizer_config.json
            - path: chat_template.jinja
            - path: model.safetensors
plugins:
  - name: tinyfam
    title: A family of tests
    licence: {spdx: Apache-2.0, url: "https://example.org/licence"}
    versions:
      - version: 1.0.0
        protocol: 1
        operations: 1
        binaries:
          - os: OS
            arch: ARCH
            source: {kind: hub, repository: makers/tinyfam, revision: main, files: [{path: PATH, size: SIZE, sha256: SHA256}]}
      - version: 1.2.0
        protocol: 1
        operations: 1
        binaries:
          - os: plan9
            arch: mips
            source: {kind: hub, repository: makers/tinyfam, revision: main, files: [{path: PATH, size: SIZE, sha256: SHA256}]}
`

// pluginsCommand copies the programs of the plugin of tests into the script's folder,
// and writes family.yaml, which is [pluginCatalog], and wrong.yaml, which has another digest.
func pluginsCommand(ts *testscript.TestScript, neg bool, args []string) {
	dir, err := builtPlugins()
	ts.Check(err)
	ts.Check(os.CopyFS(ts.MkAbs("."), os.DirFS(dir)))
	name := pluginProgram(pluginVersions[0].version)
	data, err := os.ReadFile(filepath.Join(dir, name))
	ts.Check(err)
	for file, sum := range map[string]string{"family.yaml": fmt.Sprintf("%x", sha256.Sum256(data)), "wrong.yaml": strings.Repeat("a", 64)} {
		text := strings.NewReplacer("OS", runtime.GOOS, "ARCH", runtime.GOARCH, "PATH", name, "SIZE", fmt.Sprint(len(data)), "SHA256", sum).Replace(pluginCatalog)
		ts.Check(os.WriteFile(ts.MkAbs(file), []byte(text), 0o600))
	}
}

// plugins is what the hub has in pluginRepository, which is built when it is asked for.
type plugins struct{}

// Open implements fs.FS.
func (plugins) Open(name string) (fs.File, error) {
	dir, err := builtPlugins()
	if err != nil {
		return nil, errors.Join(fs.ErrNotExist, err)
	}
	return os.DirFS(dir).Open(name)
}

// guideRepository is the repository to which the page on plugins would have its reader
// bring a program: the hub has what lies in the folder acme.
const guideRepository = "you/acme"

// guideCommand runs all blocks of a page of documentation that are marked as sh, as one
// script in the folder of the test. The page finds the source of zoo in ZOO_SOURCE; the
// compiler takes modules from its cache.
func guideCommand(ts *testscript.TestScript, neg bool, args []string) {
	page, err := os.ReadFile(filepath.FromSlash(args[0]))
	ts.Check(err)
	var script strings.Builder
	for block := range strings.SplitSeq(string(page), "\n```sh\n") {
		if commands, _, ok := strings.Cut(block, "\n```\n"); ok && script.Len() > 0 {
			script.WriteString(commands + "\n")
		}
		if script.Len() == 0 {
			script.WriteString("set -e\n")
		}
	}
	source, err := filepath.Abs(filepath.Join("..", ".."))
	ts.Check(err)
	ts.Setenv("ZOO_SOURCE", source)
	for _, name := range []string{"GOCACHE", "GOMODCACHE", "GOPROXY"} {
		value, err := exec.Command("go", "env", name).Output()
		ts.Check(err)
		ts.Setenv(name, strings.TrimSpace(string(value)))
	}
	ts.Check(os.WriteFile(ts.MkAbs("guide.sh"), []byte(script.String()), 0o600))
	ts.Check(ts.Exec("sh", "guide.sh"))
}
