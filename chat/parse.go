package chat

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/nikolalohinski/gonja/v2/config"
	"github.com/nikolalohinski/gonja/v2/nodes"
	"github.com/nikolalohinski/gonja/v2/parser"
	"github.com/nikolalohinski/gonja/v2/tokens"
)

// maxBlockNesting bounds how deep statements nest.
const maxBlockNesting = 100

// builder makes the syntax tree of one template. gonja splits the source into
// text and tags, matches opening with closing tags, and hands each statement to
// the builder, as it would to any control structure registered with it.
type builder struct {
	line    int // the last one seen
	nesting int
	loops   int // loops around the current statement, inside its macro
	// mentioned collects the names that are read: by the whole template, and by
	// each of the macros around the current statement.
	mentioned []map[string]bool
	blocks    map[string]bool // the names of blocks so far
}

func (b *builder) mention(name string) {
	for _, m := range b.mentioned {
		m[name] = true
	}
}

// parseTemplate reads a template's source. Its errors are *SyntaxError.
func parseTemplate(source string) (body []stmt, mentioned map[string]bool, err error) {
	b := &builder{line: 1, mentioned: []map[string]bool{{}}, blocks: map[string]bool{}}
	defer func() {
		// gonja's parser takes for granted what a broken token stream lacks.
		if p := recover(); p != nil {
			err = &SyntaxError{Line: b.line, Message: fmt.Sprintf("unexpected end or token (%v)", p)}
		}
	}()
	if !utf8.ValidString(source) {
		return nil, nil, &SyntaxError{Message: "not valid UTF-8"}
	}
	spelled, err := respell(source)
	if err != nil {
		return nil, nil, err
	}
	cfg := config.New()
	cfg.TrimBlocks = true
	cfg.KeepTrailingNewline = true // respell has dropped it
	tree, err := parser.NewParser("chat template", tokens.LexAll(spelled, cfg), cfg, nil, b).Parse()
	if err != nil {
		return nil, nil, b.syntaxError(err)
	}
	return b.statements(tree.Nodes), b.mentioned[0], nil
}

// syntaxError finds the cause in an error that gonja has wrapped.
func (b *builder) syntaxError(err error) error {
	if own, ok := errors.AsType[*SyntaxError](err); ok {
		return own
	}
	if theirs, ok := errors.AsType[*parser.SyntaxError](err); ok {
		if theirs.Line > 0 {
			b.line = theirs.Line
		}
		return &SyntaxError{Line: b.line, Message: theirs.Message}
	}
	message := err.Error()
	if len(message) > 500 {
		message = strings.ToValidUTF8(message[:500], "") + "…"
	}
	return &SyntaxError{Line: b.line, Message: message}
}

// statements turns gonja's nodes into statements.
func (b *builder) statements(list []nodes.Node) []stmt {
	var out []stmt
	for _, n := range list {
		switch n := n.(type) {
		case *nodes.Data:
			s := n.Data.Val
			if n.Trim.Left {
				s = strings.TrimLeftFunc(s, isSpace)
			}
			if n.Trim.Right {
				s = strings.TrimRightFunc(s, isSpace)
			}
			if s != "" {
				out = append(out, &data{at(n.Data.Line), literal(s)})
			}
		case *nodes.ControlStructureBlock:
			out = append(out, n.ControlStructure.(*statement).stmt)
		}
	}
	return out
}

// statement carries a stmt through gonja's tree.
type statement struct {
	stmt stmt
	tok  *tokens.Token
}

// Position returns the token that the statement was found at.
func (s *statement) Position() *tokens.Token { return s.tok }

// String names the type of the statement.
func (s *statement) String() string { return fmt.Sprintf("%T", s.stmt) }

// Get returns the parser of the statement called name, as gonja asks for it.
func (b *builder) Get(name string) (parser.ControlStructureParser, bool) {
	return func(p *parser.Parser, args *parser.Parser) (nodes.ControlStructure, error) {
		if b.nesting++; b.nesting > maxBlockNesting {
			return nil, &SyntaxError{Line: b.line, Message: "statements are nested too deeply"}
		}
		defer func() { b.nesting-- }()
		if t := p.Current(); args.End() && t != nil && t.Line > 0 {
			b.line = t.Line // of what follows: a tag without arguments has no better place
		}
		sp := &stmtParser{exprParser{args: args, b: b}, p, 0}
		sp.at = at(sp.line())
		s, err := sp.statement(name)
		if err != nil {
			return nil, err
		}
		return &statement{s, &tokens.Token{Line: int(sp.at)}}, nil
	}, true
}

