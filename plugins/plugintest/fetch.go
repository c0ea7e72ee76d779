package plugintest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/checkpoint"
	"github.com/zoo-sdk/zoo/zoo"
)

const (
	// maxRounds is how often a plugin may find that it needs more files.
	maxRounds = 32
	// hugeBytes is the size of files that are not to be read as a whole.
	hugeBytes = 256 << 20
	// indexBytes is the most that an index is taken to have.
	indexBytes = 1 << 20
)

// release returns the catalog's entry of a checkpoint of these files.
func (s *suite) release(files []catalog.File) catalog.Release {
	return catalog.Release{
		Model: "conformance", Version: "1.0.0",
		Plugin:  catalog.PluginRef{Name: s.about.Name, Constraint: s.about.Version},
		Source:  catalog.Source{Kind: catalog.KindHub, Repository: "plugin/conformance", Revision: strings.Repeat("0", 40), Files: files},
		Recipe:  s.o.Recipe,
		Licence: catalog.Licence{SPDX: "Apache-2.0", URL: "https://www.apache.org/licenses/LICENSE-2.0"},
	}
}

// plan asks for the files of a release.
func (s *suite) plan(ctx context.Context, call string, release catalog.Release, dir string) ([]catalog.File, error) {
	plan, err := ask(ctx, s, call, func(ctx context.Context) (zoo.FetchPlan, error) {
		return s.callFetch(ctx, s.plugin, call, zoo.FetchRequest{Release: release, Dir: dir})
	})
	return plan.Files, err
}

// fetch plays the host that downloads what the plugin asks for.
func (s *suite) fetch(ctx context.Context) error {
	if len(s.sources) == 0 {
		return s.fetchHostile(ctx, []catalog.File{{Path: zoo.ConfigFile}})
	}
	const call = "Fetch, without a folder"
	files, err := s.plan(ctx, call, s.release(s.sources), "")
	if s.works(RuleFetch, call, err) {
		s.checkPlan(RuleFetch, call, files)
	}
	dir, around, err := s.folder()
	if err != nil {
		return err
	}
	if err := s.download(ctx, "Fetch", s.release(s.sources), dir, &s.planned); err != nil {
		return err
	}
	around("Fetch")
	// A release that lists little of what is there.
	smallest := slices.MinFunc(s.sources, func(a, b catalog.File) int { return int(a.SizeBytes - b.SizeBytes) })
	few, around, err := s.folder()
	if err != nil {
		return err
	}
	var wanted []catalog.File
	if err := s.download(ctx, "Fetch, a release that lists one file", s.release([]catalog.File{smallest}), few, &wanted); err != nil {
		return err
	}
	around("Fetch")
	return s.fetchHostile(ctx, append(wanted, s.planned...))
}

// checkPlan checks a list of files.
func (s *suite) checkPlan(rule Rule, call string, files []catalog.File) {
	if err := catalog.ValidateFiles(files); err != nil {
		s.find(rule, call, "the plan is not valid: %w", err)
	}
}

