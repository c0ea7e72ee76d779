// Command plugin is a plugin of tests: package gemma4 under another name, in a process of
// its own. The linker sets its name, version and title.
package main

import (
	"log/slog"
	"os"

	"github.com/zoo-sdk/zoo/plugins/gemma4"
	"github.com/zoo-sdk/zoo/plugins/rpc"
)

var name, version, title = "tinyfam", "1.0.0", "A family of tests"

func main() {
	slog.Info("the plugin has started", "pid", os.Getpid())
	rpc.Serve(gemma4.NewPlugin(name, version, title, nil))
}
