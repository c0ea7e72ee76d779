package chat_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/zoo-sdk/zoo/chat"
	"github.com/zoo-sdk/zoo/internal/fault"
)

// small bounds make each hostile template stop within a moment.
var small = chat.Limits{Time: 20 * time.Second, OutputBytes: 1 << 20, MemoryBytes: 16 << 20, Depth: 100}

// TestHostileTemplates renders templates that would take forever or all memory.
func TestHostileTemplates(t *testing.T) {
	const counting = "{% for a in range(100000) %}{% for b in range(100000) %}{% for c in range(100000) %}"
	const counted = "{% endfor %}{% endfor %}{% endfor %}"
	for _, c := range []struct {
		name, source string
		limit        chat.Limit // "" where Jinja itself refuses
	}{
		{"nested loops", counting + counted, chat.LimitTime},
		{"nested loops with a condition", "{% for a in range(100000) if a %}{% for b in range(100000) if not b %}{% endfor %}{% endfor %}", ""},
		{"loops that print", counting + "0123456789" + counted, chat.LimitOutput},
		{"long output", "{% for a in range(100000) %}" + strings.Repeat("x", 1000) + "{% endfor %}", chat.LimitOutput},
		{"huge range", "{% for i in range(10**12) %}{% endfor %}", ""},
		{"huge range, not gone through", "{{ range(10**18)|list }}", ""},
		{"endless macro", "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", chat.LimitDepth},
		{"two macros", "{% macro m() %}{{ n() }}{% endmacro %}{% macro n() %}{{ m() }}{{ m() }}{% endmacro %}{{ m() }}", chat.LimitDepth},
		{"exponential macro", "{% macro m(n) %}{% if n %}{{ m(n-1) }}{{ m(n-1) }}{% endif %}{% endmacro %}{{ m(90) }}", chat.LimitTime},
		{"endless caller", "{% macro m() %}{{ caller() }}{% endmacro %}{% macro n() %}{% call m() %}{{ n() }}{% endcall %}{% endmacro %}{{ n() }}", chat.LimitDepth},
		{"recursive loop", "{% set l = [1] %}{% for a in [l] recursive %}{{ loop([a]) }}{% endfor %}", chat.LimitDepth},
		{"repeated text", "{{ ('x' * 10**10)|length }}", chat.LimitMemory},
		{"text repeated beyond integers", "{{ 'x' * 10**30 }}", chat.LimitMemory},
		{"repeated list", "{{ ([1] * 10**10)|length }}", chat.LimitMemory},
		{"doubled text", "{% set n = namespace(s='xx') %}{% for i in range(64) %}{% set n.s = n.s + n.s %}{% endfor %}", chat.LimitMemory},
		{"doubled text by tilde", "{% set n = namespace(s='xx') %}{% for i in range(64) %}{% set n.s = n.s ~ n.s %}{% endfor %}", chat.LimitMemory},
		{"doubled text by join", "{% set n = namespace(s='xx') %}{% for i in range(64) %}{% set n.s = [n.s, n.s]|join %}{% endfor %}", chat.LimitMemory},
		{"doubled text by replace", "{% set n = namespace(s='xx') %}{% for i in range(64) %}{% set n.s = n.s.replace('x', 'xx') %}{% endfor %}", chat.LimitMemory},
		{"doubled text by format", "{% set n = namespace(s='xx') %}{% for i in range(64) %}{% set n.s = '%s%s' % (n.s, n.s) %}{% endfor %}", chat.LimitMemory},
		{"doubled text by braces", "{% set n = namespace(s='xx') %}{% for i in range(64) %}{% set n.s = '{0}{0}'.format(n.s) %}{% endfor %}", chat.LimitMemory},
		{"doubled text by capture", "{% set n = namespace(s='xx') %}{% for i in range(64) %}{% set n.s %}{{ n.s }}{{ n.s }}{% endset %}{% endfor %}", chat.LimitMemory},
		{"doubled list", "{% set n = namespace(l=[1, 2]) %}{% for i in range(64) %}{% set n.l = n.l + n.l %}{% endfor %}", chat.LimitMemory},
		{"nested list, printed", "{% set n = namespace(l=[1]) %}{% for i in range(64) %}{% set n.l = [n.l, n.l] %}{% endfor %}{{ n.l }}", chat.LimitMemory},
		{"nested list, as JSON", "{% set n = namespace(l=[1]) %}{% for i in range(64) %}{% set n.l = [n.l, n.l] %}{% endfor %}{{ n.l|tojson }}", chat.LimitMemory},
		{"nested list, compared", "{% set n = namespace(l=[1], m=[1]) %}{% for i in range(64) %}{% set n.l = [n.l, n.l] %}{% set n.m = [n.m, n.m] %}{% endfor %}{{ n.l == n.m }}", chat.LimitTime},
		{"nested list, ordered", "{% set n = namespace(l=[1], m=[1]) %}{% for i in range(64) %}{% set n.l = [n.l, n.l] %}{% set n.m = [n.m, n.m] %}{% endfor %}{{ n.l < n.m }}", chat.LimitTime},
		{"nested tuple as a key", "{% set n = namespace(l=(1,)) %}{% for i in range(64) %}{% set n.l = (n.l, n.l) %}{% endfor %}{{ {n.l: 1} }}", ""},
		{"deep list", "{% set n = namespace(l=[]) %}{% for i in range(5000) %}{% set n.l = [n.l] %}{% endfor %}{{ n.l }}", chat.LimitDepth},
		{"deep list, compared", "{% set n = namespace(l=[], m=[]) %}{% for i in range(5000) %}{% set n.l = [n.l] %}{% set n.m = [n.m] %}{% endfor %}{{ n.l == n.m }}", chat.LimitDepth},
		{"namespace in itself", "{% set n = namespace() %}{% set n.n = n %}{{ n }}", chat.LimitDepth},
		{"center", "{{ 'x'|center(10**10) }}", chat.LimitMemory},
		{"ljust", "{{ 'x'.ljust(10**10) }}", chat.LimitMemory},
		{"zfill", "{{ 'x'.zfill(10**10) }}", chat.LimitMemory},
		{"expandtabs", "{{ ('\t' * 1000).expandtabs(10**10) }}", chat.LimitMemory},
		{"indent", "{{ ('x\n' * 1000)|indent(10**6) }}", chat.LimitMemory},
		{"indent of JSON", "{{ [[[1]]]|tojson(indent=10**10) }}", chat.LimitMemory},
		{"batch", "{{ [1]|batch(10**10, 'x')|list }}", chat.LimitMemory},
		{"slice", "{{ [1]|slice(10**10)|list }}", chat.LimitMemory},
		{"width of a percent format", "{{ '%1000000000d' % 1 }}", chat.LimitMemory},
		{"starred width", "{{ '%*d' % (10**10, 1) }}", chat.LimitMemory},
		{"width of a brace format", "{{ '{:1000000000}'.format(1) }}", chat.LimitMemory},
		{"precision", "{{ '%.1000000000f' % 1.5 }}", ""},
		{"power", "{{ 10**(10**10) }}", ""},
		{"power tower", "{{ 9**9**9**9**9 }}", ""},
		{"integers that grow", "{% set n = namespace(i=3) %}{% for k in range(100) %}{% set n.i = n.i * n.i %}{% endfor %}", ""},
		{"sorting", "{% for i in range(100000) %}{{ (range(10000)|list)|sort(reverse=true)|length }}{% endfor %}", chat.LimitMemory},
		{"splitting", "{{ ('a,' * 5000000).split(',')|length }}", chat.LimitMemory},
		{"characters of a text", "{% for c in 'a' * 5000000 %}{% endfor %}", chat.LimitMemory},
		{"scopes kept by macros", "{% set n = namespace(l=[]) %}{% for i in range(100000) %}{% macro m() %}{% endmacro %}{% set n.l = [n.l, m] %}{% endfor %}", chat.LimitMemory},
		{"texts of many origins", "{% set n = namespace(s=x) %}{% for i in range(64) %}{% set n.s = n.s ~ 'a' ~ n.s %}{% endfor %}", chat.LimitMemory},
		{"pieces of a text of many origins", "{% set s = (x ~ 'a,') * 50000 %}{% for i in range(100000) %}{% set p = s.split(',') %}{% endfor %}", chat.LimitMemory},
		{"arguments", "{% macro m() %}{{ varargs|length }}{% endmacro %}{% for i in range(100000) %}{{ m(*range(100000)) }}{% endfor %}", chat.LimitMemory},
		{"replace of nothing", "{{ ('a' * 1000000).replace('', 'x' * 1000) }}", chat.LimitMemory},
		{"urlencode", "{{ ('é' * 4000000)|urlencode }}", chat.LimitMemory},
		{"escape", "{{ ('<' * 10000000)|e }}", chat.LimitMemory},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			limits := small
			if c.limit == chat.LimitTime {
				limits.Time, limits.MemoryBytes = 200*time.Millisecond, 1<<30
			}
			tmpl, err := chat.Parse(c.source, chat.Config{Limits: limits})
			if err != nil {
				t.Fatal(err)
			}
			quick(t, c.name, 10*time.Second, func() {
				_, err = tmpl.Render(t.Context(), nil, chat.Options{Variables: map[string]any{"x": "x"}})
			})
			if c.limit == "" {
				if te := new(chat.TemplateError); !errors.As(err, &te) && !errors.Is(err, chat.ErrLimit) {
					t.Errorf("error %v, want a template error", err)
				}
				return
			}
			le := new(chat.LimitError)
			if !errors.As(err, &le) || le.Limit != c.limit {
				t.Fatalf("error %v, want limit %q", err, c.limit)
			}
			if !errors.Is(err, chat.ErrLimit) || !errors.Is(err, fault.ErrIntegrity) || errors.Is(err, fault.ErrUsage) || fault.Hint(err) == "" {
				t.Errorf("error %v does not match the right sentinels", err)
			}
		})
	}
}

