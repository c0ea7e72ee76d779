// Package rpc runs plugins in processes of their own. It has both ends: [Serve] is
// all that the main function of a plugin calls,
//
//	func main() { rpc.Serve(myplugin.New()) }
//
// and a [Client] is such a program as a zoo.Plugin of the host.
//
// Only data crosses: requests, the files to fetch, progress, reference values and
// programs. Weights stay in the folders that the host names, and neither tokens nor
// the host's environment reach the plugin. What comes back is taken for a file from
// outside: everything is bounded and checked, the lines of its log, too. A plugin that crashes, hangs or says
// what cannot be fails its own call, and the next call starts it anew.
package rpc
