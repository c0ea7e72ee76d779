package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/zoo-sdk/zoo/sdk"
)

// showCommand returns `zoo show`.
func (a *app) showCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "show NAME|PACK_DIR",
		Short: "Show what a model is, where it comes from and how its pack stands",
		Example: `  zoo show demo
  zoo show gemma-4-e2b@^1 --json
  zoo show ./my-pack`,
		GroupID:           groupModels,
		Args:              args(1, 1, "the name of a model or the folder of a pack"),
		ValidArgsFunction: a.names,
		RunE: func(cmd *cobra.Command, args []string) error {
			z, err := a.zoo()
			if err != nil {
				return err
			}
			d, err := z.Show(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if asJSON {
				return a.printJSON(d)
			}
			return a.table(func(w io.Writer) { showDetails(w, d) })
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

// showDetails writes one fact a line.
func showDetails(w io.Writer, d *sdk.Details) {
	line := func(name, format string, args ...any) { fmt.Fprintf(w, "%s\t%s\n", name, fmt.Sprintf(format, args...)) }
	line("name", "%s", d.Name)
	if m := d.Model; m != nil {
		showModel(line, m)
	}
	if p := d.Pack; p != nil {
		showPack(line, p)
	}
	if d.PackProblem != "" {
		line("pack", "cannot be used: %s", d.PackProblem)
	}
	if d.Problem != "" {
		line("problem", "%s", d.Problem)
	}
	if d.Hint != "" {
		line("hint", "%s", d.Hint)
	}
}

// showModel writes what the catalog knows.
func showModel(line func(name, format string, args ...any), m *sdk.ModelDetails) {
	line("title", "%s", m.Title)
	if m.Description != "" {
		line("about", "%s", strings.Join(strings.Fields(m.Description), " "))
	}
	if len(m.Aliases) > 0 {
		line("aliases", "%s", strings.Join(m.Aliases, ", "))
	}
	line("version", "%s", m.Version)
	if len(m.Versions) > 1 {
		line("versions", "%s", strings.Join(m.Versions, ", "))
	}
	if m.Time != nil {
		line("installed", "%s", m.Time.Local().Format(time.DateTime))
	} else {
		line("installed", "no")
	}
	if m.Lock != "" {
		line("lock", "%s", m.Lock)
	}
	licence := m.Licence
	if m.LicenceURL != "" {
		licence += " (" + m.LicenceURL + ")"
	}
	if m.Gated {
		licence += ", to be accepted at the hub"
	}
	line("licence", "%s", licence)
	line("plugin", "%s %s", m.Plugin, m.Constraint)
	source := m.Kind + " " + m.Repository
	if m.Revision != "" {
		source += "@" + m.Revision
	}
	if m.Commit != "" && m.Commit != m.Revision {
		source += " (commit " + m.Commit + ")"
	}
	line("source", "%s", source)
	known, unknown := int64(0), 0
	for _, f := range m.Files {
		known += f.SizeBytes
		if f.SizeBytes == 0 {
			unknown++
		}
	}
	files := fmt.Sprintf("%d, %s", len(m.Files), size(known))
	if unknown > 0 {
		files += fmt.Sprintf(" and %d of unknown size", unknown)
	}
	if m.Checkpoint {
		files += ", kept"
	}
	line("files", "%s", files)
	line("reference", "%s", referenceText(m.Reference))
}

// referenceText says what a model is held against.
func referenceText(r *sdk.ReferenceDetails) string {
	if r == nil {
		return "none"
	}
	text := "none"
	switch r.From {
	case sdk.FromCatalog:
		text = "from the catalog"
	case sdk.FromAdoption:
		total := int64(0)
		for _, f := range r.Files {
			total += f.SizeBytes
		}
		text = fmt.Sprintf("adopted %s, %s, %s", r.Time.Local().Format(time.DateTime), countOf(len(r.Files), "file"), size(total))
	}
	if r.Unused != "" {
		text += "; " + r.Unused
	}
	return text
}

// showPack writes what a pack tells.
func showPack(line func(name, format string, args ...any), p *sdk.PackDetails) {
	line("pack", "%s", p.Digest)
	line("folder", "%s", p.Dir)
	line("size", "%s", size(p.SizeBytes))
	line("made by", "%s %s", p.Plugin.Name, p.Plugin.Version)
	for _, key := range slices.Sorted(maps.Keys(p.Recipe)) {
		line("recipe", "%s %s", key, p.Recipe[key])
	}
	var formats []string
	for _, f := range p.Tensors {
		formats = append(formats, fmt.Sprintf("%d %s (%s)", f.Count, f.Format, size(f.SizeBytes)))
	}
	line("tensors", "%s", strings.Join(formats, ", "))
	if p.Layers > 0 {
		line("shape", "%d layers, hidden %d, vocabulary %d, context %d", p.Layers, p.Hidden, p.Vocab, p.Context)
	}
	sampling := "greedy"
	if s := p.Defaults; s.Sample {
		sampling = fmt.Sprintf("temperature %g, top-k %d, top-p %g", s.Temperature, s.TopK, s.TopP)
	}
	line("sampling", "%s", sampling)
	gate := p.Gate
	if r := p.Receipt; r != nil {
		gate += gateFigures(r) + fmt.Sprintf(" (%s, %s activations, %s cache, %s)", r.Backend, r.Activations, r.Cache, r.Time.Local().Format(time.DateTime))
		if r.Reason != "" {
			gate += ": " + r.Reason
		}
	}
	line("gate", "%s", gate)
}
