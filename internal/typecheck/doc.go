// Package typecheck holds the tests that check what only a Mac can build: the
// Go files over Apple's frameworks against darwinkit's real packages, how they
// call native code, and that code against the declarations it uses, of which
// testdata has a copy by hand.
package typecheck
