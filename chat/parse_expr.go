package chat

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/nikolalohinski/gonja/v2/parser"
	"github.com/nikolalohinski/gonja/v2/tokens"
)

// exprParser reads expressions from the tokens of one tag, by Jinja's grammar.
type exprParser struct {
	args    *parser.Parser
	b       *builder
	nesting int
}

// The bounds of an expression: levels of recursion while parsing, and the depth
// of its tree, which evaluation recurses through.
const (
	maxNesting   = 150
	maxTreeDepth = 400
)

func (p *exprParser) fail(format string, args ...any) error {
	return &SyntaxError{Line: p.line(), Message: fmt.Sprintf(format, args...)}
}

func (p *exprParser) line() int {
	if t := p.args.Current(); t.Line > 0 {
		p.b.line = t.Line
	}
	return p.b.line
}

// is reports whether the current token is of a type.
func (p *exprParser) is(types ...tokens.Type) bool {
	return slices.Contains(types, p.args.Current().Type)
}

func (p *exprParser) skip(t tokens.Type) bool {
	if !p.is(t) {
		return false
	}
	p.args.Next()
	return true
}

func (p *exprParser) expect(t tokens.Type) error {
	if !p.skip(t) {
		return p.fail("expected %s, got %s", strings.ToLower(tokens.Names[t]), p.describe())
	}
	return nil
}

func (p *exprParser) describe() string {
	if p.args.End() {
		return "the end of the tag"
	}
	return strconv.Quote(p.args.Current().Val)
}

// isWord reports whether the token is a word, keywords included.
func isWord(t *tokens.Token) bool {
	switch t.Type {
	case tokens.Name, tokens.In, tokens.Is, tokens.And, tokens.Or, tokens.Not:
		return true
	}
	return false
}

// at reports whether the current token is one of some words.
func (p *exprParser) at(words ...string) bool {
	t := p.args.Current()
	return isWord(t) && slices.Contains(words, t.Val)
}

func (p *exprParser) skipWord(word string) bool {
	if !p.at(word) {
		return false
	}
	p.args.Next()
	return true
}

func (p *exprParser) identifier() (string, error) {
	t := p.args.Current()
	if !isWord(t) {
		return "", p.fail("expected a name, got %s", p.describe())
	}
	if c, _ := utf8.DecodeRuneInString(t.Val); '0' <= c && c <= '9' {
		return "", p.fail("invalid character in identifier %q", t.Val)
	}
	p.args.Next()
	return t.Val, nil
}

// whole reads an expression, or a tuple, that takes up the rest of the tag.
func (p *exprParser) whole() (expr, error) {
	e, err := p.tuple(false, p.expression, nil)
	if err != nil {
		return nil, err
	}
	return e, p.end(e)
}

// end checks that the tag ends here, and that trees are not too deep.
func (p *exprParser) end(exprs ...expr) error {
	if !p.args.End() {
		return p.fail("expected the end of the tag, got %s", p.describe())
	}
	if p.args.Stream().IsError() {
		return p.fail("%s", p.args.Current().Val)
	}
	for _, e := range exprs {
		if tooDeep(e, maxTreeDepth) {
			return p.fail("expression is nested too deeply")
		}
	}
	return nil
}

// open is end for a tag that a body follows; as in Python, a colon may close it.
func (p *exprParser) open(exprs ...expr) error {
	p.skip(tokens.Colon)
	return p.end(exprs...)
}

// tuple reads expressions between commas: one without a comma stands for itself.
func (p *exprParser) tuple(inParens bool, one func() (expr, error), stop func() bool) (expr, error) {
	var items []expr
	comma := false
	for {
		if p.args.End() || p.is(tokens.RightParenthesis) || stop != nil && stop() {
			break
		}
		e, err := one()
		if err != nil {
			return nil, err
		}
		items = append(items, e)
		if !p.skip(tokens.Comma) {
			break
		}
		comma = true
	}
	switch {
	case len(items) == 1 && !comma:
		return items[0], nil
	case len(items) == 0 && !inParens:
		return nil, p.fail("expected an expression, got %s", p.describe())
	}
	return &collection{kind: tupleKind, items: items}, nil
}

