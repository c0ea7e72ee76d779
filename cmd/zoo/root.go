package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/sdk"
)

// Groups of commands in the help text.
const (
	groupModels  = "models"
	groupMaking  = "making"
	groupMachine = "machine"
)

// command returns the root command with all others below it.
func (a *app) command() *cobra.Command {
	root := &cobra.Command{
		Use:   "zoo",
		Short: "Fetch, convert, verify and run language models",
		Long: `zoo resolves a model's name in a catalog, fetches the original checkpoint,
converts it into a verified pack, puts the pack to its gate and runs it.

The model "demo" is part of the binary and needs no network:

  zoo run demo "What is the capital of France?"

Settings come from flags, then from environment variables (--max-tokens is
ZOO_MAX_TOKENS), then from config.yaml in ZOO_HOME or in the folder "zoo" among
your configuration, then from defaults. HF_TOKEN and HF_ENDPOINT are used as the
hub's own tools use them. Where the working folder or one of its parents has a zoo.lock
(see zoo lock), names stand for what it says. ZOO_CPU names the kernels of the cpu backend, such as
"generic", in place of the fastest that this processor runs.

Exit codes: 0 done, 1 other failure, 2 usage, 3 not found, 4 integrity, 5 gate
failed, 6 network, 7 no space, 8 not permitted, 130 interrupted.`,
		Version:           sdk.Version(),
		SilenceErrors:     true,
		SilenceUsage:      true,
		DisableAutoGenTag: true,
		Args:              a.noSuchCommand,
		RunE:              func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return a.configure(cmd) },
	}
	root.SetVersionTemplate("zoo {{.Version}}\n")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return &usageError{err.Error(), fmt.Sprintf("`%s --help` lists the flags", cmd.CommandPath())}
	})
	flags := root.PersistentFlags()
	flags.StringVar(&a.global.home, "home", "", "folder of the store (default ZOO_HOME, or \"zoo\" among your data)")
	flags.StringVar(&a.global.catalog, "catalog", "", "file with further models, which go before those of the built-in catalog")
	flags.StringArrayVar(&a.global.catalogKeys, "catalog-key", nil, "public `key` of minisign: the catalog's file must be signed by it, or by one of several; may be repeated")
	flags.StringVar(&a.global.config, "config", "", "configuration file")
	flags.StringVar(&a.global.lock, "lock", "", "lock file (default the "+catalog.LockFile+" of the working folder or its nearest parent that has one)")
	flags.BoolVar(&a.global.noLock, "no-lock", false, "go without a lock file, whatever names one")
	flags.BoolVar(&a.global.offline, "offline", false, "stay away from the network")
	flags.BoolVarP(&a.global.quiet, "quiet", "q", false, "print no progress and no notices")
	flags.BoolVarP(&a.global.verbose, "verbose", "v", false, "log details")
	allowConfig(flags, "home", "catalog", "catalog-key", "lock", "offline", "quiet", "verbose")
	_ = root.MarkPersistentFlagFilename("catalog", "yaml", "yml")
	_ = root.MarkPersistentFlagFilename("config", "yaml", "yml")
	_ = root.MarkPersistentFlagFilename("lock", "lock")
	_ = root.MarkPersistentFlagDirname("home")

	root.AddGroup(
		&cobra.Group{ID: groupModels, Title: "Models:"},
		&cobra.Group{ID: groupMaking, Title: "Packs:"},
		&cobra.Group{ID: groupMachine, Title: "This machine:"},
	)
	root.SetHelpCommandGroupID(groupMachine)
	root.SetCompletionCommandGroupID(groupMachine)
	root.AddCommand(
		a.runCommand(), a.pullCommand(), a.planCommand(), a.listCommand(), a.showCommand(), a.rmCommand(), a.lockCommand(),
		a.verifyCommand(), a.gateCommand(), a.convertCommand(),
		a.benchCommand(), a.doctorCommand(), a.pluginCommand(), a.versionCommand(),
	)
	return root
}

// noSuchCommand refuses arguments that name no command, with suggestions.
func (a *app) noSuchCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	err := &usageError{text: fmt.Sprintf("no command is named %q", args[0]), hint: "`zoo help` lists the commands"}
	cmd.SuggestionsMinimumDistance = 2
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		err.hint = "did you mean `zoo " + strings.Join(near, "` or `zoo ") + "`?"
		return err
	}
	// Somebody may have left out "run".
	if a.configure(cmd) == nil {
		if z, zerr := a.zoo(); zerr == nil {
			if _, zerr := z.Show(cmd.Context(), args[0]); zerr == nil {
				err.hint = fmt.Sprintf("did you mean `zoo run %s`?", args[0])
			}
		}
	}
	return err
}

// jsonFlag adds --json to a command.
func jsonFlag(cmd *cobra.Command, p *bool) {
	cmd.Flags().BoolVar(p, "json", false, "print JSON")
}
