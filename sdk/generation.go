package sdk

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"

	"github.com/zoo-sdk/zoo/backends"
	"github.com/zoo-sdk/zoo/engine"
	"github.com/zoo-sdk/zoo/internal/fault"
	"github.com/zoo-sdk/zoo/zoo"
)

// Defaults are the settings of generation that a model comes with
// (generation_config.json). Fields are 0 where it says nothing.
type Defaults struct {
	// Sample says that tokens are drawn; otherwise the likeliest is taken.
	Sample        bool    `json:"sample"`
	Temperature   float64 `json:"temperature"`
	TopK          int     `json:"top_k"`
	TopP          float64 `json:"top_p"`
	MinP          float64 `json:"min_p"`
	RepeatPenalty float64 `json:"repeat_penalty"`
	// StopIDs are the tokens that end an answer.
	StopIDs []int32 `json:"stop_ids"`
}

// sampling returns the defaults as the engine takes them.
func (d Defaults) sampling() engine.Sampling {
	s := engine.Sampling{
		RepeatPenalty: float32(d.RepeatPenalty),
		Pick:          backends.Pick{TopK: d.TopK, TopP: float32(d.TopP), MinP: float32(d.MinP)},
	}
	if d.Sample {
		s.Temperature = float32(d.Temperature)
	}
	return s
}

// generationConfig is the part of generation_config.json that is obeyed.
type generationConfig struct {
	DoSample          bool     `json:"do_sample"`
	Temperature       *float64 `json:"temperature"`
	TopK              int      `json:"top_k"`
	TopP              float64  `json:"top_p"`
	MinP              float64  `json:"min_p"`
	RepetitionPenalty float64  `json:"repetition_penalty"`
	EOS               tokenIDs `json:"eos_token_id"`
}

// tokenIDs is a number, a list of numbers, or null.
type tokenIDs []int32

// UnmarshalJSON implements json.Unmarshaler.
func (t *tokenIDs) UnmarshalJSON(data []byte) error {
	var list []int32
	if bytes.HasPrefix(data, []byte("[")) {
		if err := json.Unmarshal(data, &list); err != nil {
			return err
		}
	} else if !bytes.Equal(data, []byte("null")) {
		var one int32
		if err := json.Unmarshal(data, &one); err != nil {
			return err
		}
		list = []int32{one}
	}
	for _, id := range list {
		if id < 0 {
			return fmt.Errorf("token id %d is negative", id)
		}
	}
	*t = list
	return nil
}

// parseDefaults reads generation_config.json. Its error matches fault.ErrIntegrity.
func parseDefaults(data []byte) (Defaults, error) {
	var c generationConfig
	if err := json.Unmarshal(data, &c); err != nil {
		return Defaults{}, fmt.Errorf("%w: %s: %w", fault.ErrIntegrity, zoo.GenerationFile, err)
	}
	d := Defaults{
		Sample:        c.DoSample,
		Temperature:   1,
		TopK:          c.TopK,
		TopP:          c.TopP,
		MinP:          c.MinP,
		RepeatPenalty: c.RepetitionPenalty,
		StopIDs:       c.EOS,
	}
	if c.Temperature != nil {
		d.Temperature = *c.Temperature
	}
	if _, err := engine.NewSampler(d.sampling()); err != nil {
		return Defaults{}, fmt.Errorf("%w: %s: %v", fault.ErrIntegrity, zoo.GenerationFile, err)
	}
	if math.IsNaN(d.Temperature) || d.Temperature < 0 {
		return Defaults{}, fmt.Errorf("%w: %s: temperature is %g", fault.ErrIntegrity, zoo.GenerationFile, d.Temperature)
	}
	return d, nil
}

// readDefaults returns the defaults of a pack; one without the file is greedy and has no stop ids.
func readDefaults(pack *zoo.Pack) (Defaults, error) {
	data, err := pack.File(zoo.GenerationFile)
	if errors.Is(err, fault.ErrNotFound) {
		return Defaults{Temperature: 1}, nil
	}
	if err != nil {
		return Defaults{}, err
	}
	return parseDefaults(data)
}
