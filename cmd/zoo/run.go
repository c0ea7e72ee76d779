package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/zoo-sdk/zoo/sdk"
)

// maxPromptBytes bounds a prompt on standard input. It is far more than a context holds.
const maxPromptBytes = 16 << 20

// engineFlags choose how a pack is run.
type engineFlags struct {
	backend     string
	threads     int
	context     int
	cache       string
	activations string
	tables      string
}

// add adds the flags that running and gating share.
func (f *engineFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.backend, "backend", sdk.AutoBackend, "what runs the model: auto, cpu or metal")
	flags.IntVar(&f.threads, "threads", 0, "number of threads; 0 takes one for each processor")
	flags.StringVar(&f.cache, "kv", "", "type of cached keys and values: float, half or int8 (default int8 where the model has scales for it)")
	flags.StringVar(&f.activations, "activations", "", "how the inputs of products are rounded: static, float, 16 or 8 (default static where the model has scales for it, else 16)")
	allowConfig(flags, "backend", "threads", "kv", "activations")
	for name, values := range map[string][]cobra.Completion{
		"backend":     {"auto", "cpu", "metal"},
		"kv":          {"float", "half", "int8"},
		"activations": {"static", "float", "16", "8"},
	} {
		_ = cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	}
}

// tablesFlag adds the flag that says how tables are kept. It changes no result.
func tablesFlag(cmd *cobra.Command, place *string) {
	cmd.Flags().StringVar(place, "tables", "", "how tables are kept that rows are only looked up in: mapped, in the pack's file, or resident, in memory (default mapped on the processor, resident on a GPU)")
	allowConfig(cmd.Flags(), "tables")
	_ = cmd.RegisterFlagCompletionFunc("tables", cobra.FixedCompletions([]cobra.Completion{"mapped", "resident"}, cobra.ShellCompDirectiveNoFileComp))
}

// options returns the flags as options of the SDK.
func (f *engineFlags) options() []sdk.Option {
	return []sdk.Option{
		sdk.WithBackend(f.backend),
		sdk.WithThreads(f.threads),
		sdk.WithContext(f.context),
		sdk.WithCache(f.cache),
		sdk.WithActivations(f.activations),
		sdk.WithTables(f.tables),
	}
}

// callFlags choose how an answer is made.
type callFlags struct {
	system        string
	maxTokens     int
	temperature   float64
	topK          int
	topP, minP    float64
	repeatPenalty float64
	seed          uint64
	stop          []string
	think, raw    bool
}

// add adds the flags.
func (f *callFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.system, "system", "", "system prompt, which tells the model how to behave")
	flags.IntVar(&f.maxTokens, "max-tokens", 0, "most tokens of an answer; 0 sets no limit")
	flags.Float64Var(&f.temperature, "temperature", 0, "0 takes the likeliest token, 1 draws as the model weighs them (default as the model has it)")
	flags.IntVar(&f.topK, "top-k", 0, "draw from the k likeliest tokens only; 0 from all (default as the model has it)")
	flags.Float64Var(&f.topP, "top-p", 1, "draw from the likeliest tokens of this share only (default as the model has it)")
	flags.Float64Var(&f.minP, "min-p", 0, "draw only from tokens at least this many times as likely as the likeliest (default as the model has it)")
	flags.Float64Var(&f.repeatPenalty, "repeat-penalty", 1, "make tokens that occurred lately less likely (default as the model has it)")
	flags.Uint64Var(&f.seed, "seed", 0, "repeat the draws of the same seed (default a new one each time)")
	flags.StringArrayVar(&f.stop, "stop", nil, "text that ends the answer; may be repeated")
	flags.BoolVar(&f.think, "think", false, "let the model think before it answers")
	flags.BoolVar(&f.raw, "raw", false, "give the prompt to the model as it is, without the chat template")
	for _, name := range []string{"top-p", "repeat-penalty"} {
		flags.Lookup(name).DefValue = "0" // the default is the model's, which the usage says
	}
	allowConfig(flags, "system", "max-tokens", "temperature", "top-k", "top-p", "min-p", "repeat-penalty", "seed", "think")
}

// options returns the flags that were set as options of an answer.
func (f *callFlags) options(cmd *cobra.Command) []sdk.CallOption {
	var opts []sdk.CallOption
	for _, o := range [...]struct {
		flag   string
		option func() sdk.CallOption
	}{
		{"system", func() sdk.CallOption { return sdk.System(f.system) }},
		{"max-tokens", func() sdk.CallOption { return sdk.MaxTokens(f.maxTokens) }},
		{"temperature", func() sdk.CallOption { return sdk.Temperature(f.temperature) }},
		{"top-k", func() sdk.CallOption { return sdk.TopK(f.topK) }},
		{"top-p", func() sdk.CallOption { return sdk.TopP(f.topP) }},
		{"min-p", func() sdk.CallOption { return sdk.MinP(f.minP) }},
		{"repeat-penalty", func() sdk.CallOption { return sdk.RepeatPenalty(f.repeatPenalty) }},
		{"seed", func() sdk.CallOption { return sdk.Seed(f.seed) }},
		{"stop", func() sdk.CallOption { return sdk.Stop(f.stop...) }},
	} {
		if cmd.Flags().Changed(o.flag) {
			opts = append(opts, o.option())
		}
	}
	if f.think {
		opts = append(opts, sdk.Think())
	}
	if f.raw {
		opts = append(opts, sdk.Raw())
	}
	return opts
}

