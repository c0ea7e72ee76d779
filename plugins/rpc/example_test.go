package rpc_test

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/plugins/gemma4e2b"
	"github.com/zoo-sdk/zoo/plugins/rpc"
	"github.com/zoo-sdk/zoo/zoo"
)

// The main function of a plugin.
func ExampleServe() {
	rpc.Serve(gemma4e2b.New())
}

// A host that takes a plugin from a file. It is put into a registry like any other.
func ExampleNew() {
	client := rpc.New(rpc.Options{Path: "/path/to/plugin", Logger: slog.Default(), Limits: rpc.Limits{MemoryBytes: 4 << 30}})
	defer client.Close()
	registry, err := zoo.NewRegistry(client)
	if err != nil {
		fmt.Println(err)
		return
	}
	_, about, err := registry.Find(context.Background(), catalog.PluginRef{Name: "gemma4e2b", Constraint: "^1"})
	if err != nil {
		fmt.Println(err, zoo.Hint(err))
		return
	}
	fmt.Println(about.Title)
}
