package gemma3_test

import (
	"fmt"
	"log"

	"github.com/zoo-sdk/zoo/plugins/gemma3"
)

func ExampleParseConfig() {
	cfg, err := gemma3.ParseConfig([]byte(`{
		"model_type": "gemma3_text", "vocab_size": 262144, "hidden_size": 640, "intermediate_size": 2048, "num_hidden_layers": 18,
		"num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 256, "query_pre_attn_scalar": 256, "hidden_activation": "gelu_pytorch_tanh",
		"max_position_embeddings": 32768, "sliding_window": 512, "rope_theta": 1000000, "rope_local_base_freq": 10000, "rms_norm_eps": 1e-6
	}`))
	if err != nil {
		log.Fatal(err)
	}
	for i, full := range cfg.Full {
		if full {
			fmt.Println("layer", i, "sees all positions, and the others the latest", cfg.SlidingWindow)
		}
	}
	// Output:
	// layer 5 sees all positions, and the others the latest 512
	// layer 11 sees all positions, and the others the latest 512
	// layer 17 sees all positions, and the others the latest 512
}