// quick checks that something takes no longer than a limit: what is not bounded takes minutes. A
// machine that stands still for a while makes it slow once, and not each time.
func quick(t *testing.T, name string, limit time.Duration, f func()) {
	t.Helper()
	var took time.Duration
	for range 3 {
		start := time.Now()
		f()
		if took = time.Since(start); took <= limit {
			return
		}
	}
	t.Errorf("%s: took %v, and more than %v each time", name, took, limit)
}

// TestMemoryLimit holds what rendering takes against what it says it takes.
func TestMemoryLimit(t *testing.T) {
	for _, source := range []string{
		"{% set n = namespace(l=[]) %}{% for i in range(100000) %}{% set n.l = [n.l, 'ab'[0:1], i] %}{% endfor %}{{ 'x' * 10**9 }}",
		"{% set n = namespace(l=[]) %}{% for i in range(100000) %}{% set n.l = (n.l, {'a': i, 'b': 1.5}) %}{% endfor %}{{ 'x' * 10**9 }}",
		"{% set n = namespace(l=[]) %}{% for i in range(100000) %}{% set n.l = [n.l, 'a'.split] %}{% endfor %}{{ 'x' * 10**9 }}",
		"{% set n = namespace(l=[]) %}{% for i in range(100000) %}{% set n.l = [n.l, (x ~ 'b' ~ x)|upper, namespace(a=1)] %}{% endfor %}{{ 'x' * 10**9 }}",
	} {
		tmpl, err := chat.Parse(source, chat.Config{Limits: chat.Limits{MemoryBytes: 16 << 20}})
		if err != nil {
			t.Fatal(err)
		}
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		_, err = tmpl.Render(t.Context(), nil, chat.Options{Variables: map[string]any{"x": "é"}})
		runtime.ReadMemStats(&after)
		if le := new(chat.LimitError); !errors.As(err, &le) || le.Limit != chat.LimitMemory {
			t.Errorf("%s: error %v, want the memory limit", source, err)
		}
		if took := after.TotalAlloc - before.TotalAlloc; took > 4*16<<20 {
			t.Errorf("%s: allocated %d bytes in all, with a limit of %d", source, took, 16<<20)
		}
	}
}

