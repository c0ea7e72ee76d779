package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
)

// logHandler writes log records as lines for people: without a time, and with the
// level in words. It implements slog.Handler.
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
	b.WriteByte('\n')
	_, err := io.WriteString(h.out, b.String())
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
