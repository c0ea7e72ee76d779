package metal

import (
	"slices"
	"time"

	"github.com/zoo-sdk/zoo/backends"
)

// profileRun runs each dispatch of a list in a submission of its own and notes what it takes.
func (e *executor) profileRun(r *recorded) error {
	if r.single == nil {
		var single []List
		for _, d := range slices.Concat(r.dispatches...) {
			list, err := e.device.Record([]Dispatch{d})
			if err != nil {
				for _, l := range single {
					l.Release()
				}
				return err
			}
			single = append(single, list)
		}
		r.single = single
	}
	for i, list := range r.single {
		start := time.Now()
		if err := e.wait(e.device.Submit([]List{list})); err != nil {
			return err
		}
		op := r.ops[i]
		op.Time = time.Since(start)
		e.note(op)
	}
	return nil
}

// note adds an operation to the profile.
func (e *executor) note(op backends.OpProfile) {
	i := slices.IndexFunc(e.profile, func(p backends.OpProfile) bool { return p.Name == op.Name })
	if i < 0 {
		e.profile = append(e.profile, op)
		return
	}
	p := &e.profile[i]
	p.Calls += op.Calls
	p.Time += op.Time
	p.Bytes += op.Bytes
}

// Profile implements backends.Executor. The times hold a submission for each dispatch.
func (e *executor) Profile() []backends.OpProfile {
	all := e.profile
	e.profile = nil
	return all
}
