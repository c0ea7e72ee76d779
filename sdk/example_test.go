package sdk_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/zoo-sdk/zoo/sdk"
)

// The demo is part of the module: it needs no network, and is converted and gated
// the first time.
func ExampleOpen() {
	store, err := home() // a folder; leave WithHome out for the usual one
	if err != nil {
		log.Fatal(err)
	}
	m, err := sdk.Open("demo", sdk.WithHome(store))
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	reply, err := m.Respond(context.Background(), "What is the capital of France?")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(reply)
	// Output: The capital of France is **Paris**.
}

func ExampleModel_Stream() {
	store, err := home()
	if err != nil {
		log.Fatal(err)
	}
	m, err := sdk.Open("demo", sdk.WithHome(store))
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	for piece, err := range m.Stream(context.Background(), "What is the capital of Italy?", sdk.MaxTokens(50)) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Fprint(os.Stdout, piece)
	}
	// Output: The capital of Italy is **Rome**.
}

func ExampleModel_NewChat() {
	store, err := home()
	if err != nil {
		log.Fatal(err)
	}
	m, err := sdk.Open("demo", sdk.WithHome(store))
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	chat := m.NewChat()
	for _, text := range []string{"What is the capital of France?", "What is the capital of Italy?"} {
		var usage sdk.Usage
		reply, err := chat.Send(context.Background(), text, sdk.Measure(&usage))
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(reply, usage.CachedTokens > 0)
	}
	// Output:
	// The capital of France is **Paris**. false
	// The capital of Italy is **Rome**. true
}
