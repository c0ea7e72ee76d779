package plugintest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"

	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/tokenizer"
	"github.com/zoo-sdk/zoo/zoo"
)

// request asks for the conversion of the checkpoint into a folder.
func (s *suite) request(dir string) zoo.ConvertRequest {
	return zoo.ConvertRequest{Checkpoint: s.o.Checkpoint, Sources: slices.Clone(s.sources), Recipe: s.o.Recipe, Dir: dir}
}

// toPack asks for a pack.
func (s *suite) toPack(ctx context.Context, p zoo.Plugin, call string, req zoo.ConvertRequest) error {
	_, err := ask(ctx, s, call, func(ctx context.Context) (struct{}, error) { return struct{}{}, s.callConvert(ctx, p, call, req) })
	return err
}

// convert converts the checkpoint and opens the pack.
func (s *suite) convert(ctx context.Context) error {
	if s.about.Name == "" || len(s.sources) == 0 {
		return nil
	}
	const call = "Convert"
	dir, around, err := s.folder()
	if err != nil {
		return err
	}
	m := s.meter(call)
	req := s.request(dir)
	req.Progress = m.report
	if !s.works(RuleConvert, call, s.toPack(ctx, s.plugin, call, req)) {
		return nil
	}
	m.check(s)
	around(call)
	if s.pack = s.openPack(ctx, RulePack, call, dir); s.pack == nil {
		return nil
	}
	s.info = s.pack.Info()
	s.checkManifest(call)
	return nil
}

// openPack opens and verifies a pack, and returns nil if that fails.
func (s *suite) openPack(ctx context.Context, rule Rule, call, dir string) *zoo.Pack {
	pack, err := zoo.OpenPack(dir)
	if err != nil {
		s.find(rule, call, "the pack does not open: %w", err)
		return nil
	}
	if err := pack.Verify(ctx, nil); err != nil {
		s.find(rule, call, "the pack is damaged: %w", err)
		_ = pack.Close()
		return nil
	}
	return pack
}

// checkManifest checks what the pack says of itself, and that texts can be read with it.
func (s *suite) checkManifest(call string) {
	m := s.pack.Manifest()
	if want := (zoo.PluginID{Name: s.about.Name, Version: s.about.Version}); m.Plugin != want {
		s.find(RulePack, call, "the pack was made by %+v, the plugin is %+v", m.Plugin, want)
	}
	if m.Synthetic() {
		s.find(RulePack, call, "the pack says that its weights are random")
	}
	have := byPath(s.sources)
	if len(m.Sources) == 0 {
		s.find(RulePack, call, "the pack names no source")
	}
	for _, f := range m.Sources {
		// A plugin may list a source under a name that is always the same.
		same := func(h catalog.File) bool { return h.SHA256 == f.SHA256 && h.SizeBytes == f.SizeBytes }
		if h, ok := have[f.Path]; ok && !same(h) || !ok && !slices.ContainsFunc(s.sources, same) {
			s.find(RulePack, call, "source %+v is none of the checkpoint", f)
		}
	}
	compiled, err := s.pack.File(zoo.TokenizerFile)
	if err == nil {
		_, err = tokenizer.Open(compiled)
	}
	if err != nil {
		s.find(RulePack, call, "the tokenizer: %w", err)
	}
}

// convertAgain converts the same once more in several ways.
func (s *suite) convertAgain(ctx context.Context) error {
	if s.pack == nil {
		return nil
	}
	again := func(call string, p zoo.Plugin, change func(req *zoo.ConvertRequest) error) error {
		call = "Convert, " + call
		dir, around, err := s.folder()
		if err != nil {
			return err
		}
		req := s.request(dir)
		if err := change(&req); err != nil {
			return err
		}
		rule := RuleConvertSame
		if len(req.Sources) < len(s.sources) {
			rule = RuleFetchEnough
		}
		if s.works(rule, call, s.toPack(ctx, p, call, req)) {
			around(call)
			s.same(ctx, rule, call, dir)
		}
		return os.RemoveAll(filepath.Dir(dir))
	}
	nothing := func(*zoo.ConvertRequest) error { return nil }
	if err := again("again", s.plugin, nothing); err != nil {
		return err
	}
	err := again("from another folder, with the sources in another order", s.plugin, func(req *zoo.ConvertRequest) (err error) {
		if req.Checkpoint, _, err = s.folder(); err != nil {
			return err
		}
		slices.Reverse(req.Sources)
		return copyFiles(s.o.Checkpoint, req.Checkpoint, req.Sources)
	})
	if err != nil {
		return err
	}
	m := s.meter("Convert, with a report")
	err = again("with a report", s.plugin, func(req *zoo.ConvertRequest) error {
		req.Report, req.Progress = true, m.report
		return nil
	})
	if err != nil {
		return err
	}
	m.check(s)
	if len(s.planned) > 0 && len(s.planned) < len(s.sources) {
		err := again("with nothing but what Fetch asks for", s.plugin, func(req *zoo.ConvertRequest) (err error) {
			if req.Checkpoint, _, err = s.folder(); err != nil {
				return err
			}
			have := byPath(s.sources)
			req.Sources = nil
			for _, f := range s.planned {
				if h, ok := have[f.Path]; ok {
					req.Sources = append(req.Sources, h)
				}
			}
			return copyFiles(s.o.Checkpoint, req.Checkpoint, req.Sources)
		})
		if err != nil {
			return err
		}
	}
	if err := s.convertOtherwise(again); err != nil {
		return err
	}
	return s.convertOver(ctx)
}