func TestContext(t *testing.T) {
	tmpl, err := chat.Parse("{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}", chat.Config{})
	if err != nil {
		t.Fatal(err)
	}
	before := runtime.NumGoroutine()
	cause := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(50*time.Millisecond, func() { cancel(cause) })
	if _, err := tmpl.Render(ctx, nil, chat.Options{}); !errors.Is(err, cause) {
		t.Errorf("error %v, want the context's cause", err)
	}
	// The goroutine that has ended the context may be about to end itself.
	for i := 0; runtime.NumGoroutine() > before; i++ {
		if i == 2000 {
			t.Fatalf("%d goroutines, %d before", runtime.NumGoroutine(), before)
		}
		time.Sleep(5 * time.Millisecond)
	}
	if _, err := tmpl.Render(ctx, nil, chat.Options{}); !errors.Is(err, cause) {
		t.Errorf("error %v of a context that has ended, want its cause", err)
	}
}

func TestInputLimits(t *testing.T) {
	tmpl, err := chat.Parse("{{ messages }}", chat.Config{Limits: small})
	if err != nil {
		t.Fatal(err)
	}
	var deep any = "x"
	for range 300 {
		deep = []any{deep}
	}
	var deepMap any = "x"
	for range 300 {
		deepMap = map[string]any{"k": deepMap}
	}
	for name, content := range map[string]any{"large": strings.Repeat("x", 32<<20), "deep list": deep, "deep map": deepMap} {
		_, err := tmpl.Render(t.Context(), []chat.Message{{Role: "user", Content: content}}, chat.Options{})
		if !errors.Is(err, chat.ErrLimit) || !errors.Is(err, fault.ErrUsage) || errors.Is(err, fault.ErrIntegrity) {
			t.Errorf("%s: error %v, want a limit that the input is to blame for", name, err)
		}
	}
	for name, content := range map[string]any{"channel": make(chan int), "function": func() {}} {
		_, err := tmpl.Render(t.Context(), []chat.Message{{Role: "user", Content: content}}, chat.Options{})
		if !errors.Is(err, fault.ErrUsage) {
			t.Errorf("%s: error %v, want a usage error", name, err)
		}
	}
}

