package catalog

import (
	"embed"
	"fmt"
	"io/fs"

	"github.com/zoo-sdk/zoo/internal/fault"
)

//go:embed builtin.yaml
var builtinYAML []byte

//go:embed demo
var embeddedFiles embed.FS

// Builtin returns the catalog that is embedded in the binary, which vouches for it as
// for itself: its plugins are [Plugin].Signed. Every call parses it anew, so that the
// result belongs to the caller.
func Builtin() (*Catalog, error) {
	c, err := Parse(builtinYAML)
	if err != nil {
		return nil, fmt.Errorf("built-in catalog: %w", err)
	}
	c.sign(nil)
	return c, nil
}

// Embedded returns the files of an embedded source by its repository, such as
// "demo" or "demo/reference". An unknown repository is fault.ErrNotFound.
func Embedded(repository string) (fs.FS, error) {
	if err := ValidatePath(repository); err != nil {
		return nil, err
	}
	if info, err := fs.Stat(embeddedFiles, repository); err != nil || !info.IsDir() {
		return nil, fmt.Errorf("no embedded files under %q: %w", repository, fault.ErrNotFound)
	}
	return fs.Sub(embeddedFiles, repository)
}
