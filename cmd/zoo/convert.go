package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/spf13/cobra"

	"github.com/zoo-sdk/zoo/sdk"
	"github.com/zoo-sdk/zoo/zoo"
)

// convertCommand returns `zoo convert`.
func (a *app) convertCommand() *cobra.Command {
	var o sdk.ConvertOptions
	var grid string
	var compare compareFlags
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "convert CHECKPOINT_DIR --plugin NAME[@CONSTRAINT] -o PACK_DIR",
		Short: "Make a pack of a checkpoint folder, outside of the store",
		Long: `convert makes a pack of a folder of source files. The same files, plugin version
and grid give the same pack, to the byte, on every machine. The folder can then be
given wherever a model's name can. It is not gated: see ` + "`zoo gate`" + `.

The newest plugin of the name converts, or the newest that satisfies the constraint.

` + compareHelp,
		Example: `  zoo convert ./gemma-4-E2B --plugin gemma4e2b -o ./e2b-pack
  zoo convert ./gemma-4-E2B --plugin gemma4e2b@^1 -o ./e2b-pack
  zoo convert --compare ./e2b-pack gemma-4-e2b`,
		GroupID: groupMaking,
		Args: func(cmd *cobra.Command, list []string) error {
			if compare.on {
				return args(2, 2, "two packs to compare")(cmd, list)
			}
			return args(1, 1, "the folder of a checkpoint")(cmd, list)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := compare.check(cmd); err != nil {
				return err
			}
			z, err := a.zoo()
			if err != nil {
				return err
			}
			if compare.on {
				return a.compare(cmd, z, args, compare.CompareOptions, asJSON)
			}
			o.Checkpoint = args[0]
			switch {
			case o.Plugin == "":
				return &usageError{"no plugin is named", "add --plugin NAME; `zoo plugin list` shows them"}
			case o.Output == "":
				return &usageError{"no folder for the pack is named", "add -o PACK_DIR"}
			}
			if grid != "" {
				o.Recipe = map[string]string{"grid": grid}
			}
			done, err := z.Convert(cmd.Context(), o)
			a.progress.end()
			if err != nil {
				return err
			}
			if asJSON {
				return a.printJSON(done)
			}
			if err := a.print("%s %s\n", done.Digest, done.Dir); err != nil {
				return err
			}
			if o.Report {
				return a.table(func(w io.Writer) { showConverted(w, done) })
			}
			return nil
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.Plugin, "plugin", "", "plugin that converts, such as gemma4e2b or gemma4e2b@^1")
	flags.StringVarP(&o.Output, "output", "o", "", "folder that becomes the pack")
	flags.StringVar(&grid, "grid", "", "grid that float weights are rounded to: q4_0, absmax7 or none, where the plugin has a choice")
	flags.BoolVar(&o.Report, "report", false, "say what is in the pack, and what each grid does to float weights, which are read once more for it")
	compare.add(cmd)
	jsonFlag(cmd, &asJSON)
	_ = cmd.MarkFlagDirname("output")
	return cmd
}

// showConverted says what is in a new pack.
func showConverted(w io.Writer, c *sdk.Converted) {
	fmt.Fprintf(w, "made by\t%s %s\n", c.Plugin.Name, c.Plugin.Version)
	fmt.Fprintf(w, "size\t%s\n", size(c.SizeBytes))
	for _, f := range c.Tensors {
		fmt.Fprintf(w, "%s\t%s, %s\n", f.Format, countOf(f.Count, "tensor"), size(f.SizeBytes))
	}
	for _, e := range c.Rounding {
		if e.Problem != "" {
			fmt.Fprintf(w, "%s\t%s: %s\n", e.Family, e.Grid, e.Problem)
			continue
		}
		fmt.Fprintf(w, "%s\t%s: rel_l2 %.4g, at most %.4g, of %s\n", e.Family, e.Grid, e.RelL2, e.MaxAbs, countOf(e.Tensors, "tensor"))
	}
}

// fileError gives an error about a file of the user's its kind.
func fileError(file string, err error) error {
	switch {
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w: %q: %w", zoo.ErrNotPermitted, file, err)
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: %q: %w", zoo.ErrNotFound, file, err)
	}
	return err
}