// same checks that the pack in a folder is the one that was made first.
func (s *suite) same(ctx context.Context, rule Rule, call, dir string) {
	pack := s.openPack(ctx, rule, call, dir)
	if pack == nil {
		return
	}
	defer pack.Close()
	if pack.Digest() != s.pack.Digest() {
		s.find(rule, call, "the pack has the digest %s, the first one had %s", pack.Digest(), s.pack.Digest())
	}
}

// processors is held while the number of processors is changed, which is the whole program's.
var processors sync.Mutex

// convertOtherwise converts on another number of processors, in the process of the plugin.
func (s *suite) convertOtherwise(again func(call string, p zoo.Plugin, change func(req *zoo.ConvertRequest) error) error) error {
	procs := 1
	if runtime.GOMAXPROCS(0) == 1 {
		procs = 3
	}
	call := fmt.Sprintf("on %d processors", procs)
	nothing := func(*zoo.ConvertRequest) error { return nil }
	if s.o.Process == nil {
		processors.Lock()
		defer processors.Unlock()
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
		return again(call, s.plugin, nothing)
	}
	if s.o.Process.Start == nil {
		return nil
	}
	p, stop, ok := s.another(RuleConvertSame, "Convert, "+call, func() (zoo.Plugin, func() error, error) {
		return s.o.Process.Start(fmt.Sprintf("GOMAXPROCS=%d", procs))
	})
	if !ok {
		return nil
	}
	err := again(call, p, nothing)
	if stopped := stop(); err == nil {
		err = stopped
	}
	return err
}

// convertOver converts into a folder that is not empty.
func (s *suite) convertOver(ctx context.Context) error {
	dir, around, err := s.folder()
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "something"), []byte("of somebody's"), 0o600); err != nil {
		return err
	}
	before, err := readTree(dir)
	if err != nil {
		return err
	}
	const call = "Convert, into a folder that is not empty"
	s.refused(RuleConvertFolder, call, s.toPack(ctx, s.plugin, call, s.request(dir)))
	around(call)
	after, err := readTree(dir)
	if err != nil {
		return err
	}
	if diff := before.diff(after); diff != "" {
		s.find(RuleConvertFolder, call, "the folder has changed: %s", diff)
	}
	return nil
}

// meter takes the progress of a call.
type meter struct {
	call        string
	mu          sync.Mutex
	busy        sync.Mutex // held during a call
	reports     int
	done, total int64
	problem     string
	ended, late bool
}

// meter returns what takes the progress of a call.
func (s *suite) meter(call string) *meter {
	m := &meter{call: call}
	s.meters = append(s.meters, m)
	return m
}

// report implements what a request's Progress is.
func (m *meter) report(done, total int64) {
	alone := m.busy.TryLock()
	if alone {
		// The longer a call takes the surer another one at the same time is seen.
		runtime.Gosched()
		defer m.busy.Unlock()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ended {
		m.late = true
		return
	}
	problem := ""
	switch {
	case !alone:
		problem = "it was reported by two calls at the same time"
	case done < m.done:
		problem = fmt.Sprintf("it went back from %d to %d", m.done, done)
	case done > total:
		problem = fmt.Sprintf("%d of %d bytes were done", done, total)
	case m.reports > 0 && total != m.total:
		problem = fmt.Sprintf("there were %d bytes in all, and then %d", m.total, total)
	}
	if m.problem == "" {
		m.problem = problem
	}
	m.reports++
	m.done, m.total = done, total
}

// check tells what was wrong with the progress of a call that has ended.
func (m *meter) check(s *suite) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ended = true
	switch {
	case m.problem != "":
		s.find(RuleProgress, m.call, "progress: %s", m.problem)
	case m.reports == 0:
		s.find(RuleProgress, m.call, "no progress was reported")
	case m.done != m.total || m.total == 0:
		s.find(RuleProgress, m.call, "progress ended at %d of %d bytes", m.done, m.total)
	}
}

// checkLate tells of progress that was reported after its call had ended, at any time since.
func (m *meter) checkLate(s *suite) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.late {
		s.find(RuleProgress, m.call, "progress: it was reported after the call had ended")
	}
}
