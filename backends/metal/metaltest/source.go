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
	name    string
	params  []param
	threads int // the most of a group, 0 if the source does not say
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
	// reserved are words of the language that C++ takes for names.
	reserved = []string{"vertex", "fragment"}
	// taken are functions of the language, which functions of the source cannot be named as.
	taken = strings.Fields("abs absdiff acos acosh addsat all any asin asinh atan atan2 atanh ceil clamp clz copysign cos cosh cospi cross ctz " +
		"determinant distance distance_squared divide dot exp exp10 exp2 extract_bits fabs faceforward fdim floor fma fmax fmax3 fmedian3 fmin " +
		"fmin3 fmod fract frexp hadd ilogb insert_bits isfinite isinf isnan isnormal isordered isunordered ldexp length length_squared log log10 " +
		"log2 mad24 madhi madsat max max3 median3 min min3 mix modf mul24 mulhi nan nextafter normalize popcount pow powr reflect refract " +
		"reverse_bits rhadd rint rotate round rsqrt saturate select sign signbit sin sincos sinh sinpi smoothstep sqrt step subsat tan tanh tanpi " +
		"transpose trunc threadgroup_barrier simdgroup_barrier")
	// double is a number that C++ takes for a double, and Metal for a float.
	double = regexp.MustCompile(`^(?:\d+\.\d*|\.\d+|\d+)(?:[eE]\d+)?$`)
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

// rewriter holds what is known while a source is rewritten.
type rewriter struct {
	source  string
	tokens  []token
	edits   []edit
	kernels []kernel
	threads int             // what an attribute says of the next kernel
	types   map[string]bool // the names of types
	vectors map[string]bool // other names of vectors
	braces  []bool          // for each open brace, whether it is one of a function
}

// text returns a token, which may be one before the first or after the last.
func (r *rewriter) text(i int) string {
	if i < 0 || i >= len(r.tokens) {
		return ""
	}
	return r.tokens[i].text
}

// rewrite turns a preprocessed Metal source into C++ for runner/metal.h: without
// attributes, with calls in place of constructors of vectors. It returns the
// kernels as well.
func rewrite(source string) (string, []kernel, error) {
	r := &rewriter{source: source, tokens: scan(source), types: map[string]bool{"auto": true}, vectors: map[string]bool{}}
	for _, name := range []string{"bool", "char", "uchar", "short", "ushort", "int", "uint", "long", "ulong", "half", "float", "size_t", "simdgroup_half8x8", "simdgroup_float8x8", "atomic_uint", "atomic_int"} {
		r.types[name] = true
	}
	for i, t := range r.tokens {
		if slices.Contains([]string{"struct", "class", "typename", "enum", "using"}, t.text) && identifier.MatchString(r.text(i+1)) {
			r.types[r.text(i+1)] = true
			r.vectors[r.text(i+1)] = t.text == "using" && vectorType.MatchString(r.text(i+3)) && r.text(i+4) == ";"
		}
	}
	for i := 0; i < len(r.tokens); {
		next, err := r.token(i)
		if err != nil {
			return "", nil, err
		}
		i = next
	}
	var out strings.Builder
	at := 0
	slices.SortStableFunc(r.edits, func(a, b edit) int { return a.start - b.start })
	for _, e := range r.edits {
		out.WriteString(source[at:e.start])
		out.WriteString(e.with)
		at = e.end
	}
	out.WriteString(source[at:])
	return out.String(), r.kernels, nil
}

