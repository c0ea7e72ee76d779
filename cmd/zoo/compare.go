package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/zoo-sdk/zoo/sdk"
)

// compareHelp is what the help of `zoo convert` says of --compare.
const compareHelp = `With --compare it takes two packs and holds them against each other: what they were
made of, then all numbers, by families of tensors with the same name in all layers:
their integer codes, their scales and their values; then the greedy tokens of both
after three prompts, up to where they part. The exit code is 0 if all numbers
and all files beside them, such as config.json, are equal and the tokens agree as far
as they were compared, else 1; --json tells numbers_equal, files_equal and prompts
apart. Where the packs keep a tensor in different formats, its values count as equal
up to --tolerance. What the packs were made of is told and does not decide. The answers
are compared up to --tokens, their end, or the end of the smaller context.`

// differError ends a comparison of packs that are not equal.
type differError struct{ text string }

// Error says what differs, and what does not.
func (e *differError) Error() string { return e.text }

// Hint says where to see more.
func (*differError) Hint() string {
	return "what differs is listed above; --json has all figures of it"
}

// compareFlags choose how packs are compared.
type compareFlags struct {
	sdk.CompareOptions
	on bool
}

// add adds the flags.
func (f *compareFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.BoolVar(&f.on, "compare", false, "compare two packs")
	flags.IntVar(&f.Tokens, "tokens", 32, "with --compare: greedy tokens to compare for each prompt; 0 runs neither pack")
	flags.Float64Var(&f.Tolerance, "tolerance", 0, "with --compare: largest rel_l2 at which values in different formats count as equal")
}

// check refuses flags that have no meaning with or without --compare.
func (f *compareFlags) check(cmd *cobra.Command) error {
	idle, hint := []string{"tokens", "tolerance"}, "add --compare, or leave it out"
	if f.on {
		idle, hint = []string{"plugin", "output", "grid", "report"}, "leave it out, or --compare"
	}
	for _, name := range idle {
		if cmd.Flags().Changed(name) {
			return &usageError{fmt.Sprintf("--%s changes nothing here", name), hint}
		}
	}
	return nil
}

// compare says in what two packs differ.
func (a *app) compare(cmd *cobra.Command, z *sdk.Zoo, packs []string, how sdk.CompareOptions, asJSON bool) error {
	c, err := z.Compare(cmd.Context(), packs[0], packs[1], how)
	a.progress.end()
	if err != nil {
		return err
	}
	if asJSON {
		err = a.printJSON(c)
	} else {
		err = a.showComparison(c)
	}
	if err == nil && !c.Equal {
		return &differError{compared(c)}
	}
	return err
}

// showComparison writes a comparison for people: facts, families, tokens, and the result.
func (a *app) showComparison(c *sdk.Comparison) error {
	if len(c.Facts) > 0 {
		err := a.table(func(w io.Writer) {
			for _, d := range c.Facts {
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", d.What, d.Name, orNone(d.A, "-"), orNone(d.B, "-"))
			}
		})
		if err != nil {
			return err
		}
	}
	if err := a.table(func(w io.Writer) { showFamilies(w, c.Families) }); err != nil {
		return err
	}
	for _, p := range c.Prompts {
		if err := a.print("%s\n", comparedPrompt(p)); err != nil {
			return err
		}
	}
	if c.TokensProblem != "" {
		if err := a.print("no tokens were compared: %s\n", c.TokensProblem); err != nil {
			return err
		}
	}
	if !c.Equal { // the error says so
		return nil
	}
	return a.print("%s\n", compared(c))
}

// compared says what of two packs is equal, and what is not.
func compared(c *sdk.Comparison) string {
	if c.A.Digest == c.B.Digest && c.Equal {
		return "the packs are the same"
	}
	numbers := "the numbers"
	if slices.ContainsFunc(c.Families, func(f sdk.CompareFamily) bool { return f.Verdict == sdk.VerdictClose }) && c.NumbersEqual {
		numbers += " within the tolerance"
	}
	equal, differ := []string{numbers}, []string{}
	if !c.NumbersEqual {
		equal, differ = differ, equal
	}
	if c.FilesEqual {
		equal = append(equal, "the files beside them")
	} else {
		for _, d := range c.Facts {
			if d.What == "file" {
				differ = append(differ, d.Name)
			}
		}
	}
	if len(c.Prompts) > 0 {
		agree := !slices.ContainsFunc(c.Prompts, func(p sdk.ComparePrompt) bool { return p.Fork != nil || p.Problem != "" })
		if agree {
			equal = append(equal, "the tokens")
		} else {
			differ = append(differ, "the tokens")
		}
	}
	switch {
	case len(differ) == 0:
		return "equal: " + strings.Join(equal, ", ")
	case len(equal) == 0:
		return "the packs differ: " + strings.Join(differ, ", ")
	}
	return fmt.Sprintf("the packs differ: %s; equal: %s", strings.Join(differ, ", "), strings.Join(equal, ", "))
}

// showFamilies writes a family a line.
func showFamilies(w io.Writer, list []sdk.CompareFamily) {
	fmt.Fprint(w, "FAMILY\tCOUNT\tFORMAT\tNUMBERS\tCODES DIFFER\tSCALES DIFFER\tMAX |DIFF|\tREL_L2\tRESULT\n")
	for _, f := range list {
		count, format := strconv.Itoa(f.TensorsA), f.FormatA
		if f.TensorsB != f.TensorsA || f.OnlyA > 0 {
			count += ", " + strconv.Itoa(f.TensorsB)
		}
		switch {
		case f.Constant:
			format = "constant"
		case f.FormatA == "" || f.FormatB == "":
			format = f.FormatA + f.FormatB
		case f.FormatA != f.FormatB:
			format += ", " + f.FormatB
		}
		codes, scales := "-", "-"
		if f.Codes != nil {
			codes = strconv.FormatInt(*f.Codes, 10)
		}
		if f.Scales != nil {
			if scales = strconv.FormatInt(f.Scales.Differ, 10); f.Scales.Differ > 0 {
				scales += fmt.Sprintf(" (by %.2g)", f.Scales.MaxRel)
			}
		}
		relL2 := fmt.Sprintf("%.3g", f.RelL2)
		if c := f.ConvertedRelL2; c != nil && *c != f.RelL2 { // this one is held against the tolerance
			relL2 += fmt.Sprintf(" (%.3g of other formats)", *c)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\t%s\t%.3g\t%s\t%s\n", f.Name, count, format, f.Numbers, codes, scales, f.MaxAbs, relL2, f.Verdict)
	}
}

// comparedPrompt says in a line how the answers to a prompt compare.
func comparedPrompt(p sdk.ComparePrompt) string {
	if p.Problem != "" {
		return fmt.Sprintf("%q: %s", p.Prompt, p.Problem)
	}
	text := fmt.Sprintf("%q: the same %s", p.Prompt, countOf(p.Matched, "token"))
	if f := p.Fork; f != nil {
		text += fmt.Sprintf(", then %q (by %.3g) and %q (by %.3g)", f.TextA, f.MarginA, f.TextB, f.MarginB)
	}
	if p.Context > 0 {
		text += fmt.Sprintf(", which fill the context of %d", p.Context)
	}
	if p.MaxAbsLogit > 0 {
		text += fmt.Sprintf("; logits differ by at most %.3g, rel_l2 %.3g", p.MaxAbsLogit, p.RelL2)
	}
	return text
}
