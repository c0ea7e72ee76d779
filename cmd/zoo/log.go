package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"unicode"
)

// logHandler writes log records as lines for people: without a time, and with the
// level in words. Each is one line, whatever is in it: others must not be able to write
// lines of the command's own. It implements slog.Handler.
type logHandler struct {
	out   io.Writer
	level slog.Level
	group string // prefix of keys, with a dot at its end
	attrs string // attributes so far, each with a space before it
}

// Enabled implements slog.Handler.
func (h *logHandler) Enabled(_ context.Context, level slog.Level) bool { return level >= h.level }

// Handle implements slog.Handler.
func (h *logHandler) Handle(_ context.Context, r slog.Record) error {
	var b strings.Builder
	word := strings.ToLower(r.Level.String())
	if r.Level == slog.LevelWarn {
		word = "warning"
	}
	fmt.Fprintf(&b, "%s: %s%s", word, r.Message, h.attrs)
	r.Attrs(func(a slog.Attr) bool {
		h.write(&b, a)
		return true
	})
	line := strings.Map(func(r rune) rune {
		if unicode.In(r, unicode.Cc, unicode.Zl, unicode.Zp) {
			return ' '
		}
		return r
	}, b.String())
	_, err := io.WriteString(h.out, line+"\n")
	return err
}

// write writes an attribute. LogValuers, such as tokens, say what may be shown.
func (h *logHandler) write(b *strings.Builder, a slog.Attr) {
	if a.Equal(slog.Attr{}) {
		return
	}
	fmt.Fprintf(b, " %s%s=%q", h.group, a.Key, a.Value.Resolve().String())
}

// WithAttrs implements slog.Handler.
func (h *logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	var b strings.Builder
	for _, a := range attrs {
		h.write(&b, a)
	}
	next := *h
	next.attrs += b.String()
	return &next
}

// WithGroup implements slog.Handler.
func (h *logHandler) WithGroup(name string) slog.Handler {
	next := *h
	if name != "" {
		next.group += name + "."
	}
	return &next
}
