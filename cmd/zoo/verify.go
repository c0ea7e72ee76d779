package main

import (
	"github.com/spf13/cobra"
)

// verifyCommand returns `zoo verify`.
func (a *app) verifyCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "verify NAME|PACK_DIR",
		Short: "Read a pack, its source files and adopted reference values through and check every byte",
		Long: `verify reads the pack of a model, its source files as far as they are kept, and
the reference values that were adopted for it, and holds every byte against the
digests that were recorded when they were made, fetched or adopted. Each damaged
file, and in the weights each damaged tensor, is named (exit code 4).`,
		Example: `  zoo verify demo
  zoo verify ./my-pack`,
		GroupID:           groupMaking,
		Args:              args(1, 1, "the name of a model or the folder of a pack"),
		ValidArgsFunction: a.names,
		RunE: func(cmd *cobra.Command, args []string) error {
			z, err := a.zoo()
			if err != nil {
				return err
			}
			v, err := z.Verify(cmd.Context(), args[0])
			a.progress.end()
			if err != nil {
				return err
			}
			if asJSON {
				return a.printJSON(v)
			}
			more := ""
			if v.Checkpoint {
				more = "; " + countOf(v.CheckpointFiles, "source file") + ", " + size(v.CheckpointBytes)
			}
			if v.ReferenceFiles > 0 {
				more += "; " + countOf(v.ReferenceFiles, "adopted file") + ", " + size(v.ReferenceBytes)
			}
			return a.print("%s is sound: pack %s, %s%s\n", v.Name, v.Pack, size(v.PackBytes), more)
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}
