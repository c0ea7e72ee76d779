//go:build linux

package metaltest

import (
	"debug/dwarf"
	"debug/elf"
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// site is how the runner writes a place in the code: an address after the start of the program, or a line and a file.
var site = regexp.MustCompile(`<(?:([0-9a-f]+)|line (\d+) of ([^>]*))>`)

// locate replaces the places in a report of the runner by lines of the source.
func (l *library) locate(report string) string {
	if !site.MatchString(report) {
		return report
	}
	lines := strings.Split(l.source.text, "\n")
	return site.ReplaceAllStringFunc(report, func(s string) string {
		m := site.FindStringSubmatch(s)
		file, line := m[3], 0
		if m[1] == "" {
			line, _ = strconv.Atoi(m[2])
		} else if address, err := strconv.ParseUint(m[1], 16, 64); err == nil {
			file, line, _ = lineOf(l.program, address)
		}
		before, ok := l.source.slicer.before(filepath.Base(file))
		if line += before; !ok || line < 1 || line > len(lines) {
			return "an unknown line"
		}
		return fmt.Sprintf("line %d (%s)", line, strings.TrimSpace(lines[line-1]))
	})
}

// lineOf returns the file and the line of an address, 0 if it has none.
func lineOf(program string, address uint64) (string, int, error) {
	file, err := elf.Open(program)
	if err != nil {
		return "", 0, err
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
		return "", 0, err
	}
	units := data.Reader()
	for {
		unit, err := units.Next()
		if err != nil || unit == nil {
			return "", 0, err
		}
		if unit.Tag != dwarf.TagCompileUnit {
			units.SkipChildren()
			continue
		}
		lines, err := data.LineReader(unit)
		if err != nil {
			return "", 0, err
		}
		if lines == nil {
			continue
		}
		var entry dwarf.LineEntry
		if err := lines.SeekPC(address, &entry); err == nil {
			return entry.File.Name, entry.Line, nil
		}
	}
}
