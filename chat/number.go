package chat

import (
	"math"
	"math/big"
	"strconv"
	"strings"
)

// maxIntBits bounds integers that do not fit in 64 bits.
const maxIntBits = 4096

// integer returns v as an int64 or *big.Int if it is an int or a bool.
func integer(v value) (value, bool) {
	switch v := v.(type) {
	case bool:
		if v {
			return int64(1), true
		}
		return int64(0), true
	case int64, *big.Int:
		return v, true
	}
	return nil, false
}

func bigOf(v value) *big.Int {
	if n, ok := v.(int64); ok {
		return big.NewInt(n)
	}
	return v.(*big.Int)
}

// fromBig is the value of n, which it takes over.
func fromBig(n *big.Int) (value, error) {
	switch {
	case n.IsInt64():
		return n.Int64(), nil
	case n.BitLen() > maxIntBits:
		return nil, failf("integer of %d bits is too large", n.BitLen())
	}
	return n, nil
}

// floatOf returns a number of any type as a float64.
func floatOf(v value) (float64, bool) {
	switch v := v.(type) {
	case float64:
		return v, true
	case int64:
		return float64(v), true
	case bool:
		if v {
			return 1, true
		}
		return 0, true
	case *big.Int:
		f, _ := new(big.Float).SetInt(v).Float64()
		return f, true
	}
	return 0, false
}

// index returns v as an int if it is an integer that fits, as for positions.
func index(v value) (int, bool) {
	n, ok := integer(v)
	if !ok {
		return 0, false
	}
	switch n := n.(type) {
	case int64:
		return int(max(min(n, math.MaxInt32), math.MinInt32)), true
	case *big.Int:
		return math.MaxInt32 * n.Sign(), true
	}
	return 0, false
}

// arithmetic applies +, -, *, /, //, % or ** to two numbers; ok is false if one is none.
func arithmetic(op string, a, b value) (result value, ok bool, err error) {
	x, xInt := integer(a)
	y, yInt := integer(b)
	if xInt && yInt && op != "/" {
		result, err = integerArithmetic(op, x, y)
		return result, true, err
	}
	f, xNum := floatOf(a)
	g, yNum := floatOf(b)
	if !xNum || !yNum {
		return nil, false, nil
	}
	result, err = floatArithmetic(op, f, g)
	return result, true, err
}

func integerArithmetic(op string, a, b value) (value, error) {
	if n, ok := a.(int64); ok {
		if m, ok := b.(int64); ok {
			if z, ok := smallArithmetic(op, n, m); ok {
				return z, nil
			}
		}
	}
	x, y := bigOf(a), bigOf(b)
	z := new(big.Int)
	switch op {
	case "+":
		z.Add(x, y)
	case "-":
		z.Sub(x, y)
	case "*":
		z.Mul(x, y)
	case "//", "%":
		if y.Sign() == 0 {
			return nil, failf("integer division or modulo by zero")
		}
		// Python rounds towards minus infinity, math/big towards zero.
		m := new(big.Int)
		z.QuoRem(x, y, m)
		if m.Sign() != 0 && m.Sign() != y.Sign() {
			z.Sub(z, big.NewInt(1))
			m.Add(m, y)
		}
		if op == "%" {
			z = m
		}
	case "**":
		switch {
		case y.Sign() < 0:
			f, _ := floatOf(a)
			g, _ := floatOf(b)
			return floatArithmetic(op, f, g)
		case x.BitLen() > 1 && (!y.IsInt64() || y.Int64() > maxIntBits/int64(x.BitLen()-1)):
			return nil, failf("integer power is too large")
		}
		if x.BitLen() <= 1 { // -1, 0 or 1: only whether y is zero or odd counts
			y = new(big.Int).And(y, big.NewInt(1))
			if y.Sign() == 0 && bigOf(b).Sign() > 0 {
				y = big.NewInt(2)
			}
		}
		z.Exp(x, y, nil)
	}
	return fromBig(z)
}

