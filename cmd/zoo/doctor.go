package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/zoo-sdk/zoo/sdk"
)

// doctorCommand returns `zoo doctor`.
func (a *app) doctorCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Say what zoo finds on this machine and what will not work",
		Long: `doctor looks at the store, the space left, the settings of the hub, the backends
and the processor. It uses no network, and tells of an access token only whether
there is one.`,
		GroupID: groupMachine,
		Args:    args(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			z, err := a.zoo()
			if err != nil {
				return err
			}
			d, err := z.Doctor(cmd.Context())
			if err != nil {
				return err
			}
			if asJSON {
				return a.printJSON(d)
			}
			return a.table(func(w io.Writer) { showDiagnosis(w, d) })
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

// showDiagnosis writes one fact a line.
func showDiagnosis(w io.Writer, d *sdk.Diagnosis) {
	line := func(name, format string, args ...any) { fmt.Fprintf(w, "%s\t%s\n", name, fmt.Sprintf(format, args...)) }
	line("zoo", "%s (%s, %s/%s)", d.Version, d.Go, d.OS, d.Arch)
	line("processor", "%s, %s", countOf(d.Processors, "thread"), orNone(strings.Join(d.Features, " "), "no instruction sets that kernels know"))
	line("memory", "%s", amount(d.MemoryBytes))
	store := d.Home
	switch {
	case !d.Exists:
		store += " (made at the first pull)"
	case !d.Writable:
		store += " (cannot be written)"
	}
	line("store", "%s", store)
	line("free space", "%s", amount(d.FreeBytes))
	line("used", "%s in packs, %s in source files, %s else", size(d.Used.PackBytes), size(d.Used.CheckpointBytes), size(d.Used.OtherBytes))
	hub := d.Endpoint
	if d.Offline {
		hub += " (offline: not asked)"
	}
	line("hub", "%s", hub)
	token := "none; gated models cannot be fetched (set HF_TOKEN)"
	if d.Token {
		token = "present"
	}
	line("token", "%s", token)
	line("hub cache", "%s", orNone(d.HubCache, "none"))
	line("catalog", "%s", countOf(d.Models, "model"))
	for _, p := range d.Plugins {
		line("plugin", "%s %s: %s", p.Name, p.Version, p.Title)
	}
	for _, b := range d.Backends {
		about := b.About
		switch {
		case !b.Available:
			about = "not available: " + about
		case b.Chosen:
			about += fmt.Sprintf(" (taken by auto: %s)", b.Why)
		}
		line("backend", "%s: %s", b.Name, about)
	}
	if len(d.Problems) == 0 {
		line("problems", "none")
	}
	for _, p := range d.Problems {
		line("problem", "%s", p)
	}
}

// amount writes a size that may be unknown.
func amount(n int64) string {
	if n <= 0 {
		return "unknown"
	}
	return size(n)
}

// orNone returns text, or what stands for none.
func orNone(text, none string) string {
	if text == "" {
		return none
	}
	return text
}
