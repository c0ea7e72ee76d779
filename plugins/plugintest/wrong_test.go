package plugintest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/checkpoint"
	"github.com/zoo-sdk/zoo/internal/fault"
	"github.com/zoo-sdk/zoo/plugins/plugintest"
	"github.com/zoo-sdk/zoo/program"
	"github.com/zoo-sdk/zoo/zoo"
)

// wrong is the sound plugin with one method that is not.
type wrong struct {
	sound
	describe   func(ctx context.Context) (zoo.Description, error)
	fetch      func(ctx context.Context, req zoo.FetchRequest) (zoo.FetchPlan, error)
	convert    func(ctx context.Context, req zoo.ConvertRequest) error
	gate       func(ctx context.Context, req zoo.GateRequest) (*zoo.Reference, error)
	run        func(ctx context.Context, req zoo.RunRequest) (*program.Program, error)
	synthesize func(ctx context.Context, req zoo.SynthesizeRequest) error
	estimate   func(ctx context.Context, req zoo.EstimateRequest) (zoo.Estimate, error)
}

// Describe implements zoo.Plugin.
func (w wrong) Describe(ctx context.Context) (zoo.Description, error) {
	if w.describe != nil {
		return w.describe(ctx)
	}
	return w.sound.Describe(ctx)
}

// Fetch implements zoo.Plugin.
func (w wrong) Fetch(ctx context.Context, req zoo.FetchRequest) (zoo.FetchPlan, error) {
	if w.fetch != nil {
		return w.fetch(ctx, req)
	}
	return w.sound.Fetch(ctx, req)
}

// Convert implements zoo.Plugin.
func (w wrong) Convert(ctx context.Context, req zoo.ConvertRequest) (zoo.Conversion, error) {
	if w.convert != nil {
		return zoo.Conversion{}, w.convert(ctx, req)
	}
	return w.sound.Convert(ctx, req)
}

// Gate implements zoo.Plugin.
func (w wrong) Gate(ctx context.Context, req zoo.GateRequest) (*zoo.Reference, error) {
	if w.gate != nil {
		return w.gate(ctx, req)
	}
	return w.sound.Gate(ctx, req)
}

// Run implements zoo.Plugin.
func (w wrong) Run(ctx context.Context, req zoo.RunRequest) (*program.Program, error) {
	if w.run != nil {
		return w.run(ctx, req)
	}
	return w.sound.Run(ctx, req)
}

// Synthesize implements zoo.Synthesizer.
func (w wrong) Synthesize(ctx context.Context, req zoo.SynthesizeRequest) error {
	if w.synthesize != nil {
		return w.synthesize(ctx, req)
	}
	return w.sound.Synthesize(ctx, req)
}

// Estimate implements zoo.Estimator.
func (w wrong) Estimate(ctx context.Context, req zoo.EstimateRequest) (zoo.Estimate, error) {
	if w.estimate != nil {
		return w.estimate(ctx, req)
	}
	return w.sound.Estimate(ctx, req)
}

// described is sound with another description.
func described(change func(d *zoo.Description)) wrong {
	return wrong{describe: func(ctx context.Context) (zoo.Description, error) {
		d, err := sound{}.Describe(ctx)
		change(&d)
		return d, err
	}}
}

// planned is sound with another plan.
func planned(change func(files []catalog.File) []catalog.File) wrong {
	return wrong{fetch: func(ctx context.Context, req zoo.FetchRequest) (zoo.FetchPlan, error) {
		plan, err := sound{}.Fetch(ctx, req)
		if err == nil {
			plan.Files = change(plan.Files)
		}
		return plan, err
	}}
}

// converted is sound, and then something more.
func converted(after func(req zoo.ConvertRequest, err error) error) wrong {
	return wrong{convert: func(ctx context.Context, req zoo.ConvertRequest) error {
		_, err := sound{}.Convert(ctx, req)
		return after(req, err)
	}}
}

