package gate

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"time"
)

//go:embed report.html.tmpl
var page string

// WriteHTML writes the report as a page of its own that loads nothing else.
func (r *Report) WriteHTML(w io.Writer) error {
	t, err := template.New("report").Funcs(template.FuncMap{
		"number": number,
		"tokens": tokens,
		"percent": func(part, of int) string {
			return fmt.Sprintf("%.1f %%", 100*float64(part)/float64(max(of, 1)))
		},
		"share":    func(f float64) string { return fmt.Sprintf("%g %%", 100*f) },
		"utc":      func(t time.Time) string { return t.UTC().Format("2 January 2006 15:04 UTC") },
		"duration": func(d time.Duration) string { return d.Round(10 * time.Millisecond).String() },
		"add":      func(a, b int) int { return a + b },
	}).Parse(page)
	if err != nil {
		return err
	}
	return t.Execute(w, r)
}

// number writes a figure that may be unknown.
func number(f *float64) string {
	if f == nil {
		return "–"
	}
	return fmt.Sprintf("%.3g", *f)
}

// cell is one token of a run in the page.
type cell struct {
	Fork  bool
	Grave bool // above the fork margin
	Title string
}

// tokens returns a cell for each reference token of a run.
func tokens(run RunReport, l Limits) []cell {
	cells := make([]cell, run.Of)
	for i := range cells {
		cells[i].Title = fmt.Sprintf("token %d agrees", i+1)
	}
	for _, f := range run.Forks {
		got := "no token"
		if f.Got != NoToken {
			got = fmt.Sprintf("%q (%d)", f.GotText, f.Got)
		}
		cells[f.Step] = cell{Fork: true, Grave: f.Margin > l.ForkMargin,
			Title: fmt.Sprintf("token %d: %s instead of %q (%d), margin %.3g", f.Step+1, got, f.WantText, f.Want, f.Margin)}
	}
	return cells
}