// download asks for files and copies those of the checkpoint until nothing is missing.
func (s *suite) download(ctx context.Context, call string, release catalog.Release, dir string, planned *[]catalog.File) error {
	listed := byPath(release.Source.Files)
	have := byPath(s.sources)
	asked := map[string]bool{}
	for range maxRounds {
		before, err := readTree(dir)
		if err != nil {
			return err
		}
		files, err := s.plan(ctx, call, release, dir)
		if err != nil { // a release may list too little
			if len(listed) == len(have) {
				s.works(RuleFetch, call, err)
			} else {
				s.judge(RuleFetch, call, err)
			}
			return nil
		}
		again, err := s.plan(ctx, call, release, dir)
		if s.works(RuleFetchSame, call, err) && !slices.Equal(files, again) {
			s.find(RuleFetchSame, call, "the plan was %v, and then %v", files, again)
		}
		s.checkPlan(RuleFetch, call, files)
		after, err := readTree(dir)
		if err != nil {
			return err
		}
		if diff := before.diff(after); diff != "" {
			s.find(RuleOutside, call, "its folder has changed: %s", diff)
		}
		*planned = files
		missing := false
		for _, f := range files {
			if pin, ok := listed[f.Path]; ok && pin != f {
				s.find(RuleFetchPins, call, "the release lists %+v, the plan has %+v", pin, f)
			}
			if asked[f.Path] || catalog.ValidatePath(f.Path) != nil {
				continue
			}
			asked[f.Path], missing = true, true
			if _, ok := have[f.Path]; ok {
				if err := copyFile(s.o.Checkpoint, dir, f.Path); err != nil {
					return err
				}
			} else if !f.Optional && len(listed) == len(have) {
				s.find(RuleFetchPins, call, "it needs %q, which the checkpoint does not have", f.Path)
			}
		}
		if !missing {
			return nil
		}
	}
	s.find(RuleFetchEnds, call, "it asked for further files %d times", maxRounds)
	return nil
}

// byPath finds files by their paths.
func byPath(files []catalog.File) map[string]catalog.File {
	m := make(map[string]catalog.File, len(files))
	for _, f := range files {
		m[f.Path] = f
	}
	return m
}

// hostile is a way to put something wrong in the place of a file.
type hostile struct {
	name string
	// put makes something at path in place of a file of the checkpoint.
	put func(s *suite, path, file string) error
	// broken says that it cannot be opened at all, which is the file system's to tell.
	broken bool
}

// hostiles lists what may lie in a folder in place of files.
var hostiles = []hostile{
	{name: "garbage", put: func(_ *suite, path, _ string) error { return os.WriteFile(path, garbage(5000), 0o600) }},
	{name: "half of a file", put: func(s *suite, path, file string) error {
		data := s.smallFile(file)
		return os.WriteFile(path, data[:len(data)/2], 0o600)
	}},
	{name: "an empty file", put: func(_ *suite, path, _ string) error { return os.WriteFile(path, nil, 0o600) }},
	{name: "an empty object", put: func(_ *suite, path, _ string) error { return os.WriteFile(path, []byte("{}"), 0o600) }},
	{name: "deep JSON", put: func(_ *suite, path, _ string) error {
		return os.WriteFile(path, bytes.Repeat([]byte(`{"a":[`), 100_000), 0o600)
	}},
	{name: "a folder", put: func(_ *suite, path, _ string) error { return os.Mkdir(path, 0o700) }},
	{name: "a link to nothing", put: func(_ *suite, path, _ string) error { return os.Symlink("nothing", path) }, broken: true},
	{name: "a link to itself", put: func(_ *suite, path, _ string) error { return os.Symlink(filepath.Base(path), path) }, broken: true},
	{name: "an unreadable file", put: func(s *suite, path, file string) error { return os.WriteFile(path, s.smallFile(file), 0) }},
	{name: "a huge file", put: func(_ *suite, path, _ string) error { return writeSparse(path, hugeBytes) }},
	{name: "names that lead out", put: func(s *suite, path, file string) error {
		return os.WriteFile(path, s.renamed(file, "../../../etc/passwd"), 0o600)
	}},
	{name: "absolute names", put: func(s *suite, path, file string) error {
		return os.WriteFile(path, s.renamed(file, "/etc/passwd"), 0o600)
	}},
	{name: "names of no files", put: func(s *suite, path, file string) error {
		return os.WriteFile(path, s.renamed(file, ""), 0o600)
	}},
	{name: "a link out of the folder", put: func(s *suite, path, file string) error {
		outside := filepath.Join(filepath.Dir(filepath.Dir(path)), filepath.Base(path)+".outside")
		if err := os.WriteFile(outside, s.renamed(file, outsideName), 0o600); err != nil {
			return err
		}
		return os.Symlink(outside, path)
	}, broken: true},
}

// outsideName is what files outside of the folder name.
const outsideName = "only-outside.bin"