// stmtParser reads one statement: the rest of its first tag, and the tags that
// belong to it.
type stmtParser struct {
	exprParser
	doc *parser.Parser
	at  at
}

func (p *stmtParser) statement(name string) (stmt, error) {
	switch name {
	case printTag:
		return p.print()
	case "if":
		return p.branch()
	case "for":
		return p.loop()
	case "set":
		return p.set()
	case "macro":
		return p.macro()
	case "call":
		return p.callBlock()
	case "filter":
		return p.filterBlock()
	case "with":
		return p.with()
	case "block":
		return p.block()
	case "generation": // transformers marks the assistant's tokens with it
		return p.scope("endgeneration")
	case "break", "continue":
		return p.jump(name)
	case "include", "import", "from", "extends":
		return nil, p.fail("%q is refused: a chat template is a single file", name)
	}
	return nil, p.fail("encountered unknown tag %q", name)
}

// body reads statements up to one of some closing tags, and leaves the parser
// in the rest of that tag.
func (p *stmtParser) body(ends ...string) (body []stmt, end string, err error) {
	w, rest, err := p.doc.WrapUntil(ends...)
	if err != nil {
		return nil, "", err
	}
	p.args = rest
	return p.b.statements(w.Nodes), w.EndTag, nil
}

// lastBody is body for a statement's last closing tag.
func (p *stmtParser) lastBody(end string) ([]stmt, error) {
	body, _, err := p.body(end)
	if err != nil {
		return nil, err
	}
	return body, p.end()
}

func (p *stmtParser) print() (stmt, error) {
	s := &output{at: p.at}
	for {
		e, err := p.expression()
		if err != nil {
			return nil, err
		}
		s.exprs = append(s.exprs, e)
		if !p.skip(tokens.Comma) {
			return s, p.end(s.exprs...)
		}
	}
}

func (p *stmtParser) branch() (stmt, error) {
	s := &branch{at: p.at}
	for {
		cond, err := p.tuple(false, p.or, nil)
		if err != nil {
			return nil, err
		}
		if err := p.open(cond); err != nil {
			return nil, err
		}
		body, end, err := p.body("elif", "else", "endif")
		if err != nil {
			return nil, err
		}
		s.conds, s.bodies = append(s.conds, cond), append(s.bodies, body)
		switch end {
		case "endif":
			return s, p.end()
		case "else":
			if err := p.open(); err != nil {
				return nil, err
			}
			body, err := p.lastBody("endif")
			s.bodies = append(s.bodies, body)
			return s, err
		}
	}
}

func (p *stmtParser) loop() (s stmt, err error) {
	l := &loop{at: p.at}
	if l.target, err = p.target(func() bool { return p.exprParser.at("in") }, false); err != nil {
		return nil, err
	}
	if !p.skipWord("in") {
		return nil, p.fail("expected in, got %s", p.describe())
	}
	if l.over, err = p.tuple(false, p.or, func() bool { return p.exprParser.at("recursive") }); err != nil {
		return nil, err
	}
	if p.skipWord("if") {
		if l.cond, err = p.expression(); err != nil {
			return nil, err
		}
	}
	l.recursive = p.skipWord("recursive")
	if err := p.open(l.over, l.cond); err != nil {
		return nil, err
	}
	p.b.loops++
	body, end, err := p.body("endfor", "else")
	p.b.loops--
	if err != nil {
		return nil, err
	}
	l.body = body
	if end == "endfor" {
		return l, p.end()
	}
	if err := p.open(); err != nil {
		return nil, err
	}
	l.other, err = p.lastBody("endfor")
	return l, err
}

// target reads what is assigned to; attrs allows attributes of namespaces.
func (p *stmtParser) target(stop func() bool, attrs bool) (target, error) {
	var t target
	comma := false
	for !p.args.End() && !(stop != nil && stop()) && !p.is(tokens.RightParenthesis, tokens.Assign) {
		part, err := p.oneTarget(attrs)
		if err != nil {
			return t, err
		}
		t.parts = append(t.parts, part)
		if !p.skip(tokens.Comma) {
			break
		}
		comma = true
	}
	switch {
	case len(t.parts) == 0:
		return t, p.fail("expected a name to assign to, got %s", p.describe())
	case len(t.parts) == 1 && !comma:
		return t.parts[0], nil
	}
	t.tuple = true
	return t, nil
}

