// Package plugintest holds any plugin to the contract of zoo.Plugin.
//
// [Test] calls every method of a plugin, with a small checkpoint that it converts and
// with what it must refuse, and returns an error that joins all [Finding]s, each with the
// rule that was broken and the call that broke it. It is run by `go test` of a plugin,
//
//	func TestContract(t *testing.T) {
//		if err := plugintest.Test(t.Context(), New(), plugintest.Options{Checkpoint: "testdata/tiny", Dir: t.TempDir()}); err != nil {
//			t.Error(err)
//		}
//	}
//
// and by `zoo plugin check` for a plugin in a process of its own, for which
// [Options.Process] adds what only processes can do: crash, hang, run out of memory, and
// speak another version of the protocol. Whether a call changes what it is handed is seen
// only in the same process, and of another one whether Fetch reads huge files only where
// its memory can be limited.
//
// What a plugin does in goroutines of its own is out of the suite's reach: a panic there
// ends the program that runs the suite. Data races are found where the race detector is on.
package plugintest
