package metal_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/zoo-sdk/zoo/backends"
	"github.com/zoo-sdk/zoo/backends/backendtest"
	"github.com/zoo-sdk/zoo/backends/metal"
	"github.com/zoo-sdk/zoo/backends/metal/metaltest"
	"github.com/zoo-sdk/zoo/quant"
)

// randomTokens returns tokens that a vocabulary of so many has.
func randomTokens(n, vocab int) []int32 {
	rng := rand.New(rand.NewPCG(8, uint64(n)))
	all := make([]int32, n)
	for i := range all {
		all[i] = rng.Int32N(int32(vocab))
	}
	return all
}

// TestChecked runs whole decoders, in batches, token by token and in a burst, with
// every access checked and threads in permuted order.
func TestChecked(t *testing.T) {
	t.Parallel()
	metaltest.Require(t)
	if testing.Short() {
		t.Skip("takes long, and nothing of it runs concurrently")
	}
	for i, f := range []quant.Format{quant.Int4, quant.Int4x32} {
		t.Run(f.String(), func(t *testing.T) {
			t.Parallel()
			shape := backendtest.Shape{
				Seed: uint64(i), Format: f, Hidden: 96, FFN: 64, HeadDim: 32, Heads: 4, KVHeads: 2, Vocab: 300, Window: 12, Context: 700, Static: true,
			}
			p, w := backendtest.Decoder(shape)
			opts := backends.Options{Activations: backends.ActivationsStatic, Cache: backends.CacheInt8, MaxRows: 12, MaxLogits: 12}
			tokens := randomTokens(18, shape.Vocab)
			logits, _ := backendtest.Interpret(p, w, opts, tokens)
			d := metaltest.New(metaltest.Options{Checked: true, Seed: 3 + uint64(i)})
			e, err := metal.New(d).Compile(t.Context(), p, w, opts)
			if err != nil {
				t.Fatal(err)
			}
			s := newSlot(t, e)
			for at, rows := 0, 12; at < len(tokens); at, rows = at+rows, 1 {
				got, err := feed(t.Context(), e, s, tokens[at:at+rows]...)
				if err != nil {
					t.Fatal(err)
				}
				if j := firstDiff(got, logits[at+rows-1]); j >= 0 {
					t.Errorf("token %d: logit %d is %g, want %g", at+rows-1, j, got[j], logits[at+rows-1][j])
				}
			}
			for _, pick := range []backends.Pick{{}, {Temperature: 1, TopK: 40, TopP: 0.9, MinP: 0.01}} {
				b := &backends.Burst{Row: backends.Row{Token: 5, Slot: s, Pos: e.Len(s)}, Steps: 3, Pick: pick, Emit: func(int32) bool { return true }}
				if !pick.Greedy() {
					b.Random = []uint64{1 << 60, 1 << 63, 1<<64 - 1}
				}
				if r, err := e.(backends.Generator).Generate(t.Context(), b); err != nil || r.Fed != 3 {
					t.Errorf("a burst of %+v: %+v, %v", pick, r, err)
				}
			}
			if err := e.Close(); err != nil {
				t.Error(err)
			}
			nothingHeld(t, d)
		})
	}
}

