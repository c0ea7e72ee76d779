package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/zoo-sdk/zoo/sdk"
)

// contractError is the end of a check that found something.
type contractError struct {
	file     string
	findings int
}

// Error counts what was found.
func (e *contractError) Error() string {
	return fmt.Sprintf("plugin %q breaks the contract in %s", e.file, countOf(e.findings, "way"))
}

// Hint says where the rules stand.
func (e *contractError) Hint() string {
	return "each line names the rule, the call that broke it and how; package plugintest explains the rules"
}

// pluginCheckCommand returns `zoo plugin check`.
func (a *app) pluginCheckCommand() *cobra.Command {
	var o sdk.PluginCheck
	var grid string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "check FILE",
		Short: "Hold a plugin's program to the contract of plugins",
		Long: `check starts the program in a file and makes every call that a plugin must answer:
with a checkpoint that it converts, and with what it must refuse. Meanwhile the
process is killed and stopped, and calls are cancelled. It prints a line for each
way in which the plugin differs from the contract, and exits with 0 only if there
is none. --checkpoint names the folder of a small checkpoint, which is converted
dozens of times; without one only that is checked which needs none. The plugin is
not installed, and the store is not touched.`,
		Example: `  zoo plugin check ./acme --checkpoint testdata/tiny
  zoo plugin check ./acme --checkpoint testdata/tiny --reference testdata/golden --json`,
		Args: args(1, 1, "the program of a plugin"),
		RunE: func(cmd *cobra.Command, args []string) error {
			z, err := a.zoo()
			if err != nil {
				return err
			}
			if grid != "" {
				o.Recipe = map[string]string{"grid": grid}
			}
			if o.Checkpoint == "" {
				a.note("without --checkpoint nothing is converted, run or gated")
			}
			o.Begin = func(part string) { a.note("checking: %s", part) }
			r, err := z.CheckPlugin(cmd.Context(), args[0], o)
			if err != nil {
				return err
			}
			if asJSON {
				err = a.printJSON(r)
			} else {
				err = a.showReport(args[0], r)
			}
			if err == nil && len(r.Findings) > 0 {
				err = &contractError{args[0], len(r.Findings)}
			}
			return err
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.Checkpoint, "checkpoint", "", "folder of a small checkpoint")
	flags.StringVar(&o.Reference, "reference", "", "folder of reference values of the checkpoint: golden.json and golden.safetensors")
	flags.StringVar(&grid, "grid", "", "grid that float weights are rounded to, where the plugin has a choice")
	_ = cmd.MarkFlagDirname("checkpoint")
	_ = cmd.MarkFlagDirname("reference")
	jsonFlag(cmd, &asJSON)
	return cmd
}

// showReport writes a line for each finding, or that there is none.
func (a *app) showReport(file string, r *sdk.PluginReport) error {
	for _, f := range r.Findings {
		if err := a.print("%s: %s: %s\n", f.Rule, f.Call, f.Problem); err != nil {
			return err
		}
	}
	if len(r.Findings) > 0 {
		return nil
	}
	return a.print("%s is sound: plugin %s %s keeps the contract in %s\n", file, r.Name, r.Version, countOf(len(r.Parts), "part"))
}
