//go:build !linux

package rpc_test

import "os/exec"

// leave does nothing here.
func leave(*exec.Cmd) {}

// hostRole is a role of tests that only run on Linux.
const hostRole = "host"

// beHost does nothing here.
func beHost() {}

// limits are only set on Linux.
func limits() string { return "" }
