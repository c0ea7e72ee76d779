package main

import "math"

// The functions below repeat those of package fmath, operation by operation.
// What is computed where they take another branch is replaced.

// exp sets dst, which must not be x, to e to the x for x from -87.33654 to 88,
// and to what is not a number for such an x.
func exp(m machine, dst, x *vec) {
	const (
		log2e = 1.44269504088896341
		ln2hi = 0.693359375
		ln2lo = -2.12194440e-4
		magic = 12582912
	)
	r, t := m.newVec(), m.newVec()
	m.mul(r, x, number(m, log2e))
	m.add(dst, r, number(m, magic)) // the lowest bits are the integer n
	m.sub(t, dst, number(m, magic))
	m.mul(r, t, number(m, ln2hi))
	m.sub(r, x, r)
	m.mul(t, t, number(m, ln2lo))
	m.sub(r, r, t)
	p := t
	polynomial(m, p, r, 1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1)
	square := m.newVec()
	m.mul(square, r, r)
	m.mul(p, p, square)
	m.add(p, p, r)
	m.add(p, p, number(m, 1))
	// The result is a normal number: one exact factor 2^n does for the two of fmath.
	m.shiftLeft(dst, dst, 23)
	m.addInt(dst, dst, m.constantVec(127<<23))
	m.mul(dst, p, dst)
	m.freeVec(r, t, square)
}

// polynomial sets p to a polynomial of x, highest coefficient first.
func polynomial(m machine, p, x *vec, first float32, others ...float32) {
	m.mul(p, x, number(m, first))
	for i, f := range others {
		if i > 0 {
			m.mul(p, p, x)
		}
		m.add(p, p, number(m, f))
	}
}

// tanh sets dst, which must not be x, to the hyperbolic tangent of x.
func tanh(m machine, dst, x *vec) {
	magnitude, square, small := m.newVec(), m.newVec(), m.newVec()
	m.and(magnitude, x, m.constantVec(math.MaxInt32))
	m.mul(square, x, x)
	polynomial(m, small, square, -5.70498872745e-3, 2.06390887954e-2, -5.37397155531e-2, 1.33314422036e-1, -3.33332819422e-1)
	m.mul(small, small, square)
	m.mul(small, small, x)
	m.add(small, small, x)
	// 1 - 2/(exp(2*magnitude)+1), which is 1 from far below 20 on.
	twice, e := square, m.newVec()
	m.add(twice, magnitude, magnitude)
	m.min(twice, number(m, 40), twice)
	exp(m, e, twice)
	m.add(e, e, number(m, 1))
	m.div(e, number(m, 2), e)
	m.sub(e, number(m, 1), e)
	sign := square
	m.and(sign, x, m.constantVec(1<<31))
	m.xor(e, e, sign)
	m.choose(dst, magnitude, number(m, 0.625), small, e)
	m.freeVec(magnitude, square, small, e)
}

// geluMul writes Set.GELUMul.
func geluMul(m machine) {
	m.begin("geluMul", "is Set.GELUMul.", floats("dst", "a", "b"), "")
	overFloats(m, 1, func(p []*word, i int) {
		x, y, t := m.newVec(), m.newVec(), m.newVec()
		m.load(x, p[1], i)
		m.mul(y, x, x)
		m.mul(y, y, x)
		m.mul(y, y, number(m, 0.044715))
		m.add(y, y, x)
		m.mul(y, y, number(m, 0.7978845608028654))
		tanh(m, t, y)
		m.add(t, t, number(m, 1))
		m.mul(x, x, number(m, 0.5))
		m.mul(x, x, t)
		timesLoaded(m, x, p[2], i)
		m.store(x, p[0], i)
		m.freeVec(x, y, t)
	}, "dst", "a", "b")
	m.end()
}

// softcap writes Set.Softcap.
func softcap(m machine) {
	m.begin("softcap", "is Set.Softcap.", append(floats("x"), field{"limit", "float32"}), "")
	limit := m.paramVec("limit")
	overFloats(m, 1, func(p []*word, i int) {
		x, t := m.newVec(), m.newVec()
		m.load(x, p[0], i)
		m.div(x, x, limit)
		tanh(m, t, x)
		m.mul(t, limit, t)
		m.store(t, p[0], i)
		m.freeVec(x, t)
	}, "x")
	m.freeVec(limit)
	m.end()
}

// largest writes the search of Set.Softmax for n > 0: where w[0] is a number,
// what is none is skipped. Of zeros, any is returned.
func largest(m machine) {
	m.begin("largest", "returns the largest of w, of which there is one.", floats("w"), "float32")
	most, first := m.newVec(), m.param("w", 4)
	m.splat(most, first, 0)
	m.freeWord(first)
	overFloats(m, 4, func(p []*word, i int) {
		v := m.newVec()
		m.load(v, p[0], i)
		m.keep(v, i, most)
		m.max(most, v, most)
		m.freeVec(v)
	}, "w")
	m.fold(most, m.max)
	m.retVec(most)
	m.freeVec(most)
	m.end()
}

// expSum writes the rest of Set.Softmax.
func expSum(m machine) {
	m.begin("expSum", "replaces w by exp(w - largest), where no w is larger, and returns the sum.", append(floats("w"), field{"largest", "float32"}), "float32")
	most := m.paramVec("largest")
	sums := make([]*vec, 16/m.lanes())
	for i := range sums {
		sums[i] = m.newVec()
		m.set(sums[i], m.constantVec(0))
	}
	overFloats(m, len(sums), func(p []*word, i int) {
		x, e := m.newVec(), m.newVec()
		m.load(x, p[0], i)
		m.sub(x, x, most)
		exp(m, e, x)
		m.choose(e, x, number(m, -87.33654), m.constantVec(0), e)
		m.store(e, p[0], i)
		m.keep(e, i, m.constantVec(0))
		m.add(sums[i], sums[i], e)
		m.freeVec(x, e)
	}, "w")
	for n := len(sums) / 2; n > 0; n /= 2 {
		for i := range n {
			m.add(sums[i], sums[i], sums[i+n])
		}
	}
	m.fold(sums[0], m.add)
	m.retVec(sums[0])
	m.freeVec(most)
	m.freeVec(sums...)
	m.end()
}