// constant is sound with a constant in the pack, which depends on the request.
func constant(value func(req zoo.ConvertRequest) float32) wrong {
	return wrong{convert: func(ctx context.Context, req zoo.ConvertRequest) error {
		return convert(ctx, id, req, map[string]float32{"constant": value(req)})
	}}
}

// recorded is sound with another program.
func recorded(change func(p *program.Program)) wrong {
	return wrong{run: func(ctx context.Context, req zoo.RunRequest) (*program.Program, error) {
		p, err := sound{}.Run(ctx, req)
		if err == nil {
			change(p)
		}
		return p, err
	}}
}

// gated is sound with other reference values, or another error.
func gated(change func(ref *zoo.Reference, err error) (*zoo.Reference, error)) wrong {
	return wrong{gate: func(ctx context.Context, req zoo.GateRequest) (*zoo.Reference, error) {
		return change(sound{}.Gate(ctx, req))
	}}
}

// progressed is sound with other progress.
func progressed(change func(report func(done, total int64)) func(done, total int64)) wrong {
	return wrong{convert: func(ctx context.Context, req zoo.ConvertRequest) error {
		if req.Progress != nil {
			req.Progress = change(req.Progress)
		}
		_, err := sound{}.Convert(ctx, req)
		return err
	}}
}

// tardy is sound, but reports the end of a conversion only during the next one.
func tardy() wrong {
	var last atomic.Pointer[func()]
	return wrong{convert: func(ctx context.Context, req zoo.ConvertRequest) error {
		if report := last.Swap(nil); report != nil {
			(*report)()
		}
		if report := req.Progress; report != nil {
			end := func() {}
			req.Progress = func(done, total int64) {
				report(done, total)
				end = func() { report(done, total) }
			}
			defer func() { last.Store(&end) }()
		}
		_, err := sound{}.Convert(ctx, req)
		return err
	}}
}

// estimated is sound with another estimate.
func estimated(change func(e *zoo.Estimate)) wrong {
	return wrong{estimate: func(ctx context.Context, req zoo.EstimateRequest) (zoo.Estimate, error) {
		e, err := sound{}.Estimate(ctx, req)
		if err == nil {
			change(&e)
		}
		return e, err
	}}
}

