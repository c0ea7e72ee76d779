//go:build linux

package metaltest

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/zoo-sdk/zoo/backends/metal"
)

// kernel is an entry point of the source.
type kernel struct {
	name   string
	params []param
}

// param is a parameter of a kernel.
type param struct {
	name      string
	typ       string // without the reference or pointer
	pointer   bool   // it is a pointer
	reference bool   // it is a reference
	readOnly  bool
	space     string // the address space, if it points or refers to something
	attribute string
	index     int // of a buffer or of threadgroup memory
}

// lexeme finds what matters of a preprocessed source: line markers, names, numbers, text and single signs.
var lexeme = regexp.MustCompile(`(?m)^#.*$|[A-Za-z_]\w*|\.?\d[\w.']*|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|\[\[|\]\]|\S`)

// token is a lexeme and where it is.
type token struct {
	text       string
	start, end int
	line       int
}

// edit replaces a part of the source.
type edit struct {
	start, end int
	with       string
}

// scan splits a preprocessed source into tokens, in which ]] and [[ are those of attributes only.
func scan(source string) []token {
	var all []token
	line, at := 1, 0
	depth := 0 // of attributes
	add := func(start, end int) {
		all = append(all, token{source[start:end], start, end, line})
	}
	for _, m := range lexeme.FindAllStringIndex(source, -1) {
		line += strings.Count(source[at:m[0]], "\n")
		at = m[0]
		text := source[m[0]:m[1]]
		switch {
		case text[0] == '#':
			// A line marker names the line that follows.
			var n int
			if _, err := fmt.Sscanf(text, "# %d ", &n); err == nil {
				line = n - 1
			}
		case text == "[[":
			depth++
			add(m[0], m[1])
		case text == "]]" && depth == 0:
			add(m[0], m[0]+1)
			add(m[0]+1, m[1])
		case text == "]]":
			depth--
			add(m[0], m[1])
		default:
			add(m[0], m[1])
		}
	}
	return all
}

var (
	vectorType = regexp.MustCompile(`^(?:packed_)?(?:char|uchar|short|ushort|int|uint|long|ulong|half|float)[234]$`)
	identifier = regexp.MustCompile(`^[A-Za-z_]\w*$`)
	// foreign lists words of C++ that the Metal Shading Language, or what every compiler of it takes, does not have.
	foreign = []string{"asm", "catch", "co_await", "delete", "double", "dynamic_cast", "goto", "new", "std", "thread_local", "throw", "try", "typeid", "virtual", "wchar_t"}
	// spaces are the words for address spaces.
	spaces = []string{"device", "constant", "threadgroup", "thread"}
)

// builtins maps the attributes of a thread's place to the words that the trampoline passes.
var builtins = map[string]string{
	"thread_position_in_grid":        "c.group[0] * c.threads + index, c.group[1], c.group[2]",
	"threadgroup_position_in_grid":   "c.group[0], c.group[1], c.group[2]",
	"thread_position_in_threadgroup": "index, 0, 0",
	"threads_per_grid":               "c.groups[0] * c.threads, c.groups[1], c.groups[2]",
	"threadgroups_per_grid":          "c.groups[0], c.groups[1], c.groups[2]",
	"threads_per_threadgroup":        "c.threads, 1, 1",
	"thread_index_in_threadgroup":    "index",
	"thread_index_in_simdgroup":      "index % 32",
	"simdgroup_index_in_threadgroup": "index / 32",
	"simdgroups_per_threadgroup":     "c.threads / 32",
	"threads_per_simdgroup":          "32",
}

// scalarBuiltins have a single word.
var scalarBuiltins = []string{
	"thread_index_in_threadgroup", "thread_index_in_simdgroup", "simdgroup_index_in_threadgroup", "simdgroups_per_threadgroup", "threads_per_simdgroup",
}

// problem is an error of a source.
func problem(line int, format string, args ...any) error {
	return fmt.Errorf("%w: line %d: %s", metal.ErrKernel, line, fmt.Sprintf(format, args...))
}