func (p *exprParser) expression() (expr, error) {
	if p.nesting++; p.nesting > maxNesting {
		return nil, p.fail("expression is nested too deeply")
	}
	defer func() { p.nesting-- }()
	e, err := p.or()
	for err == nil && p.skipWord("if") {
		t := &ternary{then: e}
		if t.cond, err = p.or(); err != nil {
			return nil, err
		}
		if p.skipWord("else") {
			t.other, err = p.expression()
		}
		e = t
	}
	return e, err
}

// leftToRight reads operands joined by operators of one precedence.
func (p *exprParser) leftToRight(operand func() (expr, error), isOp func() bool, join func(op string, l, r expr) expr) (expr, error) {
	e, err := operand()
	for err == nil && isOp() {
		op := p.args.Next().Val
		var r expr
		if r, err = operand(); err == nil {
			e = join(op, e, r)
		}
	}
	return e, err
}

func (p *exprParser) or() (expr, error) {
	return p.leftToRight(p.and, func() bool { return p.at("or") },
		func(_ string, l, r expr) expr { return &logical{or: true, l: l, r: r} })
}

func (p *exprParser) and() (expr, error) {
	return p.leftToRight(p.not, func() bool { return p.at("and") },
		func(_ string, l, r expr) expr { return &logical{l: l, r: r} })
}

func (p *exprParser) not() (expr, error) {
	if !p.skipWord("not") {
		return p.comparison()
	}
	if p.nesting++; p.nesting > maxNesting {
		return nil, p.fail("expression is nested too deeply")
	}
	defer func() { p.nesting-- }()
	e, err := p.not()
	return &negation{e}, err
}

func (p *exprParser) comparison() (expr, error) {
	first, err := p.sum()
	c := &comparison{first: first}
	for err == nil {
		switch {
		case p.is(tokens.Equals, tokens.Ne, tokens.LowerThan, tokens.LowerThanOrEqual, tokens.GreaterThan, tokens.GreaterThanOrEqual):
			c.ops = append(c.ops, p.args.Next().Val)
		case p.skipWord("in"):
			c.ops = append(c.ops, "in")
		case p.at("not") && p.args.Peek() != nil && isWord(p.args.Peek()) && p.args.Peek().Val == "in":
			p.args.Next()
			p.args.Next()
			c.ops = append(c.ops, "not in")
		case len(c.ops) == 0:
			return first, nil
		default:
			return c, nil
		}
		var r expr
		r, err = p.sum()
		c.rest = append(c.rest, r)
	}
	return nil, err
}

func joinBinary(op string, l, r expr) expr { return &binary{op, l, r} }

func (p *exprParser) sum() (expr, error) {
	return p.leftToRight(p.concatenation, func() bool { return p.is(tokens.Addition, tokens.Subtraction) }, joinBinary)
}

func (p *exprParser) concatenation() (expr, error) {
	e, err := p.product()
	if err != nil || !p.is(tokens.Tilde) {
		return e, err
	}
	parts := []expr{e}
	for p.skip(tokens.Tilde) {
		if e, err = p.product(); err != nil {
			return nil, err
		}
		parts = append(parts, e)
	}
	return &joined{parts}, nil
}

func (p *exprParser) product() (expr, error) {
	return p.leftToRight(p.power, func() bool {
		return p.is(tokens.Multiply, tokens.Division, tokens.FloorDivision, tokens.Modulo)
	}, joinBinary)
}

func (p *exprParser) power() (expr, error) {
	return p.leftToRight(func() (expr, error) { return p.unary(true) },
		func() bool { return p.is(tokens.Power) }, joinBinary)
}

func (p *exprParser) unary(filters bool) (expr, error) {
	if p.nesting++; p.nesting > maxNesting {
		return nil, p.fail("expression is nested too deeply")
	}
	defer func() { p.nesting-- }()
	var e expr
	var err error
	if p.is(tokens.Addition, tokens.Subtraction) {
		u := &unary{op: p.args.Next().Val}
		u.of, err = p.unary(false)
		e = u
	} else {
		e, err = p.primary()
	}
	if err != nil {
		return nil, err
	}
	return p.postfix(e, filters)
}

