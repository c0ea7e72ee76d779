package gemma4e2b

import (
	"context"
	_ "embed"
	"fmt"

	"github.com/zoo-sdk/zoo/internal/fault"
	"github.com/zoo-sdk/zoo/plugins/gemma4"
	"github.com/zoo-sdk/zoo/zoo"
)

// syntheticModel is the catalog's name of the model whose shapes syntheticConfig has.
const syntheticModel = "gemma-4-e2b"

// syntheticConfig has the sizes, and the bits of the codes, of the official
// checkpoint. It describes random weights and is no model's.
//
//go:embed synthetic.json
var syntheticConfig []byte

var _ zoo.Synthesizer = (*Plugin)(nil)

// Synthesize implements zoo.Synthesizer for the official shapes; see [gemma4.Synthesize].
func (*Plugin) Synthesize(ctx context.Context, req zoo.SynthesizeRequest) error {
	if req.Model != syntheticModel {
		return fault.WithHint(fmt.Errorf("%w: there are no shapes to make random weights of %q", fault.ErrUsage, req.Model),
			"this plugin has those of "+syntheticModel)
	}
	return gemma4.Synthesize(ctx, zoo.PluginID{Name: Name, Version: Version}, syntheticConfig, req)
}