// openFetch is sound, but reads the index as it lies there.
func openFetch(ctx context.Context, req zoo.FetchRequest, check func(names []string, err error) error) (zoo.FetchPlan, error) {
	plan, err := sound{}.Fetch(ctx, zoo.FetchRequest{Release: req.Release})
	if err != nil || req.Dir == "" {
		return plan, err
	}
	data, err := os.ReadFile(filepath.Join(req.Dir, checkpoint.IndexFile))
	if errors.Is(err, os.ErrNotExist) {
		return plan, nil
	}
	if err != nil {
		return plan, fmt.Errorf("%w: %w", fault.ErrIntegrity, err)
	}
	var index struct {
		Map map[string]string `json:"weight_map"`
	}
	err = json.Unmarshal(data, &index)
	var names []string
	for _, name := range index.Map {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	if err := check(names, err); err != nil {
		return plan, fmt.Errorf("%w: %w", fault.ErrIntegrity, err)
	}
	return req.Plan(append([]string{zoo.ConfigFile, "tokenizer.json", checkpoint.IndexFile}, names...)...), nil
}

// oneAtATime is sound, but refuses a conversion during another. After the first, which is
// made alone, one goes on until another one falls in.
func oneAtATime() wrong {
	var calls, busy atomic.Int64
	refused := make(chan struct{})
	once := sync.OnceFunc(func() { close(refused) })
	return wrong{convert: func(ctx context.Context, req zoo.ConvertRequest) error {
		n := calls.Add(1)
		defer busy.Add(-1)
		if busy.Add(1) > 1 {
			once()
			return fmt.Errorf("%w: one at a time", fault.ErrUsage)
		}
		err := convert(ctx, id, req, nil)
		if n > 1 {
			select {
			case <-refused:
			case <-ctx.Done():
			}
		}
		return err
	}}
}

// tested reports whether a part of the suite is needed to find what breaks a rule.
func tested(rule plugintest.Rule, part string) bool {
	if rule == plugintest.RuleOutside || part == "describe" {
		return true
	}
	needs := map[plugintest.Rule][]string{
		plugintest.RuleDescribe: {}, plugintest.RuleDescribeSame: {},
		plugintest.RuleRequests: {"fetch", "convert", "run", "gate", "estimate"}, plugintest.RulePanics: {"fetch", "convert", "gate what is broken"},
		plugintest.RuleFetch: {"fetch"}, plugintest.RuleFetchSame: {"fetch"}, plugintest.RuleFetchPins: {"fetch"},
		plugintest.RuleFetchEnds: {"fetch"}, plugintest.RuleFetchHostile: {"fetch"}, plugintest.RuleFetchEnough: {"fetch", "convert", "convert again"},
		plugintest.RuleConvert: {"convert"}, plugintest.RulePack: {"convert"}, plugintest.RuleProgress: {"convert"},
		plugintest.RuleConvertSame: {"convert", "convert again"}, plugintest.RuleConvertFolder: {"convert", "convert again"},
		plugintest.RuleCancelled: {"convert", "cancel"}, plugintest.RuleCancel: {"convert", "cancel"}, plugintest.RuleTogether: {"convert", "calls at the same time"},
		plugintest.RuleCrash: {"convert", "crash and hang"}, plugintest.RuleHang: {"crash and hang"}, plugintest.RuleSkew: {"crash and hang"},
	}
	parts, ok := needs[rule]
	if !ok {
		parts = []string{"convert", "convert what is broken", "run", "run bad packs", "gate", "gate what is broken", "synthesize", "estimate"}
		if !slices.Contains([]plugintest.Rule{plugintest.RuleErrors, plugintest.RuleHints, plugintest.RuleConvertBroken}, rule) {
			parts = slices.Delete(parts, 1, 2)
		}
	}
	return slices.Contains(parts, part)
}

// TestWrong holds plugins that break a rule each to the contract.
func TestWrong(t *testing.T) {
	if testing.Short() {
		t.Skip("takes minutes under the race detector")
	}
	options := soundOptions(t)
	for rule, trials := range wrongs() {
		for name, tt := range trials {
			t.Run(fmt.Sprintf("%s/%s", rule, name), func(t *testing.T) {
				t.Parallel()
				o := options
				o.Dir = t.TempDir()
				if rule == plugintest.RuleOutside { // which spoils what is shared
					o = soundOptions(t)
				}
				o.Part = func(part string) bool { return tested(rule, part) }
				if tt.change != nil {
					tt.change(&o)
				}
				err := plugintest.Test(t.Context(), tt.plugin, o)
				found := 0
				for _, f := range plugintest.Findings(err) {
					if f.Rule == rule && f.Call != "" && f.Err != nil {
						found++
					}
				}
				if found < max(tt.findings, 1) {
					t.Errorf("%d findings of the rule in %v", found, err)
				}
				// What a call does to its request is its own: others get another copy.
				if all := len(plugintest.Findings(err)); rule == plugintest.RuleRequests && all > found {
					t.Errorf("%d further findings in %v", all-found, err)
				}
			})
		}
	}
}

// unseen lists what a host keeps from its user, so that no suite can see it of a process. A process has a request of its own, too.
var unseen = map[string]string{
	"progress/back":                   "progress that goes back is left out",
	"progress/another total":          "the latest progress is sent now and then",
	"progress/late":                   "after the end of a call nothing is sent",
	"progress/at the same time":       "progress is sent one by one",
	"cancelled-before/fetch":          "the host does not make the call",
	"cancelled-before/another error":  "the host does not make the call",
	"cancelled-during/goes on":        "the host waits until the call has ended, if it soon does",
	"cancelled-during/a pack is left": "the plugin may have been done before it heard of that",
}

// TestWrongProcesses holds the same plugins to the contract, each in a process of its own.
func TestWrongProcesses(t *testing.T) {
	if testing.Short() {
		t.Skip("takes minutes under the race detector")
	}
	options := soundOptions(t)
	for rule, trials := range wrongs() {
		for name, tt := range trials {
			role := fmt.Sprintf("%s/%s", rule, name)
			o := options
			o.Part = func(part string) bool { return tested(rule, part) }
			if tt.change != nil {
				tt.change(&o)
			}
			if o.Process != nil || unseen[role] != "" || rule == plugintest.RuleRequests {
				continue
			}
			t.Run(role, func(t *testing.T) {
				t.Parallel()
				if rule == plugintest.RuleOutside { // which spoils what is shared
					own := soundOptions(t)
					o.Checkpoint, o.Reference = own.Checkpoint, own.Reference
				}
				o.Dir = t.TempDir()
				p, process := client(t, role)
				o.Process = &plugintest.Process{Start: process.Start, Running: process.Running}
				err := plugintest.Test(t.Context(), p, o)
				if !finds(err, rule) {
					t.Errorf("no finding of the rule in %v", err)
				}
			})
		}
	}
}

// finds reports whether an error of the suite has a finding of a rule.
func finds(err error, rule plugintest.Rule) bool {
	return slices.ContainsFunc(plugintest.Findings(err), func(f *plugintest.Finding) bool { return f.Rule == rule })
}

// TestWrongPrograms holds programs to the contract that serve a sound plugin and are wrong themselves.
func TestWrongPrograms(t *testing.T) {
	if testing.Short() {
		t.Skip("takes minutes under the race detector")
	}
	options := soundOptions(t)
	for _, tt := range []struct {
		role string
		rule plugintest.Rule
		only func(p *plugintest.Process) *plugintest.Process
	}{
		{"once", plugintest.RuleCrash, func(p *plugintest.Process) *plugintest.Process { return &plugintest.Process{Kill: p.Kill} }},
		{"once", plugintest.RuleHang, func(p *plugintest.Process) *plugintest.Process { return &plugintest.Process{Pause: p.Pause} }},
		{"once", plugintest.RuleTogether, func(p *plugintest.Process) *plugintest.Process { return &plugintest.Process{Start: p.Start} }},
		{"once", plugintest.RuleConvertSame, func(p *plugintest.Process) *plugintest.Process { return &plugintest.Process{Start: p.Start} }},
		{"parrot", plugintest.RuleSkew, func(p *plugintest.Process) *plugintest.Process { return &plugintest.Process{Skewed: p.Skewed} }},
		{"narrow", plugintest.RuleSkew, func(p *plugintest.Process) *plugintest.Process { return &plugintest.Process{Newer: p.Newer} }},
	} {
		t.Run(fmt.Sprintf("%s/%s", tt.rule, tt.role), func(t *testing.T) {
			t.Parallel()
			p, process := client(t, tt.role, markVariable+"="+filepath.Join(t.TempDir(), "mark"))
			if tt.rule == plugintest.RuleHang && process.Pause == nil {
				t.Skip("processes cannot be stopped here")
			}
			o := options
			o.Dir, o.Process = t.TempDir(), tt.only(process)
			o.Part = func(part string) bool { return part == "describe" || part == "crash and hang" || tested(tt.rule, part) }
			if err := plugintest.Test(t.Context(), p, o); !finds(err, tt.rule) {
				t.Errorf("no finding of the rule in %v", err)
			}
		})
	}
}

// TestSoundProcess holds the sound plugin to all rules in a process of its own, with a checkpoint and without.
func TestSoundProcess(t *testing.T) {
	if testing.Short() {
		t.Skip("takes minutes under the race detector")
	}
	options := soundOptions(t)
	for name, o := range map[string]plugintest.Options{"with a checkpoint": options, "without": {Backend: options.Backend}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var p zoo.Plugin
			p, o.Process = client(t, "sound")
			o.Dir = t.TempDir()
			if err := plugintest.Test(t.Context(), p, o); err != nil {
				t.Error(err)
			}
		})
	}
}