func (p *stmtParser) oneTarget(attrs bool) (target, error) {
	if p.skip(tokens.LeftParenthesis) {
		if p.nesting++; p.nesting > maxNesting {
			return target{}, p.fail("expression is nested too deeply")
		}
		defer func() { p.nesting-- }()
		t, err := p.target(nil, false)
		if err != nil {
			return t, err
		}
		return t, p.expect(tokens.RightParenthesis)
	}
	id, err := p.name()
	if err != nil {
		return target{}, err
	}
	t := target{name: id}
	if attrs && p.skip(tokens.Dot) {
		t.attr, err = p.identifier()
		p.b.mention(id)
	}
	return t, err
}

// name reads an identifier that can be assigned to.
func (p *stmtParser) name() (string, error) {
	id, err := p.identifier()
	if err == nil && slices.Contains([]string{"true", "True", "false", "False", "none", "None"}, id) {
		err = p.fail("can't assign to %q", id)
	}
	return id, err
}

func (p *stmtParser) set() (stmt, error) {
	t, err := p.target(nil, true)
	if err != nil {
		return nil, err
	}
	if p.skip(tokens.Assign) {
		e, err := p.whole()
		return &assign{p.at, t, e}, err
	}
	s := &capture{at: p.at, target: t}
	for err == nil && p.is(tokens.Pipe) {
		s.filters, err = p.filter(s.filters)
	}
	if err != nil {
		return nil, err
	}
	if err := p.open(s.filters); err != nil {
		return nil, err
	}
	s.body, err = p.lastBody("endset")
	return s, err
}

// macroBody reads the body of a macro or call block.
func (p *stmtParser) macroBody(m *macroDef, end string) error {
	if err := p.open(m.defaults...); err != nil {
		return err
	}
	names := map[string]bool{}
	loops := p.b.loops
	p.b.loops = 0
	p.b.mentioned = append(p.b.mentioned, names)
	body, err := p.lastBody(end)
	p.b.mentioned = p.b.mentioned[:len(p.b.mentioned)-1]
	p.b.loops = loops
	special := func(name string) bool { return names[name] && !slices.Contains(m.params, name) }
	m.body, m.varargs, m.kwargs, m.caller = body, special("varargs"), special("kwargs"), special("caller")
	return err
}

// params reads a macro's parameters in parentheses.
func (p *stmtParser) params(m *macroDef) error {
	if err := p.expect(tokens.LeftParenthesis); err != nil {
		return err
	}
	for !p.skip(tokens.RightParenthesis) {
		if len(m.params) > 0 {
			if err := p.expect(tokens.Comma); err != nil {
				return err
			}
		}
		id, err := p.name()
		if err != nil {
			return err
		}
		if slices.Contains(m.params, id) {
			return p.fail("duplicate argument %q", id)
		}
		m.params = append(m.params, id)
		switch {
		case p.skip(tokens.Assign):
			e, err := p.expression()
			if err != nil {
				return err
			}
			m.defaults = append(m.defaults, e)
		case len(m.defaults) > 0:
			return p.fail("non-default argument follows default argument")
		case id == "caller":
			return p.fail("the special argument %q must be omitted or be given a default", id)
		}
	}
	return nil
}

func (p *stmtParser) macro() (stmt, error) {
	id, err := p.name()
	if err != nil {
		return nil, err
	}
	m := &macroDef{name: id}
	if err := p.params(m); err != nil {
		return nil, err
	}
	return &define{p.at, m}, p.macroBody(m, "endmacro")
}

func (p *stmtParser) callBlock() (stmt, error) {
	s := &callBlock{at: p.at, caller: &macroDef{name: "caller"}}
	if p.is(tokens.LeftParenthesis) {
		if err := p.params(s.caller); err != nil {
			return nil, err
		}
	}
	e, err := p.expression()
	if err != nil {
		return nil, err
	}
	c, ok := e.(*call)
	if !ok {
		return nil, p.fail("expected a call")
	}
	if tooDeep(e, maxTreeDepth) {
		return nil, p.fail("expression is nested too deeply")
	}
	s.call = c
	return s, p.macroBody(s.caller, "endcall")
}