// rewrite turns a preprocessed Metal source into C++ for runner/metal.h: without
// attributes, with calls in place of constructors of vectors. It returns the
// kernels as well.
func rewrite(source string) (string, []kernel, error) {
	tokens := scan(source)
	var edits []edit
	var kernels []kernel
	text := func(i int) string {
		if i < 0 || i >= len(tokens) {
			return ""
		}
		return tokens[i].text
	}
	for i := 0; i < len(tokens); i++ {
		t := tokens[i]
		switch {
		case slices.Contains(foreign, t.text):
			return "", nil, problem(t.line, "%s is not in the Metal Shading Language", t.text)
		case t.text == "[[":
			return "", nil, problem(t.line, "unknown attribute %q: only parameters of kernels have some", text(i+1))
		case t.text == "kernel":
			k, end, err := parseKernel(tokens[i:])
			if err != nil {
				return "", nil, err
			}
			if slices.ContainsFunc(kernels, func(other kernel) bool { return other.name == k.name }) {
				return "", nil, problem(t.line, "there are two kernels %s", k.name)
			}
			kernels = append(kernels, k)
			for j := i; j < i+end; j++ {
				if tokens[j].text == "[[" {
					start := tokens[j].start
					for tokens[j].text != "]]" {
						j++
					}
					edits = append(edits, edit{start, tokens[j].end, ""})
				}
			}
			i += end - 1
		case vectorType.MatchString(t.text) && text(i+1) == "(":
			edits = append(edits, edit{t.start, t.end, "::zoo_make<" + t.text + ">"})
		case vectorType.MatchString(t.text) && text(i-1) == "(" && text(i+1) == ")" && !identifier.MatchString(text(i-2)) && text(i-2) != ">":
			return "", nil, problem(t.line, "convert with %s(x), since (%s)x is not the same to every compiler", t.text, t.text)
		case t.text == "vec" && text(i+1) == "<":
			j := i + 2
			for depth := 1; depth > 0 && j < len(tokens); j++ {
				switch tokens[j].text {
				case "<":
					depth++
				case ">":
					depth--
				}
			}
			if text(j) == "(" {
				edits = append(edits, edit{t.start, t.start, "::zoo_make<"}, edit{tokens[j].start, tokens[j].start, ">"})
			}
		}
	}
	var out strings.Builder
	at := 0
	slices.SortStableFunc(edits, func(a, b edit) int { return a.start - b.start })
	for _, e := range edits {
		out.WriteString(source[at:e.start])
		out.WriteString(e.with)
		at = e.end
	}
	out.WriteString(source[at:])
	return out.String(), kernels, nil
}

// parseKernel parses the head of a kernel and returns the number of its tokens, too.
func parseKernel(tokens []token) (kernel, int, error) {
	line := tokens[0].line
	if len(tokens) < 5 || tokens[1].text != "void" || !identifier.MatchString(tokens[2].text) || tokens[3].text != "(" {
		return kernel{}, 0, problem(line, "a kernel begins with: kernel void NAME(")
	}
	k := kernel{name: tokens[2].text}
	start, depth := 4, 1
	for i := 4; i < len(tokens); i++ {
		switch tokens[i].text {
		case "(", "<":
			depth++
		case ")", ">":
			depth--
		}
		if depth > 1 || depth == 1 && tokens[i].text != "," {
			continue
		}
		if i > start || tokens[i].text == "," {
			p, err := parseParam(tokens[start:i], line, k.name)
			if err != nil {
				return kernel{}, 0, err
			}
			k.params = append(k.params, p)
		}
		start = i + 1
		if depth == 0 {
			return k, start, k.check(line)
		}
	}
	return kernel{}, 0, problem(line, "the parameters of kernel %s do not end", k.name)
}

// check finds parameters that do not go together.
func (k kernel) check(line int) error {
	seen := map[string]bool{}
	for _, p := range k.params {
		key := fmt.Sprint(p.attribute, p.index)
		if seen[key] {
			return problem(line, "kernel %s: two parameters have the attribute of %s", k.name, p.name)
		}
		seen[key] = true
	}
	return nil
}

