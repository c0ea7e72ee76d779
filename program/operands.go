package program

import "slices"

// Reads lists the buffers that the operation reads.
func (op Op) Reads() []BufferID {
	switch {
	case op.Linear != nil:
		return []BufferID{op.Linear.In}
	case op.GateUp != nil:
		return []BufferID{op.GateUp.In}
	case op.Norm != nil:
		return []BufferID{op.Norm.In}
	case op.AddNorm != nil:
		return []BufferID{op.AddNorm.In, op.AddNorm.State}
	case op.Store != nil:
		return []BufferID{op.Store.Key, op.Store.Value}
	case op.Attention != nil:
		return []BufferID{op.Attention.Query}
	case op.AddMul != nil:
		return []BufferID{op.AddMul.A, op.AddMul.B}
	case op.GELUMul != nil:
		return []BufferID{op.GELUMul.A, op.GELUMul.B}
	case op.Softcap != nil:
		return []BufferID{op.Softcap.Buffer}
	case op.Select != nil:
		return op.Select.Buffers
	}
	return nil
}

// Writes lists the buffers that the operation writes.
func (op Op) Writes() []BufferID {
	switch {
	case op.Embed != nil:
		return []BufferID{op.Embed.Out}
	case op.Linear != nil:
		var all []BufferID
		for _, part := range op.Linear.Parts {
			all = append(all, part.Out)
		}
		return all
	case op.GateUp != nil:
		return []BufferID{op.GateUp.Out}
	case op.Norm != nil:
		return []BufferID{op.Norm.Out}
	case op.AddNorm != nil:
		return []BufferID{op.AddNorm.State}
	case op.Attention != nil:
		return []BufferID{op.Attention.Out}
	case op.AddMul != nil:
		return []BufferID{op.AddMul.Out}
	case op.GELUMul != nil:
		return []BufferID{op.GELUMul.Out}
	case op.Softcap != nil:
		return []BufferID{op.Softcap.Buffer}
	}
	return nil
}

// Weights lists the weights that the operation reads as a whole: all but tables that a row is gathered from.
func (op Op) Weights() []WeightID {
	id := WeightID(None)
	switch {
	case op.Linear != nil:
		id = op.Linear.Weight
	case op.GateUp != nil:
		id = op.GateUp.Weight
	case op.Norm != nil:
		id = op.Norm.Weight
	case op.AddNorm != nil:
		id = op.AddNorm.Weight
	}
	if id == None {
		return nil
	}
	return []WeightID{id}
}

// HasGrids reports whether a product has static grids for its input or its output.
func (p *Program) HasGrids() bool {
	return slices.ContainsFunc(p.Ops, func(op Op) bool {
		var none Rounding
		switch {
		case op.Linear != nil:
			return slices.ContainsFunc(op.Linear.Parts, func(p Part) bool { return p.Rounding != none })
		case op.GateUp != nil:
			return op.GateUp.Gate != none || op.GateUp.Up != none
		}
		return false
	})
}
