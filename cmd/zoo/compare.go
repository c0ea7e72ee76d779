package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/zoo-sdk/zoo/sdk"
)

// errDiffer ends a comparison of packs that are not the same.
var errDiffer = errors.New("the packs differ")

// compare says in what two packs differ.
func (a *app) compare(cmd *cobra.Command, z *sdk.Zoo, packs []string, asJSON bool) error {
	list, err := z.Compare(cmd.Context(), packs[0], packs[1])
	if err != nil {
		return err
	}
	if asJSON {
		err = a.printJSON(list)
	} else if len(list) > 0 {
		err = a.table(func(w io.Writer) {
			for _, d := range list {
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", d.What, d.Name, orNone(d.A, "-"), orNone(d.B, "-"))
			}
		})
	} else {
		err = a.print("the packs are the same\n")
	}
	if err == nil && len(list) > 0 {
		return errDiffer
	}
	return err
}
