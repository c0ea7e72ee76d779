package metal

import "github.com/zoo-sdk/zoo/backends"

// Decode returns the dispatches of a token at a position and of its pick, and
// what each of the first is in a profile.
func Decode(x backends.Executor, pos int) (decode, pick []Dispatch, ops []backends.OpProfile, err error) {
	e := x.(*executor)
	d, err := e.recorded(e.decodeKey(pos))
	if err != nil {
		return nil, nil, nil, err
	}
	s, err := e.recorded(listKey{kind: sampleList})
	if err != nil {
		return nil, nil, nil, err
	}
	return d.dispatches[0], s.dispatches[0], d.ops, nil
}