// runCommand returns `zoo run`.
func (a *app) runCommand() *cobra.Command {
	var engine engineFlags
	var call callFlags
	var ungated, stats bool
	cmd := &cobra.Command{
		Use:   "run NAME|PACK_DIR [PROMPT]",
		Short: "Ask a model, or chat with it",
		Long: `run answers a prompt with a model, which is installed first if it is not yet. The
prompt is what follows the name, or else standard input; on a terminal without a
prompt it is a chat, in which /help lists the commands.

The answer alone goes to standard output, as it comes; everything else goes to
standard error. Sampling is as the model's generation_config.json has it, unless
flags say otherwise.`,
		Example: `  zoo run demo "What is the capital of France?"
  echo "Define word." | zoo run demo
  zoo run gemma-4-e2b --temperature 0.7 --seed 7 --max-tokens 200 "Tell me a story."
  zoo run gemma-4-e2b`,
		GroupID:           groupModels,
		Args:              args(1, -1, "the name of a model"),
		ValidArgsFunction: a.names,
		RunE: func(cmd *cobra.Command, args []string) error {
			opts := engine.options()
			if ungated {
				opts = append(opts, sdk.AllowUngated())
			}
			z, err := a.zoo(opts...)
			if err != nil {
				return err
			}
			prompt, chat, err := a.prompt(args[1:])
			if err != nil {
				return err
			}
			if !chat && strings.TrimSpace(prompt) == "" && !call.raw {
				return &sdk.EmptyPromptError{} // before gigabytes are fetched for it
			}
			m, err := z.Open(cmd.Context(), args[0])
			a.progress.end()
			if err != nil {
				return err
			}
			defer m.Close()
			s := &session{app: a, model: m, opts: call.options(cmd), raw: call.raw, stats: stats, system: call.system}
			if chat {
				return s.chat(cmd.Context())
			}
			return s.once(cmd.Context(), prompt)
		},
	}
	engine.add(cmd)
	call.add(cmd)
	flags := cmd.Flags()
	flags.IntVar(&engine.context, "context", 0, "most tokens of the conversation; 0 takes what the model was made for and the memory allows")
	tablesFlag(cmd, &engine.tables)
	flags.BoolVar(&ungated, "ungated", false, "run a pack, too, that has not passed its gate")
	flags.BoolVar(&stats, "stats", false, "print how long it took")
	allowConfig(flags, "context", "ungated", "stats")
	return cmd
}

// prompt returns the prompt from the arguments or standard input, or that there is to be a chat.
func (a *app) prompt(words []string) (prompt string, chat bool, err error) {
	if len(words) > 0 {
		return strings.Join(words, " "), false, nil
	}
	if isTerminal(a.in) {
		return "", true, nil
	}
	data, err := io.ReadAll(io.LimitReader(a.in, maxPromptBytes+1))
	if err != nil {
		return "", false, fmt.Errorf("read the prompt: %w", err)
	}
	if len(data) > maxPromptBytes {
		return "", false, &usageError{fmt.Sprintf("the prompt has more than %s", size(maxPromptBytes)), "shorten the prompt"}
	}
	// The newline that ends a line of a shell is not part of the prompt.
	return strings.TrimSuffix(strings.TrimSuffix(string(data), "\n"), "\r"), false, nil
}

// session is one model answering.
type session struct {
	app    *app
	model  *sdk.Model
	opts   []sdk.CallOption
	system string
	raw    bool
	stats  bool
}

// once answers one prompt.
func (s *session) once(ctx context.Context, prompt string) error {
	var usage sdk.Usage
	opts := append(s.opts[:len(s.opts):len(s.opts)], sdk.Measure(&usage))
	err := s.write(s.model.Stream(ctx, prompt, opts...))
	if err == nil {
		s.printStats(usage)
	}
	return err
}

// write prints an answer as it comes and ends it with a newline.
func (s *session) write(pieces func(yield func(string, error) bool)) error {
	last := ""
	for piece, err := range pieces {
		if err != nil {
			if last != "" {
				_ = s.app.print("\n")
			}
			return err
		}
		if _, err := io.WriteString(s.app.out, piece); err != nil {
			return errOutput(err)
		}
		last = piece
	}
	if !strings.HasSuffix(last, "\n") {
		return s.app.print("\n")
	}
	return nil
}

// printStats tells how long an answer took.
func (s *session) printStats(u sdk.Usage) {
	if !s.stats {
		return
	}
	rate := func(tokens int, d time.Duration) string {
		if tokens <= 0 || d <= 0 {
			return "-"
		}
		return fmt.Sprintf("%.1f tokens/s", float64(tokens)/d.Seconds())
	}
	info := s.model.Info()
	w := s.app.err
	fmt.Fprintf(w, "prompt:  %s, %d of them cached, in %s (%s)\n", countOf(u.PromptTokens, "token"), u.CachedTokens, duration(u.PromptTime), rate(u.PromptTokens-u.CachedTokens, u.PromptTime))
	fmt.Fprintf(w, "answer:  %s in %s (%s), ended by %s\n", countOf(u.OutputTokens, "token"), duration(u.OutputTime), rate(u.OutputTokens, u.OutputTime), u.Finish)
	if u.Submissions > 0 {
		fmt.Fprintf(w, "steps:   %s\n", steps(float64(u.Steps)/float64(u.Submissions), u.SingleStep))
	}
	fmt.Fprintf(w, "backend: %s (%s; %s), %s, %s activations, %s cache, %s tables, context %d\n",
		info.Backend, info.Kernels, info.Why, countOf(info.Threads, "thread"), info.Activations, info.Cache, info.Tables, info.Context)
}

// steps says how many tokens a backend takes at a time and, where it is one, why.
func steps(tokens float64, single string) string {
	if single != "" {
		return "one token a submission: " + single
	}
	return fmt.Sprintf("%.1f tokens a submission", tokens)
}
