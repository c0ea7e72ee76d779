package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/zoo-sdk/zoo/sdk"
)

// pluginCommand returns `zoo plugin` with its commands.
func (a *app) pluginCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "plugin",
		Short: "List, install, remove, check and make the plugins that models are run with",
		Long: `A plugin knows one family of models: which files to fetch, how to make a pack of
them, and how to run it. Some are built in. Those of others are programs of their
own, which are kept in the store (plugins/NAME/VERSION in ZOO_HOME) and started when
they are needed, without your tokens and the rest of your environment. They run
with your rights: install those of people whom you trust.

A model names its plugin with a version constraint. The newest version that
satisfies it is taken, built in or installed.`,
		GroupID: groupMachine,
		Args:    a.noSuchPluginCommand,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.pluginListCommand(), a.pluginInstallCommand(), a.pluginRmCommand(), a.pluginCheckCommand(), a.pluginNewCommand())
	return cmd
}

// noSuchPluginCommand refuses arguments that name no command.
func (a *app) noSuchPluginCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	err := &usageError{fmt.Sprintf("no command of zoo plugin is named %q", args[0]), "`zoo plugin --help` lists them"}
	cmd.SuggestionsMinimumDistance = 2
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		err.hint = "did you mean `zoo plugin " + strings.Join(near, "` or `zoo plugin ") + "`?"
	}
	return err
}

