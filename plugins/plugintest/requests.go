package plugintest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/zoo-sdk/zoo/program"
	"github.com/zoo-sdk/zoo/zoo"
)

// handed is what a call was handed: copies, so that it changes nothing of what others get.
type handed []copied

// copied is one of the things that a call was handed.
type copied struct {
	name   string
	before []byte
	now    func() ([]byte, error)
}

// hand returns a copy of something, plain data, for a call to take.
func hand[T any](h *handed, name string, thing T) T {
	var given T
	now := func() ([]byte, error) { return json.Marshal(given) }
	data, err := json.Marshal(thing)
	if err == nil {
		err = json.Unmarshal(data, &given)
	}
	if err == nil {
		data, err = now()
	}
	if err != nil {
		panic(fmt.Sprintf("plugintest: copy of %s: %v", name, err))
	}
	*h = append(*h, copied{name, data, now})
	return given
}

// check reports what a call has changed.
func (h handed) check(s *suite, call string) {
	var changed []string
	for _, c := range h {
		if now, err := c.now(); err != nil || !bytes.Equal(now, c.before) {
			changed = append(changed, c.name)
		}
	}
	if len(changed) > 0 {
		s.find(RuleRequests, call, "it has changed what it was handed: %s", strings.Join(changed, ", "))
	}
}

// callFetch makes the call with copies.
func (s *suite) callFetch(ctx context.Context, p zoo.Plugin, call string, req zoo.FetchRequest) (zoo.FetchPlan, error) {
	var h handed
	req.Release = hand(&h, "Release", req.Release)
	plan, err := p.Fetch(ctx, req)
	h.check(s, call)
	return plan, err
}

// callConvert makes the call with copies.
func (s *suite) callConvert(ctx context.Context, p zoo.Plugin, call string, req zoo.ConvertRequest) error {
	var h handed
	req.Sources, req.Recipe = hand(&h, "Sources", req.Sources), hand(&h, "Recipe", req.Recipe)
	_, err := p.Convert(ctx, req)
	h.check(s, call)
	return err
}

// callGate makes the call with copies.
func (s *suite) callGate(ctx context.Context, p zoo.Plugin, call string, req zoo.GateRequest) (*zoo.Reference, error) {
	var h handed
	req.Pack = handPack(&h, req.Pack)
	ref, err := p.Gate(ctx, req)
	h.check(s, call)
	return ref, err
}

// callRun makes the call with copies.
func (s *suite) callRun(ctx context.Context, p zoo.Plugin, call string, req zoo.RunRequest) (*program.Program, error) {
	var h handed
	req.Pack = handPack(&h, req.Pack)
	recorded, err := p.Run(ctx, req)
	h.check(s, call)
	return recorded, err
}

// callEstimate makes the call with copies.
func (s *suite) callEstimate(ctx context.Context, p zoo.Estimator, call string, req zoo.EstimateRequest) (zoo.Estimate, error) {
	var h handed
	req.Release, req.Sources, req.Config = hand(&h, "Release", req.Release), hand(&h, "Sources", req.Sources), hand(&h, "Config", req.Config)
	e, err := p.Estimate(ctx, req)
	h.check(s, call)
	return e, err
}

// handPack copies what a plugin is told of a pack.
func handPack(h *handed, info zoo.PackInfo) zoo.PackInfo {
	return zoo.PackInfo{Manifest: hand(h, "Manifest", info.Manifest), Config: hand(h, "Config", info.Config)}
}
