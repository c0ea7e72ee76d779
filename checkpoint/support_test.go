package checkpoint_test

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// file returns the bytes of a safetensors file with this header and this many bytes of data.
func file(header string, dataBytes int) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	b = append(b, header...)
	for i := range dataBytes {
		b = append(b, byte(i))
	}
	return b
}

// tensor returns a member of a header.
func tensor(name, dtype, shape string, start, end int) string {
	return fmt.Sprintf(`%q:{"dtype":%q,"shape":%s,"data_offsets":[%d,%d]}`, name, dtype, shape, start, end)
}

// object joins members.
func object(members ...string) string { return "{" + strings.Join(members, ",") + "}" }

// put writes files into a new folder and returns it.
func put(t testing.TB, files map[string][]byte) string {
	t.Helper()
	dir := t.TempDir()
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
