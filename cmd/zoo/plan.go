package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/zoo-sdk/zoo/sdk"
)

// planCommand returns `zoo plan`.
func (a *app) planCommand() *cobra.Command {
	var from []string
	var engine engineFlags
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "plan NAME[@CONSTRAINT]",
		Short: "Tell what installing and running a model would take, before anything is fetched",
		Long: `plan says what ` + "`zoo pull`" + ` would do: which release it would take, from where,
under which licence and whether a token is needed, how much it would fetch, how
much room that takes on the disk, and how much memory the model needs to run.

It fetches nothing and leaves nothing behind. File sizes are as the catalog and this machine
know them; for the others the hub is asked, for headers alone, unless --offline
forbids it. What cannot be told is said to be unknown: whatever the hub answers,
if it answers, the exit code is 0 once the name is found in the catalog and the
model can be run with the options. Whether disk and memory are enough is in the
fields "enough" of --json.`,
		Example: `  zoo plan gemma-4-e2b
  zoo plan gemma-4-e4b@^1 --offline --context 8192
  zoo plan gemma-4-e2b --from ~/models/gemma-4-E2B-it-qat-mobile-transformers --json`,
		GroupID:           groupModels,
		Args:              args(1, 1, "the name of a model"),
		ValidArgsFunction: a.names,
		RunE: func(cmd *cobra.Command, args []string) error {
			z, err := a.zoo(sdk.WithCheckpoint(from...))
			if err != nil {
				return err
			}
			p, err := z.Plan(cmd.Context(), args[0], engine.options()...)
			if err != nil {
				return err
			}
			if asJSON {
				return a.printJSON(p)
			}
			return a.table(func(w io.Writer) { showPlan(w, p) })
		},
	}
	flags := cmd.Flags()
	flags.StringArrayVar(&from, "from", nil, "folder to take source files from; may be repeated")
	flags.StringVar(&engine.backend, "backend", sdk.AutoBackend, "what would run the model: auto, cpu or metal")
	flags.StringVar(&engine.cache, "kv", "", "type of cached keys and values: float, half or int8 (default int8 where the model has scales for it)")
	flags.IntVar(&engine.context, "context", 0, "most tokens of the conversation; 0 takes what the model was made for and the memory allows")
	tablesFlag(cmd, &engine.tables)
	allowConfig(flags, "backend", "kv", "context")
	_ = cmd.MarkFlagDirname("from")
	jsonFlag(cmd, &asJSON)
	return cmd
}

// showPlan writes a plan, one fact a line.
func showPlan(w io.Writer, p *sdk.Plan) {
	line := func(name, format string, args ...any) { fmt.Fprintf(w, "%s\t%s\n", name, fmt.Sprintf(format, args...)) }
	line("model", "%s@%s: %s", p.Name, p.Version, p.Title)
	if p.Installed {
		line("installed", "yes, gate: %s", p.Gate)
	} else {
		line("installed", "no")
	}
	if p.Problem != "" {
		line("problem", "%s", p.Problem)
	}
	if p.Hint != "" {
		line("hint", "%s", p.Hint)
	}
	line("source", "%s", planSource(p.Source))
	licence := fmt.Sprintf("%s (%s)", p.Licence.SPDX, p.Licence.URL)
	if p.Licence.Gated {
		licence += ", to be accepted at the hub"
	}
	line("licence", "%s", licence)
	line("token", "%s", planToken(p.Token))
	if p.Plugin.Version != "" {
		line("plugin", "%s %s (%s)", p.Plugin.Name, p.Plugin.Version, p.Plugin.Constraint)
	} else {
		line("plugin", "%s (%s), none that can be taken", p.Plugin.Name, p.Plugin.Constraint)
	}
	for _, key := range slices.Sorted(maps.Keys(p.Recipe)) {
		line("recipe", "%s %s", key, p.Recipe[key])
	}
	if !p.Installed || p.Fetch != (sdk.PlanFetch{}) {
		fetch := fmt.Sprintf("%s over the network, %s from this machine", size(p.Fetch.NetworkBytes), size(p.Fetch.LocalBytes))
		if n := p.Fetch.UnknownFiles; n > 0 {
			fetch += ", and " + countOf(n, "file") + " of unknown size"
		}
		line("fetch", "%s", fetch)
	}
	for _, f := range p.Files {
		line("file", "%s", planFile(f))
	}
	if k := p.Pack; k != nil {
		about := ""
		if k.Estimated {
			about = "about "
		}
		line("pack", "%s%s, by %s", about, size(k.SizeBytes), k.From)
		for _, assumption := range k.Assumptions {
			line("assumed", "%s", assumption)
		}
	}
	planDisk(line, p)
	if p.Memory != nil {
		planMemory(line, p.Memory)
	}
	for _, u := range p.Unknown {
		line("unknown", "%s", u)
	}
}