// TestBurstStreams: the first tokens of a burst come while it runs.
func TestBurstStreams(t *testing.T) {
	d, e, open := compileGated(t)
	g := e.(backends.Generator)
	s := newSlot(t, e)
	defer time.AfterFunc(5*time.Minute, func() {
		t.Error("no token comes while its burst is running")
		open()
	}).Stop()
	tokens := 0
	r, err := g.Generate(t.Context(), &backends.Burst{
		Row: backends.Row{Token: 1, Slot: s, Pos: e.Len(s)}, Steps: g.MaxBurst(),
		Emit: func(int32) bool { tokens++; open(); return true },
	})
	if err != nil || r.Fed != g.MaxBurst() || tokens != r.Fed {
		t.Errorf("%+v and %d tokens, %v", r, tokens, err)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	nothingHeld(t, d)
}

// TestBurstCounts: a burst is one submission and one wait.
func TestBurstCounts(t *testing.T) {
	t.Parallel()
	metaltest.Require(t)
	d := metaltest.New(metaltest.Options{})
	e, err := compile(t, d)
	if err != nil {
		t.Fatal(err)
	}
	g := e.(backends.Generator)
	s := newSlot(t, e)
	for i := range 5 {
		before := d.Counts()
		r, err := g.Generate(t.Context(), &backends.Burst{
			Row: backends.Row{Token: 1, Slot: s, Pos: e.Len(s)}, Steps: g.MaxBurst(), Emit: func(int32) bool { return true },
		})
		if err != nil || r.Fed != g.MaxBurst() {
			t.Fatalf("%+v, %v", r, err)
		}
		after := d.Counts()
		if after.Submissions != before.Submissions+1 || after.Waits != before.Waits+1 {
			t.Errorf("burst %d: %d submissions and %d waits", i, after.Submissions-before.Submissions, after.Waits-before.Waits)
		}
	}
	lists := d.Counts().LiveLists
	for i := range 20 {
		if _, err := g.Generate(t.Context(), &backends.Burst{
			Row: backends.Row{Token: 1, Slot: s, Pos: e.Len(s)}, Steps: 1, Random: []uint64{7},
			Pick: backends.Pick{Temperature: 1 + float32(i)/100, TopK: 5}, Emit: func(int32) bool { return true },
		}); err != nil {
			t.Fatal(err)
		}
	}
	if got := d.Counts().LiveLists; got > lists {
		t.Errorf("%d lists after many kinds of picks, %d before", got, lists)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	nothingHeld(t, d)
}

// TestTables: with mapped tables the bits are the same, the device has less, and no
// burst is possible, be the table one of codes or of floats.
func TestTables(t *testing.T) {
	t.Parallel()
	metaltest.Require(t)
	for _, f := range []quant.Format{quant.Int8, quant.BF16, quant.F32} {
		t.Run(f.String(), func(t *testing.T) {
			t.Parallel()
			testTables(t, f)
		})
	}
}

// testTables is TestTables for a table in one format.
func testTables(t *testing.T, f quant.Format) {
	p, w := small()
	table := slices.Index(backends.Gathered(p), true)
	m := p.Weights[table].Matrix
	m.Format = f
	p.Weights[table] = w.Add(m)
	tokens := randomTokens(9, p.Vocab)
	var want []float32
	held := int64(0)
	for _, tables := range []backends.TablePlacement{backends.TablesResident, backends.TablesMapped} {
		d := metaltest.New(metaltest.Options{})
		e, err := metal.New(d).Compile(t.Context(), p, w, backends.Options{MaxRows: 4, Tables: tables})
		if err != nil {
			t.Fatal(err)
		}
		s := newSlot(t, e)
		var all []float32
		for _, part := range [][]int32{tokens[:4], tokens[4:7], tokens[7:8], tokens[8:9]} {
			logits, err := feed(t.Context(), e, s, part...)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, logits...)
		}
		err = e.(backends.Generator).CanPick(backends.Pick{}, nil)
		if (err != nil) != (tables == backends.TablesMapped) {
			t.Errorf("%s tables: bursts: %v", tables, err)
		}
		bytes := d.Counts().LiveBytes
		if want == nil {
			want, held = all, bytes
		} else {
			if i := firstDiff(all, want); i >= 0 {
				t.Errorf("%s tables: logit %d is %g, want %g", tables, i, all[i], want[i])
			}
			if bytes >= held {
				t.Errorf("%s tables: %d bytes, %d with resident ones", tables, bytes, held)
			}
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
		nothingHeld(t, d)
	}
}

// TestProfile: the profile names what ran and counts what was read.
func TestProfile(t *testing.T) {
	t.Parallel()
	metaltest.Require(t)
	p, w := small()
	e, err := metal.New(metaltest.New(metaltest.Options{})).Compile(t.Context(), p, w, backends.Options{Profile: true})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	s := newSlot(t, e)
	if _, err := feed(t.Context(), e, s, 1); err != nil {
		t.Fatal(err)
	}
	total := int64(0)
	names := []string{}
	for _, op := range e.Profile() {
		if op.Calls == 0 || op.Time <= 0 {
			t.Errorf("%+v", op)
		}
		total += op.Bytes
		names = append(names, op.Name)
	}
	embed := int64(0) // gathers count as bytes of a step, but read no matrix
	for _, op := range p.Ops {
		if op.Embed != nil {
			m := p.Weights[op.Embed.Table]
			embed += int64(m.CodeBytes() + 4*m.Groups())
		}
	}
	if want := e.Stats().StepBytes - embed; total != want {
		t.Errorf("the profile has %d bytes, the step %d", total, want)
	}
	if !slices.ContainsFunc(names, func(s string) bool { return s == fmt.Sprintf("linear int4 %dx%d", p.Vocab, 64) }) {
		t.Errorf("the head is not among %q", names)
	}
	if len(e.Profile()) != 0 {
		t.Error("a profile is told twice")
	}
}
