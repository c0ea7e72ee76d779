package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/zoo-sdk/zoo/sdk"
)

// checkXML fails unless data is one well-formed document.
func checkXML(t *testing.T, data []byte) {
	t.Helper()
	d := xml.NewDecoder(bytes.NewReader(data))
	for {
		_, err := d.Token()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatalf("not XML: %v\n%s", err, data)
		}
	}
}

// benchReport is a report with a curve of these speeds.
func benchReport(name string, threads int, speeds ...float64) *sdk.BenchReport {
	r := &sdk.BenchReport{
		Info:    sdk.Info{Name: name, Version: "1.0.0", Backend: "cpu", Kernels: "avx2", Threads: threads, Cache: "int8"},
		Zoo:     "v1.2.3",
		Machine: sdk.BenchMachine{OS: "linux", Arch: "amd64", Processor: "Example 7 <x&y>", Processors: 8},
	}
	depth := 128
	for _, s := range speeds {
		r.Curve = append(r.Curve, sdk.BenchPoint{Depth: depth, Decode: sdk.BenchSpread{Median: s, Min: s * 0.9, Max: s * 1.05}})
		depth *= 2
	}
	return r
}

func TestPlot(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name    string
		reports []*sdk.BenchReport
	}{
		{"one", []*sdk.BenchReport{benchReport("model", 2, 61.5, 60, 58, 52.25)}},
		{"two", []*sdk.BenchReport{benchReport("model", 1, 1.25, 1.2), benchReport("other", 2, 0.4, 0.35, 0.3)}},
		{"point", []*sdk.BenchReport{benchReport("model", 1, 4000), benchReport("without", 1)}},
		{"none", nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got := speedPlot(test.reports).svg()
			checkXML(t, got)
			file := filepath.Join("testdata", "bench_"+test.name+".svg")
			if *update {
				if err := os.WriteFile(file, got, 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Errorf("%s; if it is meant, look at it and run with -update (-want +got):\n%s", file, diff)
			}
		})
	}
}

// interrupter is a standard error that interrupts the process when it is told that
// random weights are written.
type interrupter struct {
	safeBuffer
	signals chan os.Signal
}

// Write keeps the text and returns once the interrupt has arrived.
func (w *interrupter) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte("note: writing ")) {
		self, err := os.FindProcess(os.Getpid())
		if err != nil {
			return 0, err
		}
		if err := self.Signal(os.Interrupt); err != nil {
			return 0, err
		}
		<-w.signals
	}
	return w.safeBuffer.Write(p)
}

// TestInterruptedSynthesis leaves nothing of weights that were being written. It runs
// alone, for its signal is everybody's.
func TestInterruptedSynthesis(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("windows has no signals to send")
	}
	w := &interrupter{signals: make(chan os.Signal, 1)}
	signal.Notify(w.signals, os.Interrupt)
	defer signal.Stop(w.signals)
	home := t.TempDir()
	code := run([]string{"bench", "--synthetic", "gemma-4-e2b", "--home", home, "--quiet=false"}, streams{out: &bytes.Buffer{}, err: w})
	if code == exitNoSpace {
		t.Skip("no room for the weights: " + w.String())
	}
	if got := w.String(); code != exitInterrupted || !strings.HasSuffix(got, "\ninterrupted\n") {
		t.Errorf("exit code %d, standard error %q", code, got)
	}
	for _, folder := range []string{"synthetic/gemma-4-e2b", "tmp/*"} {
		if left, err := filepath.Glob(filepath.Join(home, folder)); err != nil || len(left) > 0 {
			t.Errorf("left behind: %q, error %v", left, err)
		}
	}
}

func TestNiceStep(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ x, want float64 }{{1, 1}, {1.1, 2}, {2.2, 2.5}, {3, 5}, {7, 10}, {0.03, 0.05}, {180, 200}} {
		if got := niceStep(test.x); got != test.want {
			t.Errorf("niceStep(%g) = %g, want %g", test.x, got, test.want)
		}
	}
}

func TestFigures(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		got, want string
	}{
		{figure(1.234), "1.23"},
		{figure(12.34), "12.3"},
		{figure(123.4), "123"},
		{figure(5), "5"},
		{latency(0.01234), "12.3 ms"},
		{latency(2.5), "2.50 s"},
		{ranged(sdk.BenchSpread{Median: 2, Min: 1.5, Max: 30.25}), "2 (1.50-30.2)"},
	} {
		if test.got != test.want {
			t.Errorf("%q, want %q", test.got, test.want)
		}
	}
}