// planSource says where a release is from.
func planSource(s sdk.PlanSource) string {
	text := s.Kind + " " + s.Repository
	if s.Revision != "" {
		text += "@" + s.Revision
	}
	switch {
	case s.Pinned:
		return text + " (pinned)"
	case s.Commit != "":
		return text + " (not pinned; commit " + s.Commit + ")"
	}
	return text + " (not pinned)"
}

// planToken says whether a token is needed and set.
func planToken(t sdk.PlanToken) string {
	text := "not needed"
	if t.Needed {
		text = "needed"
	}
	if t.Set {
		text += ", set"
	} else {
		text += ", not set"
	}
	if t.Refusal != "" {
		text += "; " + t.Refusal
	}
	if t.Hint != "" {
		text += "; " + t.Hint
	}
	return text
}

// planFile says what is known of a file.
func planFile(f sdk.PlanFile) string {
	parts := []string{f.Path}
	switch {
	case f.Adopted:
		parts = append(parts, "adopted for the gate")
	case f.Reference:
		parts = append(parts, "for the gate")
	}
	switch {
	case f.SizeBytes == nil:
		parts = append(parts, "size unknown")
	case f.HaveBytes == *f.SizeBytes:
		parts = append(parts, size(*f.SizeBytes), "in the store")
	case f.HaveBytes > 0:
		parts = append(parts, size(*f.SizeBytes), "of which "+size(f.HaveBytes)+" in the store")
	default:
		parts = append(parts, size(*f.SizeBytes))
	}
	switch {
	case f.From != "":
		parts = append(parts, "from "+f.From)
	case f.Problem != "":
		parts = append(parts, "not at hand")
	}
	return strings.Join(parts, ", ")
}

// planDisk says what installing takes of the disk.
func planDisk(line func(name, format string, args ...any), p *sdk.Plan) {
	d, atLeast := p.Disk, ""
	if !d.Complete {
		atLeast = "at least "
	}
	switch {
	case d.LinkableBytes > 0:
		line("disk", "%s%s while it is installed, source files and pack side by side; %s less if the files on this machine can be linked", atLeast, size(d.PeakBytes), size(d.LinkableBytes))
	case !p.Installed:
		line("disk", "%s%s while it is installed, source files and pack side by side", atLeast, size(d.PeakBytes))
	case d.PeakBytes > 0:
		line("disk", "%s%s more, for its gate", atLeast, size(d.PeakBytes))
	}
	without := "unknown"
	if p.Pack != nil {
		without = size(d.WithoutCheckpointBytes)
	}
	line("kept", "%s%s, or with --discard-checkpoint: %s", atLeast, size(d.KeptBytes), without)
	if d.FreeBytes != nil {
		line("free", "%s in %s, enough: %s", size(*d.FreeBytes), d.Dir, d.Enough)
	}
}

// planMemory says what running takes.
func planMemory(line func(name, format string, args ...any), m *sdk.PlanMemory) {
	machine := "unknown"
	if m.MachineBytes > 0 {
		machine = size(m.MachineBytes)
	}
	line("memory", "%s on backend %s, of %s; enough: %s", size(m.TotalBytes), m.Backend, machine, m.Enough)
	line("weights", "%s, mapped; a token reads %s", size(m.WeightsBytes), size(m.StepBytes))
	if m.TablesBytes > 0 {
		where := "left in the file and not counted"
		if m.TablesResident {
			where = "kept in memory"
		}
		line("tables", "%s, of which rows are looked up, %s", size(m.TablesBytes), where)
	}
	line("buffers", "about %s", size(m.BufferBytes))
	line("cache", "%s (%s) for a full context of %d tokens", size(m.CacheBytes), m.Cache, m.Context)
	for _, c := range m.Caches {
		line("cache "+c.Type, "%d B a token, and %s for sliding layers", c.PositionBytes, size(c.RingBytes))
	}
}
