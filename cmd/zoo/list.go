package main

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/zoo-sdk/zoo/sdk"
	"github.com/zoo-sdk/zoo/zoo"
)

// listCommand returns `zoo list`.
func (a *app) listCommand() *cobra.Command {
	var asJSON, installed bool
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the models that are installed and those of the catalog",
		Long: `list shows what is installed, and the newest version of every other model in the
catalog. GATE is "oracle" for a pack that was held against reference values,
"self" for one that passed its own consistency checks, or else what is amiss;
"adopted" beside it tells that reference values of your own have taken the place
of the catalog's.
What this build cannot run is "unsupported"; ` + "`zoo show`" + ` says why. What is in the lock
file is "locked", and "not as locked" if another version or pack is installed.`,
		Example: `  zoo list
  zoo list --installed --json`,
		GroupID: groupModels,
		Args:    args(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			z, err := a.zoo()
			if err != nil {
				return err
			}
			entries, err := z.List(cmd.Context())
			if err != nil {
				return err
			}
			if installed {
				kept := entries[:0]
				for _, e := range entries {
					if e.Installed {
						kept = append(kept, e)
					}
				}
				entries = kept
			}
			if asJSON {
				return a.printJSON(entries)
			}
			return a.table(func(w io.Writer) {
				fmt.Fprintln(w, "NAME\tVERSION\tSTATE\tSIZE\tGATE\tTITLE")
				for _, e := range entries {
					state, bytes, gate := "available", e.DownloadBytes, "-"
					if e.Installed {
						state, bytes, gate = "installed", e.PackBytes, e.Gate
						if e.Reference == sdk.FromAdoption {
							gate += ", adopted"
						}
					}
					if e.Problem != "" {
						state = "unsupported"
					}
					if e.Lock != "" {
						state += ", " + e.Lock
					}
					amount := size(bytes)
					if bytes == 0 {
						amount = "-"
					}
					fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", e.Name, e.Version, state, amount, gate, e.Title)
				}
			})
		},
	}
	jsonFlag(cmd, &asJSON)
	cmd.Flags().BoolVar(&installed, "installed", false, "leave out what is not installed")
	return cmd
}

// table writes aligned columns to standard output.
func (a *app) table(fill func(w io.Writer)) error {
	w := tabwriter.NewWriter(a.out, 0, 4, 2, ' ', 0)
	fill(w)
	return errOutput(w.Flush())
}

// gateFigures lists what a gate measured.
func gateFigures(r *zoo.Receipt) string {
	text := ""
	if r.Of > 0 {
		text += fmt.Sprintf(", %d of %d tokens", r.Matched, r.Of)
	}
	if r.Score != nil {
		text += fmt.Sprintf(", %d of %d questions", r.Score.Right, r.Score.Of)
	}
	return text
}
