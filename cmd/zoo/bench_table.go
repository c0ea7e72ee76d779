package main

import (
	"fmt"
	"io"

	"github.com/zoo-sdk/zoo/sdk"
)

// unquiet is the difference between two figures of bandwidth from which on the machine
// was not left alone.
const unquiet = 0.15

// cached is the size below which weights may well lie in a processor's caches, which
// are faster than the memory.
const cached = 128 << 20

// showBench writes one report for people.
func showBench(w io.Writer, r *sdk.BenchReport) {
	line := func(name, format string, args ...any) { fmt.Fprintf(w, "%s\t%s\n", name, fmt.Sprintf(format, args...)) }
	line("model", "%s, %s (%s)", benchModel(r), size(r.PackBytes), r.Pack)
	line("backend", "%s: %s (%s), %s, %s activations, %s cache, %s tables, context %d",
		r.Backend, r.Kernels, r.Why, countOf(r.Threads, "thread"), r.Activations, r.Cache, r.Tables, r.Context)
	line("machine", "%s", machineLine(r))
	line("load", "%s", latencies(r.Load))
	line("first token", "%s after a prompt of %d; %s the very first time", latencies(r.FirstToken), r.PromptTokens, latency(r.FirstPrompt))
	line("prefill", "%s, %s", rates(r.Prefill), countOf(r.PromptTokens, "token"))
	line("decode", "%s, %s after %d", rates(r.Decode), countOf(r.GenerateTokens, "token"), r.Depth)
	line("steps", "%s", steps(r.TokensPerSubmission, r.SingleStep))
	private := "private memory not told by this system"
	if r.Memory.Private > 0 {
		private = size(r.Memory.Private) + " private"
	}
	line("memory", "%s of files mapped, %s (buffers %s, caches %s)", size(r.Memory.Mapped), private, size(r.Memory.Buffers), size(r.Memory.Caches))
	if m := r.Memory; m.ResidentPrivate+m.ResidentFiles > 0 {
		line("resident", "%s: %s of files, %s private", size(m.ResidentPrivate+m.ResidentFiles), size(m.ResidentFiles), size(m.ResidentPrivate))
	}
	if t := r.Memory.Tables; t != nil {
		line("tables", "%s", tablesLine(r.Tables, t))
	}
	line("weights", "%s read for a token", size(r.StepBytes))
	if b := r.Bandwidth; b == nil {
		line("bandwidth", "not measured: %s", r.BandwidthProblem)
	} else {
		note := ""
		if b.Bytes < cached {
			note = "; weights this small may lie in the processor's caches"
		}
		if min(b.Before, b.After) < max(b.Before, b.After)*(1-unquiet) {
			note += "; it changed meanwhile: is anything else running?"
		}
		line("bandwidth", "%s/s before and %s/s after decoding, which reaches %.1f%%%s", size(int64(b.Before)), size(int64(b.After)), 100*b.Share, note)
		line("ceiling", "%s tokens/s, if reading the weights were all", figure(b.Ceiling))
	}
	for _, p := range r.Curve {
		line(fmt.Sprintf("at %d", p.Depth), "%s", rates(p.Decode))
	}
}

// tablesLine says what tables take.
func tablesLine(kept string, t *sdk.BenchTables) string {
	s := fmt.Sprintf("%s, %s", kept, size(t.Size))
	if t.InMemory != nil {
		s += fmt.Sprintf(", %s of them in memory", size(*t.InMemory))
	}
	if t.Locked > 0 {
		s += fmt.Sprintf(", %s locked there", size(t.Locked))
	}
	return s
}

// listBench writes reports as a table.
func listBench(w io.Writer, reports []*sdk.BenchReport) {
	fmt.Fprintln(w, "MODEL\tCACHE\tTHREADS\tPROMPT\tDEPTH\tLOAD\tFIRST TOKEN\tPREFILL T/S\tDECODE T/S\tPRIVATE\tRESIDENT\tREAD/TOKEN\tBANDWIDTH\tREACHED")
	for _, r := range reports {
		private, resident, rate, share := "-", "-", "-", "-"
		if r.Memory.Private > 0 {
			private = size(r.Memory.Private)
		}
		if all := r.Memory.ResidentPrivate + r.Memory.ResidentFiles; all > 0 {
			resident = size(all)
		}
		if b := r.Bandwidth; b != nil {
			rate, share = size(int64(b.Median))+"/s", fmt.Sprintf("%.1f%%", 100*b.Share)
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n",
			benchModel(r), r.Cache, r.Threads, r.PromptTokens, r.Depth, latency(r.Load.Median), latency(r.FirstToken.Median),
			ranged(r.Prefill), ranged(r.Decode), private, resident, size(r.StepBytes), rate, share)
	}
}

// printProfile prints the operations of one step.
func (a *app) printProfile(title string, p *sdk.BenchProfile) error {
	if err := a.print("\n%s: %s\n", title, latency(p.Seconds)); err != nil {
		return err
	}
	return a.table(func(w io.Writer) {
		fmt.Fprintln(w, "OPERATION\tCALLS\tMS\tSHARE\tGB/S")
		for _, o := range p.Operations {
			rate := "-"
			if o.BytesPerSecond > 0 {
				rate = fmt.Sprintf("%.1f", o.BytesPerSecond/1e9)
			}
			fmt.Fprintf(w, "%s\t%s\t%.3f\t%.1f%%\t%s\n", o.Name, figure(o.Calls), 1e3*o.Seconds, 100*o.Share, rate)
		}
		share := 0.0
		if p.Seconds > 0 {
			share = p.Other / p.Seconds
		}
		fmt.Fprintf(w, "between operations\t-\t%.3f\t%.1f%%\t-\n", 1e3*p.Other, 100*share)
	})
}

// benchModel names what was measured.
func benchModel(r *sdk.BenchReport) string {
	switch {
	case r.Synthetic:
		return r.Name + " (random weights)"
	case r.Version != "":
		return r.Name + "@" + r.Version
	}
	return r.Name
}

// benchTitle names a report among several.
func benchTitle(r *sdk.BenchReport) string {
	return fmt.Sprintf("%s, %s cache, %s", benchModel(r), r.Cache, countOf(r.Threads, "thread"))
}

// machineLine describes the machine in one line.
func machineLine(r *sdk.BenchReport) string {
	m := r.Machine
	return fmt.Sprintf("%s, %s/%s, %s", orNone(m.Processor, "unnamed processor"), m.OS, m.Arch, countOf(m.Processors, "processor"))
}

// figure writes a number with three digits or more.
func figure(x float64) string {
	switch {
	case x == float64(int64(x)) || x >= 100:
		return fmt.Sprintf("%.0f", x)
	case x >= 10:
		return fmt.Sprintf("%.1f", x)
	}
	return fmt.Sprintf("%.2f", x)
}

// latency writes seconds that may be a small part of one.
func latency(seconds float64) string {
	if seconds < 1 {
		return figure(1e3*seconds) + " ms"
	}
	return figure(seconds) + " s"
}

// latencies writes seconds with their range.
func latencies(s sdk.BenchSpread) string {
	return fmt.Sprintf("%s (%s to %s)", latency(s.Median), latency(s.Min), latency(s.Max))
}

// rates writes tokens a second with their range.
func rates(s sdk.BenchSpread) string {
	return fmt.Sprintf("%s tokens/s (%s to %s)", figure(s.Median), figure(s.Min), figure(s.Max))
}

// ranged writes a figure with its range, in a table.
func ranged(s sdk.BenchSpread) string {
	return fmt.Sprintf("%s (%s-%s)", figure(s.Median), figure(s.Min), figure(s.Max))
}