// smallFile returns the content of a file of the checkpoint, or something like an index.
func (s *suite) smallFile(name string) []byte {
	if f, ok := byPath(s.sources)[name]; ok && f.SizeBytes <= indexBytes {
		if data, err := os.ReadFile(filepath.Join(s.o.Checkpoint, filepath.FromSlash(name))); err == nil {
			return data
		}
	}
	if name == checkpoint.IndexFile {
		return fmt.Appendf(nil, `{"metadata":{"total_size":8},"weight_map":{"a":%q,"b":%q}}`, "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
	}
	return []byte("{}")
}

// renamed returns the content of a file of the checkpoint with another name in place of those of files.
func (s *suite) renamed(file, name string) []byte {
	data := s.smallFile(file)
	names := []string{"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"}
	for _, f := range s.sources {
		names = append(names, path.Base(f.Path))
	}
	to, err := json.Marshal(name)
	if err != nil {
		to = []byte(`""`)
	}
	for _, n := range names {
		data = bytes.ReplaceAll(data, []byte(`"`+n+`"`), to)
	}
	return data
}

// fetchHostile puts what is wrong in the place of the files, of all at once and of each that may be an index.
func (s *suite) fetchHostile(ctx context.Context, wanted []catalog.File) error {
	names := map[string]bool{checkpoint.IndexFile: true}
	for _, f := range wanted {
		if catalog.ValidatePath(f.Path) == nil {
			names[f.Path] = true
		}
	}
	var all []string
	for name := range names {
		all = append(all, name)
	}
	slices.Sort(all)
	sets := [][]string{all}
	for _, name := range all {
		if strings.HasSuffix(name, ".json") {
			sets = append(sets, []string{name})
		}
	}
	releases := []catalog.Release{s.release([]catalog.File{{Path: "LICENSE"}})}
	if len(s.sources) > 0 {
		releases = append(releases, s.release(s.sources))
	}
	for _, h := range hostiles {
		for _, set := range sets {
			if err := s.fetchFrom(ctx, h, set, releases); err != nil {
				return err
			}
		}
	}
	if err := s.fetchConfined(ctx, sets, releases); err != nil {
		return err
	}
	for _, r := range releases {
		const call = "Fetch, a folder that does not exist"
		files, err := s.plan(ctx, call, r, filepath.Join(s.dir, "nothing"))
		s.either(call, files, err)
	}
	return nil
}

// either checks a plan or an error.
func (s *suite) either(call string, files []catalog.File, err error) {
	if err != nil {
		s.judge(RuleFetchHostile, call, err)
		return
	}
	s.checkPlan(RuleFetchHostile, call, files)
}

// nameOf says which files a set is.
func nameOf(set []string) string {
	if len(set) == 1 {
		return set[0]
	}
	return "all files"
}

// fetchFrom asks for files while what is wrong lies in the folder in the place of some.
func (s *suite) fetchFrom(ctx context.Context, h hostile, names []string, releases []catalog.Release) error {
	dir, _, err := s.folder()
	if err != nil {
		return err
	}
	for _, name := range names {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return err
		}
		if err := h.put(s, path, name); err != nil {
			return err
		}
	}
	around := filepath.Dir(dir)
	was, err := readTree(around)
	if err != nil {
		return err
	}
	for _, r := range releases {
		call := fmt.Sprintf("Fetch, %s in place of %s", h.name, nameOf(names))
		files, err := s.planThriftily(ctx, call, r, dir)
		if err == nil || !h.broken {
			s.either(call, files, err)
		}
		if slices.ContainsFunc(files, func(f catalog.File) bool { return f.Path == outsideName }) {
			s.find(RuleFetchHostile, call, "it has followed a link out of the folder")
		}
	}
	is, err := readTree(around)
	if err != nil {
		return err
	}
	if diff := was.diff(is); diff != "" {
		s.find(RuleOutside, "Fetch, "+h.name, "its folder has changed: %s", diff)
	}
	return os.RemoveAll(around)
}
