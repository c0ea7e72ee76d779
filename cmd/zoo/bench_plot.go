package main

import (
	"bytes"
	"fmt"
	"html"
	"math"
	"slices"
	"strings"

	"github.com/zoo-sdk/zoo/sdk"
)

// Places in a plot, in its own units.
const (
	plotWidth           = 800.0
	plotLeft, plotRight = 80.0, 770.0
	plotLegend          = 80.0 // the first line of the legend
	plotSpacing         = 20.0 // the distance of the next
	plotInside          = 330.0
	plotBelow           = 65.0 // for numbers and the name of the axis
)

// plotColours tell lines apart, also for those who see few colours.
var plotColours = [...]string{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"}

// plot is a picture of lines over a logarithmic axis.
type plot struct {
	title, subtitle string
	across, up      string // what the axes are
	lines           []plotLine
}

// plotLine is one line, its points from left to right.
type plotLine struct {
	name   string
	points []plotPoint
}

// plotPoint is a point with the range that it was measured in.
type plotPoint struct {
	x            float64
	y, low, high float64
}

// speedPlot draws the speed of decoding against the length of the context.
func speedPlot(reports []*sdk.BenchReport) *plot {
	p := &plot{title: "Decode speed by context length", across: "context (tokens)", up: "decode (tokens/s)"}
	models := map[string]bool{}
	for _, r := range reports {
		if len(r.Curve) == 0 {
			continue
		}
		models[benchModel(r)] = true
		line := plotLine{name: benchTitle(r)}
		for _, c := range r.Curve {
			line.points = append(line.points, plotPoint{float64(c.Depth), c.Decode.Median, c.Decode.Min, c.Decode.Max})
		}
		p.lines = append(p.lines, line)
		p.subtitle = fmt.Sprintf("%s; %s: %s; zoo %s", machineLine(r), r.Backend, r.Kernels, r.Zoo)
	}
	if len(models) == 1 {
		for name := range models {
			p.title = name + ": d" + strings.TrimPrefix(p.title, "D")
			for i := range p.lines {
				p.lines[i].name = strings.TrimPrefix(p.lines[i].name, name+", ")
			}
		}
	}
	return p
}

// svg returns the picture, which needs no other file.
func (p *plot) svg() []byte {
	var b bytes.Buffer
	text := func(x, y float64, attributes, s string) {
		fmt.Fprintf(&b, `<text x="%.1f" y="%.1f" %s>%s</text>`+"\n", x, y, attributes, html.EscapeString(s))
	}
	upper := plotLegend + float64(len(p.lines))*plotSpacing
	lower := upper + plotInside
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" font-family="sans-serif" font-size="13" fill="#222">`+"\n", plotWidth, lower+plotBelow)
	fmt.Fprintf(&b, `<title>%s</title>`+"\n", html.EscapeString(p.title))
	fmt.Fprintf(&b, `<rect width="%.0f" height="%.0f" fill="#fff"/>`+"\n", plotWidth, lower+plotBelow)
	text(plotLeft, 32, `font-size="18"`, p.title)
	text(plotLeft, 54, `font-size="12" fill="#555"`, p.subtitle)

	xs, top := p.ranges()
	step := niceStep(top / 5)
	top = math.Ceil(top/step) * step
	at := func(x, y float64) (float64, float64) {
		across := 0.5
		if first, last := xs[0], xs[len(xs)-1]; last > first {
			across = math.Log(x/first) / math.Log(last/first)
		}
		return plotLeft + across*(plotRight-plotLeft), lower - y/top*plotInside
	}
	for i := 0; float64(i)*step <= top*(1+1e-9); i++ {
		v := float64(i) * step
		_, y := at(xs[0], v)
		fmt.Fprintf(&b, `<path d="M%.1f %.1fH%.1f" stroke="#ddd"/>`+"\n", plotLeft, y, plotRight)
		text(plotLeft-8, y+4, `text-anchor="end"`, fmt.Sprintf("%g", math.Round(v*1e6)/1e6))
	}
	taken := math.Inf(-1)
	for _, x := range xs {
		px, _ := at(x, 0)
		fmt.Fprintf(&b, `<path d="M%.1f %.1fv5" stroke="#222"/>`+"\n", px, lower)
		if px-taken >= 40 { // room for its number
			text(px, lower+20, `text-anchor="middle"`, fmt.Sprintf("%.0f", x))
			taken = px
		}
	}
	fmt.Fprintf(&b, `<path d="M%.1f %.1fV%.1fH%.1f" fill="none" stroke="#222"/>`+"\n", plotLeft, upper, lower, plotRight)
	text((plotLeft+plotRight)/2, lower+46, `text-anchor="middle"`, p.across)
	middle := (upper + lower) / 2
	text(24, middle, fmt.Sprintf(`text-anchor="middle" transform="rotate(-90 24 %.1f)"`, middle), p.up)
	for i, l := range p.lines {
		l.draw(&b, plotColours[i%len(plotColours)], at)
	}
	for i, l := range p.lines {
		y := plotLegend + float64(i)*plotSpacing
		fmt.Fprintf(&b, `<path d="M%.1f %.1fh24" stroke="%s" stroke-width="2"/>`+"\n", plotLeft, y-4, plotColours[i%len(plotColours)])
		text(plotLeft+32, y, "", l.name)
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}

// ranges returns the numbers of the horizontal axis in order and the largest of the vertical one.
func (p *plot) ranges() (xs []float64, top float64) {
	for _, l := range p.lines {
		for _, pt := range l.points {
			xs = append(xs, pt.x)
			top = max(top, pt.high)
		}
	}
	slices.Sort(xs)
	xs = slices.Compact(xs)
	if len(xs) == 0 {
		xs = []float64{1}
	}
	if top <= 0 {
		top = 1
	}
	return xs, top
}

// draw draws a line with its points and their ranges.
func (l *plotLine) draw(b *bytes.Buffer, colour string, at func(x, y float64) (float64, float64)) {
	var path strings.Builder
	for i, pt := range l.points {
		x, y := at(pt.x, pt.y)
		letter := "L"
		if i == 0 {
			letter = "M"
		}
		fmt.Fprintf(&path, "%s%.1f %.1f", letter, x, y)
	}
	fmt.Fprintf(b, `<path d="%s" fill="none" stroke="%s" stroke-width="2"/>`+"\n", path.String(), colour)
	for _, pt := range l.points {
		x, y := at(pt.x, pt.y)
		_, low := at(pt.x, pt.low)
		_, high := at(pt.x, pt.high)
		fmt.Fprintf(b, `<path d="M%.1f %.1fV%.1f" stroke="%s"/>`+"\n", x, low, high, colour)
		label := fmt.Sprintf("%s: %s at %.0f", l.name, figure(pt.y), pt.x)
		fmt.Fprintf(b, `<circle cx="%.1f" cy="%.1f" r="3.5" fill="%s"><title>%s</title></circle>`+"\n", x, y, colour, html.EscapeString(label))
	}
}

// niceStep returns the next number from x on that is 1, 2, 2.5 or 5 times a power of ten.
func niceStep(x float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(x)))
	for _, n := range []float64{1, 2, 2.5, 5} {
		if n*power >= x {
			return n * power
		}
	}
	return 10 * power
}
