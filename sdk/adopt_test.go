package sdk_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/sdk"
	"github.com/zoo-sdk/zoo/zoo"
)

// reference writes the demo's reference values, without questions, into a folder;
// change edits golden.json.
func reference(t *testing.T, change func(golden map[string]any)) string {
	t.Helper()
	dir := t.TempDir()
	files, err := catalog.Embedded("demo/reference")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.CopyFS(dir, files), os.Remove(filepath.Join(dir, "questions.jsonl"))); err != nil {
		t.Fatal(err)
	}
	if change == nil {
		return dir
	}
	file := filepath.Join(dir, "golden.json")
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	golden := map[string]any{}
	if err := json.Unmarshal(data, &golden); err != nil {
		t.Fatal(err)
	}
	change(golden)
	if data, err = json.Marshal(golden); err != nil {
		t.Fatal(err)
	}
	rewrite(t, file, data)
	return dir
}

// rewrite replaces a file that may be read-only.
func rewrite(t *testing.T, file string, data []byte) {
	t.Helper()
	if err := errors.Join(os.Chmod(file, 0o644), os.WriteFile(file, data, 0o644)); err != nil {
		t.Fatal(err)
	}
}

// firstRun returns the first run of golden.json.
func firstRun(golden map[string]any) map[string]any {
	return golden["runs"].([]any)[0].(map[string]any)
}

// show returns what is known of the model "plain".
func show(t *testing.T, z *sdk.Zoo) (receipt zoo.Receipt, from sdk.ReferenceDetails) {
	t.Helper()
	d, err := z.Show(t.Context(), "plain")
	if err != nil {
		t.Fatal(err)
	}
	if d.Model.Reference != nil {
		from = *d.Model.Reference
	}
	return *d.Pack.Receipt, from
}

// Adopted values are what gates, and pulls that make the pack again, hold it
// against, until they are forgotten.
func TestAdoptReference(t *testing.T) {
	t.Parallel()
	long(t)
	home := t.TempDir()
	z := client(t, home, plainCatalog(t))
	if _, err := z.AdoptReference(t.Context(), "plain", reference(t, nil)); !errors.Is(err, zoo.ErrNotFound) {
		t.Errorf("before it is installed: %v", err)
	}
	if _, err := z.Pull(t.Context(), "plain"); err != nil {
		t.Fatal(err)
	}
	if receipt, from := show(t, z); receipt.Level != zoo.LevelSelf || from.From != "" {
		t.Errorf("before: %+v, %+v", receipt, from)
	}
	report, err := z.AdoptReference(t.Context(), "plain@^1", reference(t, nil))
	if err != nil || !report.Pass || len(report.Runs) != 8 {
		t.Fatalf("%+v, %v", report, err)
	}
	receipt, from := show(t, z)
	if receipt.Level != zoo.LevelOracle || from.From != sdk.FromAdoption || from.Time == nil || len(from.Files) != 2 || from.Unused != "" {
		t.Errorf("adopted: %+v, %+v", receipt, from)
	}
	list, err := z.List(t.Context())
	if err != nil || list[0].Name != "plain" || list[0].Gate != "oracle" || list[0].Reference != sdk.FromAdoption {
		t.Errorf("list %+v, %v", list, err)
	}
	if report, err = z.Gate(t.Context(), "plain", sdk.GateOptions{}); err != nil || len(report.Runs) != 8 {
		t.Errorf("gate: %+v, %v", report, err)
	}
	// The pack is damaged and made anew.
	flip(t, find(t, home, "/weights.safetensors"), -1)
	done, err := z.Pull(t.Context(), "plain")
	if err != nil || !done.Fresh || done.Receipt.Level != zoo.LevelOracle || done.Receipt.Runs != 8 {
		t.Errorf("pull: %+v, %v", done, err)
	}
	report, err = z.ForgetReference(t.Context(), "plain")
	if err != nil || report.Level != zoo.LevelSelf {
		t.Errorf("forget: %+v, %v", report, err)
	}
	if receipt, from := show(t, z); receipt.Level != zoo.LevelSelf || from.From != "" {
		t.Errorf("afterwards: %+v, %+v", receipt, from)
	}
	if _, err := z.ForgetReference(t.Context(), "plain"); !errors.Is(err, zoo.ErrNotFound) || zoo.Hint(err) == "" {
		t.Errorf("forget again: %v", err)
	}
	if _, err := os.Stat(filepath.Join(home, "references", "plain")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("left: %v", err)
	}
}

