package tokenizer_test

import (
	"fmt"
	"log"
	"os"

	"github.com/zoo-sdk/zoo/tokenizer"
)

func Example() {
	source, err := os.ReadFile("testdata/demo.json")
	if err != nil {
		log.Fatal(err)
	}
	compiled, err := tokenizer.Compile(source) // stored once, mapped from then on
	if err != nil {
		log.Fatal(err)
	}
	tok, err := tokenizer.Open(compiled)
	if err != nil {
		log.Fatal(err)
	}

	// What the template writes may hold markers, what a person writes does not.
	ids := tok.EncodeParts(nil, []tokenizer.Part{
		{Text: "<|turn>user ", Markers: tokenizer.MarkersAreTokens},
		{Text: "Is <eos> text? 👍", Markers: tokenizer.MarkersAreText},
		{Text: "<turn|>", Markers: tokenizer.MarkersAreTokens},
	})
	eos, _ := tok.ID("<eos>")
	for _, id := range ids {
		if id == eos {
			log.Fatal("a person ended the conversation")
		}
	}

	stream := tok.StreamWith(tokenizer.DecodeOptions{DropSpecial: true})
	for _, id := range ids {
		fmt.Print(stream.Push(id))
	}
	fmt.Println(stream.Flush())
	// Output: user Is <eos> text? 👍
}
