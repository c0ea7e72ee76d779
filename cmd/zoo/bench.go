package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/zoo-sdk/zoo/sdk"
)

const (
	// maxBenchRows bounds the combinations of one call: each is measured from anew.
	maxBenchRows = 64
	// plotContext is the longest context of a plot unless --context says otherwise.
	plotContext = 4096
)

// benchFlags are the flags of `zoo bench`. Those that are lists are measured in all
// their combinations.
type benchFlags struct {
	synthetic   []string
	prompts     []int
	depths      []int
	threads     []int
	caches      []string
	generate    int
	rounds      int
	context     int
	backend     string
	activations string
	tables      string
	ungated     bool
	profile     bool
	plot        string
	json        bool
}

// benchCommand returns `zoo bench`.
func (a *app) benchCommand() *cobra.Command {
	var f benchFlags
	cmd := &cobra.Command{
		Use:   "bench NAME|PACK_DIR...",
		Short: "Measure how fast a model runs on this machine",
		Long: `bench measures how fast a model loads, computes a prompt and decodes, what memory it
takes, and how much of the machine's bandwidth decoding reaches, which bounds it: a
token reads all weights once. Figures are medians of --rounds rounds, with the
smallest and the largest. Run it while nothing else runs.

--synthetic NAME takes random weights in the shapes of a model of the catalog in
place of its own, which need no download. They are written to the folder "synthetic"
of the store once; remove the folder to free the space.

Decoding follows the prompt, or --depth tokens of context, and takes the likeliest
token each time. Several models, or lists in --prompt, --depth, --threads and --kv, are
measured in all combinations, 64 at most, and give a table.

--profile shows where the time goes, from rounds of their own. --plot writes a picture
of the speed of decoding at 128, 512, 1024 and further doubled tokens of context, up
to --context.`,
		Example: `  zoo bench demo
  zoo bench --synthetic gemma-4-e2b
  zoo bench gemma-4-e2b --threads 1,2,4 --prompt 128,512 --json
  zoo bench ./my-pack --profile
  zoo bench --synthetic gemma-4-e2b --plot speed.svg --context 8192`,
		GroupID: groupMachine,
		Args: func(cmd *cobra.Command, list []string) error {
			if len(f.synthetic) > 0 {
				return nil
			}
			return args(1, -1, "the name of a model, or --synthetic NAME")(cmd, list)
		},
		ValidArgsFunction: a.names,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.check(len(args)); err != nil {
				return err
			}
			return a.bench(cmd.Context(), &f, args)
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&f.synthetic, "synthetic", nil, "measure random weights in the shapes of this model of the catalog")
	flags.IntSliceVar(&f.prompts, "prompt", []int{128}, "tokens of the prompt")
	flags.IntVar(&f.generate, "generate", 64, "tokens to decode")
	flags.IntSliceVar(&f.depths, "depth", []int{0}, "tokens of context before decoding; 0 takes those of the prompt")
	flags.IntVar(&f.rounds, "rounds", 5, "number of rounds that medians are taken of")
	flags.IntSliceVar(&f.threads, "threads", []int{0}, "number of threads that share the work; 0 takes one for each processor")
	flags.IntVar(&f.context, "context", 0, "most tokens of context to make room for; 0 takes what is needed, at least 4096")
	flags.StringSliceVar(&f.caches, "kv", []string{""}, "type of cached keys and values: float, half or int8 (default int8 where the model has scales for it)")
	flags.StringVar(&f.activations, "activations", "", "how the inputs of products are rounded: static, float, 16 or 8 (default static where the model has scales for it, else 16)")
	tablesFlag(cmd, &f.tables)
	flags.StringVar(&f.backend, "backend", sdk.AutoBackend, "what runs the model: auto, cpu or metal")
	flags.BoolVar(&f.ungated, "ungated", false, "measure a pack, too, that has not passed its gate")
	flags.BoolVar(&f.profile, "profile", false, "show the time of each operation")
	flags.StringVar(&f.plot, "plot", "", "write the speed of decoding against the length of the context to an SVG file")
	jsonFlag(cmd, &f.json)
	flags.Lookup("kv").DefValue = "[]" // the empty default is the model's own choice
	allowConfig(flags, "backend", "threads", "kv", "activations", "ungated")
	_ = cmd.MarkFlagFilename("plot", "svg")
	_ = cmd.RegisterFlagCompletionFunc("synthetic", func(cmd *cobra.Command, _ []string, text string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return a.names(cmd, nil, text)
	})
	for name, values := range map[string][]cobra.Completion{
		"backend":     {"auto", "cpu", "metal"},
		"kv":          {"float", "half", "int8"},
		"activations": {"static", "float", "16", "8"},
	} {
		_ = cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	}
	return cmd
}

