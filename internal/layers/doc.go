// Package layers holds the rule which package may import which, and the test that enforces it.
//
// Data flows one way, from names to tokens. A package imports only packages of
// lower rows, never its neighbours. Some doors are closed beyond that: each
// has a reason, printed when it is tried.
package layers
