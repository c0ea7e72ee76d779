package zoo_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	"github.com/zoo-sdk/zoo/zoo"
)

// readOnlyTask runs as a user who may write neither the store nor the pack.
func readOnlyTask(s *zoo.Store) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	var log strings.Builder
	reader, err := zoo.OpenStore(s.Home(), slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		return err
	}
	r, err := reader.Record("tiny", "1.0.0")
	if err != nil {
		return err
	}
	for range 2 {
		read := false
		p, err := reader.Open(ctx, r, func(int64, int64) { read = true })
		if err != nil {
			return fmt.Errorf("open: %w", err)
		}
		if !read {
			return errors.New("a pack without a stamp was trusted")
		}
		if _, state, err := reader.ReadReceipt(p, testPlugin); err != nil || state != zoo.ReceiptForeign {
			return fmt.Errorf("receipt: %v, %w", state, err)
		}
		if err := reader.WriteReceipt(ctx, p, testReceipt()); !errors.Is(err, zoo.ErrNotPermitted) {
			return fmt.Errorf("write a receipt: %w", err)
		}
		if err := p.Close(); err != nil {
			return err
		}
	}
	if n := strings.Count(log.String(), "verified again each time"); n != 2 {
		return fmt.Errorf("warned %d times: %s", n, log.String())
	}
	_, lockErr := reader.Lock(ctx, "tiny", "1.0.0", nil)
	for what, err := range map[string]error{"lock": lockErr, "remove": reader.Remove(ctx, "tiny", "1.0.0")} {
		if !errors.Is(err, zoo.ErrNotPermitted) || !strings.Contains(zoo.Hint(err), "ZOO_HOME") {
			return fmt.Errorf("%s: %w, hint %q", what, err, zoo.Hint(err))
		}
	}
	// A store of one's own takes the receipt of a pack that cannot be written.
	own, err := zoo.OpenStore(filepath.Join(filepath.Dir(s.Home()), "own"), nil)
	if err != nil {
		return err
	}
	p, err := own.OpenDir(ctx, filepath.Join(s.Home(), "packs", r.Pack.Hex()), nil)
	if err != nil {
		return err
	}
	if err := own.WriteReceipt(ctx, p, testReceipt()); err != nil {
		return err
	}
	// The foreign receipt beside the pack does not hide it.
	if _, state, err := own.ReadReceipt(p, testPlugin); err != nil || state != zoo.ReceiptPassed {
		return fmt.Errorf("own receipt: %v, %w", state, err)
	}
	return p.Close()
}
