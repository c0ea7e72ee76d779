//go:build linux

package metaltest

import (
	"debug/dwarf"
	"debug/elf"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// site is how the runner writes a place in the code: an address after the start of the program, or a line.
var site = regexp.MustCompile(`<(line )?[0-9a-f]+>`)

// locate replaces the places in a report of the runner by lines of the source.
func locate(report, program, source string) string {
	if !site.MatchString(report) {
		return report
	}
	lines := strings.Split(source, "\n")
	return site.ReplaceAllStringFunc(report, func(s string) string {
		var n int
		line, ok := strings.CutPrefix(s[1:len(s)-1], "line ")
		if ok {
			n, _ = strconv.Atoi(line)
		} else if address, err := strconv.ParseUint(line, 16, 64); err == nil {
			n, _ = lineOf(program, address)
		}
		if n < 1 || n > len(lines) {
			return "an unknown line"
		}
		return fmt.Sprintf("line %d (%s)", n, strings.TrimSpace(lines[n-1]))
	})
}

// lineOf returns the line of the Metal source of an address, 0 if it has none.
func lineOf(program string, address uint64) (int, error) {
	file, err := elf.Open(program)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	for _, p := range file.Progs {
		if p.Type == elf.PT_LOAD {
			address += p.Vaddr - p.Off
			break
		}
	}
	data, err := file.DWARF()
	if err != nil {
		return 0, err
	}
	units := data.Reader()
	for {
		unit, err := units.Next()
		if err != nil || unit == nil {
			return 0, err
		}
		if unit.Tag != dwarf.TagCompileUnit {
			units.SkipChildren()
			continue
		}
		lines, err := data.LineReader(unit)
		if err != nil {
			return 0, err
		}
		if lines == nil {
			continue
		}
		var entry dwarf.LineEntry
		if err := lines.SeekPC(address, &entry); err == nil {
			if !strings.HasSuffix(entry.File.Name, "metal") {
				return 0, nil
			}
			return entry.Line, nil
		}
	}
}
