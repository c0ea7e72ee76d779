package sdk

import (
	"github.com/zoo-sdk/zoo/backends"
	"github.com/zoo-sdk/zoo/engine"
	"github.com/zoo-sdk/zoo/program"
)

// PlanMemory says what running a model takes, with one conversation.
type PlanMemory struct {
	// Backend is the one that would run it.
	Backend string `json:"backend"`
	// WeightsBytes is what is read for every token and has to stay in memory for speed.
	// It is mapped from the pack's file, and shared by all processes that run the model.
	WeightsBytes int64 `json:"weights"`
	// TablesBytes is what rows are only looked up in. TablesResident says that they are
	// kept in memory by default; elsewhere they stay in the file, of which the system
	// keeps what it has room for.
	TablesBytes    int64 `json:"tables"`
	TablesResident bool  `json:"tables_resident"`
	// BufferBytes is about what activations take.
	BufferBytes int64 `json:"buffers"`
	// Context is the most tokens of a conversation, Cache the type of its keys and
	// values and CacheBytes what they take once it is full; they grow with it.
	Context    int    `json:"context"`
	Cache      string `json:"cache"`
	CacheBytes int64  `json:"cache_bytes"`
	// Caches tells of all types of caches that the model can have.
	Caches []PlanCache `json:"caches"`
	// StepBytes is the number of weight bytes that one decoded token reads.
	StepBytes int64 `json:"bytes_per_token"`
	// TotalBytes is what has to be in memory with a full conversation.
	TotalBytes int64 `json:"total"`
	// MachineBytes is the memory that this process may use; 0 when not known.
	MachineBytes int64 `json:"machine"`
	// Enough says whether the total fits.
	Enough Answer `json:"enough"`
}

// PlanCache is what keys and values of one type take.
type PlanCache struct {
	Type string `json:"type"`
	// PositionBytes is what each token of a conversation adds.
	PositionBytes int64 `json:"bytes_per_position"`
	// RingBytes is what the layers that see the latest tokens only take at most.
	RingBytes int64 `json:"rings"`
}

// planMemory tells what running a program takes with the settings.
func (z *Zoo) planMemory(set settings, p *program.Program) (*PlanMemory, error) {
	c, err := chooseBackend(z.backends, set.backend)
	if err != nil {
		return nil, err
	}
	opts, err := engineOptions(p, set)
	if err != nil {
		return nil, err
	}
	onCPU := c.device.Name() == cpuBackend
	m := &PlanMemory{
		Backend:        c.device.Name(),
		TablesResident: opts.Tables == backends.TablesResident || opts.Tables == "" && !onCPU,
		BufferBytes:    bufferBytes(p),
		Context:        opts.Context,
		Cache:          string(opts.Cache),
		StepBytes:      backends.StepBytes(p),
		MachineBytes:   totalMemory(),
		Enough:         Unknown,
	}
	for i, gathered := range backends.Gathered(p) {
		if size := p.Weights[i].SizeBytes(); gathered {
			m.TablesBytes += size
		} else {
			m.WeightsBytes += size
		}
	}
	for _, kind := range []backends.CacheType{backends.CacheFloat, backends.CacheHalf, backends.CacheInt8} {
		if _, err := (backends.Options{Cache: kind}).Complete(p); err != nil {
			continue // there are no scales for it
		}
		cache := planCache(p, kind, onCPU)
		m.Caches = append(m.Caches, cache)
		if kind == opts.Cache {
			pages := (opts.Context + backends.BlockPositions - 1) / backends.BlockPositions
			m.CacheBytes = cache.RingBytes + int64(pages)*backends.BlockPositions*cache.PositionBytes
		}
	}
	m.TotalBytes = m.WeightsBytes + m.BufferBytes + m.CacheBytes
	if m.TablesResident {
		m.TotalBytes += m.TablesBytes
	}
	switch {
	case m.MachineBytes == 0:
	case m.TotalBytes > m.MachineBytes:
		m.Enough = No
	default:
		m.Enough = Yes
	}
	return m, nil
}

// cpuBackend is the name of the backend that computes where the pack is mapped.
const cpuBackend = "cpu"

// planCache returns what the caches of a program take with one type of numbers.
func planCache(p *program.Program, kind backends.CacheType, onCPU bool) PlanCache {
	cache := PlanCache{Type: string(kind)}
	for _, c := range p.Caches {
		position := int64(c.KVHeads) * cacheNumbers(c.HeadDim, kind, onCPU)
		if c.Window == 0 {
			cache.PositionBytes += position
			continue
		}
		cache.RingBytes += position * int64(backends.RingPages(c.Window, engine.DefaultRows)) * backends.BlockPositions
	}
	return cache
}

// cacheNumbers returns the bytes of a key and a value of so many numbers.
func cacheNumbers(headDim int, kind backends.CacheType, onCPU bool) int64 {
	n := int64(headDim)
	switch {
	case kind == backends.CacheInt8 && onCPU: // filled up to the steps of keys and to the blocks of values
		return (n+3)/4*4 + (n+15)/16*16
	case kind == backends.CacheInt8:
		return 2 * n
	case kind == backends.CacheHalf && !onCPU:
		return 4 * n
	}
	return 8 * n // of half, too: the processor keeps it as float32
}

// bufferBytes returns what the activations of a program take: of what is only
// written behind the select as many rows as may want logits, of all else a whole batch.
func bufferBytes(p *program.Program) int64 {
	rows := make([]int64, len(p.Buffers))
	for i := range rows {
		rows[i] = engine.DefaultLogits
	}
	for _, op := range p.Ops {
		if op.Select != nil {
			break
		}
		for _, id := range op.Writes() {
			rows[id] = engine.DefaultRows
		}
	}
	total := int64(0)
	for i, b := range p.Buffers {
		total += 4 * rows[i] * int64(b.Cols)
	}
	return total
}
