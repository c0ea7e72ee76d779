package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/zoo-sdk/zoo/sdk"
)

// doctorFlags are the flags of `zoo doctor`.
type doctorFlags struct {
	metal bool
	how   sdk.MetalOptions
	json  bool
}

// doctorCommand returns `zoo doctor`.
func (a *app) doctorCommand() *cobra.Command {
	var f doctorFlags
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Say what zoo finds on this machine and what will not work",
		Long: `doctor looks at the store, the space left, the settings of the hub, the backends
and the processor. It uses no network, and tells of an access token only whether
there is one.

--metal checks the GPU of a Mac in place of that, for some minutes in which nothing
else should run: what the device does and how fast, that its kernels compute every
bit as it should be, and that the model "demo", which is installed if need be, gives
the same tokens as on the processor, one by one. It prints a line for each check, and
exits with 0 only if all is well. With --synthetic it also measures how fast a model
would run, with random weights as those of ` + "`zoo bench --synthetic`" + `.`,
		Example: `  zoo doctor
  zoo doctor --metal
  zoo doctor --metal --synthetic gemma-4-e2b`,
		GroupID: groupMachine,
		Args:    args(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.how.Synthetic != "" && !f.metal {
				return &usageError{"--synthetic is measured with --metal only", "add --metal, or run `zoo bench --synthetic " + f.how.Synthetic + "`"}
			}
			z, err := a.zoo()
			if err != nil {
				return err
			}
			if f.metal {
				return a.diagnoseMetal(cmd.Context(), f, z.DiagnoseMetal)
			}
			d, err := z.Doctor(cmd.Context())
			if err != nil {
				return err
			}
			if f.json {
				return a.printJSON(d)
			}
			return a.table(func(w io.Writer) { showDiagnosis(w, d) })
		},
	}
	cmd.Flags().BoolVar(&f.metal, "metal", false, "check the GPU of a Mac and all that runs on it")
	cmd.Flags().StringVar(&f.how.Synthetic, "synthetic", "", "with --metal, measure random weights in the shapes of this model of the catalog, too")
	_ = cmd.RegisterFlagCompletionFunc("synthetic", func(cmd *cobra.Command, _ []string, text string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return a.names(cmd, nil, text)
	})
	jsonFlag(cmd, &f.json)
	return cmd
}

// metalResult is what --metal prints as JSON.
type metalResult struct {
	OK bool `json:"ok"`
	// Problem says why not, in a few words.
	Problem string       `json:"problem,omitempty"`
	Checks  []metalCheck `json:"checks"`
}

// metalCheck is a check of a metalResult.
type metalCheck struct {
	Name    string  `json:"name"`
	OK      bool    `json:"ok"`
	Detail  string  `json:"detail"`
	Problem string  `json:"problem,omitempty"`
	Seconds float64 `json:"seconds"`
}

// diagnoseMetal runs a diagnosis and prints a line for each check when it is done, or
// JSON at the end.
func (a *app) diagnoseMetal(ctx context.Context, f doctorFlags, diagnose func(context.Context, sdk.MetalOptions, func(sdk.MetalCheck)) error) error {
	result := metalResult{Checks: []metalCheck{}}
	var output error
	err := diagnose(ctx, f.how, func(c sdk.MetalCheck) {
		a.progress.end()
		if f.json {
			result.add(c)
		} else if output == nil {
			output = a.print("%-11s %s (%s)\n", c.Name, outcome(c), duration(c.Took))
		}
	})
	a.progress.end()
	switch {
	case f.json:
		if result.OK = err == nil; err != nil {
			result.Problem = err.Error()
		}
		output = a.printJSON(result)
	case err == nil && output == nil:
		output = a.print("ok\n")
	}
	return errors.Join(err, output)
}

// add adds a check.
func (r *metalResult) add(c sdk.MetalCheck) {
	check := metalCheck{Name: c.Name, OK: c.Err == nil, Detail: c.Detail, Seconds: c.Took.Seconds()}
	if c.Err != nil {
		check.Problem = c.Err.Error()
	}
	r.Checks = append(r.Checks, check)
}

// outcome says what a check has found.
func outcome(c sdk.MetalCheck) string {
	switch {
	case c.Err == nil:
		return c.Detail
	case c.Detail == "":
		return fmt.Sprintf("FAILED: %v", c.Err)
	}
	return fmt.Sprintf("FAILED: %v; %s", c.Err, c.Detail)
}

// showDiagnosis writes one fact a line.
func showDiagnosis(w io.Writer, d *sdk.Diagnosis) {
	line := func(name, format string, args ...any) { fmt.Fprintf(w, "%s\t%s\n", name, fmt.Sprintf(format, args...)) }
	line("zoo", "%s (%s, %s/%s)", d.Version, d.Go, d.OS, d.Arch)
	line("processor", "%s, %s", countOf(d.Processors, "thread"), orNone(strings.Join(d.Features, " "), "no instruction sets that kernels know"))
	line("memory", "%s", amount(d.MemoryBytes))
	store := d.Home
	switch {
	case !d.Exists:
		store += " (made at the first pull)"
	case !d.Writable:
		store += " (cannot be written)"
	}
	line("store", "%s", store)
	line("free space", "%s", amount(d.FreeBytes))
	line("used", "%s in packs, %s in source files, %s else", size(d.Used.PackBytes), size(d.Used.CheckpointBytes), size(d.Used.OtherBytes))
	hub := d.Endpoint
	if d.Offline {
		hub += " (offline: not asked)"
	}
	line("hub", "%s", hub)
	token := "none; gated models cannot be fetched (set HF_TOKEN)"
	if d.Token {
		token = "present"
	}
	line("token", "%s", token)
	line("hub cache", "%s", orNone(d.HubCache, "none"))
	line("catalog", "%s", countOf(d.Models, "model"))
	switch {
	case d.CatalogKey != "":
		line("catalog file", "%s, signed by key %s (%s)", d.CatalogFile, d.CatalogKey, orNone(d.CatalogComment, "no comment"))
	case d.CatalogFile != "" && d.Models > 0:
		line("catalog file", "%s, not checked: its plugins are not installed (name the key that it is signed with, --catalog-key)", d.CatalogFile)
	case d.CatalogFile != "":
		line("catalog file", "%s, not read", d.CatalogFile)
	}
	if d.LockFile != "" {
		line("lock file", "%s, %s", d.LockFile, countOf(d.Locked, "model"))
	}
	for _, p := range d.Plugins {
		line("plugin", "%s %s: %s", p.Name, p.Version, p.Title)
	}
	for _, b := range d.Backends {
		about := b.About
		switch {
		case !b.Available:
			about = "not available: " + about
		case b.Chosen:
			about += fmt.Sprintf(" (taken by auto: %s)", b.Why)
		}
		line("backend", "%s: %s", b.Name, about)
	}
	if len(d.Problems) == 0 {
		line("problems", "none")
	}
	for _, p := range d.Problems {
		line("problem", "%s", p)
	}
}

// amount writes a size that may be unknown.
func amount(n int64) string {
	if n <= 0 {
		return "unknown"
	}
	return size(n)
}

// orNone returns text, or what stands for none.
func orNone(text, none string) string {
	if text == "" {
		return none
	}
	return text
}
