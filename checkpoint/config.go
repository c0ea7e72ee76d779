package checkpoint

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"
)

// maxConfigBytes bounds a config.json.
const maxConfigBytes = 1 << 20

// DecodeConfig reads a config.json, one JSON object of at most a megabyte, into a struct
// whose tags name the fields that matter; others are passed over. Errors are *ConfigError,
// and name the field where one is of the wrong type.
func DecodeConfig(data []byte, into any) error {
	switch {
	case len(data) > maxConfigBytes:
		return &ConfigError{Problem: fmt.Sprintf("%d bytes, at most %d are allowed", len(data), maxConfigBytes)}
	case !utf8.Valid(data):
		return &ConfigError{Problem: "not UTF-8"}
	}
	d := json.NewDecoder(bytes.NewReader(data))
	if err := d.Decode(into); err != nil {
		if te, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
			return &ConfigError{Field: te.Field, Problem: fmt.Sprintf("a %s, it should be a %s", te.Value, te.Type)}
		}
		return &ConfigError{Problem: "not the JSON it should be", Err: err}
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return &ConfigError{Problem: "something follows the object"}
	}
	return nil
}
