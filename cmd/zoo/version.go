package main

import (
	"encoding/json"
	"fmt"
	"io"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/zoo-sdk/zoo/sdk"
)

// versionCommand returns `zoo version`.
func (a *app) versionCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		GroupID: groupMachine,
		Args:    args(0, 0, "no arguments"),
		RunE: func(*cobra.Command, []string) error {
			if asJSON {
				return a.printJSON(struct {
					Version string `json:"version"`
					Go      string `json:"go"`
					OS      string `json:"os"`
					Arch    string `json:"arch"`
				}{sdk.Version(), runtime.Version(), runtime.GOOS, runtime.GOARCH})
			}
			return a.print("zoo %s (%s, %s/%s)\n", sdk.Version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

// print writes to standard output.
func (a *app) print(format string, args ...any) error {
	_, err := fmt.Fprintf(a.out, format, args...)
	return errOutput(err)
}

// printJSON writes a value to standard output as JSON.
func (a *app) printJSON(v any) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	_, err = io.WriteString(a.out, string(data)+"\n")
	return errOutput(err)
}
