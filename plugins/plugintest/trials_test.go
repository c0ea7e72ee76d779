package plugintest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/internal/fault"
	"github.com/zoo-sdk/zoo/plugins/plugintest"
	"github.com/zoo-sdk/zoo/program"
	"github.com/zoo-sdk/zoo/zoo"
)

// trial is a plugin and what it is tried with.
type trial struct {
	plugin zoo.Plugin
	change func(o *plugintest.Options)
	// findings is the least number of findings; 0 stands for 1.
	findings int
}

// counter returns a function that numbers its calls from 1, so that no two are alike. Each
// plugin has its own: what others do at the same time must not make its calls alike.
func counter() func() int {
	var n atomic.Int64
	return func() int { return int(n.Add(1)) }
}

// wrongs lists plugins, and what they are tried with, by the rule that they break.
func wrongs() map[plugintest.Rule]map[string]trial {
	title, order, more, number, length, prompt, seed := counter(), counter(), counter(), counter(), counter(), counter(), counter()
	return map[plugintest.Rule]map[string]trial{
		plugintest.RulePanics: {
			"fetch": {plugin: wrong{fetch: func(ctx context.Context, req zoo.FetchRequest) (zoo.FetchPlan, error) {
				return openFetch(ctx, req, func(_ []string, err error) error {
					if err != nil {
						panic(err)
					}
					return nil
				})
			}}},
			"the goroutine ends": {plugin: wrong{fetch: func(ctx context.Context, req zoo.FetchRequest) (zoo.FetchPlan, error) {
				return openFetch(ctx, req, func(_ []string, err error) error {
					if err != nil {
						runtime.Goexit()
					}
					return nil
				})
			}}},
			"gate": {plugin: wrong{gate: func(ctx context.Context, req zoo.GateRequest) (*zoo.Reference, error) {
				if req.Dir != "" && req.Pack.Manifest.Plugin != id {
					return nil, fault.ErrIntegrity
				}
				return sound{}.Gate(ctx, req)
			}}},
		},
		plugintest.RuleReturns: {"run": {
			plugin: wrong{run: func(context.Context, zoo.RunRequest) (*program.Program, error) { select {} }},
			change: func(o *plugintest.Options) { o.Timeout = 2 * time.Second },
		}},
		plugintest.RuleErrors: {"convert": {plugin: converted(func(_ zoo.ConvertRequest, err error) error {
			if err != nil && !errors.Is(err, context.Canceled) {
				return errors.New(err.Error())
			}
			return err
		})}},
		plugintest.RuleHints: {"convert": {plugin: converted(func(_ zoo.ConvertRequest, err error) error {
			if errors.Is(err, fault.ErrIntegrity) {
				return fmt.Errorf("%w: %s", fault.ErrIntegrity, err.Error())
			}
			return err
		})}},
		plugintest.RuleOutside: {
			"convert": {plugin: converted(func(req zoo.ConvertRequest, err error) error {
				return errors.Join(err, os.WriteFile(req.Dir+".log", nil, 0o600))
			})},
			"convert the bystander": {plugin: converted(func(req zoo.ConvertRequest, err error) error {
				return errors.Join(err, os.RemoveAll(filepath.Join(filepath.Dir(req.Dir), "bystander")))
			})},
			"the checkpoint": {plugin: converted(func(req zoo.ConvertRequest, err error) error {
				_ = os.WriteFile(filepath.Join(req.Checkpoint, "cache"), nil, 0o600)
				return err
			})},
			"fetch": {plugin: wrong{fetch: func(ctx context.Context, req zoo.FetchRequest) (zoo.FetchPlan, error) {
				if req.Dir != "" {
					_ = os.WriteFile(filepath.Join(req.Dir, "cache"), nil, 0o600)
				}
				return sound{}.Fetch(ctx, req)
			}}},
			"gate": {plugin: wrong{gate: func(ctx context.Context, req zoo.GateRequest) (*zoo.Reference, error) {
				if req.Dir != "" {
					_ = os.WriteFile(filepath.Join(req.Dir, "cache"), nil, 0o600)
				}
				return sound{}.Gate(ctx, req)
			}}},
		},
		plugintest.RuleRequests: {
			"fetch": {plugin: wrong{fetch: func(ctx context.Context, req zoo.FetchRequest) (zoo.FetchPlan, error) {
				plan, err := sound{}.Fetch(ctx, req)
				slices.Reverse(req.Release.Source.Files)
				return plan, err
			}}},
			"convert": {plugin: converted(func(req zoo.ConvertRequest, err error) error {
				if req.Recipe != nil {
					req.Recipe["more"] = "of it"
				}
				return err
			})},
			"run": {plugin: wrong{run: func(ctx context.Context, req zoo.RunRequest) (*program.Program, error) {
				p, err := sound{}.Run(ctx, req)
				if req.Pack.Manifest != nil {
					slices.Reverse(req.Pack.Manifest.Tensors)
				}
				return p, err
			}}},
			"gate": {plugin: wrong{gate: func(ctx context.Context, req zoo.GateRequest) (*zoo.Reference, error) {
				req.Pack.Manifest.Plugin.Version = "9.9.9"
				return sound{}.Gate(ctx, req)
			}}},
			"estimate": {plugin: wrong{estimate: func(ctx context.Context, req zoo.EstimateRequest) (zoo.Estimate, error) {
				e, err := sound{}.Estimate(ctx, req)
				clear(req.Config)
				return e, err
			}}},
		},
		plugintest.RuleDescribe: {
			"name":       {plugin: described(func(d *zoo.Description) { d.Name = "Bad Name" })},
			"version":    {plugin: described(func(d *zoo.Description) { d.Version = "1.2" })},
			"title":      {plugin: described(func(d *zoo.Description) { d.Title = "two\nlines" })},
			"no title":   {plugin: described(func(d *zoo.Description) { d.Title = "" })},
			"operations": {plugin: described(func(d *zoo.Description) { d.Operations++ })},
			"error":      {plugin: wrong{describe: func(context.Context) (zoo.Description, error) { return zoo.Description{}, fault.ErrUsage }}},
		},
		plugintest.RuleDescribeSame: {"title": {plugin: described(func(d *zoo.Description) { d.Title = strconv.Itoa(title()) })}},
		plugintest.RuleFetch: {
			"path":  {plugin: planned(func(files []catalog.File) []catalog.File { return append(files, catalog.File{Path: "../x"}) })},
			"twice": {plugin: planned(func(files []catalog.File) []catalog.File { return append(files, files[0]) })},
			"none":  {plugin: planned(func([]catalog.File) []catalog.File { return nil })},
			"error": {plugin: wrong{fetch: func(context.Context, zoo.FetchRequest) (zoo.FetchPlan, error) { return zoo.FetchPlan{}, fault.ErrUsage }}},
		},
		plugintest.RuleFetchSame: {"order": {plugin: planned(func(files []catalog.File) []catalog.File {
			if order()%2 == 0 {
				slices.Reverse(files)
			}
			return files
		})}},
		plugintest.RuleFetchPins: {
			"digest": {plugin: planned(func(files []catalog.File) []catalog.File {
				for i := range files {
					files[i].SHA256 = ""
				}
				return files
			})},
			"another file": {plugin: planned(func(files []catalog.File) []catalog.File { return append(files, catalog.File{Path: "more"}) })},
		},
		plugintest.RuleFetchEnds: {"more": {plugin: planned(func(files []catalog.File) []catalog.File {
			return append(files, catalog.File{Path: fmt.Sprintf("more-%d", more()), Optional: true})
		})}},
		plugintest.RuleFetchEnough: {"tokenizer": {plugin: planned(func(files []catalog.File) []catalog.File {
			return slices.DeleteFunc(files, func(f catalog.File) bool { return f.Path == "tokenizer.json" })
		})}},
		plugintest.RuleFetchHostile: {
			// Names are taken as they are, links are followed, and everything is read.
			"names": {plugin: wrong{fetch: func(ctx context.Context, req zoo.FetchRequest) (zoo.FetchPlan, error) {
				return openFetch(ctx, req, func(_ []string, err error) error { return err })
			}}},
			"links and sizes": {plugin: wrong{fetch: func(ctx context.Context, req zoo.FetchRequest) (zoo.FetchPlan, error) {
				return openFetch(ctx, req, func(names []string, err error) error {
					for _, name := range names {
						err = errors.Join(err, catalog.ValidatePath(name))
					}
					return err
				})
			}}, findings: 2},
		},
		plugintest.RuleConvert: {"error": {plugin: wrong{convert: func(context.Context, zoo.ConvertRequest) error { return fault.ErrIntegrity }}}},
		plugintest.RulePack: {
			"name": {plugin: wrong{convert: func(ctx context.Context, req zoo.ConvertRequest) error {
				return convert(ctx, zoo.PluginID{Name: "other", Version: id.Version}, req, nil)
			}}},
			"damage": {plugin: converted(func(req zoo.ConvertRequest, err error) error {
				path := filepath.Join(req.Dir, zoo.ConfigFile)
				data, read := os.ReadFile(path)
				if read != nil {
					return err
				}
				data[len(data)-1] ^= 1
				return errors.Join(err, os.Chmod(path, 0o600), os.WriteFile(path, data, 0o600))
			})},
			"nothing": {plugin: wrong{convert: func(context.Context, zoo.ConvertRequest) error { return nil }}},
			"sources": {plugin: wrong{convert: func(ctx context.Context, req zoo.ConvertRequest) error {
				for i := range req.Sources {
					req.Sources[i].SHA256 = catalog.DigestOf(nil).Hex()
				}
				return convert(ctx, id, req, nil)
			}}},
			"tokenizer": {plugin: wrong{convert: func(ctx context.Context, req zoo.ConvertRequest) error {
				return synthesize(ctx, zoo.SynthesizeRequest{Dir: req.Dir}, nil)
			}}},
		},
		plugintest.RuleConvertSame: {
			"always":     {plugin: constant(func(zoo.ConvertRequest) float32 { return float32(number()) })},
			"processors": {plugin: constant(func(zoo.ConvertRequest) float32 { return float32(runtime.GOMAXPROCS(0)) })},
			"order": {plugin: constant(func(req zoo.ConvertRequest) float32 {
				if len(req.Sources) == 0 {
					return 0
				}
				return float32(req.Sources[0].SizeBytes)
			})},
			"report": {plugin: constant(func(req zoo.ConvertRequest) float32 {
				if req.Report {
					return 1
				}
				return 0
			})},
		},
		plugintest.RuleProgress: {
			"none": {plugin: progressed(func(func(done, total int64)) func(done, total int64) { return func(int64, int64) {} })},
			"back": {plugin: progressed(func(report func(done, total int64)) func(done, total int64) {
				return func(done, total int64) {
					report(done, total)
					report(done-1, total)
					report(done, total)
				}
			})},
			"beyond": {plugin: progressed(func(report func(done, total int64)) func(done, total int64) {
				return func(done, total int64) { report(2*done, total) }
			})},
			"early": {plugin: progressed(func(report func(done, total int64)) func(done, total int64) {
				return func(done, total int64) { report(done, total+1) }
			})},
			"late": {plugin: tardy(), change: func(o *plugintest.Options) {
				o.Part = func(part string) bool { return slices.Contains([]string{"describe", "convert", "convert again"}, part) }
			}},
			"another total": {plugin: progressed(func(report func(done, total int64)) func(done, total int64) {
				return func(done, _ int64) { report(done, done) }
			})},
			"at the same time": {plugin: progressed(func(report func(done, total int64)) func(done, total int64) {
				return func(done, total int64) {
					ended := make(chan struct{})
					go func() {
						for range 1000 {
							report(done, total)
						}
						close(ended)
					}()
					for range 1000 {
						report(done, total)
					}
					<-ended
				}
			})},
		},
		plugintest.RuleConvertFolder: {"emptied": {plugin: wrong{convert: func(ctx context.Context, req zoo.ConvertRequest) error {
			if err := os.RemoveAll(filepath.Join(req.Dir, "something")); err != nil {
				return err
			}
			_, err := sound{}.Convert(ctx, req)
			return err
		}}}},
		plugintest.RuleConvertBroken: {
			"accepted": {plugin: converted(func(req zoo.ConvertRequest, err error) error {
				if !errors.Is(err, fault.ErrIntegrity) {
					return err
				}
				return errors.Join(os.RemoveAll(req.Dir), os.Mkdir(req.Dir, 0o700), synthesize(context.Background(), zoo.SynthesizeRequest{Dir: req.Dir}, nil))
			})},
			"a pack is left": {plugin: converted(func(req zoo.ConvertRequest, err error) error {
				if err != nil {
					_ = os.WriteFile(filepath.Join(req.Dir, zoo.DigestFile), nil, 0o600)
				}
				return err
			})},
			"half a pack": {plugin: converted(func(_ zoo.ConvertRequest, err error) error {
				if errors.Is(err, fault.ErrIntegrity) {
					return nil
				}
				return err
			})},
		},
		plugintest.RuleRun: {
			"invalid": {plugin: recorded(func(p *program.Program) { p.Vocab-- })},
			"version": {plugin: recorded(func(p *program.Program) { p.Version++ })},
			"nothing": {plugin: wrong{run: func(context.Context, zoo.RunRequest) (*program.Program, error) { return nil, nil }}},
			"error":   {plugin: wrong{run: func(context.Context, zoo.RunRequest) (*program.Program, error) { return nil, fault.ErrIntegrity }}},
		},
		plugintest.RuleRunSame: {"context": {plugin: recorded(func(p *program.Program) { p.Context += length() })}},
		plugintest.RuleRunWeights: {
			"name":  {plugin: recorded(func(p *program.Program) { p.Weights[0].Name = "nothing" })},
			"shape": {plugin: recorded(func(p *program.Program) { p.Weights[0].Rows++ })},
		},
		plugintest.RuleRunLogits: {"infinite": {plugin: recorded(func(p *program.Program) {
			p.Ops[1].Softcap.Cap, p.Ops[0].Embed.Mul, p.Ops[3].Linear.Mul = 3e38, 3e38, 3e38
		})}},
		plugintest.RuleRunBad: {
			"the manifest": {plugin: wrong{run: func(ctx context.Context, req zoo.RunRequest) (*program.Program, error) {
				c, err := parseConfig(req.Pack.Config)
				return record(c), errors.Join(err, context.Cause(ctx))
			}}},
			"the configuration": {plugin: wrong{run: func(ctx context.Context, req zoo.RunRequest) (*program.Program, error) {
				return sound{}.Run(ctx, zoo.RunRequest{Pack: zoo.PackInfo{Manifest: req.Pack.Manifest, Config: fmt.Appendf(nil, `{"vocab":%d,"cols":%d}`, vocab, cols)}})
			}}},
			"another version": {plugin: wrong{run: func(ctx context.Context, req zoo.RunRequest) (*program.Program, error) {
				p, err := sound{}.Run(ctx, req)
				if err == nil && req.Pack.Manifest.Plugin.Version != id.Version {
					p.Ops = nil
				}
				return p, err
			}}},
			"numbers": {plugin: wrong{run: func(ctx context.Context, req zoo.RunRequest) (*program.Program, error) {
				p, err := sound{}.Run(ctx, req)
				if c, bad := parseConfig(req.Pack.Config); bad == nil && err != nil && req.Pack.Manifest != nil && len(req.Pack.Manifest.Tensors) == len(tensors) {
					p, err = record(c), context.Cause(ctx)
					p.Logits = -1
				}
				return p, err
			}}},
		},
		plugintest.RuleGate: {
			"no prompts": {plugin: gated(func(ref *zoo.Reference, err error) (*zoo.Reference, error) {
				if err == nil {
					ref.Prompts = nil
				}
				return ref, err
			})},
			"no runs": {plugin: wrong{gate: func(ctx context.Context, req zoo.GateRequest) (*zoo.Reference, error) {
				ref, err := sound{}.Gate(ctx, req)
				if err == nil {
					ref.Runs = nil
				}
				return ref, err
			}}},
			"nothing": {plugin: wrong{gate: func(context.Context, zoo.GateRequest) (*zoo.Reference, error) { return nil, nil }}},
			"error":   {plugin: wrong{gate: func(context.Context, zoo.GateRequest) (*zoo.Reference, error) { return nil, fault.ErrIntegrity }}},
		},
		plugintest.RuleGateSame: {"prompts": {plugin: gated(func(ref *zoo.Reference, err error) (*zoo.Reference, error) {
			if err == nil {
				ref.Prompts = append(ref.Prompts, strconv.Itoa(prompt()))
			}
			return ref, err
		})}},
		plugintest.RuleGatePasses: {
			"tokens": {plugin: gated(func(ref *zoo.Reference, err error) (*zoo.Reference, error) {
				if err == nil && len(ref.Runs) > 0 {
					ref.Runs[0].Greedy[0]++
				}
				return ref, err
			})},
			"program": {plugin: recorded(func(p *program.Program) { p.Ops[0].Embed.Mul = -1 })},
		},
		plugintest.RuleGateBroken: {"ignored": {plugin: gated(func(ref *zoo.Reference, err error) (*zoo.Reference, error) {
			if errors.Is(err, fault.ErrIntegrity) {
				return &zoo.Reference{Prompts: []string{"Why?"}}, nil
			}
			return ref, err
		})}},
		plugintest.RuleSynthesize: {
			"unknown": {plugin: wrong{synthesize: func(ctx context.Context, req zoo.SynthesizeRequest) error { return synthesize(ctx, req, nil) }}},
			"another error": {plugin: wrong{synthesize: func(ctx context.Context, req zoo.SynthesizeRequest) error {
				if req.Model != synthetic {
					return fault.ErrNetwork
				}
				return synthesize(ctx, req, nil)
			}}},
			"random": {plugin: wrong{synthesize: func(ctx context.Context, req zoo.SynthesizeRequest) error {
				if req.Model != synthetic {
					return fault.ErrUsage
				}
				return synthesize(ctx, req, map[string]float32{"turn": float32(seed())})
			}}},
		},
		plugintest.RuleEstimate: {
			"size":    {plugin: estimated(func(e *zoo.Estimate) { e.PackBytes *= 4 })},
			"program": {plugin: estimated(func(e *zoo.Estimate) { e.Program.Context++ })},
			"nothing": {plugin: estimated(func(e *zoo.Estimate) { e.Program = nil })},
			"unknown": {plugin: wrong{estimate: func(ctx context.Context, req zoo.EstimateRequest) (zoo.Estimate, error) {
				if req.Config == nil {
					return zoo.Estimate{}, fault.ErrUsage
				}
				return sound{}.Estimate(ctx, req)
			}}},
		},
		plugintest.RuleCancelled: {
			"fetch": {plugin: wrong{fetch: func(ctx context.Context, req zoo.FetchRequest) (zoo.FetchPlan, error) {
				return sound{}.Fetch(context.WithoutCancel(ctx), req)
			}}},
			"another error": {plugin: wrong{run: func(ctx context.Context, req zoo.RunRequest) (*program.Program, error) {
				p, err := sound{}.Run(ctx, req)
				if ctx.Err() != nil {
					err = ctx.Err()
				}
				return p, err
			}}},
		},
		plugintest.RuleCancel: {
			"goes on": {plugin: wrong{convert: func(ctx context.Context, req zoo.ConvertRequest) error {
				if err := context.Cause(ctx); err != nil {
					return err
				}
				return convert(context.WithoutCancel(ctx), id, req, nil)
			}}},
			"hangs": {plugin: wrong{convert: func(ctx context.Context, req zoo.ConvertRequest) error {
				_, err := sound{}.Convert(ctx, req)
				if ctx.Err() != nil {
					select {}
				}
				return err
			}}, change: func(o *plugintest.Options) { o.Prompt = 8 * time.Second }},
			"a pack is left": {plugin: wrong{convert: func(ctx context.Context, req zoo.ConvertRequest) error {
				err := convert(context.WithoutCancel(ctx), id, req, nil)
				return errors.Join(err, context.Cause(ctx))
			}}},
		},
		plugintest.RuleTogether: {
			"one at a time": {plugin: oneAtATime()},
		},
		plugintest.RuleCrash: {
			"nothing is killed": {plugin: wrong{}, change: func(o *plugintest.Options) {
				o.Process = &plugintest.Process{Kill: func() error { return nil }}
			}},
			"nothing is killed, without a checkpoint": {plugin: wrong{}, change: func(o *plugintest.Options) {
				o.Checkpoint, o.Process = "", &plugintest.Process{Kill: func() error { return nil }}
			}},
		},
		plugintest.RuleHang: {"nothing hangs": {plugin: wrong{}, change: func(o *plugintest.Options) {
			o.Process = &plugintest.Process{Pause: func() error { return nil }}
		}}},
		plugintest.RuleSkew: {
			"accepted": {plugin: wrong{}, change: func(o *plugintest.Options) {
				o.Process = &plugintest.Process{Skewed: sound{}}
			}},
			"no hint": {plugin: wrong{}, change: func(o *plugintest.Options) {
				o.Process = &plugintest.Process{Skewed: wrong{describe: func(context.Context) (zoo.Description, error) { return zoo.Description{}, fault.ErrUsage }}}
			}},
			"another with a newer host": {plugin: wrong{}, change: func(o *plugintest.Options) {
				o.Process = &plugintest.Process{Newer: described(func(d *zoo.Description) { d.Version = "2.0.0" })}
			}},
		},
	}
}
