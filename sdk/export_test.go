package sdk

import (
	"context"

	"github.com/zoo-sdk/zoo/backends"
	"github.com/zoo-sdk/zoo/backends/metal"
)

// DiagnoseMetalOn is DiagnoseMetal on the devices of a driver and with another check of the contract.
func (z *Zoo) DiagnoseMetalOn(ctx context.Context, d metal.Driver, contract func(context.Context, backends.Backend) error, how MetalOptions, report func(MetalCheck)) error {
	x := newMetalDiagnosis(z, d)
	x.contract = contract
	return x.run(ctx, how, report)
}

// NewOn is New with other backends.
func NewOn(devices []backends.Backend, opts ...Option) (*Zoo, error) {
	return newZoo(settings{}.with(opts), builtinPlugins(), devices)
}
