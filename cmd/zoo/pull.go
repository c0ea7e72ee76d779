package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/zoo-sdk/zoo/sdk"
	"github.com/zoo-sdk/zoo/zoo"
)

// pullCommand returns `zoo pull`.
func (a *app) pullCommand() *cobra.Command {
	var from []string
	var discard bool
	cmd := &cobra.Command{
		Use:   "pull [NAME[@CONSTRAINT]]",
		Short: "Install a model: fetch, convert, verify and gate it",
		Long: `pull installs the newest version of a model that satisfies the constraint.

It fetches the source files that the catalog pins, converts them into a pack,
verifies the pack and puts it to its gate. Files are taken from the folders of
--from, from the cache of the hub's own tools, and then from the hub. What is
there already is not done again; a pull that was cut short goes on where it
stopped, and two pulls of the same model do the work once.

A pack that fails its gate stays installed but is not opened (exit code 5).

Without a name everything that the lock file says is installed; see zoo lock.`,
		Example: `  zoo pull demo
  zoo pull gemma-4-e2b@^1.0
  zoo pull gemma-4-e2b --from ~/models/gemma-4-E2B-it-qat-mobile-transformers`,
		GroupID:           groupModels,
		Args:              args(0, 1, "the name of a model"),
		ValidArgsFunction: a.names,
		RunE: func(cmd *cobra.Command, args []string) error {
			opts := []sdk.Option{sdk.WithCheckpoint(from...)}
			if discard {
				opts = append(opts, sdk.WithoutCheckpoint())
			}
			z, err := a.zoo(opts...)
			if err != nil {
				return err
			}
			if len(args) == 0 {
				if args, err = a.lockedNames(z); err != nil {
					return err
				}
			}
			for _, name := range args {
				if err := a.pull(cmd.Context(), z, name); err != nil {
					return err
				}
			}
			return nil
		},
	}
	flags := cmd.Flags()
	flags.StringArrayVar(&from, "from", nil, "folder to take source files from; may be repeated")
	flags.BoolVar(&discard, "discard-checkpoint", false, "delete the source files once they are converted")
	allowConfig(flags, "discard-checkpoint")
	_ = cmd.MarkFlagDirname("from")
	return cmd
}

// pull installs one model and says so.
func (a *app) pull(ctx context.Context, z *sdk.Zoo, name string) error {
	begin := time.Now()
	done, err := z.Pull(ctx, name)
	a.progress.end()
	if err != nil {
		return err
	}
	r := &done.Record
	if !done.Fresh {
		a.note("%s@%s is installed and sound", r.Name(), r.Version())
		return nil
	}
	a.note("%s %s@%s in %s: pack %s, %s, %s", a.style(styleGood, "installed"), r.Name(), r.Version(),
		duration(time.Since(begin)), r.Pack, size(done.PackBytes), gateSummary(&done.Receipt))
	return nil
}

// gateSummary says in a few words how a gate went.
func gateSummary(r *zoo.Receipt) string {
	text := "gate passed (self)"
	if r.Level == zoo.LevelOracle {
		text = "gate passed (oracle)"
	}
	if !r.Passed {
		text = "gate failed"
	}
	return text + gateFigures(r)
}
