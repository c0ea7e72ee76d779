package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/zoo-sdk/zoo/sdk"
)

// gateCommand returns `zoo gate`.
func (a *app) gateCommand() *cobra.Command {
	var how sdk.GateOptions
	var engine engineFlags
	var asJSON bool
	var report, adopt string
	var forget bool
	cmd := &cobra.Command{
		Use:   "gate NAME|PACK_DIR",
		Short: "Hold a pack against reference values and itself",
		Long: `gate runs a pack on this machine and compares it with reference values: those
that were adopted for the model, those that are published for it, or those of a
folder with golden.json, golden.safetensors and perhaps questions.jsonl. Without
any, the pack is put to the checks that need none. What it finds is kept as a
receipt, and a pack whose receipt is missing or tells of a failure is not opened.

It fails (exit code 5) on a token that differs where the reference was surer than
the fork margin, on logits that are off, and on a task score below the
reference's. A gate with --fork-margin leaves no receipt, and one with another
cache or other activations than the pack's defaults only if the pack passes.

With --adopt the values of a folder become the installed model's reference: they
are copied into the store, the pack is gated against them, and if it passes they
take the place of the catalog's in every later gate and pull of that version, as
long as it is made from the same source files to the same recipe. If it fails,
nothing changes. --forget removes them and gates the pack anew. tools/oracle in
the source tree makes such values from a checkpoint.`,
		Example: `  zoo gate demo
  zoo gate ./my-pack --reference ./goldens --json
  zoo gate demo --kv float --activations float --report gate.html
  zoo gate gemma-4-e2b --adopt ./goldens`,
		GroupID:           groupMaking,
		Args:              args(1, 1, "the name of a model or the folder of a pack"),
		ValidArgsFunction: a.names,
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("fork-margin") && !(how.ForkMargin > 0) {
				return &usageError{fmt.Sprintf("a fork margin of %g", how.ForkMargin), "give a positive number, such as 0.001"}
			}
			// An empty value is a variable of the shell that is not set, and no wish for another gate.
			for _, flag := range []string{"reference", "adopt", "report"} {
				if f := cmd.Flags().Lookup(flag); f.Changed && f.Value.String() == "" {
					return &usageError{fmt.Sprintf("--%s is empty", flag), "give a path, or leave the flag out"}
				}
			}
			if adopt != "" || forget {
				for _, other := range []string{"reference", "fork-margin", "quick"} {
					if cmd.Flags().Changed(other) || adopt != "" && forget {
						return &usageError{"--adopt and --forget put the pack to its full gate", "leave out the other, --reference, --fork-margin and --quick"}
					}
				}
			}
			z, err := a.zoo()
			if err != nil {
				return err
			}
			var r *sdk.GateReport
			switch opts := engine.options(); {
			case adopt != "":
				if r, err = z.AdoptReference(cmd.Context(), args[0], adopt, opts...); err == nil {
					a.note("adopted the reference values in %s for %s", adopt, args[0])
				}
			case forget:
				if r, err = z.ForgetReference(cmd.Context(), args[0], opts...); r != nil {
					a.note("removed the reference values that were adopted for %s", args[0])
				}
			default:
				r, err = z.Gate(cmd.Context(), args[0], how, opts...)
			}
			a.progress.end()
			if r == nil {
				return err
			}
			var perr, werr error
			if asJSON {
				perr = a.printJSON(r)
			} else {
				perr = a.table(func(w io.Writer) { showGate(w, r) })
			}
			if report != "" {
				if werr = writeReport(report, r); werr == nil {
					a.note("wrote %s", report)
				}
			}
			switch {
			case err == nil:
				return errors.Join(perr, werr)
			case werr != nil:
				// The verdict decides on the exit code.
				return fmt.Errorf("%w; nor is the report written: %v", err, werr)
			}
			return err
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&how.Reference, "reference", "", "folder with golden.json, golden.safetensors and perhaps questions.jsonl")
	flags.StringVar(&adopt, "adopt", "", "make the values in a folder like that of --reference the model's reference, if the pack meets them")
	flags.BoolVar(&forget, "forget", false, "remove the adopted reference values and gate the pack anew")
	flags.Float64Var(&how.ForkMargin, "fork-margin", 0, "largest reference margin at which a token may differ (default 0.001, or 1 with static, 16- or 8-bit activations or a half or int8 cache)")
	flags.BoolVar(&how.Quick, "quick", false, "ask a sample of the questions only")
	flags.StringVar(&report, "report", "", "write every figure to an HTML file")
	jsonFlag(cmd, &asJSON)
	engine.add(cmd)
	_ = cmd.MarkFlagDirname("reference")
	_ = cmd.MarkFlagDirname("adopt")
	_ = cmd.MarkFlagFilename("report", "html")
	return cmd
}

// writeReport writes a report as a page.
func writeReport(file string, r *sdk.GateReport) error {
	var page bytes.Buffer
	if err := r.WriteHTML(&page); err != nil {
		return err
	}
	if err := os.WriteFile(file, page.Bytes(), 0o644); err != nil {
		return fileError(file, err)
	}
	return nil
}

// showGate writes a report for people.
func showGate(w io.Writer, r *sdk.GateReport) {
	line := func(name, format string, args ...any) { fmt.Fprintf(w, "%s\t%s\n", name, fmt.Sprintf(format, args...)) }
	verdict := "passed"
	if !r.Pass {
		verdict = "failed"
	}
	line("gate", "%s (%s) in %s", verdict, r.Level, duration(r.Elapsed))
	line("pack", "%s", r.Pack)
	line("backend", "%s: %s, %s activations, %s cache", r.Backend, r.Kernels, r.Activations, r.Cache)
	for i, run := range r.Runs {
		text := fmt.Sprintf("%d of %d tokens after a prompt of %d", run.Matched, run.Of, run.PromptTokens)
		if run.ForkMargin != nil {
			text += fmt.Sprintf(", largest fork at a margin of %.3g", *run.ForkMargin)
		}
		if run.MaxAbsLogitError != nil {
			text += fmt.Sprintf(", logits off by at most %.3g", *run.MaxAbsLogitError)
		}
		if run.RelL2 != nil {
			text += fmt.Sprintf(" (rel_l2 %.2e)", *run.RelL2)
		}
		line(fmt.Sprintf("run %d", i), "%s", text)
	}
	if r.Score != nil {
		line("questions", "%d of %d answered exactly; the reference answers %d", r.Score.Right, r.Score.Of, r.ReferenceRight)
	}
	for _, c := range r.Checks {
		result := "yes"
		if c.Problem != "" {
			result = "no: " + c.Problem
		}
		line(c.Name, "%s", result)
	}
	for _, f := range r.Failures {
		line("failure", "%s", f)
	}
}