// postfix reads what may follow an operand: members, calls, filters and tests.
func (p *exprParser) postfix(e expr, filters bool) (expr, error) {
	var err error
	for members := true; err == nil; {
		switch {
		case members && p.is(tokens.Dot):
			e, err = p.member(e)
		case members && p.is(tokens.LeftBracket):
			e, err = p.subscript(e)
		case p.is(tokens.LeftParenthesis):
			c := &call{fn: e}
			c.args, err = p.arguments()
			e = c
		case filters && p.is(tokens.Pipe):
			members = false
			e, err = p.filter(e)
		case filters && p.at("is"):
			members = false
			e, err = p.test(e)
		default:
			return e, nil
		}
	}
	return nil, err
}

func (p *exprParser) member(of expr) (expr, error) {
	p.args.Next()
	if p.is(tokens.Integer) {
		n, err := p.number()
		return &subscript{of: of, key: n}, err
	}
	id, err := p.identifier()
	return &attribute{of: of, name: literal(id)}, err
}

func (p *exprParser) subscript(of expr) (expr, error) {
	p.args.Next()
	var keys []expr
	var slice *slicing
	for !p.is(tokens.RightBracket) {
		if len(keys) > 0 {
			if err := p.expect(tokens.Comma); err != nil {
				return nil, err
			}
		}
		key, err := p.subscriptPart(of)
		if err != nil {
			return nil, err
		}
		if part, ok := key.(*slicing); ok && part.of == of {
			slice = part
		}
		keys = append(keys, key)
	}
	p.args.Next()
	switch {
	case len(keys) == 0:
		return nil, p.fail("expected a subscript")
	case len(keys) > 1 && slice != nil:
		return nil, p.fail("a slice cannot be part of a tuple")
	case slice != nil:
		return slice, nil
	case len(keys) == 1:
		return &subscript{of: of, key: keys[0]}, nil
	}
	return &subscript{of: of, key: &collection{kind: tupleKind, items: keys}}, nil
}

func (p *exprParser) subscriptPart(of expr) (expr, error) {
	bound := func() (expr, error) {
		if p.is(tokens.Colon, tokens.RightBracket, tokens.Comma) {
			return nil, nil
		}
		return p.expression()
	}
	start, err := bound()
	if err != nil || !p.is(tokens.Colon) {
		if err == nil && start == nil {
			err = p.fail("expected an expression, got %s", p.describe())
		}
		return start, err
	}
	s := &slicing{of: of, start: start}
	p.args.Next()
	if s.stop, err = bound(); err == nil && p.skip(tokens.Colon) {
		s.step, err = bound()
	}
	return s, err
}

func (p *exprParser) arguments() (argList, error) {
	var a argList
	p.args.Next()
	for first := true; !p.is(tokens.RightParenthesis); first = false {
		if !first {
			if err := p.expect(tokens.Comma); err != nil {
				return a, err
			}
			if p.is(tokens.RightParenthesis) {
				break
			}
		}
		next := p.args.Peek()
		switch {
		case p.is(tokens.Multiply) && a.star == nil && a.starStar == nil:
			p.args.Next()
			e, err := p.expression()
			if err != nil {
				return a, err
			}
			a.star = e
		case p.is(tokens.Power) && a.starStar == nil:
			p.args.Next()
			e, err := p.expression()
			if err != nil {
				return a, err
			}
			a.starStar = e
		case isWord(p.args.Current()) && next != nil && next.Type == tokens.Assign && a.starStar == nil:
			id, err := p.identifier()
			if err != nil {
				return a, err
			}
			p.args.Next()
			e, err := p.expression()
			if err != nil {
				return a, err
			}
			a.names, a.named = append(a.names, id), append(a.named, e)
		case len(a.named) == 0 && a.star == nil && a.starStar == nil:
			e, err := p.expression()
			if err != nil {
				return a, err
			}
			a.pos = append(a.pos, e)
		default:
			return a, p.fail("invalid syntax for function call expression")
		}
	}
	p.args.Next()
	return a, nil
}

// filter reads one filter with its bar.
func (p *exprParser) filter(of expr) (expr, error) {
	p.args.Next()
	return p.filterCall(of)
}

