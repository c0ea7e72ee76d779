package gemma3

import (
	"fmt"
	"strconv"

	"github.com/zoo-sdk/zoo/zoo"
)

// usage returns an error that matches zoo.ErrUsage, with a hint.
func usage(hint, format string, args ...any) error {
	return zoo.WithHint(fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), zoo.ErrUsage), hint)
}

// shortest returns the number whose shortest decimal gives the same float32 as v, if v is one.
func shortest(v float64) float64 {
	if float64(float32(v)) != v {
		return v
	}
	short, err := strconv.ParseFloat(strconv.FormatFloat(v, 'g', -1, 32), 64)
	if err != nil {
		return v
	}
	return short
}