// pluginListCommand returns `zoo plugin list`.
func (a *app) pluginListCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the plugins, and say which are taken and why",
		Long: `list shows the plugins that are built in, those that are installed and those that
the catalog has. A plugin that is "taken" is the newest that can be used, or the
newest that the constraint of a model allows; MODELS are the models that are run
with it. One that is "passed over" works, but there is a better one; one that is
"unusable" is damaged, not made for this machine or this zoo, or of a catalog whose
signature has not been checked; "available" is what can be installed. Programs are
read through, and none is started.`,
		Example: `  zoo plugin list
  zoo plugin list --json`,
		Args: args(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			z, err := a.zoo()
			if err != nil {
				return err
			}
			entries, err := z.Plugins(cmd.Context())
			if err != nil {
				return err
			}
			if asJSON {
				return a.printJSON(entries)
			}
			return a.table(func(w io.Writer) {
				fmt.Fprintln(w, "NAME\tVERSION\tORIGIN\tSTATE\tWHY\tMODELS")
				for _, e := range entries {
					fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", orNone(e.Name, "-"), orNone(e.Version, "-"), e.Origin, e.State, e.Why, orNone(strings.Join(e.Models, ", "), "-"))
				}
			})
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

// pluginInstallCommand returns `zoo plugin install`.
func (a *app) pluginInstallCommand() *cobra.Command {
	var from string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "install NAME[@CONSTRAINT] | --from FILE",
		Short: "Install a plugin of the catalog, or one that you have as a file",
		Long: `install puts a plugin into the store. With a name it is the newest version in the
catalog that satisfies the constraint and that this machine can run: the program is
fetched from the hub and held against the size and the sha256 in the catalog; what is
there of a download that was cut short is kept and completed. The file of --catalog
must be signed with minisign for that, by a key that --catalog-key names.

With --from it is the program in a file, under the name and the version that it says
itself; its sha256 is recorded. Either is started where it is installed, to ask who it is,
and checked each time that it is started later.

A newer version is taken for every model whose constraint allows it, in place of what
is built in, too. install says for which models that is so, which have to pass their
gates again, and why a plugin that it has installed is not taken. --json prints it as
list does.`,
		Example: `  zoo plugin install acme
  zoo plugin install acme@^1.2
  zoo plugin install --from ./acme`,
		Args: func(cmd *cobra.Command, list []string) error {
			if cmd.Flags().Changed("from") {
				return args(0, 0, "no name beside --from, since the program says its name,")(cmd, list)
			}
			return args(1, 1, "the name of a plugin, or --from FILE,")(cmd, list)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			z, err := a.zoo()
			if err != nil {
				return err
			}
			var c *sdk.PluginChange
			if cmd.Flags().Changed("from") {
				c, err = z.InstallPluginFile(cmd.Context(), from)
			} else {
				c, err = z.InstallPlugin(cmd.Context(), args[0])
			}
			a.progress.end()
			if err != nil {
				return err
			}
			a.noteInstalled(c)
			if asJSON {
				return a.printJSON(c.Plugin)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&from, "from", "", "program to install, in place of one of the catalog")
	_ = cmd.MarkFlagFilename("from")
	jsonFlag(cmd, &asJSON)
	return cmd
}

// noteInstalled says what an installation means.
func (a *app) noteInstalled(c *sdk.PluginChange) {
	p, done := c.Plugin, a.style(styleGood, "installed")
	if !c.Fresh {
		done = "installed and sound already:"
	}
	a.note("%s plugin %s %s: %s, sha256 %s", done, p.Name, p.Version, size(p.SizeBytes), p.SHA256)
	if p.State != sdk.PluginTaken {
		a.note("it is %s: %s", p.State, p.Why)
	} else {
		a.noteTaken(c)
	}
	a.noteObstacles(c.Moves)
	for _, model := range c.Stale {
		a.note("the pack of %[1]s stays as another program of %[2]s %[3]s has made it: `zoo rm %[1]s` and `zoo pull %[1]s` make it anew", model, p.Name, p.Version)
	}
}

// noteTaken says for which models a plugin is taken, and in place of what.
func (a *app) noteTaken(c *sdk.PluginChange) {
	places := make(map[sdk.PluginUse][]string)
	for _, model := range c.Plugin.Models {
		var before sdk.PluginUse // none, or this very one
		for _, m := range c.Moves {
			if m.Model == model {
				before = m.Before
			}
		}
		places[before] = append(places[before], model)
	}
	if len(places) == 0 {
		a.note("it is taken: %s; no model that is known here needs it", c.Plugin.Why)
	}
	for _, before := range byVersion(places) {
		text := "it is taken for " + strings.Join(places[before], ", ")
		if before.Version != "" {
			text += fmt.Sprintf(" in place of %s, which is %s", before.Version, before.Origin)
		}
		a.note("%s", text)
	}
}

// byVersion returns the keys of a map in order.
func byVersion(places map[sdk.PluginUse][]string) []sdk.PluginUse {
	return slices.SortedFunc(maps.Keys(places), func(a, b sdk.PluginUse) int {
		return cmp.Or(cmp.Compare(a.Version, b.Version), cmp.Compare(a.Origin, b.Origin))
	})
}

// noteObstacles says which models cannot be run as they are, and what to do about it.
func (a *app) noteObstacles(moves []sdk.PluginMove) {
	for _, m := range moves {
		switch {
		case m.Problem == "":
		case m.Hint == "":
			a.note("%s cannot be run: %s", m.Model, m.Problem)
		default:
			a.note("%s cannot be run: %s; %s", m.Model, m.Problem, m.Hint)
		}
	}
}

// noteRemoved says what a removal means.
func (a *app) noteRemoved(c *sdk.PluginChange) {
	a.note("removed plugin %s %s", c.Plugin.Name, c.Plugin.Version)
	places := make(map[sdk.PluginUse][]string)
	for _, m := range c.Moves {
		if m.After.Version != "" || m.Problem == "" { // else the problem says so
			places[m.After] = append(places[m.After], m.Model)
		}
	}
	for _, after := range byVersion(places) {
		models := strings.Join(places[after], ", ")
		if after.Version == "" {
			a.note("no plugin is left for %s", models)
			continue
		}
		a.note("%s, which is %s, is taken for %s now", after.Version, after.Origin, models)
	}
	a.noteObstacles(c.Moves)
}

// pluginRmCommand returns `zoo plugin rm`.
func (a *app) pluginRmCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "rm NAME[@CONSTRAINT]...",
		Aliases: []string{"remove"},
		Short:   "Remove installed plugins",
		Long: `rm removes the newest installed version of each plugin that satisfies the constraint,
damaged or not; where none is installed, what is left of a download. Packs that it made
stay, and are run by other versions that can; rm says which models cannot be run
without it, and what to do about that.`,
		Example: `  zoo plugin rm acme
  zoo plugin rm acme@1.0.0`,
		Args:              args(1, -1, "the name of a plugin"),
		ValidArgsFunction: a.pluginNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			z, err := a.zoo()
			if err != nil {
				return err
			}
			for _, name := range args {
				c, err := z.RemovePlugin(cmd.Context(), name)
				if err != nil {
					return err
				}
				a.noteRemoved(c)
			}
			return nil
		},
	}
	return cmd
}

// pluginNames completes with the names of installed plugins.
func (a *app) pluginNames(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if err := a.configure(cmd); err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	z, err := a.zoo()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	entries, err := z.Plugins(cmd.Context())
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []cobra.Completion
	for _, e := range entries {
		if e.Origin == sdk.PluginInstalled && e.Version != "" {
			names = append(names, cobra.CompletionWithDesc(e.Name+"@"+e.Version, e.Title))
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
