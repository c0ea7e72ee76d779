package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/zoo-sdk/zoo/sdk"
)

// streams are what a command reads and writes.
type streams struct {
	in  io.Reader
	out io.Writer
	err io.Writer
}

// app is one run of the command.
type app struct {
	streams
	global globalFlags
	// interrupts lets a command see to Ctrl-C itself.
	interrupts interrupts
	// colour and live say whether standard error takes colours and moving bars.
	colour, live bool
	progress     *progress
	// opened is what is closed when the command ends.
	opened []*sdk.Zoo
}

// globalFlags hold for all commands.
type globalFlags struct {
	home    string
	catalog string
	config  string
	lock    string
	noLock  bool
	offline bool
	quiet   bool
	verbose bool
	// catalogKeys are the keys of which one must have signed the catalog.
	catalogKeys []string
	// typed holds the flags on the command line, with their values, that say which store and
	// which catalog are meant.
	typed []string
}

// run runs the command line and returns the exit code.
func run(args []string, s streams) int {
	a := &app{streams: s}
	terminal := isTerminal(s.err) && os.Getenv("TERM") != "dumb"
	a.live = terminal
	a.colour = terminal && os.Getenv("NO_COLOR") == ""
	a.progress = newProgress(a)
	ctx, stop := a.listen()
	defer stop()
	root := a.command()
	root.SetArgs(args)
	root.SetIn(s.in)
	root.SetOut(s.out)
	root.SetErr(s.err)
	err := root.ExecuteContext(ctx)
	for _, z := range a.opened {
		err = errors.Join(err, z.Close())
	}
	a.progress.end()
	return a.report(interrupted(ctx, err))
}

// interrupts passes Ctrl-C on to whoever is concerned.
type interrupts struct {
	mu      sync.Mutex
	handler func() // nil: the whole command
}

// during has interrupts call f instead of ending the command, once, until the
// returned function is called.
func (i *interrupts) during(f func()) (end func()) {
	set := func(f func()) {
		i.mu.Lock()
		defer i.mu.Unlock()
		i.handler = f
	}
	set(f)
	return func() { set(nil) }
}

// take returns the handler, which is then spent.
func (i *interrupts) take() func() {
	i.mu.Lock()
	defer i.mu.Unlock()
	f := i.handler
	i.handler = nil
	return f
}

// listen returns a context that an interrupt ends, unless somebody else handles it.
// The next one then ends the process, as if nobody listened.
func (a *app) listen() (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 1)
	done := make(chan struct{})
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		for {
			select {
			case s := <-signals:
				if handler := a.interrupts.take(); handler != nil && s == os.Interrupt {
					handler()
					continue
				}
				signal.Stop(signals)
				cancel(errInterrupted)
				return
			case <-done:
				return
			}
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(done)
		cancel(nil)
	}
}

// isTerminal reports whether a stream is a terminal.
func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// zoo returns the store with its catalog, bound to the lock file, as the flags have it.
func (a *app) zoo(more ...sdk.Option) (*sdk.Zoo, error) {
	return a.unlocked(append(more, sdk.WithLock(a.lockFile()))...)
}

// unlocked is a.zoo for what is not bound to the lock file.
func (a *app) unlocked(more ...sdk.Option) (*sdk.Zoo, error) {
	level := slog.LevelWarn
	switch {
	case a.global.verbose:
		level = slog.LevelDebug
	case a.global.quiet:
		level = slog.LevelError
	}
	opts := []sdk.Option{
		sdk.WithHome(a.global.home),
		sdk.WithCatalog(a.global.catalog),
		sdk.WithCatalogKeys(a.global.catalogKeys...),
		sdk.WithHintFlags(a.global.typed...),
		sdk.WithLogger(slog.New(&logHandler{out: a.progress, level: level})),
		sdk.WithProgress(a.progress.events()),
	}
	if a.global.offline {
		opts = append(opts, sdk.WithOffline())
	}
	z, err := sdk.New(append(opts, more...)...)
	if err == nil {
		a.opened = append(a.opened, z)
	}
	return z, err
}

// lockFile returns the lock file that is in force, or "".
func (a *app) lockFile() string {
	switch {
	case a.global.noLock:
		return ""
	case a.global.lock != "":
		return a.global.lock
	}
	dir, err := os.Getwd()
	if err != nil {
		return "" // a folder that is gone has none
	}
	return sdk.FindLock(dir)
}

// note prints one line on standard error unless it is to be quiet.
func (a *app) note(format string, args ...any) {
	if a.global.quiet {
		return
	}
	fmt.Fprintf(a.progress, format+"\n", args...)
}

// names completes the first argument of a command with names of models.
func (a *app) names(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	// Flags and the environment decide on the store and the catalog here, too.
	if err := a.configure(cmd); err != nil {
		return nil, cobra.ShellCompDirectiveDefault
	}
	z, err := a.zoo()
	if err != nil {
		return nil, cobra.ShellCompDirectiveDefault
	}
	entries, err := z.List(cmd.Context())
	if err != nil {
		return nil, cobra.ShellCompDirectiveDefault
	}
	var names []cobra.Completion
	for _, e := range entries {
		names = append(names, cobra.CompletionWithDesc(e.Name, e.Title))
	}
	// The folder of a pack may stand wherever a name does.
	return names, cobra.ShellCompDirectiveDefault
}

// args returns a check of the number of arguments; what names them in the message.
func args(least, most int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		hint := fmt.Sprintf("run `%s`; `%s --help` says more", cmd.UseLine(), cmd.CommandPath())
		switch {
		case len(args) < least:
			return &usageError{fmt.Sprintf("%s needs %s", cmd.CommandPath(), what), hint}
		case most >= 0 && len(args) > most:
			return &usageError{fmt.Sprintf("%s takes %s and nothing more, but was given %q", cmd.CommandPath(), what, args[most]), hint}
		}
		return nil
	}
}

// errOutput reports a problem of standard output.
func errOutput(err error) error {
	if err == nil {
		return nil
	}
	return errors.Join(errors.New("cannot write the output"), err)
}
