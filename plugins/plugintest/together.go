package plugintest

import (
	"bytes"
	"context"
	"reflect"
	"slices"
	"sync"

	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/program"
)

const (
	// sessions is how many callers there are at the same time, each of which makes every call.
	sessions = 8
	// conversions is how many of them convert.
	conversions = 2
)

// together makes all calls from many goroutines and compares what comes back with
// what came back before.
func (s *suite) together(ctx context.Context) error {
	if s.about.Name == "" {
		return nil
	}
	var first []byte
	if s.program != nil {
		var err error
		if first, err = program.Encode(s.program); err != nil {
			return err
		}
	}
	errs := make([]error, sessions)
	var group sync.WaitGroup
	for i := range sessions {
		group.Go(func() {
			calls := []func() error{
				func() error { s.describeTogether(ctx); return nil },
				func() error { return s.fetchTogether(ctx) },
				func() error { return s.runTogether(ctx, first) },
				func() error { s.gateTogether(ctx); return nil },
			}
			if i < conversions {
				calls = append(calls, func() error { return s.convertTogether(ctx) })
			}
			// Every session begins with another call.
			for j := range calls {
				if errs[i] = calls[(i+j)%len(calls)](); errs[i] != nil {
					return
				}
			}
		})
	}
	group.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// describeTogether is one call of many.
func (s *suite) describeTogether(ctx context.Context) {
	const call = "Describe, with other calls"
	about, err := ask(ctx, s, call, s.plugin.Describe)
	if s.works(RuleTogether, call, err) && about != s.about {
		s.find(RuleTogether, call, "it said %+v, alone %+v", about, s.about)
	}
}

// fetchTogether is one call of many.
func (s *suite) fetchTogether(ctx context.Context) error {
	if len(s.planned) == 0 {
		return nil
	}
	const call = "Fetch, with other calls"
	files, err := s.plan(ctx, call, s.release(s.sources), s.o.Checkpoint)
	if s.works(RuleTogether, call, err) && !samePaths(files, s.planned) {
		s.find(RuleTogether, call, "the plan was %v, alone %v", files, s.planned)
	}
	return nil
}

// samePaths reports whether two plans need the same files.
func samePaths(a, b []catalog.File) bool {
	paths := func(files []catalog.File) []string {
		var all []string
		for _, f := range files {
			all = append(all, f.Path)
		}
		slices.Sort(all)
		return all
	}
	return slices.Equal(paths(a), paths(b))
}

// runTogether is one call of many.
func (s *suite) runTogether(ctx context.Context, want []byte) error {
	if s.program == nil {
		return nil
	}
	const call = "Run, with other calls"
	p, err := s.record(ctx, call, s.info)
	if !s.works(RuleTogether, call, err) {
		return nil
	}
	got, err := program.Encode(p)
	if err != nil || !bytes.Equal(got, want) {
		s.find(RuleTogether, call, "the program is another one than alone")
	}
	return nil
}

// gateTogether is one call of many.
func (s *suite) gateTogether(ctx context.Context) {
	if s.gated == nil {
		return
	}
	const call = "Gate, with other calls"
	ref, err := s.reference(ctx, call, s.info, s.o.Reference)
	if s.works(RuleTogether, call, err) && !reflect.DeepEqual(ref, s.gated) {
		s.find(RuleTogether, call, "the reference values are others than alone")
	}
}

// convertTogether is one call of many.
func (s *suite) convertTogether(ctx context.Context) error {
	if s.pack == nil {
		return nil
	}
	const call = "Convert, with other calls"
	dir, around, err := s.folder()
	if err != nil {
		return err
	}
	if s.works(RuleTogether, call, s.toPack(ctx, s.plugin, call, s.request(dir))) {
		around(call)
		s.same(ctx, RuleTogether, call, dir)
	}
	return nil
}