// token looks at a token and returns which to look at next.
func (r *rewriter) token(i int) (int, error) {
	t := r.tokens[i]
	isVector := vectorType.MatchString(t.text) || r.vectors[t.text]
	switch {
	case slices.Contains(foreign, t.text):
		return 0, problem(t.line, "%s is not in the Metal Shading Language", t.text)
	case slices.Contains(reserved, t.text):
		return 0, problem(t.line, "%s is a word of the Metal Shading Language, and no name", t.text)
	case t.text == "[[" && r.text(i+1) == "max_total_threads_per_threadgroup":
		return r.limit(i)
	case t.text == "[[":
		return 0, problem(t.line, "unknown attribute %q: only parameters of kernels have some", r.text(i+1))
	case t.text == "kernel":
		end, err := r.kernel(i)
		if err != nil {
			return 0, err
		}
		// The parameters are looked at like everything else.
		for j := i + 1; j < end; j++ {
			if err := r.pointer(j); err != nil {
				return 0, err
			}
		}
		return end, nil
	case t.text[0] == '.' && len(t.text) > 1 || t.text[0] >= '0' && t.text[0] <= '9':
		r.number(i)
	case t.text == "static" || len(r.braces) == 0 && (t.text == "const" || t.text == "constexpr"):
		if err := r.variable(i); err != nil {
			return 0, err
		}
	case len(r.braces) == 0 && r.text(i+1) == "(" && slices.Contains(taken, t.text) && identifier.MatchString(r.text(i-1)):
		return 0, problem(t.line, "%s is a function of the language: a function of the source needs another name", t.text)
	case t.text == "{":
		r.braces = append(r.braces, !r.declares(i) || r.inFunction())
	case t.text == "}" && len(r.braces) > 0:
		r.braces = r.braces[:len(r.braces)-1]
	case isVector && r.inFunction() && identifier.MatchString(r.text(i+1)) && r.text(i+2) == "(":
		at := r.tokens[i+2].start
		r.edits = append(r.edits, edit{at, at, " = ::zoo_make<" + t.text + ">"})
	case isVector && r.text(i+1) == "(":
		r.edits = append(r.edits, edit{t.start, t.end, "::zoo_make<" + t.text + ">"})
	case isVector && r.text(i-1) == "(" && r.text(i+1) == ")" && !identifier.MatchString(r.text(i-2)) && r.text(i-2) != ">":
		return 0, problem(t.line, "convert with %s(x), since (%s)x is not the same to every compiler", t.text, t.text)
	case t.text == "vec" && r.text(i+1) == "<":
		j := i + 2
		for depth := 1; depth > 0 && j < len(r.tokens); j++ {
			switch r.tokens[j].text {
			case "<":
				depth++
			case ">":
				depth--
			}
		}
		if r.text(j) == "(" {
			r.edits = append(r.edits, edit{t.start, t.start, "::zoo_make<"}, edit{r.tokens[j].start, r.tokens[j].start, ">"})
		}
	}
	return i + 1, r.pointer(i)
}

// variable refuses a variable outside of functions, or of a type, that is not in constant memory.
func (r *rewriter) variable(i int) error {
	t := r.tokens[i]
	if t.text == "static" && r.inFunction() {
		return problem(t.line, "variables of functions are not static")
	}
	from := i
	for from > 0 && !slices.Contains([]string{";", "{", "}", ">", "(", ",", "<"}, r.text(from-1)) {
		from--
	}
	if slices.Contains([]string{"(", ",", "<"}, r.text(from-1)) {
		return nil // a parameter
	}
	for to := from; to < len(r.tokens); to++ {
		switch r.text(to) {
		case "constant", "(", "using", "typedef":
			return nil
		case "=", ";", "{":
			return problem(t.line, "a variable outside of functions is constant")
		}
	}
	return nil
}

// inFunction tells whether the present token is in a function.
func (r *rewriter) inFunction() bool {
	return len(r.braces) > 0 && r.braces[len(r.braces)-1]
}

// declares tells whether a brace opens a type or a namespace.
func (r *rewriter) declares(i int) bool {
	for j := i - 1; j >= 0; j-- {
		switch r.text(j) {
		case "struct", "class", "union", "enum", "namespace":
			return true
		case ";", "{", "}", ")":
			return false
		}
	}
	return false
}

// kernel takes in the head of a kernel and returns the token after its parameters.
func (r *rewriter) kernel(i int) (int, error) {
	t := r.tokens[i]
	k, length, err := parseKernel(r.tokens[i:])
	if err != nil {
		return 0, err
	}
	if slices.ContainsFunc(r.kernels, func(other kernel) bool { return other.name == k.name }) {
		return 0, problem(t.line, "there are two kernels %s", k.name)
	}
	k.threads, r.threads = r.threads, 0
	r.kernels = append(r.kernels, k)
	for j := i; j < i+length; j++ {
		if r.tokens[j].text != "[[" {
			continue
		}
		start := r.tokens[j].start
		for r.tokens[j].text != "]]" {
			j++
		}
		r.edits = append(r.edits, edit{start, r.tokens[j].end, ""})
	}
	return i + length, nil
}

