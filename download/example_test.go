package download_test

import (
	"context"
	"fmt"
	"os"

	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/download"
)

func ExampleFetch() {
	models, err := catalog.Builtin()
	if err != nil {
		fmt.Println(err)
		return
	}
	release, err := models.Resolve(catalog.Ref{Name: "demo"})
	if err != nil {
		fmt.Println(err)
		return
	}
	origins, err := download.StandardOrigins(download.Environment{Offline: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	dir, err := os.MkdirTemp("", "checkpoint-")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	result, err := download.Fetch(context.Background(), download.Request{Source: release.Source, Origins: origins, Dir: dir})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, f := range result.Files[:2] {
		fmt.Println(f.Path, f.SizeBytes, f.SHA256[:8])
	}
	// Output:
	// config.json 2586 bf0b567b
	// generation_config.json 107 3eb30f79
}
