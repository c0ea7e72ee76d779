package main

import "github.com/rogpeppe/go-internal/testscript"

// canBeNobody says whether a command can be run as another user.
const canBeNobody = false

// nobodyCommand is not run: see canBeNobody.
func nobodyCommand(ts *testscript.TestScript, _ bool, _ []string) {
	ts.Fatalf("cannot run as another user")
}