// smallArithmetic is the common case, which cannot overflow; ok is false for others.
func smallArithmetic(op string, n, m int64) (z int64, ok bool) {
	const most = 1 << 31
	if n >= most || n <= -most || m >= most || m <= -most {
		return 0, false
	}
	switch op {
	case "+":
		return n + m, true
	case "-":
		return n - m, true
	case "*":
		return n * m, true
	case "//", "%":
		if m == 0 {
			return 0, false
		}
		q, rest := n/m, n%m
		if rest != 0 && (rest < 0) != (m < 0) {
			q, rest = q-1, rest+m
		}
		if op == "%" {
			return rest, true
		}
		return q, true
	}
	return 0, false
}

func floatArithmetic(op string, a, b float64) (value, error) {
	switch op {
	case "+":
		return a + b, nil
	case "-":
		return a - b, nil
	case "*":
		return a * b, nil
	}
	if op == "**" {
		switch {
		case a == 0 && b < 0:
			return nil, failf("0.0 cannot be raised to a negative power")
		case a < 0 && b != math.Trunc(b):
			return nil, failf("a negative number cannot be raised to a fractional power")
		}
		z := math.Pow(a, b)
		if math.IsInf(z, 0) && !math.IsInf(a, 0) && !math.IsInf(b, 0) {
			return nil, failf("(34, 'Numerical result out of range')")
		}
		return z, nil
	}
	if b == 0 {
		switch op {
		case "/":
			return nil, failf("division by zero")
		case "//":
			return nil, failf("float floor division by zero")
		}
		return nil, failf("float modulo")
	}
	if op == "/" {
		return a / b, nil
	}
	m := math.Mod(a, b)
	if m != 0 && (m < 0) != (b < 0) {
		m += b
	}
	if op == "%" {
		if m == 0 {
			m = math.Copysign(0, b)
		}
		return m, nil
	}
	q := math.Round((a - m) / b)
	if q == 0 {
		q = math.Copysign(0, a/b)
	}
	return q, nil
}

// formatFloat is Python's repr of a float.
func formatFloat(f float64) string {
	switch {
	case math.IsNaN(f):
		return "nan"
	case math.IsInf(f, 1):
		return "inf"
	case math.IsInf(f, -1):
		return "-inf"
	case f == 0 || (math.Abs(f) >= 1e-4 && math.Abs(f) < 1e16):
		s := strconv.FormatFloat(f, 'f', -1, 64)
		if !strings.Contains(s, ".") {
			s += ".0"
		}
		return s
	}
	return strconv.FormatFloat(f, 'e', -1, 64) // 1e+16, 1.5e-07: two digits of exponent, as in Python
}

// parseInt is Python's int(s, base): blanks around, a sign, underscores between
// digits, and a prefix where the base allows one.
func parseInt(s string, base int) (value, bool) {
	s = trimSpace(s)
	sign := ""
	if s != "" && (s[0] == '+' || s[0] == '-') {
		sign, s = s[:1], s[1:]
	}
	if len(s) > maxIntBits || s == "" || s[0] == '+' || s[0] == '-' {
		return nil, false
	}
	if len(s) > 2 && s[0] == '0' {
		prefix := map[byte]int{'x': 16, 'o': 8, 'b': 2}[s[1]|0x20]
		if prefix != 0 && (base == 0 || base == prefix) {
			s, base = strings.TrimPrefix(s[2:], "_"), prefix
		}
	}
	if base == 0 {
		if base = 10; strings.HasPrefix(s, "0") && strings.Trim(s, "0_") != "" {
			return nil, false
		}
	}
	if strings.HasPrefix(s, "_") || strings.HasSuffix(s, "_") || strings.Contains(s, "__") {
		return nil, false
	}
	n, ok := new(big.Int).SetString(sign+strings.ReplaceAll(s, "_", ""), base)
	if !ok {
		return nil, false
	}
	v, err := fromBig(n)
	return v, err == nil
}

// parseFloat is Python's float(s).
func parseFloat(s string) (float64, bool) {
	s = trimSpace(s)
	if strings.ContainsAny(s, "xXpP") || strings.HasPrefix(s, "_") || strings.HasSuffix(s, "_") || strings.Contains(s, "__") {
		return 0, false
	}
	f, err := strconv.ParseFloat(strings.ReplaceAll(s, "_", ""), 64)
	if err != nil && !math.IsInf(f, 0) {
		return 0, false
	}
	return f, true
}
