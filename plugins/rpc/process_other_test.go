//go:build !linux

package rpc_test

// hostRole is a role of tests that only run on Linux.
const hostRole = "host"

// beHost does nothing here.
func beHost() {}

// limits are only set on Linux.
func limits() string { return "" }