// parseParam parses a parameter: a type, a name and an attribute.
func parseParam(tokens []token, line int, kernel string) (param, error) {
	fail := func(format string, args ...any) (param, error) {
		var words []string
		for _, t := range tokens {
			words = append(words, t.text)
		}
		return param{}, problem(line, "kernel %s: parameter %q: %s", kernel, strings.Join(words, " "), fmt.Sprintf(format, args...))
	}
	open := slices.IndexFunc(tokens, func(t token) bool { return t.text == "[[" })
	if open < 2 || tokens[len(tokens)-1].text != "]]" {
		return fail("it is not of the form TYPE NAME [[ATTRIBUTE]]")
	}
	var p param
	attribute := tokens[open+1 : len(tokens)-1]
	p.attribute = attribute[0].text
	switch len(attribute) {
	case 1:
	case 4:
		n, err := strconv.Atoi(attribute[2].text)
		if err != nil || attribute[1].text != "(" || attribute[3].text != ")" {
			return fail("unknown attribute")
		}
		p.index = n
	default:
		return fail("unknown attribute")
	}
	declaration := tokens[:open]
	last := declaration[len(declaration)-1].text
	if !identifier.MatchString(last) || slices.Contains(spaces, last) || last == "half" || vectorType.MatchString(last) {
		return fail("%s is no name", last)
	}
	p.name = last
	var words []string
	for _, t := range declaration[:len(declaration)-1] {
		switch {
		case p.pointer || p.reference:
			return fail("it is not a plain pointer or reference")
		case t.text == "*":
			p.pointer = true
			continue
		case t.text == "&":
			p.reference = true
			continue
		case slices.Contains(spaces, t.text):
			p.space = t.text
		case t.text == "const":
			p.readOnly = true
		}
		words = append(words, t.text)
	}
	p.readOnly = p.readOnly || p.space == "constant"
	p.typ = strings.Join(words, " ")
	points := p.pointer || p.reference
	switch {
	case p.attribute == "buffer" && len(attribute) == 4:
		if !points || p.space != "device" && p.space != "constant" {
			return fail("a buffer is a pointer or a reference to something in device or constant memory")
		}
		if p.index > 30 {
			return fail("buffers have indices up to 30")
		}
	case p.attribute == "threadgroup" && len(attribute) == 4:
		if !p.pointer || p.space != "threadgroup" || p.index != 0 {
			return fail("threadgroup memory is a pointer to it, and there is number 0 only")
		}
	case builtins[p.attribute] != "" && len(attribute) == 1:
		allowed := []string{"uint", "ushort"}
		if !slices.Contains(scalarBuiltins, p.attribute) {
			allowed = append(allowed, "uint2", "uint3", "ushort2", "ushort3")
		}
		if points || !slices.Contains(allowed, p.typ) {
			return fail("%s is a %s", p.attribute, strings.Join(allowed, " or "))
		}
	default:
		return fail("unknown attribute")
	}
	return p, nil
}

// trampolines returns C++ that calls the kernels, and a table of them.
func trampolines(kernels []kernel) string {
	var code, table strings.Builder
	code.WriteString("\n#pragma clang attribute pop\n# 1 \"trampolines\"\n")
	for _, k := range kernels {
		args := make([]string, len(k.params))
		argsBytes := "0"
		buffers, writable := uint32(0), uint32(0)
		for i, p := range k.params {
			switch p.attribute {
			case "buffer":
				args[i] = fmt.Sprintf("(%s*)c.buffers[%d]", p.typ, p.index)
				if p.reference {
					args[i] = "*" + args[i]
				}
				buffers |= 1 << p.index
				if !p.readOnly {
					writable |= 1 << p.index
				}
				if p.index == 0 && p.reference {
					argsBytes = fmt.Sprintf("sizeof(%s)", p.typ)
				}
			case "threadgroup":
				args[i] = fmt.Sprintf("(%s*)c.shared", p.typ)
			default:
				words := strings.Split(builtins[p.attribute], ", ")
				n := 1
				if last := p.typ[len(p.typ)-1]; last == '2' || last == '3' {
					n = int(last - '0')
				}
				make := p.typ
				if n > 1 {
					make = "::zoo_make<" + p.typ + ">"
				}
				args[i] = fmt.Sprintf("%s(%s)", make, strings.Join(words[:n], ", "))
			}
		}
		fmt.Fprintf(&code, "ZOO_APART static void zoo_run_%s(const ::zoo::Call& c, unsigned index) {\n\t(void)index;\n\t(void)c;\n\t%s(%s);\n}\n",
			k.name, k.name, strings.Join(args, ", "))
		fmt.Fprintf(&table, "\t{%q, zoo_run_%s, %s, 0, %#xu, %#xu},\n", k.name, k.name, argsBytes, buffers, writable)
	}
	fmt.Fprintf(&code, "extern \"C\" const ::zoo::Kernel zoo_kernels[] = {\n%s};\nextern \"C\" const unsigned zoo_kernel_count = %d;\n", table.String(), len(kernels))
	return code.String()
}
