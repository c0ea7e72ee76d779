package tokenizer_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/zoo-sdk/zoo/tokenizer"
)

// goldenRow is a row of a golden file. testdata/make_golden.py says what its
// fields mean; the files of others have some of them.
type goldenRow struct {
	Tokenizer string
	Text      *string
	Base64    *string
	IDs       []int32
	Plain     []int32
	Decoded   string
	Visible   string
	Stream    []string
}

// text returns the row's text, or false for a row that is for decoding alone.
func (r goldenRow) text(t testing.TB) (string, bool) {
	t.Helper()
	if r.Base64 != nil {
		raw, err := base64.StdEncoding.DecodeString(*r.Base64)
		if err != nil {
			t.Fatal(err)
		}
		return string(raw), true
	}
	if r.Text != nil {
		return *r.Text, true
	}
	return "", false
}

// readGzip returns the unpacked content of a file.
func readGzip(t testing.TB, path string) []byte {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// readGolden returns the rows of a golden file.
func readGolden(t testing.TB, path string) []goldenRow {
	t.Helper()
	var rows []goldenRow
	lines := bufio.NewScanner(bytes.NewReader(readGzip(t, path)))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var row goldenRow
		if err := json.Unmarshal(lines.Bytes(), &row); err != nil {
			t.Fatal(err)
		}
		rows = append(rows, row)
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return rows
}

// readSource returns the tokenizer.json of a name in testdata.
func readSource(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// compile compiles or fails.
func compile(t testing.TB, src []byte) []byte {
	t.Helper()
	b, err := tokenizer.Compile(src)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// open opens or fails.
func open(t testing.TB, compiled []byte) *tokenizer.Tokenizer {
	t.Helper()
	tok, err := tokenizer.Open(compiled)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// load returns the tokenizer of a name in testdata.
func load(t testing.TB, name string) *tokenizer.Tokenizer {
	t.Helper()
	return open(t, compile(t, readSource(t, name)))
}

// sharedData returns a folder of published files that are not part of this
// module, or skips the test: $ZOO_TEST_DATA, or a folder beside the module.
func sharedData(t testing.TB, name string) string {
	t.Helper()
	root := os.Getenv("ZOO_TEST_DATA")
	if root == "" {
		dir, err := os.Getwd()
		if err != nil {
			t.Fatal(err)
		}
		for {
			if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
				break
			}
			if dir == filepath.Dir(dir) {
				t.Fatal("no go.mod above the working folder")
			}
			dir = filepath.Dir(dir)
		}
		root = filepath.Join(dir, "../shared/data")
	}
	dir := filepath.Join(root, name)
	if _, err := os.Stat(dir); err != nil {
		t.Skipf("no published files to test against: %v", err)
	}
	return dir
}

// gemma is Gemma's own tokenizer, compiled once for all tests that need it.
var gemma struct {
	once     sync.Once
	compiled []byte
}

// loadGemma returns the compiled form of Gemma's tokenizer and the folder it
// comes from, or skips the test.
func loadGemma(t testing.TB) (compiled []byte, dir string) {
	t.Helper()
	dir = sharedData(t, "gemma-tokenizer")
	gemma.once.Do(func() {
		gemma.compiled = compile(t, readGzip(t, filepath.Join(dir, "tokenizer.json.gz")))
	})
	if gemma.compiled == nil {
		t.Fatal("Gemma's tokenizer did not compile")
	}
	return gemma.compiled, dir
}