// limit takes the attribute that says how many threads a group of the next kernel has at most.
func (r *rewriter) limit(i int) (int, error) {
	n, err := strconv.Atoi(r.text(i + 3))
	if r.text(i+2) != "(" || err != nil || n <= 0 || r.text(i+4) != ")" || r.text(i+5) != "]]" || r.text(i+6) != "kernel" {
		return 0, problem(r.tokens[i].line, "max_total_threads_per_threadgroup takes a number and stands before a kernel")
	}
	r.threads = n
	r.edits = append(r.edits, edit{r.tokens[i].start, r.tokens[i+5].end, ""})
	return i + 6, nil
}

// number makes a float of what C++ takes for a double.
func (r *rewriter) number(i int) {
	t := r.tokens[i]
	end := t.end
	text := t.text
	if strings.HasSuffix(strings.ToLower(text), "e") && !strings.HasPrefix(text, "0x") {
		// The exponent's sign and digits are two more tokens.
		if sign := r.text(i + 1); sign == "-" || sign == "+" {
			text, end = text+r.text(i+2), r.tokens[min(i+2, len(r.tokens)-1)].end
		}
	}
	if double.MatchString(text) && strings.ContainsAny(text, ".eE") {
		r.edits = append(r.edits, edit{end, end, "f"})
	}
}

// pointer refuses a pointer or a reference of which nobody says what address space it is to.
func (r *rewriter) pointer(i int) error {
	if !r.types[r.text(i)] && !vectorType.MatchString(r.text(i)) || r.text(i+1) != "*" && r.text(i+1) != "&" {
		return nil
	}
	for j := i - 1; j >= 0; j-- {
		switch text := r.text(j); {
		case slices.Contains(spaces, text):
			return nil
		case text != "const" && text != "volatile" && text != "struct" && text != "metal" && text != ":":
			return problem(r.tokens[i].line, "%s%s: a pointer or reference names its address space", r.text(i), r.text(i+1))
		}
	}
	return nil
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
	if !identifier.MatchString(last) || slices.Contains(spaces, last) || slices.Contains(reserved, last) || last == "half" || vectorType.MatchString(last) {
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

// trampoline returns C++ that calls a kernel, and tells the runner of it.
func (k kernel) trampoline() string {
	args := make([]string, len(k.params))
	argsBytes := "0"
	writable := uint32(0)
	for i, p := range k.params {
		args[i] = p.argument()
		if p.attribute == "buffer" && !p.readOnly {
			writable |= 1 << p.index
		}
		if p.attribute == "buffer" && p.index == 0 && p.reference {
			argsBytes = fmt.Sprintf("sizeof(%s)", p.typ)
		}
	}
	return fmt.Sprintf("# 1 \"trampoline\"\nZOO_CALLER static void zoo_run(const ::zoo::Call& c, unsigned index) {\n\t(void)index;\n\t(void)c;\n\t::%s(%s);\n}\n"+
		"__attribute__((used, section(\"zoo_kernels\"))) static const ::zoo::Kernel zoo_kernel = {%q, zoo_run, %s, %#xu};\n",
		k.name, strings.Join(args, ", "), k.name, argsBytes, writable)
}

// argument returns what a trampoline passes for a parameter.
func (p param) argument() string {
	switch p.attribute {
	case "buffer":
		if p.reference {
			return fmt.Sprintf("*(%s*)c.buffers[%d]", p.typ, p.index)
		}
		return fmt.Sprintf("(%s*)c.buffers[%d]", p.typ, p.index)
	case "threadgroup":
		return fmt.Sprintf("(%s*)c.shared", p.typ)
	}
	words := strings.Split(builtins[p.attribute], ", ")
	if last := p.typ[len(p.typ)-1]; last == '2' || last == '3' {
		return fmt.Sprintf("::zoo_make<%s>(%s)", p.typ, strings.Join(words[:last-'0'], ", "))
	}
	return fmt.Sprintf("%s(%s)", p.typ, words[0])
}
