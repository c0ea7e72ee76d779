package rpc

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"strings"
	"sync"
)

const (
	// maxLineBytes is where longer lines of a plugin are broken.
	maxLineBytes = 4 << 10
	// keptLines is how many of the last lines of a plugin are kept for errors.
	keptLines = 64
	// keptLineBytes is how much of each is kept.
	keptLineBytes = 400
)

// logbook passes what a plugin writes on to a logger and keeps its last lines. Its
// methods may be called by many goroutines.
type logbook struct {
	logger *slog.Logger

	mu    sync.Mutex
	panic string // the first line that tells of a panic
	last  []string
}

// add takes one line. Lines as Serve's logger writes them keep their level and their
// attributes, others are of the given level.
func (b *logbook) add(line []byte, level slog.Level) {
	line = bytes.TrimRight(line, "\r\n")
	if len(line) == 0 {
		return
	}
	text, attrs := string(line), []slog.Attr(nil)
	if level, text, attrs, ok := parseRecord(line); ok {
		b.logger.LogAttrs(context.Background(), level, text, attrs...)
		b.keep(text)
		return
	}
	b.logger.LogAttrs(context.Background(), level, clean(text, maxLineBytes), attrs...)
	b.keep(text)
}

// keep remembers a line for errors.
func (b *logbook) keep(text string) {
	text = clean(text, keptLineBytes)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.panic == "" && isPanic(text) {
		b.panic = text
	}
	if len(b.last) == keptLines {
		b.last = b.last[1:]
	}
	b.last = append(b.last, text)
}

// lines returns the first line of a panic, if there was one, and the last lines.
func (b *logbook) lines() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var all []string
	if b.panic != "" {
		all = append(all, b.panic)
	}
	return append(all, b.last...)
}

// isPanic reports whether a line is the first that the Go runtime writes before it gives up.
func isPanic(line string) bool {
	return strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ")
}

// parseRecord reads a line that slog's JSON handler has written.
func parseRecord(line []byte) (level slog.Level, text string, attrs []slog.Attr, ok bool) {
	if line[0] != '{' {
		return 0, "", nil, false
	}
	var fields map[string]any
	if json.Unmarshal(line, &fields) != nil {
		return 0, "", nil, false
	}
	name, isName := fields[slog.LevelKey].(string)
	text, isText := fields[slog.MessageKey].(string)
	if !isName || !isText || level.UnmarshalText([]byte(name)) != nil {
		return 0, "", nil, false
	}
	for key, v := range fields {
		if key == slog.LevelKey || key == slog.MessageKey || key == slog.TimeKey {
			continue
		}
		if s, ok := v.(string); ok {
			v = clean(s, maxLineBytes)
		}
		attrs = append(attrs, slog.Any(clean(key, maxHintBytes), v))
	}
	return level, clean(text, maxLineBytes), attrs, true
}

// readLines calls line with every line of r, until r ends. Longer lines than
// maxLineBytes come in pieces.
func readLines(r io.Reader, line func([]byte)) {
	b := bufio.NewReaderSize(r, maxLineBytes)
	for {
		text, err := b.ReadSlice('\n')
		if len(text) > 0 {
			line(text)
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return
		}
	}
}

// lineWriter is a writer that makes calls of line out of what is written, which need
// not come in lines. It is used by one goroutine at a time.
type lineWriter struct {
	line func([]byte)
	rest []byte
}

// Write implements io.Writer.
func (w *lineWriter) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		i := bytes.IndexByte(p, '\n')
		if i < 0 {
			i = len(p) - 1
		}
		w.rest = append(w.rest, p[:i+1]...)
		p = p[i+1:]
		if w.rest[len(w.rest)-1] == '\n' || len(w.rest) >= maxLineBytes {
			w.line(w.rest)
			w.rest = w.rest[:0]
		}
	}
	return n, nil
}
