package rpc_test

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/plugins/gemma4"
	"github.com/zoo-sdk/zoo/plugins/gemma4e2b"
	"github.com/zoo-sdk/zoo/program"
	"github.com/zoo-sdk/zoo/zoo"
)

// unpack writes an embedded repository to a folder.
func unpack(t testing.TB, repository string) string {
	t.Helper()
	files, err := catalog.Embedded(repository)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, files); err != nil {
		t.Fatal(err)
	}
	return dir
}

// everything is what a plugin makes of the demonstration model.
type everything struct {
	About      zoo.Description
	Plan       zoo.FetchPlan
	Conversion zoo.Conversion
	Digest     catalog.Digest
	Reference  *zoo.Reference
	Program    *program.Program
	Estimate   zoo.Estimate
}

// all calls every method of a plugin for the demonstration model.
func all(t *testing.T, p zoo.Plugin, checkpoint, reference string) (e everything) {
	t.Helper()
	check := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	var err error
	e.About, err = p.Describe(t.Context())
	check("describe", err)
	var files []catalog.File
	for _, name := range []string{"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "generation_config.json", "chat_template.jinja"} {
		data, err := os.ReadFile(filepath.Join(checkpoint, name))
		check(name, err)
		files = append(files, catalog.File{Path: name, SizeBytes: int64(len(data)), SHA256: catalog.DigestOf(data).Hex()})
	}
	release := catalog.Release{Model: "demo", Source: catalog.Source{Kind: catalog.KindEmbedded, Repository: "demo", Files: files}}
	e.Plan, err = p.Fetch(t.Context(), zoo.FetchRequest{Release: release, Dir: checkpoint})
	check("fetch", err)
	dir := filepath.Join(t.TempDir(), "pack")
	check("make a folder", os.Mkdir(dir, 0o700))
	last := int64(0)
	e.Conversion, err = p.Convert(t.Context(), zoo.ConvertRequest{
		Checkpoint: checkpoint, Sources: files, Recipe: map[string]string{}, Dir: dir, Report: true,
		Progress: func(done, total int64) { last = total - done },
	})
	check("convert", err)
	if last != 0 {
		t.Errorf("%d bytes were left when conversion ended", last)
	}
	pack, err := zoo.OpenPack(dir)
	check("open the pack", err)
	defer pack.Close()
	e.Digest = pack.Digest()
	config, err := os.ReadFile(filepath.Join(dir, zoo.ConfigFile))
	check("read the configuration", err)
	info := zoo.PackInfo{Manifest: pack.Manifest(), Config: config}
	e.Reference, err = p.Gate(t.Context(), zoo.GateRequest{Pack: info, Dir: reference})
	check("gate", err)
	e.Program, err = p.Run(t.Context(), zoo.RunRequest{Pack: info})
	check("run", err)
	e.Estimate, err = p.(zoo.Estimator).Estimate(t.Context(), zoo.EstimateRequest{Release: release, Sources: files, Config: config})
	check("estimate", err)
	return e
}

// TestSameAsInProcess runs a real plugin in this process and in one of its own.
func TestSameAsInProcess(t *testing.T) {
	t.Parallel()
	checkpoint, reference := unpack(t, "demo"), unpack(t, "demo/reference")
	here := all(t, gemma4e2b.New(), checkpoint, reference)
	c, _ := start(t, "e2b")
	p, err := c.Resolve(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	there := all(t, p, checkpoint, reference)
	if !reflect.DeepEqual(here.Reference, there.Reference) { // too much to print
		t.Error("the reference values differ")
	}
	if diff := cmp.Diff(here, there, cmpopts.IgnoreFields(everything{}, "Reference")); diff != "" {
		t.Error(diff)
	}
	if here.Digest == "" || len(here.Reference.Runs) == 0 || len(here.Reference.Runs[0].PromptLogits) == 0 {
		t.Error("nothing was compared")
	}
}

// fullSize returns the program of the full-size model.
func fullSize(t testing.TB) *program.Program {
	t.Helper()
	config, err := os.ReadFile(filepath.Join("..", "gemma4e2b", "shapes", "mobile.json"))
	if err != nil {
		t.Fatal(err)
	}
	p, err := gemma4.SyntheticProgram(t.Context(), gemma4.Shapes{Config: config})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestProgramFits checks that the largest program known is far from what may be sent.
func TestProgramFits(t *testing.T) {
	t.Parallel()
	data, err := program.Encode(fullSize(t))
	if err != nil {
		t.Fatal(err)
	}
	if len(data) > program.MaxEncoded/4 {
		t.Errorf("the program has %d bytes, the limit is %d", len(data), program.MaxEncoded)
	}
}

// BenchmarkFirstCall starts the process and calls it once.
func BenchmarkFirstCall(b *testing.B) {
	for b.Loop() {
		c, _ := start(b, "e2b")
		if _, err := c.Describe(b.Context()); err != nil {
			b.Fatal(err)
		}
		_ = c.Close()
	}
}

// BenchmarkCall calls a process that runs.
func BenchmarkCall(b *testing.B) {
	c, _ := start(b, "plain")
	works(b, c)
	for b.Loop() {
		if _, err := c.Describe(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkProgram fetches the program of the full-size model, as an estimate.
func BenchmarkProgram(b *testing.B) {
	models, err := catalog.Builtin()
	if err != nil {
		b.Fatal(err)
	}
	release, err := models.Resolve(catalog.Ref{Name: "gemma-4-e2b"})
	if err != nil {
		b.Fatal(err)
	}
	c, _ := start(b, "e2b")
	there, err := c.Resolve(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	data, err := program.Encode(fullSize(b))
	if err != nil {
		b.Fatal(err)
	}
	for name, p := range map[string]zoo.Plugin{"in-process": gemma4e2b.New(), "rpc": there} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := p.(zoo.Estimator).Estimate(b.Context(), zoo.EstimateRequest{Release: *release}); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(len(data)), "program-bytes")
		})
	}
}

// BenchmarkReference fetches logits of the size that references of a full-size model have.
func BenchmarkReference(b *testing.B) {
	c, _ := start(b, "plain")
	bytes := int64(0)
	for _, r := range reference("").Runs {
		bytes += 4 * int64(len(r.LastLogits))
		for _, row := range r.PromptLogits {
			bytes += 4 * int64(len(row))
		}
	}
	b.SetBytes(bytes)
	for b.Loop() {
		if _, err := c.Gate(b.Context(), zoo.GateRequest{}); err != nil {
			b.Fatal(err)
		}
	}
}
