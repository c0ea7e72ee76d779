package litertlm_test

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/zoo-sdk/zoo/checkpoint/litertlm"
	"github.com/zoo-sdk/zoo/checkpoint/litertlm/litertlmtest"
	"github.com/zoo-sdk/zoo/internal/fault"
)

// builtFile was made by the format's own tools, see testdata/README.md.
var builtFile = filepath.Join("testdata", "built.litertlm")

// TestBuilt reads a file that this project's code has not written.
func TestBuilt(t *testing.T) {
	data, err := os.ReadFile(builtFile)
	if err != nil {
		t.Fatal(err)
	}
	f, err := litertlm.Parse("built.litertlm", data)
	if err != nil {
		t.Fatal(err)
	}
	if f.Name != "built.litertlm" || f.Version != [3]uint32{1, 7, 0} {
		t.Errorf("%q of version %v", f.Name, f.Version)
	}
	metadata := map[string]string{}
	for k, v := range f.Metadata {
		if k != "uuid" && k != "creation_timestamp" {
			metadata[k] = v
		}
	}
	want := map[string]string{
		"author": "somebody", "u8": "200", "i8": "-3", "u16": "60000", "i16": "-300", "u32": "4000000000", "i32": "-70000",
		"u64": "9223372036854775808", "i64": "-1099511627776", "f32": "0.25", "f64": "0.1", "b": "true",
	}
	if diff := cmp.Diff(want, metadata); diff != "" {
		t.Errorf("metadata (-want +got):\n%s", diff)
	}
	if len(f.Sections) != 2 {
		t.Fatalf("%d sections", len(f.Sections))
	}
	meta, model := f.Sections[0], f.Sections[1]
	if meta.Type != litertlm.LlmMetadataProto || meta.Begin != 16384 || !strings.Contains(string(meta.Data), "{{ bos_token }}") {
		t.Errorf("%s at %d: %q", meta, meta.Begin, meta.Data)
	}
	items := map[string]string{"model_type": "tf_lite_prefill_decode", "prefer_activation_type": "fp16"}
	if diff := cmp.Diff(items, model.Items); diff != "" || model.Type != litertlm.TFLiteModel {
		t.Errorf("%s: items (-want +got):\n%s", model, diff)
	}
	m, err := litertlm.ParseModel(t.Context(), model.Data)
	if err != nil {
		t.Fatal(err)
	}
	checkModel(t, m)
}

// sections returns what a small container of the tests holds.
func sections() []litertlmtest.Section {
	return []litertlmtest.Section{
		{Type: litertlm.LlmMetadataProto, Data: []byte("metadata")},
		{Type: litertlm.SPTokenizer, Data: make([]byte, 20_000)},
		{Type: litertlm.TFLiteModel, Items: []litertlmtest.Item{{Key: "model_type", Value: "tf_lite_embedder"}}, Data: []byte("model")},
	}
}

// parse reads a file.
func parse(data []byte) (*litertlm.File, error) { return litertlm.Parse("model.litertlm", data) }

// TestParse reads a container of the tests' own writer.
func TestParse(t *testing.T) {
	f, err := parse(litertlmtest.Container([]litertlmtest.Item{{Key: "author", Value: "nobody"}}, sections()))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, s := range f.Sections {
		names = append(names, s.String())
	}
	want := []string{"section 0 (LlmMetadataProto)", "section 1 (SP_Tokenizer)", "section 2 (TFLiteModel, tf_lite_embedder)"}
	if diff := cmp.Diff(want, names); diff != "" || f.Metadata["author"] != "nobody" {
		t.Errorf("sections (-want +got):\n%s", diff)
	}
	if s := f.Sections[2]; string(s.Data) != "model" || s.Begin != 65536 {
		t.Errorf("%q at %d", s.Data, s.Begin)
	}
}

