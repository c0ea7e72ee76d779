package sdk

import (
	"runtime"
	"testing"

	"github.com/zoo-sdk/zoo/plugins/gemma4e2b"
)

// TestBenchTables tells how tables are kept, and what is in memory of them.
func TestBenchTables(t *testing.T) {
	t.Parallel()
	z, _ := tinyZoo(t, t.TempDir(), tinyPlugin{Plugin: gemma4e2b.New(), made: new(int)})
	dir, err := z.Synthesize(t.Context(), "tiny")
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ tables, want string }{{"", "mapped"}, {"mapped", "mapped"}, {"resident", "resident"}} {
		r, err := z.Bench(t.Context(), dir, BenchOptions{Prompt: 4, Generate: 2, Rounds: 1}, WithBackend(cpuName), WithContext(100), WithTables(test.tables))
		if err != nil {
			t.Fatal(err)
		}
		m := r.Memory
		if r.Tables != test.want || m.Tables == nil || m.Tables.Size <= 0 || m.Tables.Size >= m.Mapped {
			t.Fatalf("tables %q: kept %q, %+v", test.tables, r.Tables, m.Tables)
		}
		if l := m.Tables.Locked; l != 0 && (l != m.Tables.Size || test.want != "resident") {
			t.Errorf("tables %q: %d bytes are locked", test.tables, l)
		}
		if runtime.GOOS != "linux" {
			continue
		}
		if m.ResidentFiles <= 0 || m.ResidentPrivate <= 0 || m.ResidentPrivate > m.Private {
			t.Errorf("tables %q: %+v", test.tables, m)
		}
		if n := m.Tables.InMemory; n == nil || *n <= 0 || *n > m.Tables.Size || test.want == "resident" && *n != m.Tables.Size {
			t.Errorf("tables %q: not as many in memory as can be: %+v", test.tables, m.Tables)
		}
	}
}