func (p *stmtParser) filterBlock() (stmt, error) {
	f, err := p.filterCall(nil)
	for err == nil && p.is(tokens.Pipe) {
		f, err = p.filter(f)
	}
	if err != nil {
		return nil, err
	}
	if err := p.open(f); err != nil {
		return nil, err
	}
	body, err := p.lastBody("endfilter")
	return &filterBlock{p.at, f, body}, err
}

func (p *stmtParser) with() (stmt, error) {
	s := &scoped{at: p.at}
	for !p.args.End() && !p.is(tokens.Colon) {
		if len(s.targets) > 0 {
			if err := p.expect(tokens.Comma); err != nil {
				return nil, err
			}
		}
		t, err := p.oneTarget(false)
		if err != nil {
			return nil, err
		}
		if err := p.expect(tokens.Assign); err != nil {
			return nil, err
		}
		e, err := p.expression()
		if err != nil {
			return nil, err
		}
		s.targets, s.values = append(s.targets, t), append(s.values, e)
	}
	if err := p.open(s.values...); err != nil {
		return nil, err
	}
	var err error
	s.body, err = p.lastBody("endwith")
	return s, err
}

// block reads a block, which has nothing to be overridden by: it is a scope.
func (p *stmtParser) block() (stmt, error) {
	id, err := p.identifier()
	if err != nil {
		return nil, err
	}
	if p.b.blocks[id] {
		return nil, p.fail("block %q defined twice", id)
	}
	p.b.blocks[id] = true
	p.skipWord("scoped")
	if err := p.open(); err != nil {
		return nil, err
	}
	body, _, err := p.body("endblock")
	if err != nil {
		return nil, err
	}
	p.skipWord(id)
	return &scoped{at: p.at, body: body}, p.end()
}

func (p *stmtParser) scope(end string) (stmt, error) {
	if err := p.open(); err != nil {
		return nil, err
	}
	body, err := p.lastBody(end)
	return &scoped{at: p.at, body: body}, err
}

func (p *stmtParser) jump(name string) (stmt, error) {
	if p.b.loops == 0 {
		return nil, p.fail("%q outside of a loop", name)
	}
	s := &jump{p.at, breakLoop}
	if name == "continue" {
		s.signal = continueLoop
	}
	return s, p.end()
}

// unquote appends what a string constant stands for; quoted still has Python's escapes.
func (p *exprParser) unquote(out *strings.Builder, quoted string) error {
	for {
		before, rest, found := strings.Cut(quoted, `\`)
		out.WriteString(before)
		if !found {
			return nil
		}
		if rest == "" {
			return p.fail("string ends in a backslash")
		}
		digits := 0
		c := rest[0]
		rest = rest[1:]
		switch c {
		case '\n':
		case 'a', 'b', 'f', 'n', 'r', 't', 'v':
			out.WriteByte("\a\b\f\n\r\t\v"[strings.IndexByte("abfnrtv", c)])
		case '\\', '\'', '"':
			out.WriteByte(c)
		case 'x':
			digits = 2
		case 'u':
			digits = 4
		case 'U':
			digits = 8
		case 'N':
			return p.fail(`\N escapes are not supported`)
		case '0', '1', '2', '3', '4', '5', '6', '7':
			n := rune(c - '0')
			for i := 0; i < 2 && rest != "" && '0' <= rest[0] && rest[0] <= '7'; i++ {
				n, rest = n*8+rune(rest[0]-'0'), rest[1:]
			}
			out.WriteRune(n)
		default:
			out.WriteByte('\\')
			out.WriteByte(c)
		}
		if digits > 0 {
			n, err := strconv.ParseUint(rest[:min(digits, len(rest))], 16, 32)
			if len(rest) < digits || err != nil || n > utf8.MaxRune {
				return p.fail(`invalid \%c escape`, c)
			}
			rest = rest[digits:]
			char := rune(n)
			if utf16.IsSurrogate(char) && len(rest) >= 6 && strings.HasPrefix(rest, `\u`) {
				if low, err := strconv.ParseUint(rest[2:6], 16, 32); err == nil {
					if pair := utf16.DecodeRune(char, rune(low)); pair != utf8.RuneError {
						char, rest = pair, rest[6:]
					}
				}
			}
			out.WriteRune(char)
		}
		quoted = rest
	}
}
