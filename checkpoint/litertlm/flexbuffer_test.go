package litertlm_test

import (
	"encoding/hex"
	"math"
	"strings"
	"testing"

	"github.com/zoo-sdk/zoo/checkpoint/litertlm"
	"github.com/zoo-sdk/zoo/checkpoint/litertlm/litertlmtest"
)

// flexbuffers were made by the Python package flatbuffers 25.12.19.
var flexbuffers = []struct {
	name, hex string
	want      float64
	found     bool
}{
	{"64 bits", "657073696c6f6e0001090000000000000700000000000000010000000000000001000000000000008dedb5a0f7c6b03e0f092701", 1e-6, true},
	{"32 bits", "657073696c6f6e0001090000030000000100000001000000bd3786350e052601", 0x1.0c6f7ap-20, true},
	{"apart from its slot, with another", "6178697300657073696c6f6e00000000bd378635021511020102ff0b0422042401", 0x1.0c6f7ap-20, true},
	{"integer", "657073696c6f6e0001090101010104022401", 1, true},
	{"among others", "6100657073696c6f6e006e616d6500017800760003010203040404041c1b140d04000000000000000100000000000000040000000000000001000000000000008dedb5a0f7c6b03e38000000000000003b00000000000000070f1428242701", 1e-6, true},
	{"no attributes", "00000100002401", 0, false},
	{"none at all", "", 0, false},
}

// TestAttribute reads numbers among attributes.
func TestAttribute(t *testing.T) {
	for _, c := range flexbuffers {
		data, err := hex.DecodeString(c.hex)
		if err != nil {
			t.Fatal(err)
		}
		o := litertlm.Operator{Attributes: data}
		if got, found, err := o.Attribute("epsilon"); got != c.want || found != c.found || err != nil {
			t.Errorf("%s: %v, %t, %v", c.name, got, found, err)
		}
		if _, found, err := o.Attribute("eps"); found || err != nil {
			t.Errorf("%s: a part of a name is found: %v", c.name, err)
		}
		if got, found, err := o.Attribute("axis"); found != strings.HasPrefix(c.name, "apart") || err != nil || found && got != -1 {
			t.Errorf("%s: axis: %v, %t, %v", c.name, got, found, err)
		}
	}
	for _, name := range []string{"e", "epsilon", "ab", "abcdef"} {
		o := litertlm.Operator{Attributes: litertlmtest.Attribute(name, 0.1)}
		if got, found, err := o.Attribute(name); float32(got) != 0.1 || !found || err != nil {
			t.Errorf("%s: %v, %t, %v", name, got, found, err)
		}
	}
}

// TestAttributeRefused reads attributes that are none.
func TestAttributeRefused(t *testing.T) {
	cases := []struct{ name, hex, want string }{
		{"text", "657073696c6f6e00017800010c0101010714022401", "is no number"},
		{"two bytes", "2401", "no map"},
		{"no map", "010401", "no map"},
		{"only the end", "052601", "no map"},
		{"root of 3 bytes", "0000000000052603", "no map"},
		{"names before the start", "657073696c6f6e0001090000ff0000000100000001000000bd3786350e052601", "no map"},
		{"names of 3 bytes", "657073696c6f6e0001090000030000000300000001000000bd3786350e052601", "no map"},
		{"more values than bytes", "657073696c6f6e0001090000030000000100000001010101bd3786350e052601", "no map"},
		{"name before the start", "657073696c6f6e00010a0000030000000100000001000000bd3786350e052601", "no map"},
		{"short float", "657073696c6f6e000109010101010c022401", "is no number"},
		{"twice", "657073696c6f6e0002090a02010207070404042401", "twice"},
	}
	for _, c := range cases {
		data, err := hex.DecodeString(c.hex)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := (litertlm.Operator{Attributes: data}).Attribute("epsilon"); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v does not say %q", c.name, err, c.want)
		}
	}
}

// FuzzAttribute reads damaged attributes.
func FuzzAttribute(f *testing.F) {
	for _, c := range flexbuffers {
		data, err := hex.DecodeString(c.hex)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		got, found, err := litertlm.Operator{Attributes: data}.Attribute("epsilon")
		if !found && got != 0 || err != nil && found {
			t.Errorf("%v, %t, %v", got, found, err)
		}
		if math.IsNaN(got) && len(data) < 4 {
			t.Error("a number of nothing")
		}
	})
}