// TestParseRefused reads files that are wrong in every way there is.
func TestParseRefused(t *testing.T) {
	good := litertlmtest.Container(nil, sections())
	patch := func(at int, b ...byte) []byte {
		data := append([]byte{}, good...)
		copy(data[at:], b)
		return data
	}
	moved := func(i int, place func(begin, end uint64) (uint64, uint64)) []byte {
		s := sections()
		s[i].Place = place
		return litertlmtest.Container(nil, s)
	}
	keys := func(keys ...string) []byte {
		s := sections()
		s[0].Items = nil
		for _, k := range keys {
			s[0].Items = append(s[0].Items, litertlmtest.Item{Key: k})
		}
		return litertlmtest.Container(nil, s)
	}
	header := int(binary.LittleEndian.Uint64(good[24:]))
	cases := []struct {
		name string
		data []byte
		want string
	}{
		{"empty", nil, "no .litertlm file"},
		{"zip", patch(0, []byte("PK\x03\x04")...), "no .litertlm file"},
		{"magic alone", good[:8], "within its header: it is truncated"},
		{"within the header", good[:header-1], "header should end at byte"},
		{"behind the header", good[:header], "section 0 (LlmMetadataProto): it should end at byte 16392, the file ends at 312: it is truncated"},
		{"before section 1", good[:32768], "section 1 (SP_Tokenizer): it should end at byte 52768, the file ends at 32768: it is truncated"},
		{"within section 1", good[:52767], "truncated"},
		{"before section 2", good[:65536], "section 2 (TFLiteModel, tf_lite_embedder): it should end at byte 65541, the file ends at 65536: it is truncated"},
		{"without the last byte", good[:len(good)-1], "truncated"},
		{"header before itself", patch(24, 31, 0, 0, 0, 0, 0, 0, 0), "header should end at byte 31"},
		{"endless header", patch(24, 0, 0, 0, 0, 0, 0, 0, 1), "at most"},
		{"header of no bytes", patch(24, 32, 0, 0, 0, 0, 0, 0, 0), "0 bytes are too few"},
		{"root beyond", patch(32, 0xff, 0xff, 0xff, 0xff), "header is damaged: a table at byte"},
		{"end before begin", moved(1, func(b, e uint64) (uint64, uint64) { return e, b }), "begin at byte 52768 and end at 32768"},
		{"beyond all bounds", moved(1, func(b, e uint64) (uint64, uint64) { return b, 1 << 62 }), "the file ends at"},
		{"overlap", moved(2, func(b, e uint64) (uint64, uint64) { return 49152, e }), "within section 1"},
		{"the same place", moved(2, func(b, e uint64) (uint64, uint64) { return 32768, e }), "within section"},
		{"within the header's block", moved(0, func(b, e uint64) (uint64, uint64) { return 0, e }), "within the header"},
		{"not a block", moved(0, func(b, e uint64) (uint64, uint64) { return 16385, e }), "no multiple of 16384"},
		{"a key twice", keys("a", "b", "a"), `the key "a" twice`},
		{"no sections", litertlmtest.Container(nil, nil), "no sections"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, err := parse(c.data)
			fe, ok := errors.AsType[*litertlm.FormatError](err)
			if !ok || !errors.Is(err, fault.ErrIntegrity) || fe.File != "model.litertlm" {
				t.Fatalf("%v is no error of the format", err)
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("%q does not say %q", err, c.want)
			}
			if !strings.Contains(fault.Hint(err), "fetch it again") {
				t.Errorf("the hint is %q", fault.Hint(err))
			}
		})
	}
	if _, err := parse(patch(8, 2)); !errors.Is(err, fault.ErrUsage) || !strings.Contains(err.Error(), "version 2.7.0") {
		t.Errorf("version 2: %v", err)
	}
	// What an edited file does not use any more may lie anywhere.
	old := sections()
	old[2].Type = litertlm.Deprecated
	old[2].Place = func(b, e uint64) (uint64, uint64) { return 32768, e }
	if _, err := parse(litertlmtest.Container(nil, old)); err != nil {
		t.Errorf("a deprecated section: %v", err)
	}
}

// FuzzContainer reads files with damaged headers.
func FuzzContainer(f *testing.F) {
	built, err := os.ReadFile(builtFile)
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range [][]byte{built, litertlmtest.Container([]litertlmtest.Item{{Key: "k", Value: "v"}}, sections())} {
		f.Add(file[:binary.LittleEndian.Uint64(file[24:])])
	}
	f.Fuzz(func(t *testing.T, header []byte) {
		// What follows the header does not matter but for its length.
		data := append(header, make([]byte, max(0, 5*16384-len(header)))...)
		for _, file := range [][]byte{header, data} {
			c, err := parse(file)
			if err != nil {
				continue
			}
			for _, s := range c.Sections {
				if s.Begin < 32 || s.Begin+int64(len(s.Data)) > int64(len(file)) {
					t.Errorf("%s has %d bytes at %d", s, len(s.Data), s.Begin)
				}
			}
		}
	})
}
