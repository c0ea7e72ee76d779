package main

import (
	"fmt"
	"time"

	"github.com/dustin/go-humanize"
)

// Styles are escape codes of terminals.
const (
	styleError = "1;31"
	styleHint  = "1;33"
	styleGood  = "32"
	styleDim   = "2"
	styleBold  = "1"
)

// style colours text for standard error, if that takes colours.
func (a *app) style(code, text string) string {
	if !a.colour {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// size writes a number of bytes for people.
func size(n int64) string { return humanize.Bytes(uint64(max(n, 0))) }

// duration writes a time span for people.
func duration(d time.Duration) string {
	switch {
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%d min %02d s", int(d.Minutes()), int(d.Seconds())%60)
	}
	return fmt.Sprintf("%d h %02d min", int(d.Hours()), int(d.Minutes())%60)
}