// specType returns the name of the type of a constant that is given a value.
func specType(spec *ast.ValueSpec) (name string, ok bool) {
	if spec == nil || len(spec.Values) == 0 {
		return "", false
	}
	kind, ok := spec.Type.(*ast.Ident)
	if !ok {
		return "", false
	}
	return kind.Name, true
}

// TestEveryRule checks that some plugin breaks each rule.
func TestEveryRule(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "rules.go", nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	have := wrongs()
	rules := 0
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if kind, named := specType(spec); !ok || !named || kind != "Rule" {
			return true
		}
		text, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
		if err != nil {
			t.Fatal(err)
		}
		if rules++; len(have[plugintest.Rule(text)]) == 0 {
			t.Errorf("no plugin breaks rule %q", text)
		}
		return true
	})
	if rules != len(have) {
		t.Errorf("there are %d rules, and plugins for %d", rules, len(have))
	}
}

// TestOptions refuses what cannot be used.
func TestOptions(t *testing.T) {
	ended, cancel := context.WithCancelCause(t.Context())
	reason := errors.New("enough")
	cancel(reason)
	for name, tt := range map[string]struct {
		ctx    context.Context
		plugin zoo.Plugin
		o      plugintest.Options
		want   error
	}{
		"no plugin":         {t.Context(), nil, plugintest.Options{}, fault.ErrUsage},
		"no checkpoint":     {t.Context(), sound{}, plugintest.Options{Checkpoint: filepath.Join(t.TempDir(), "nothing")}, fault.ErrUsage},
		"an empty one":      {t.Context(), sound{}, plugintest.Options{Checkpoint: t.TempDir()}, fault.ErrUsage},
		"no reference":      {t.Context(), sound{}, plugintest.Options{Reference: filepath.Join(t.TempDir(), "nothing")}, fault.ErrUsage},
		"the context ended": {ended, sound{}, plugintest.Options{}, reason},
	} {
		if err := plugintest.Test(tt.ctx, tt.plugin, tt.o); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestEnded ends the context of the suite in calls of a plugin that is sound: nothing is found.
func TestEnded(t *testing.T) {
	options := soundOptions(t)
	reason := errors.New("enough")
	for name, plugin := range map[string]func(called func()) wrong{
		"fetch": func(called func()) wrong {
			return wrong{fetch: func(ctx context.Context, req zoo.FetchRequest) (zoo.FetchPlan, error) {
				called()
				return sound{}.Fetch(ctx, req)
			}}
		},
		"convert": func(called func()) wrong {
			return wrong{convert: func(ctx context.Context, req zoo.ConvertRequest) error {
				called()
				_, err := sound{}.Convert(ctx, req)
				return err
			}}
		},
		"convert in time": func(called func()) wrong {
			return converted(func(_ zoo.ConvertRequest, err error) error { called(); return err })
		},
		"run": func(called func()) wrong {
			return wrong{run: func(ctx context.Context, req zoo.RunRequest) (*program.Program, error) {
				called()
				return sound{}.Run(ctx, req)
			}}
		},
		"gate": func(called func()) wrong {
			return wrong{gate: func(ctx context.Context, req zoo.GateRequest) (*zoo.Reference, error) {
				called()
				return sound{}.Gate(ctx, req)
			}}
		},
		"synthesize": func(called func()) wrong {
			return wrong{synthesize: func(ctx context.Context, req zoo.SynthesizeRequest) error {
				called()
				return sound{}.Synthesize(ctx, req)
			}}
		},
	} {
		for _, last := range []int64{1, 2, 4} {
			t.Run(fmt.Sprintf("%s %d", name, last), func(t *testing.T) {
				t.Parallel()
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				var calls atomic.Int64
				o := options
				o.Dir = t.TempDir()
				err := plugintest.Test(ctx, plugin(func() {
					if calls.Add(1) == last {
						cancel(reason)
					}
				}), o)
				if found := plugintest.Findings(err); !errors.Is(err, reason) || len(found) > 0 {
					t.Errorf("%d findings after %d calls: %v", len(found), calls.Load(), err)
				}
			})
		}
	}
}

// TestEndedHanging ends the context of the suite in a call that does not return: the suite waits no longer than for any cancelled call.
func TestEndedHanging(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	reason := errors.New("enough")
	err := plugintest.Test(ctx, wrong{describe: func(context.Context) (zoo.Description, error) {
		cancel(reason)
		select {}
	}}, plugintest.Options{Dir: t.TempDir(), Timeout: time.Hour, Prompt: time.Millisecond})
	if found := plugintest.Findings(err); !errors.Is(err, reason) || len(found) > 0 {
		t.Errorf("%d findings: %v", len(found), err)
	}
}

// TestFails looks for findings about the cancellation of a plugin that fails anyhow.
func TestFails(t *testing.T) {
	o := soundOptions(t)
	o.Part = func(part string) bool { return part != "convert again" && part != "convert what is broken" }
	err := plugintest.Test(t.Context(), wrong{run: func(context.Context, zoo.RunRequest) (*program.Program, error) { return nil, fault.ErrIntegrity }}, o)
	found := plugintest.Findings(err)
	for _, f := range found {
		if f.Rule == plugintest.RuleCancelled || f.Rule == plugintest.RuleCancel {
			t.Errorf("a finding about what always fails: %v", f)
		}
	}
	if len(found) == 0 {
		t.Error("nothing was found")
	}
}

// exits is sound, but ends its process instead of converting.
func exits() wrong {
	return wrong{convert: func(context.Context, zoo.ConvertRequest) error { os.Exit(3); return nil }}
}

// TestExits looks for findings about kills and hangs of a plugin that makes no long call in which they could fall.
func TestExits(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes long under the race detector")
	}
	o := soundOptions(t)
	var p zoo.Plugin
	p, o.Process = client(t, "exits")
	err := plugintest.Test(t.Context(), p, o)
	for _, f := range plugintest.Findings(err) {
		if f.Rule != plugintest.RuleConvert && f.Rule != plugintest.RuleErrors && f.Rule != plugintest.RuleHints {
			t.Errorf("a finding about something else: %v", f)
		}
	}
	if !finds(err, plugintest.RuleConvert) {
		t.Errorf("no finding of the rule in %v", err)
	}
}

// TestNotStarted has no second process start: that is found, and what there is of it is closed.
func TestNotStarted(t *testing.T) {
	o := soundOptions(t)
	reason := errors.New("it needs more than one processor")
	started, stopped := 0, 0
	o.Part = func(part string) bool { return part != "convert what is broken" && part != "cancel" }
	o.Process = &plugintest.Process{Start: func(...string) (zoo.Plugin, func() error, error) {
		started++
		return nil, func() error { stopped++; return nil }, reason
	}}
	err := plugintest.Test(t.Context(), sound{}, o)
	var rules []plugintest.Rule
	for _, f := range plugintest.Findings(err) {
		if !errors.Is(f, reason) {
			t.Errorf("a finding about something else: %v", f)
		}
		rules = append(rules, f.Rule)
	}
	if want := []plugintest.Rule{plugintest.RuleConvertSame, plugintest.RuleTogether}; !slices.Equal(rules, want) || started != 2 || stopped != 2 {
		t.Errorf("findings of the rules %v, want %v; %d processes started, %d closed: %v", rules, want, started, stopped, err)
	}
}