func (p *exprParser) filterCall(of expr) (expr, error) {
	name, args, _, err := p.named()
	return &filtered{of: of, name: name, args: args}, err
}

// named reads the name of a filter or test with its arguments, if it has
// parentheses.
func (p *exprParser) named() (name string, args argList, parens bool, err error) {
	if name, err = p.identifier(); err != nil {
		return "", args, false, err
	}
	for p.skip(tokens.Dot) {
		part, err := p.identifier()
		if err != nil {
			return "", args, false, err
		}
		name += "." + part
	}
	if parens = p.is(tokens.LeftParenthesis); parens {
		args, err = p.arguments()
	}
	return name, args, parens, err
}

func (p *exprParser) test(of expr) (expr, error) {
	p.args.Next()
	negated := p.skipWord("not")
	name, args, parens, err := p.named()
	if err != nil {
		return nil, err
	}
	if !parens && (p.is(tokens.String, tokens.Integer, tokens.Float, tokens.LeftBracket, tokens.LeftBrace) ||
		isWord(p.args.Current()) && !p.at("else", "or", "and", "if", "in", "not")) {
		if p.at("is") {
			return nil, p.fail("you cannot chain multiple tests with is")
		}
		arg, err := p.primary()
		if err != nil {
			return nil, err
		}
		if arg, err = p.postfix(arg, false); err != nil {
			return nil, err
		}
		args.pos = []expr{arg}
	}
	var e expr = &tested{of: of, name: name, args: args}
	if negated {
		e = &negation{e}
	}
	return e, nil
}

func (p *exprParser) primary() (expr, error) {
	t := p.args.Current()
	switch {
	case isWord(t):
		id, err := p.identifier()
		switch id {
		case "true", "True":
			return &constant{true}, nil
		case "false", "False":
			return &constant{false}, nil
		case "none", "None":
			return &constant{nil}, nil
		}
		p.b.mention(id)
		return &variable{id}, err
	case t.Type == tokens.String:
		var s strings.Builder
		for p.is(tokens.String) {
			if err := p.unquote(&s, p.args.Current().Val); err != nil {
				return nil, err
			}
			p.args.Next()
		}
		return &constant{literal(s.String())}, nil
	case t.Type == tokens.Integer || t.Type == tokens.Float:
		return p.number()
	case t.Type == tokens.LeftParenthesis:
		p.args.Next()
		e, err := p.tuple(true, p.expression, nil)
		if err != nil {
			return nil, err
		}
		return e, p.expect(tokens.RightParenthesis)
	case t.Type == tokens.LeftBracket:
		return p.list()
	case t.Type == tokens.LeftBrace:
		return p.dict()
	}
	return nil, p.fail("unexpected %s", p.describe())
}

func (p *exprParser) number() (expr, error) {
	t := p.args.Next()
	if t.Type == tokens.Integer {
		if n, ok := parseInt(t.Val, 0); ok {
			return &constant{n}, nil
		}
	} else if f, ok := parseFloat(t.Val); ok && !strings.HasSuffix(t.Val, ".") {
		return &constant{f}, nil
	}
	return nil, p.fail("invalid number %q", t.Val)
}

func (p *exprParser) list() (expr, error) {
	p.args.Next()
	l := &collection{kind: listKind}
	for !p.skip(tokens.RightBracket) {
		e, err := p.expression()
		if err != nil {
			return nil, err
		}
		l.items = append(l.items, e)
		if !p.skip(tokens.Comma) && !p.is(tokens.RightBracket) {
			return nil, p.expect(tokens.Comma)
		}
	}
	return l, nil
}

func (p *exprParser) dict() (expr, error) {
	p.args.Next()
	d := &dictionary{}
	for !p.skip(tokens.RightBrace) {
		key, err := p.expression()
		if err != nil {
			return nil, err
		}
		if err := p.expect(tokens.Colon); err != nil {
			return nil, err
		}
		val, err := p.expression()
		if err != nil {
			return nil, err
		}
		d.keys, d.vals = append(d.keys, key), append(d.vals, val)
		if !p.skip(tokens.Comma) && !p.is(tokens.RightBrace) {
			return nil, p.expect(tokens.Comma)
		}
	}
	return d, nil
}