// Values that are no good, and those of other weights, are not adopted: what was
// adopted before stays, and so does the receipt.
func TestAdoptReferenceRefuses(t *testing.T) {
	t.Parallel()
	long(t)
	home := t.TempDir()
	z := client(t, home, plainCatalog(t))
	if _, err := z.Pull(t.Context(), "plain"); err != nil {
		t.Fatal(err)
	}
	if _, err := z.AdoptReference(t.Context(), "plain", reference(t, nil)); err != nil {
		t.Fatal(err)
	}
	receipt, from := show(t, z)
	cut := func(name string, bytes int64) string {
		dir := reference(t, nil)
		file := filepath.Join(dir, name)
		if err := errors.Join(os.Chmod(file, 0o644), os.Truncate(file, bytes)); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	sources := func(path, digest string) func(map[string]any) {
		return func(golden map[string]any) {
			golden["source"] = []any{map[string]any{"path": path, "size": 1, "sha256": digest}}
		}
	}
	for _, test := range []struct {
		name, dir string
		model     string
		opts      []sdk.Option
		want      error
		text      string
	}{
		{name: "no folder", dir: filepath.Join(t.TempDir(), "none"), want: zoo.ErrNotFound, text: "no folder"},
		{name: "an empty folder", dir: t.TempDir(), want: zoo.ErrNotFound, text: "no golden.json in"},
		{name: "cut json", dir: cut("golden.json", 100), want: zoo.ErrIntegrity, text: "golden.json"},
		{name: "cut tensors", dir: cut("golden.safetensors", 10_000), want: zoo.ErrIntegrity, text: "golden.safetensors"},
		{name: "no runs", dir: reference(t, func(g map[string]any) { g["runs"] = []any{} }), want: zoo.ErrIntegrity, text: "no runs"},
		{name: "another vocabulary", dir: reference(t, func(g map[string]any) { firstRun(g)["prompt"].([]any)[3] = 200_000 }), want: zoo.ErrIntegrity, text: "token 200000"},
		{name: "a wrong token", dir: wrongReference(t), want: zoo.ErrGateFailed, text: "are not adopted: pack sha256:"},
		{name: "other weights", dir: reference(t, sources("model.safetensors", strings.Repeat("ab", 32))), want: zoo.ErrIntegrity, text: "another model.safetensors"},
		{name: "weights in another file", dir: reference(t, sources("model-00001-of-00002.safetensors", strings.Repeat("ab", 32))), want: zoo.ErrIntegrity, text: `"model-00001-of-00002.safetensors", which is no source file`},
		{name: "another cache", opts: []sdk.Option{sdk.WithCache("float")}, want: zoo.ErrUsage, text: "float cache"},
		{name: "other activations", opts: []sdk.Option{sdk.WithActivations("float")}, want: zoo.ErrUsage, text: "float activations"},
		{name: "a folder as a model", model: "./plain", want: zoo.ErrUsage, text: "not an installed model"},
		{name: "not in the catalog", model: "plainer", want: zoo.ErrNotFound, text: "plainer"},
	} {
		if test.dir == "" {
			test.dir = reference(t, nil)
		}
		if test.model == "" {
			test.model = "plain"
		}
		report, err := z.AdoptReference(t.Context(), test.model, test.dir, test.opts...)
		if !errors.Is(err, test.want) || !strings.Contains(err.Error(), test.text) || (report != nil) != (test.want == zoo.ErrGateFailed) {
			t.Errorf("%s: %+v, %v", test.name, report, err)
		}
		if err != nil && zoo.Hint(err) == "" && errors.Is(err, zoo.ErrNotFound) || test.model == "./plain" && !strings.Contains(zoo.Hint(err), "zoo gate ./plain --reference") {
			t.Errorf("%s: hint %q", test.name, zoo.Hint(err))
		}
		var refused *sdk.AdoptionError
		if test.want == zoo.ErrGateFailed && (!errors.As(err, &refused) || !strings.Contains(zoo.Hint(err), "zoo gate plain --reference") || !strings.Contains(zoo.Hint(err), "same weights on the same grid")) {
			t.Errorf("%s: hint %q", test.name, zoo.Hint(err))
		}
		after, still := show(t, z)
		if diff := cmp.Diff(receipt, after) + cmp.Diff(from, still); diff != "" {
			t.Errorf("%s: %s", test.name, diff)
		}
		if left, err := os.ReadDir(filepath.Join(home, "tmp")); err != nil || len(left) != 0 {
			t.Errorf("%s: left %v, %v", test.name, left, err)
		}
	}
	// Damage in the store is told, and is no reason to fall back to a weaker gate.
	flip(t, find(t, home, "/golden.safetensors"), -1)
	if _, err := z.Gate(t.Context(), "plain", sdk.GateOptions{}); !errors.Is(err, zoo.ErrIntegrity) || !strings.Contains(zoo.Hint(err), "--forget") {
		t.Errorf("damaged: %v, hint %q", err, zoo.Hint(err))
	}
	if report, err := z.ForgetReference(t.Context(), "plain"); err != nil || report.Level != zoo.LevelSelf {
		t.Errorf("forget: %+v, %v", report, err)
	}
}

// A pack that is made otherwise is not held against the values of the first one.
func TestAdoptedForAnotherRecipe(t *testing.T) {
	t.Parallel()
	long(t)
	home := t.TempDir()
	z := client(t, home, plainCatalog(t))
	if _, err := z.Pull(t.Context(), "plain"); err != nil {
		t.Fatal(err)
	}
	if _, err := z.AdoptReference(t.Context(), "plain", reference(t, nil)); err != nil {
		t.Fatal(err)
	}
	// The catalog now names a recipe, and the pack is gone.
	file := filepath.Join(t.TempDir(), "plain.yaml")
	models := strings.Replace(plainModels("plain"), "        source:", "        recipe: {grid: none}\n        source:", 1)
	if err := errors.Join(os.WriteFile(file, []byte(models), 0o644), os.RemoveAll(filepath.Join(home, "packs"))); err != nil {
		t.Fatal(err)
	}
	var notices []string
	z = client(t, home, sdk.WithCatalog(file), sdk.WithProgress(sdk.Events{Notice: func(text string) { notices = append(notices, text) }}))
	done, err := z.Pull(t.Context(), "plain")
	if err != nil || done.Receipt.Level != zoo.LevelSelf {
		t.Fatalf("%+v, %v", done, err)
	}
	if told := strings.Join(notices, "\n"); !strings.Contains(told, "other source files or another recipe") || !strings.Contains(told, "--forget") {
		t.Errorf("told %q", told)
	}
	if _, from := show(t, z); from.From != "" || from.Unused == "" {
		t.Errorf("shown %+v", from)
	}
	other := reference(t, func(golden map[string]any) { golden["grid"] = "q4_0" })
	if _, err := z.AdoptReference(t.Context(), "plain", other); !errors.Is(err, zoo.ErrIntegrity) || !strings.Contains(err.Error(), `"q4_0"`) {
		t.Errorf("values of another grid: %v", err)
	}
	if _, err := z.AdoptReference(t.Context(), "plain", reference(t, nil)); err != nil {
		t.Error(err)
	}
	if _, from := show(t, z); from.From != sdk.FromAdoption || from.Unused != "" {
		t.Errorf("shown %+v", from)
	}
}

// A gate without reference values holds the lock until its receipt is written: an
// adoption waits for it, and the better receipt stays.
func TestAdoptBesideGate(t *testing.T) {
	t.Parallel()
	long(t)
	home, models := t.TempDir(), plainCatalog(t)
	z := client(t, home, models)
	if _, err := z.Pull(t.Context(), "plain"); err != nil {
		t.Fatal(err)
	}
	waiting, adopted := make(chan struct{}), make(chan error, 1)
	values := reference(t, nil)
	var once sync.Once
	slow := client(t, home, models, sdk.WithProgress(sdk.Events{Gate: func(string, int, int) {
		once.Do(func() {
			other := client(t, home, models, sdk.WithProgress(sdk.Events{Waiting: func(string, string) { close(waiting) }}))
			go func() {
				_, err := other.AdoptReference(t.Context(), "plain", values)
				adopted <- err
			}()
			select {
			case <-waiting:
			case err := <-adopted:
				adopted <- err
				t.Error("the adoption did not wait for the gate")
			}
		})
	}}))
	if report, err := slow.Gate(t.Context(), "plain", sdk.GateOptions{}); err != nil || report.Level != zoo.LevelSelf {
		t.Errorf("gate: %+v, %v", report, err)
	}
	if err := <-adopted; err != nil {
		t.Fatal(err)
	}
	if receipt, from := show(t, z); receipt.Level != zoo.LevelOracle || from.From != sdk.FromAdoption {
		t.Errorf("afterwards: %+v, %+v", receipt, from)
	}
}

// An interrupted call leaves the values and the receipt as they were.
func TestInterruptedReference(t *testing.T) {
	t.Parallel()
	long(t)
	home, models := t.TempDir(), plainCatalog(t)
	z := client(t, home, models)
	if _, err := z.Pull(t.Context(), "plain"); err != nil {
		t.Fatal(err)
	}
	if _, err := z.AdoptReference(t.Context(), "plain", reference(t, nil)); err != nil {
		t.Fatal(err)
	}
	receipt, from := show(t, z)
	values := reference(t, nil)
	for name, call := range map[string]func(ctx context.Context, z *sdk.Zoo) (*sdk.GateReport, error){
		"adopt": func(ctx context.Context, z *sdk.Zoo) (*sdk.GateReport, error) {
			return z.AdoptReference(ctx, "plain", values)
		},
		"forget": func(ctx context.Context, z *sdk.Zoo) (*sdk.GateReport, error) { return z.ForgetReference(ctx, "plain") },
		"gate": func(ctx context.Context, z *sdk.Zoo) (*sdk.GateReport, error) {
			return z.Gate(ctx, "plain", sdk.GateOptions{})
		},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		report, err := call(ctx, client(t, home, models, sdk.WithProgress(sdk.Events{Gate: func(string, int, int) { cancel() }})))
		cancel()
		if report != nil || !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %+v, %v", name, report, err)
		}
		after, still := show(t, z)
		if diff := cmp.Diff(receipt, after) + cmp.Diff(from, still); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// A removal that was killed leaves values without a record: they are removed by name,
// and a pull does not use them.
func TestKilledRemoval(t *testing.T) {
	t.Parallel()
	long(t)
	home := t.TempDir()
	z := client(t, home, plainCatalog(t))
	adopt := func() {
		t.Helper()
		if _, err := z.Pull(t.Context(), "plain"); err != nil {
			t.Fatal(err)
		}
		if _, err := z.AdoptReference(t.Context(), "plain", reference(t, nil)); err != nil {
			t.Fatal(err)
		}
		if err := os.RemoveAll(filepath.Join(home, "models", "plain")); err != nil {
			t.Fatal(err)
		}
	}
	adopt()
	if name, version, err := z.Remove(t.Context(), "plain"); err != nil || name != "plain" || version != "1.0.0" {
		t.Errorf("%s@%s, %v", name, version, err)
	}
	if left, err := os.ReadDir(filepath.Join(home, "references")); err != nil || len(left) != 0 {
		t.Errorf("left %v, %v", left, err)
	}
	if _, _, err := z.Remove(t.Context(), "plain"); !errors.Is(err, zoo.ErrNotFound) || !strings.Contains(err.Error(), "is not installed") {
		t.Errorf("again: %v", err)
	}
	adopt()
	if done, err := z.Pull(t.Context(), "plain"); err != nil || done.Receipt.Level != zoo.LevelSelf {
		t.Errorf("pull: %+v, %v", done, err)
	}
	if _, from := show(t, z); from.From != "" {
		t.Errorf("shown %+v", from)
	}
}

// What is adopted is verified with the pack.
func TestVerifyReference(t *testing.T) {
	t.Parallel()
	long(t)
	home := t.TempDir()
	z := client(t, home, plainCatalog(t))
	if _, err := z.Pull(t.Context(), "plain"); err != nil {
		t.Fatal(err)
	}
	if v, err := z.Verify(t.Context(), "plain"); err != nil || v.ReferenceFiles != 0 || v.ReferenceBytes != 0 {
		t.Errorf("without: %+v, %v", v, err)
	}
	if _, err := z.AdoptReference(t.Context(), "plain", reference(t, nil)); err != nil {
		t.Fatal(err)
	}
	if v, err := z.Verify(t.Context(), "plain"); err != nil || v.ReferenceFiles != 2 || v.ReferenceBytes < 1_000_000 {
		t.Errorf("adopted: %+v, %v", v, err)
	}
	flip(t, find(t, home, "/golden.safetensors"), -1)
	_, err := z.Verify(t.Context(), "plain")
	if _, ok := errors.AsType[*zoo.ReferenceDamageError](err); !ok || !errors.Is(err, zoo.ErrIntegrity) || !strings.Contains(err.Error(), "golden.safetensors") {
		t.Errorf("a bit: %v", err)
	}
	flip(t, find(t, home, "/reference.json"), 0)
	if _, err := z.Verify(t.Context(), "plain"); !errors.Is(err, zoo.ErrIntegrity) {
		t.Errorf("the description: %v", err)
	}
}
