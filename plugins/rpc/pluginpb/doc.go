// Package pluginpb holds the messages of plugin.proto and the code that protoc
// makes of it. It is meant for package rpc, and for plugins in other languages
// as the description of what they have to speak.
package pluginpb

//go:generate protoc --go_out=. --go_opt=paths=source_relative --go-grpc_out=. --go-grpc_opt=paths=source_relative plugin.proto
