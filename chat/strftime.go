package chat

import (
	"fmt"
	"strings"
	"time"
)

// strftimeNow is transformers' strftime_now: the local time by a C format.
func strftimeNow(r *renderer, a args) (value, error) {
	bound, err := (&signature{params: []string{"format"}, required: 1}).bind("strftime_now", a)
	if err != nil {
		return nil, err
	}
	format, ok := bound[0].(text)
	if !ok {
		return nil, failf("strftime() argument 1 must be str, not %s", typeName(bound[0]))
	}
	if err := r.growItems(len(format.s), 16); err != nil {
		return nil, err
	}
	var b textBuilder
	now := r.now()
	for s, by := range format.runs() {
		for {
			before, rest, found := strings.Cut(s, "%")
			b.add(before, by)
			if !found {
				break
			}
			flag := ""
			if rest != "" && (rest[0] == '-' || rest[0] == '_') {
				flag, rest = rest[:1], rest[1:]
			}
			if rest == "" {
				b.add("%"+flag, by)
				break
			}
			if out, ok := strftime(now, rest[0], flag); ok {
				b.add(out, byEngine)
			} else {
				b.add("%"+flag+rest[:1], by)
			}
			s = rest[1:]
		}
	}
	return b.text(), nil
}

// strftime formats one directive; a flag of - drops leading zeros, _ makes them blanks.
func strftime(t time.Time, directive byte, flag string) (string, bool) {
	number := func(n, width int) (string, bool) {
		switch flag {
		case "-":
			return fmt.Sprint(n), true
		case "_":
			return fmt.Sprintf("%*d", width, n), true
		}
		return fmt.Sprintf("%0*d", width, n), true
	}
	hour12 := (t.Hour()+11)%12 + 1
	yearISO, weekISO := t.ISOWeek()
	weekday := int(t.Weekday())
	switch directive {
	case 'Y':
		return number(t.Year(), 4)
	case 'C':
		return number(t.Year()/100, 2)
	case 'y':
		return number(t.Year()%100, 2)
	case 'G':
		return number(yearISO, 4)
	case 'm':
		return number(int(t.Month()), 2)
	case 'd':
		return number(t.Day(), 2)
	case 'e':
		return fmt.Sprintf("%2d", t.Day()), true
	case 'H':
		return number(t.Hour(), 2)
	case 'I':
		return number(hour12, 2)
	case 'k':
		return fmt.Sprintf("%2d", t.Hour()), true
	case 'l':
		return fmt.Sprintf("%2d", hour12), true
	case 'M':
		return number(t.Minute(), 2)
	case 'S':
		return number(t.Second(), 2)
	case 'f':
		return fmt.Sprintf("%06d", t.Nanosecond()/1000), true
	case 'j':
		return number(t.YearDay(), 3)
	case 'U':
		return number((t.YearDay()+6-weekday)/7, 2)
	case 'W':
		return number((t.YearDay()+6-(weekday+6)%7)/7, 2)
	case 'V':
		return number(weekISO, 2)
	case 'u':
		return fmt.Sprint((weekday+6)%7 + 1), true
	case 'w':
		return fmt.Sprint(weekday), true
	case 's':
		return fmt.Sprint(t.Unix()), true
	case 'n':
		return "\n", true
	case 't':
		return "\t", true
	case '%':
		return "%", true
	}
	layout := map[byte]string{
		'A': "Monday", 'a': "Mon", 'B': "January", 'b': "Jan", 'h': "Jan", 'p': "PM", 'P': "pm",
		'D': "01/02/06", 'x': "01/02/06", 'F': "2006-01-02", 'T': "15:04:05", 'X': "15:04:05", 'R': "15:04",
		'r': "03:04:05 PM", 'c': "Mon Jan _2 15:04:05 2006",
		'Z': "", 'z': "", // of a time without a zone, as transformers' is
	}
	l, ok := layout[directive]
	return t.Format(l), ok
}
