package sdk

import (
	"os"

	"github.com/zoo-sdk/zoo/backends"
	"github.com/zoo-sdk/zoo/backends/cpu"
	"github.com/zoo-sdk/zoo/backends/metal"
	"github.com/zoo-sdk/zoo/plugins/gemma3"
	"github.com/zoo-sdk/zoo/plugins/gemma4e2b"
	"github.com/zoo-sdk/zoo/plugins/gemma4e4b"
	"github.com/zoo-sdk/zoo/zoo"
)

// builtinPlugins lists the model families of this build.
func builtinPlugins() []zoo.Plugin {
	return []zoo.Plugin{gemma3.New(), gemma4e2b.New(), gemma4e4b.New()}
}

// builtinBackends lists the backends of this build; "auto" takes the first one
// that is available. ZOO_CPU names the kernels of the cpu backend.
func builtinBackends() []backends.Backend {
	return []backends.Backend{metal.New(metal.SystemDriver()), cpu.New(os.Getenv("ZOO_CPU"))}
}
