package sdk

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/zoo-sdk/zoo/backends/metal"
)

const (
	// demoModel is the model of which every backend must give the same tokens.
	demoModel = "demo"
	// metalName and cpuName are the backends that are compared.
	metalName, cpuName = "metal", "cpu"
	// demoTokens is the most tokens of an answer.
	demoTokens = 48
)

// demoPrompts are what the model is asked. The last one takes several batches.
var demoPrompts = []string{
	"What is the capital of France?",
	"What is a river?",
	strings.Repeat("A river is a stream of water that flows to the sea. ", 6) + "What is a sea?",
}

// demoPicks are the ways in which tokens are picked.
var demoPicks = []struct {
	name string
	opts []CallOption
}{
	{"the likeliest tokens", []CallOption{Temperature(0)}},
	{"drawn from the 40 likeliest", []CallOption{Temperature(1.5), TopK(40), TopP(0.95), Seed(7)}},
	{"drawn from the 8 likeliest", []CallOption{Temperature(3), TopK(8), MinP(0.01), Seed(8)}},
}

// demo compares the tokens of the demo on the device with those on the processor.
func (x *metalDiagnosis) demo(ctx context.Context) (string, error) {
	// First on the processor, on which the pack passes its gate if it is new.
	want, err := x.answers(ctx, cpuName)
	if err != nil {
		return "", err
	}
	got, err := x.answers(ctx, metalName)
	if err != nil {
		return "", err
	}
	tokens := 0
	var differ []error
	for i := range want {
		tokens += len(want[i])
		if err := sameTokens(got[i], want[i]); err != nil {
			differ = append(differ, fmt.Errorf("answer to prompt %d, %s: %w", 1+i/len(demoPicks), demoPicks[i%len(demoPicks)].name, err))
		}
	}
	if len(differ) > 0 {
		return "", fmt.Errorf("%d of %d answers are not those of the processor: %w", len(differ), len(want), onOneLine(differ))
	}
	return fmt.Sprintf("%d answers, %d tokens, as on the processor", len(want), tokens), nil
}

// sameTokens tells where an answer is not the one that it should be.
func sameTokens(got, want []int32) error {
	const show = 4
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || got[i] != want[i] {
			return fmt.Errorf("from token %d on it has %v, want %v", i, got[min(i, len(got)):min(i+show, len(got))], want[min(i, len(want)):min(i+show, len(want))])
		}
	}
	return nil
}

// answers returns the demo's tokens for all prompts, picked in all ways.
func (x *metalDiagnosis) answers(ctx context.Context, backend string) (all [][]int32, err error) {
	m, err := x.zoo.Open(ctx, demoModel, WithBackend(backend))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	for _, prompt := range demoPrompts {
		ids, err := m.text.prompt(ctx, call{}, call{}.messages(prompt), prompt)
		if err != nil {
			return nil, err
		}
		for _, pick := range demoPicks {
			tokens, err := x.answer(ctx, m, ids, pick.opts)
			if err != nil {
				return nil, fmt.Errorf("backend %q: %w", backend, err)
			}
			all = append(all, tokens)
		}
	}
	return all, nil
}

// answer returns the tokens that follow others, and counts those that a device gives while it goes on.
func (x *metalDiagnosis) answer(ctx context.Context, m *Model, ids []int32, opts []CallOption) (tokens []int32, err error) {
	var u Usage
	for id, err := range m.Generate(ctx, ids, append(slices.Clone(opts), MaxTokens(demoTokens), Measure(&u))...) {
		if err != nil {
			return nil, err
		}
		tokens = append(tokens, id)
		if x.watch.running.Load() > 0 {
			x.came.early++
		}
	}
	if m.info.Backend == metalName {
		x.came.tokens += len(tokens)
		x.came.steps += u.Steps
		x.came.submissions += u.Submissions
		x.came.single = u.SingleStep
	}
	return tokens, nil
}

// arrivals is how tokens came from a device.
type arrivals struct {
	tokens             int // all of them
	steps, submissions int // that gave them
	early              int // how many came before the submission that gave them had ended
	single             string
}

// judge tells how the tokens came, which must not be all at the end of a submission.
func (a *arrivals) judge(context.Context) (string, error) {
	if a.single != "" {
		return "", fmt.Errorf("each submission gave one token: %s", a.single)
	}
	detail := fmt.Sprintf("%d tokens, %.1f a submission; %d came before their submission had ended", a.tokens, float64(a.steps)/float64(max(1, a.submissions)), a.early)
	if a.early == 0 {
		return detail, errors.New("the tokens of a submission come all at its end")
	}
	return detail, nil
}

// watchedDriver tells whether a submission to one of its devices is running.
type watchedDriver struct {
	metal.Driver
	running atomic.Int64
}

// Open implements metal.Driver.
func (d *watchedDriver) Open() (metal.Device, error) {
	device, err := d.Driver.Open()
	if err != nil {
		return nil, err
	}
	return &watchedDevice{device, &d.running}, nil
}

// watchedDevice is a device of a watchedDriver.
type watchedDevice struct {
	metal.Device
	running *atomic.Int64
}

// Submit implements metal.Device.
func (d *watchedDevice) Submit(lists []metal.List) (metal.Submission, error) {
	s, err := d.Device.Submit(lists)
	if err != nil {
		return nil, err
	}
	d.running.Add(1)
	return &watchedSubmission{s, d.running}, nil
}

// watchedSubmission is a submission to a watchedDevice.
type watchedSubmission struct {
	metal.Submission
	running *atomic.Int64
}

// Wait implements metal.Submission.
func (s *watchedSubmission) Wait() error {
	defer s.running.Add(-1)
	return s.Submission.Wait()
}
