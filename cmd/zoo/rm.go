package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

// rmCommand returns `zoo rm`.
func (a *app) rmCommand() *cobra.Command {
	var checkpoint bool
	cmd := &cobra.Command{
		Use:     "rm NAME[@CONSTRAINT]...",
		Aliases: []string{"remove"},
		Short:   "Remove installed models",
		Long: `rm removes the newest installed version of each model that satisfies the
constraint: its pack, unless another model shares it, its source files, and the
reference values that were adopted for it (to go without those alone, see zoo gate
--forget). With --checkpoint nothing but the source files goes.`,
		Example: `  zoo rm demo
  zoo rm gemma-4-e2b@1.0.0
  zoo rm --checkpoint gemma-4-e2b   # keep the pack, delete what it was made from`,
		GroupID:           groupModels,
		Args:              args(1, -1, "the name of a model"),
		ValidArgsFunction: a.names,
		RunE: func(cmd *cobra.Command, args []string) error {
			z, err := a.unlocked() // any version may go
			if err != nil {
				return err
			}
			for _, name := range args {
				if checkpoint {
					r, err := z.RemoveCheckpoint(cmd.Context(), name)
					if err != nil {
						return err
					}
					a.note("removed the source files of %s@%s", r.Name(), r.Version())
					continue
				}
				name, version, err := z.Remove(cmd.Context(), name)
				if err != nil {
					return err
				}
				a.note("removed %s@%s", name, version)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&checkpoint, "checkpoint", false, "delete only the source files")
	return cmd
}

// countOf writes a number with a noun in singular or plural.
func countOf(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
