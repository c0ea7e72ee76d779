package main

import (
	"bytes"
	"errors"
	"log/slog"
	"testing"

	"github.com/zoo-sdk/zoo/download"
)

func TestLog(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log := slog.New(&logHandler{out: &out, level: slog.LevelInfo})
	log.Debug("not shown")
	log.Info("plain")
	log.Warn("skipping", "file", "a b", "err", errors.New("it is \"odd\""))
	log.With("model", "demo").WithGroup("hub").With("n", 1).Error("refused", "token", download.Token("hf_secret"))
	log.Info("two\nerror: lines\r\x1b[2J\u2028", "of\nkeys", "and\nvalues")
	want := `info: plain
warning: skipping file="a b" err="it is \"odd\""
error: refused model="demo" hub.n="1" hub.token="[redacted]"
info: two error: lines  [2J  of keys="and\nvalues"
`
	if got := out.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