// TestSourceLimits parses sources that try to exhaust the parser.
func TestSourceLimits(t *testing.T) {
	const n = 40_000
	for name, source := range map[string]string{
		"parentheses":   "{{ " + strings.Repeat("(", n) + strings.Repeat(")", n) + " }}",
		"open brackets": "{{ " + strings.Repeat("[", n),
		"lists":         "{{ " + strings.Repeat("[", n) + "1" + strings.Repeat("]", n) + " }}",
		"dicts":         "{{ " + strings.Repeat("{1:", n) + "1" + strings.Repeat("}", n) + " }}",
		"subscripts":    "{{ " + strings.Repeat("a[", n) + "1" + strings.Repeat("]", n) + " }}",
		"calls":         "{{ " + strings.Repeat("a(", n) + strings.Repeat(")", n) + " }}",
		"not":           "{{ " + strings.Repeat("not ", n) + "1 }}",
		"minus":         "{{ " + strings.Repeat("-", n) + "1 }}",
		"sums":          "{{ 1" + strings.Repeat("+1", n) + " }}",
		"attributes":    "{{ a" + strings.Repeat(".b", n) + " }}",
		"filters":       "{{ a" + strings.Repeat("|e", n) + " }}",
		"tests":         "{{ a" + strings.Repeat(" is odd", n) + " }}",
		"or":            "{{ a" + strings.Repeat(" or a", n) + " }}",
		"conditions":    "{{ a" + strings.Repeat(" if a else a", n) + " }}",
		"blocks":        strings.Repeat("{% if a %}", n) + strings.Repeat("{% endif %}", n),
		"open blocks":   strings.Repeat("{% for a in b %}", n/4),
		"targets":       "{% for " + strings.Repeat("(", n) + "a" + strings.Repeat(")", n) + " in b %}{% endfor %}",
		"set filters":   "{% set a" + strings.Repeat("|e", n) + " %}{% endset %}",
	} {
		quick(t, name, 5*time.Second, func() {
			if _, err := chat.Parse(source, chat.Config{}); !errors.Is(err, fault.ErrIntegrity) {
				t.Errorf("%s: error %v, want a syntax error", name, err)
			}
		})
	}
	for name, source := range map[string]string{
		"tags": strings.Repeat("{{ a }}", n/2), "text": strings.Repeat("{ ", 2*n), "comments": strings.Repeat("{#-#}", n),
		"commas": "{{ [" + strings.Repeat("1,", n) + "] }}", "names": "{% set x = [" + strings.Repeat("a,", n) + "] %}",
		"string": "{{ '" + strings.Repeat(`\\\'`, n) + "' }}", "arms": "{% if a %}" + strings.Repeat("{% elif a %}", n/4) + "{% endif %}",
		"raw": "{% raw %}" + strings.Repeat("{% endra %}", n/4) + "{% endraw %}", "concatenation": "{{ a" + strings.Repeat("~a", n) + " }}",
	} {
		quick(t, name, 5*time.Second, func() {
			if _, err := chat.Parse(source, chat.Config{Limits: chat.Limits{SourceBytes: 4 << 20}}); err != nil {
				t.Errorf("%s: %.200v", name, err)
			}
		})
	}
	_, err := chat.Parse(strings.Repeat("x", 1<<20+1), chat.Config{})
	if le := new(chat.LimitError); !errors.As(err, &le) || le.Limit != chat.LimitSource || !errors.Is(err, chat.ErrLimit) {
		t.Errorf("error %v, want the source limit", err)
	}
}

// TestDeepestStack recurses at the deepest place that the limits leave: it must
// not use up the stack, which would end the process.
func TestDeepestStack(t *testing.T) {
	deep := "m()"
	for range 70 {
		deep = "(" + deep + ")|upper"
	}
	deep += strings.Repeat("+'a'", 300)
	source := "{% macro m() %}" + strings.Repeat("{% if true %}", 95) + "{{ " + deep + " }}" + strings.Repeat("{% endif %}", 95) + "{% endmacro %}{{ m() }}"
	tmpl, err := chat.Parse(source, chat.Config{Limits: chat.Limits{Depth: 1 << 30, Time: time.Minute}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = tmpl.Render(t.Context(), nil, chat.Options{})
	if le := new(chat.LimitError); !errors.As(err, &le) || le.Limit != chat.LimitDepth {
		t.Errorf("error %v, want the depth limit", err)
	}
}
