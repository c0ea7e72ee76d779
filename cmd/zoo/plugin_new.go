package main

import (
	"cmp"

	"github.com/spf13/cobra"

	"github.com/zoo-sdk/zoo/cmd/zoo/newplugin"
	"github.com/zoo-sdk/zoo/sdk"
)

// pluginNewCommand returns `zoo plugin new`.
func (a *app) pluginNewCommand() *cobra.Command {
	var o newplugin.Options
	cmd := &cobra.Command{
		Use:   "new NAME",
		Short: "Write the Go module of a new plugin",
		Long: `new writes a Go module that is a plugin already: a small decoder, with a tiny
checkpoint of random weights, that builds, passes the conformance suite and runs.
The places that make it the plugin of your family of models are marked with
"FILL IN"; its README.md says how to build, check, install and run it. --replace
has it built with the source of zoo in a folder, in place of a published version.`,
		Example: `  zoo plugin new acme
  zoo plugin new acme -o ./acme-plugin --module example.org/me/acme`,
		Args: args(1, 1, "the name of the plugin"),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Name = args[0]
			o.Dir = cmp.Or(o.Dir, o.Name)
			if v := sdk.Version(); newplugin.Published(v) {
				o.Version = v
			}
			if err := newplugin.Write(cmd.Context(), o); err != nil {
				return err
			}
			a.note("%s the module of plugin %s in %s", a.style(styleGood, "wrote"), o.Name, o.Dir)
			if o.Version == "" && o.Replace == "" {
				a.note("this zoo is of no published version: `go mod tidy` takes the newest that there is; to build with the source of this one, write the module with --replace DIR")
			}
			a.note("next: `go mod tidy` and `go test ./...` there, and then what is marked with FILL IN")
			return nil
		},
	}
	flags := cmd.Flags()
	flags.StringVarP(&o.Dir, "output", "o", "", "folder that becomes the module (default NAME)")
	flags.StringVar(&o.Module, "module", "", "path of the module (default example.org/NAME)")
	flags.StringVar(&o.Replace, "replace", "", "folder with the source of zoo to build with, in place of a published version")
	_ = cmd.MarkFlagDirname("output")
	_ = cmd.MarkFlagDirname("replace")
	return cmd
}
