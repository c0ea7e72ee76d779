package chat

// expr is a node of an expression's syntax tree, one of the types below. Trees
// are not changed after parsing.
type expr any

type (
	constant  struct{ v value }
	variable  struct{ name string }
	attribute struct {
		of   expr
		name text
	}
	subscript struct{ of, key expr }
	slicing   struct{ of, start, stop, step expr } // nil where left out
	call      struct {
		fn   expr
		args argList
	}
	filtered struct {
		of   expr // nil for the text that a filter block captured
		name string
		args argList
	}
	tested struct {
		of   expr
		name string
		args argList
	}
	negation struct{ of expr }
	unary    struct {
		op string // + or -
		of expr
	}
	binary struct {
		op   string // + - * / // % **
		l, r expr
	}
	comparison struct {
		first expr
		ops   []string // == != < <= > >= in, not in
		rest  []expr
	}
	joined  struct{ parts []expr } // with ~
	logical struct {
		or   bool
		l, r expr
	}
	ternary    struct{ cond, then, other expr } // other is nil where left out
	collection struct {
		kind  kind // listKind or tupleKind
		items []expr
	}
	dictionary struct{ keys, vals []expr }
)

// argList is the arguments of a call as written.
type argList struct {
	pos      []expr
	names    []string // of named
	named    []expr
	star     expr // nil, or what follows *
	starStar expr // nil, or what follows **
}

// stmt is a statement of a template, one of the types below. Trees are not
// changed after parsing.
type stmt interface{ line() int }

// at is the line of the source that a statement starts in, from 1.
type at int

func (a at) line() int { return int(a) }

type (
	data struct {
		at
		text text
	}
	output struct {
		at
		exprs []expr
	}
	branch struct {
		at
		conds  []expr
		bodies [][]stmt // one for each condition, and perhaps one for else
	}
	loop struct {
		at
		target    target
		over      expr
		cond      expr // nil, or the filter
		recursive bool
		body      []stmt
		other     []stmt
	}
	assign struct {
		at
		target target
		value  expr
	}
	capture struct { // {% set name %}…{% endset %}
		at
		target  target
		filters expr // nil, or filters over a nil expression
		body    []stmt
	}
	define struct {
		at
		macro *macroDef
	}
	callBlock struct {
		at
		call   *call
		caller *macroDef
	}
	filterBlock struct {
		at
		filters expr
		body    []stmt
	}
	scoped struct { // with, block, generation
		at
		targets []target
		values  []expr
		body    []stmt
	}
	jump struct {
		at
		signal signal
	}
)

// target is what set and for assign to: a name, an attribute of a namespace, or a
// tuple of targets.
type target struct {
	name  string
	attr  string // non-empty for an attribute of the namespace called name
	parts []target
	tuple bool
}

// macroDef is a macro as written.
type macroDef struct {
	name     string
	params   []string
	defaults []expr // of the last parameters
	body     []stmt
	// The special names that the body reads.
	varargs, kwargs, caller bool
}

// signal says how a list of statements ended.
type signal uint8

const (
	goOn signal = iota
	breakLoop
	continueLoop
)

// tooDeep reports whether a tree goes deeper than max levels.
func tooDeep(e expr, max int) bool {
	if max < 0 {
		return true
	}
	for _, child := range children(e) {
		if child != nil && tooDeep(child, max-1) {
			return true
		}
	}
	return false
}

func children(e expr) []expr {
	switch e := e.(type) {
	case *attribute:
		return []expr{e.of}
	case *subscript:
		return []expr{e.of, e.key}
	case *slicing:
		return []expr{e.of, e.start, e.stop, e.step}
	case *call:
		return append(e.args.exprs(), e.fn)
	case *filtered:
		return append(e.args.exprs(), e.of)
	case *tested:
		return append(e.args.exprs(), e.of)
	case *negation:
		return []expr{e.of}
	case *unary:
		return []expr{e.of}
	case *binary:
		return []expr{e.l, e.r}
	case *comparison:
		return append([]expr{e.first}, e.rest...)
	case *joined:
		return e.parts
	case *logical:
		return []expr{e.l, e.r}
	case *ternary:
		return []expr{e.cond, e.then, e.other}
	case *collection:
		return e.items
	case *dictionary:
		return append(append([]expr{}, e.keys...), e.vals...)
	}
	return nil
}

func (a *argList) exprs() []expr {
	out := append(append([]expr{}, a.pos...), a.named...)
	return append(out, a.star, a.starStar)
}