// check refuses numbers and lists that mean nothing; see also sdk.Zoo.CheckBench.
func (f *benchFlags) check(models int) error {
	wrong := func(flag string, n, least int) error {
		return &usageError{fmt.Sprintf("--%s is %d", flag, n), fmt.Sprintf("give %d or more", least)}
	}
	for _, list := range [...]struct {
		flag   string
		values []int
		least  int
	}{
		{"prompt", f.prompts, 1},
		{"depth", f.depths, 0},
		{"threads", f.threads, 0},
		{"generate", []int{f.generate}, 1},
		{"rounds", []int{f.rounds}, 1},
		{"context", []int{f.context}, 0},
	} {
		if len(list.values) == 0 {
			return &usageError{fmt.Sprintf("--%s is an empty list", list.flag), "give a number, or several with commas between them"}
		}
		for _, n := range list.values {
			if n < list.least {
				return wrong(list.flag, n, list.least)
			}
		}
	}
	if len(f.caches) == 0 {
		f.caches = []string{""}
	}
	rows := (models + len(f.synthetic)) * len(f.caches) * len(f.threads) * len(f.prompts) * len(f.depths)
	if rows > maxBenchRows {
		return &usageError{fmt.Sprintf("%d combinations are more than %d", rows, maxBenchRows), "measure them in several calls"}
	}
	return nil
}

// benchResults is what --json prints.
type benchResults struct {
	Results []*sdk.BenchReport `json:"results"`
}

// bench measures all combinations and prints what was found.
func (a *app) bench(ctx context.Context, f *benchFlags, names []string) error {
	var opts []sdk.Option
	if f.ungated {
		opts = append(opts, sdk.AllowUngated())
	}
	z, err := a.zoo(opts...)
	if err != nil {
		return err
	}
	// Not after gigabytes have been written or minutes measured.
	err = f.each([]string{""}, func(_ string, how sdk.BenchOptions, opts []sdk.Option) error {
		return z.CheckBench(how, opts...)
	})
	if err != nil {
		return err
	}
	var target *plotFile
	if f.plot != "" {
		if target, err = openPlot(f.plot); err != nil {
			return err
		}
	}
	results, err := a.measure(ctx, z, f, names)
	// The figures first: they took their time, and the file may yet fail.
	err = errors.Join(err, a.printBench(f, results))
	if target != nil {
		err = errors.Join(err, a.writePlot(target, results))
	}
	return err
}

// measure measures all combinations, and returns those before an error with it.
func (a *app) measure(ctx context.Context, z *sdk.Zoo, f *benchFlags, names []string) (benchResults, error) {
	defer a.progress.end()
	results := benchResults{Results: []*sdk.BenchReport{}}
	for _, name := range f.synthetic {
		dir, err := z.Synthesize(ctx, name)
		if err != nil {
			return results, err
		}
		names = append(names[:len(names):len(names)], dir)
	}
	err := f.each(names, func(name string, how sdk.BenchOptions, opts []sdk.Option) error {
		report, err := z.Bench(ctx, name, how, opts...)
		a.progress.end()
		if err == nil {
			results.Results = append(results.Results, report)
		}
		return err
	})
	return results, err
}

// each calls measure for every combination, those of one model together.
func (f *benchFlags) each(names []string, measure func(name string, how sdk.BenchOptions, opts []sdk.Option) error) error {
	for _, name := range names {
		for _, cache := range f.caches {
			for _, threads := range f.threads {
				// The curve is the same for all prompts: it is measured with the first.
				how := sdk.BenchOptions{Generate: f.generate, Rounds: f.rounds, Profile: f.profile}
				context := f.context
				if f.plot != "" {
					if how.CurveTo, context = context, 0; how.CurveTo == 0 {
						how.CurveTo = plotContext
					}
				}
				opts := []sdk.Option{
					sdk.WithBackend(f.backend), sdk.WithThreads(threads), sdk.WithContext(context),
					sdk.WithCache(cache), sdk.WithActivations(f.activations), sdk.WithTables(f.tables),
				}
				for _, how.Prompt = range f.prompts {
					for _, how.Depth = range f.depths {
						if err := measure(name, how, opts); err != nil {
							return err
						}
						how.CurveTo = 0
					}
				}
			}
		}
	}
	return nil
}

// writePlot writes the plot of the results, if there are any.
func (a *app) writePlot(target *plotFile, results benchResults) error {
	if len(results.Results) == 0 {
		return target.discard()
	}
	if err := target.write(speedPlot(results.Results).svg()); err != nil {
		return err
	}
	a.note("wrote %s", target.Name())
	return nil
}

// printBench prints the results, if there are any.
func (a *app) printBench(f *benchFlags, results benchResults) error {
	if len(results.Results) == 0 {
		return nil
	}
	if f.json {
		return a.printJSON(results)
	}
	err := a.table(func(w io.Writer) {
		if len(results.Results) == 1 {
			showBench(w, results.Results[0])
		} else {
			listBench(w, results.Results)
		}
	})
	for _, r := range results.Results {
		if r.DecodeProfile == nil || err != nil {
			continue
		}
		title := ""
		if len(results.Results) > 1 {
			title = benchTitle(r) + ", "
		}
		if err = a.printProfile(fmt.Sprintf("%sprompt of %s", title, countOf(r.PromptTokens, "token")), r.PrefillProfile); err == nil {
			err = a.printProfile(fmt.Sprintf("%sa token after %d", title, r.Depth), r.DecodeProfile)
		}
	}
	return err
}
