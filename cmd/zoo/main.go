// Command zoo fetches, converts, gates and runs language models.
//
//	zoo run demo "What is the capital of France?"
//
// `zoo help` lists the commands. What a command gives goes to standard output, all
// else to standard error. The exit code says what kind of error there was:
//
//	0 done           5 gate failed
//	1 other failure  6 network
//	2 usage          7 no space
//	3 not found      8 not permitted
//	4 integrity      130 interrupted
package main

import "os"

func main() {
	os.Exit(run(os.Args[1:], streams{in: os.Stdin, out: os.Stdout, err: os.Stderr}))
}
