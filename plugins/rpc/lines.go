package rpc

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"
)

const (
	// maxLineBytes is where longer lines of a plugin are broken. The stack of a goroutine
	// fits into one.
	maxLineBytes = 64 << 10
	// shownBytes is how much of a text is logged at once.
	shownBytes = 4 << 10
	// keptLines is how many of the last lines of a plugin are kept for errors.
	keptLines = 64
	// keptLineBytes is how much of each is kept.
	keptLineBytes = 400
	// lineBurst and linesSecond are how many lines of a plugin are logged: at once, and then a second.
	lineBurst   = 1 << 12
	linesSecond = 100
)

// logbook passes what a plugin writes on to a logger and keeps its last lines. Its
// methods may be called by many goroutines.
type logbook struct {
	logger *slog.Logger

	mu    sync.Mutex
	left  float64 // how many lines may be logged
	since time.Time
	lost  int // how many were not, since the last that was
	last  []string
	dump  []string // lines from the latest on by which the Go runtime gives up; nil if there is none
}

// record is a line that slog's JSON handler has written.
type record struct {
	level slog.Level
	text  string
	attrs []slog.Attr
}

// add takes one line. Lines as Serve's logger writes them keep their level and their
// attributes, others are of the given level.
func (b *logbook) add(line []byte, level slog.Level) {
	line = bytes.TrimRight(line, "\r\n")
	if len(line) == 0 {
		return
	}
	if r, ok := parseRecord(line); ok {
		b.keep(r.text)
		b.pass(r)
		return
	}
	if bytes.HasPrefix(line, []byte("panic: ")) || bytes.HasPrefix(line, []byte("fatal error: ")) {
		b.panics()
	}
	b.keep(string(line))
	for piece := range slices.Chunk(line, shownBytes) {
		b.pass(record{level: level, text: cleanLine(string(piece), shownBytes)})
	}
}

// pass logs a record, as a warning at most: of what goes wrong the errors of calls tell.
// Records that come too fast are counted and left out.
func (b *logbook) pass(r record) {
	r.level = min(r.level, slog.LevelWarn)
	if !b.logger.Enabled(context.Background(), r.level) {
		return
	}
	b.mu.Lock()
	now := time.Now()
	b.left = min(lineBurst, b.left+linesSecond*now.Sub(b.since).Seconds())
	b.since = now
	if b.left < 1 {
		b.lost++
		b.mu.Unlock()
		return
	}
	b.left--
	b.mu.Unlock()
	b.tellLost()
	b.logger.LogAttrs(context.Background(), r.level, r.text, r.attrs...)
}

// tellLost tells the logger of lines that were left out.
func (b *logbook) tellLost() {
	b.mu.Lock()
	lost := b.lost
	b.lost = 0
	b.mu.Unlock()
	if lost > 0 {
		b.logger.Warn("left out lines of a plugin that writes too many", "lines", lost)
	}
}

// panics notes that the next line is the first that the Go runtime writes before it gives up.
func (b *logbook) panics() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.dump = []string{}
}

// keep remembers a line for errors.
func (b *logbook) keep(text string) {
	text = cleanLine(text, keptLineBytes)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.dump != nil && len(b.dump) < keptLines {
		b.dump = append(b.dump, text)
	}
	if len(b.last) == keptLines {
		b.last = b.last[1:]
	}
	b.last = append(b.last, text)
}

// lastLines returns the last lines.
func (b *logbook) lastLines() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.last)
}

// lastPanic returns the first line of the latest panic and what was written after it; nil if
// there was none. A panic may be of a goroutine whose dump goes on for thousands of lines.
func (b *logbook) lastPanic() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.dump)
}

// parseRecord reads a line that slog's JSON handler has written. Texts lose what may not be
// shown; what is no text is left as JSON.
func parseRecord(line []byte) (r record, ok bool) {
	if line[0] != '{' {
		return r, false
	}
	var fields map[string]json.RawMessage
	if json.Unmarshal(line, &fields) != nil || r.level.UnmarshalText([]byte(unquote(fields[slog.LevelKey]))) != nil || fields[slog.MessageKey] == nil {
		return r, false
	}
	r.text = cleanLine(unquote(fields[slog.MessageKey]), shownBytes)
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		if key != slog.LevelKey && key != slog.MessageKey && key != slog.TimeKey {
			r.attrs = append(r.attrs, slog.String(cleanLine(key, maxHintBytes), clean(unquote(fields[key]), shownBytes)))
		}
	}
	return r, true
}

// unquote returns the text that a JSON value is, or else the value.
func unquote(v json.RawMessage) string {
	var text *string
	if json.Unmarshal(v, &text) != nil || text == nil {
		return string(v)
	}
	return *text
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
// not come in lines. It is used by one goroutine at a time, and at last ended.
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
		i = min(i, maxLineBytes-len(w.rest)-1)
		w.rest = append(w.rest, p[:i+1]...)
		p = p[i+1:]
		if w.rest[len(w.rest)-1] == '\n' || len(w.rest) >= maxLineBytes {
			w.line(w.rest)
			w.rest = w.rest[:0]
		}
	}
	return n, nil
}

// end calls line with what was written after the last whole line.
func (w *lineWriter) end() {
	if len(w.rest) > 0 {
		w.line(w.rest)
		w.rest = nil
	}
}
