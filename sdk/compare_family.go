package sdk

import (
	"maps"
	"math"
	"slices"
	"strings"
)

// Verdict says how a family compares.
type Verdict string

// The verdicts.
const (
	// VerdictEqual: all codes, scales and values are equal.
	VerdictEqual Verdict = "equal"
	// VerdictClose: the formats differ, and the values by no more than the tolerance.
	VerdictClose Verdict = "close"
	// VerdictDiffers: some numbers differ.
	VerdictDiffers Verdict = "differs"
	// VerdictOnlyA and VerdictOnlyB: a pack lacks tensors, or constants, that the other has.
	VerdictOnlyA Verdict = "only in a"
	VerdictOnlyB Verdict = "only in b"
	// VerdictOnlyOne: each pack lacks some that the other has.
	VerdictOnlyOne Verdict = "some only in a, some only in b"
	// VerdictLayout: tensors of one name have different shapes, or their rows lie together otherwise.
	VerdictLayout Verdict = "laid out differently"
)

// CompareFamily tells how the tensors of all layers with one name compare, or the
// constants with one name.
type CompareFamily struct {
	// Name has "*" for the number of the layer. Where matrices lie together in one pack
	// and apart in the other, it is that of one that lies apart.
	Name string `json:"name"`
	// Constant says that it is of single numbers of the manifests.
	Constant bool `json:"constant,omitempty"`
	// TensorsA and TensorsB count what either pack has, and OnlyA and OnlyB what the other lacks of it.
	TensorsA int `json:"tensors_a"`
	TensorsB int `json:"tensors_b"`
	OnlyA    int `json:"only_a"`
	OnlyB    int `json:"only_b"`
	// FormatA and FormatB name the formats, such as "int4".
	FormatA string `json:"format_a,omitempty"`
	FormatB string `json:"format_b,omitempty"`
	// Numbers is how many numbers were compared, and Differ how many of them are not equal.
	Numbers int64 `json:"numbers"`
	Differ  int64 `json:"differ"`
	// Codes is how many integer codes differ. It is nil where there are none, or none
	// that could be compared since the formats differ.
	Codes *int64 `json:"codes_differ"`
	// Scales tells of the scales of these codes.
	Scales *CompareScales `json:"scales"`
	// MaxAbs is the largest difference of two values, and RelL2 the length of the vector
	// of all differences over that of the values of A.
	MaxAbs float64 `json:"max_abs"`
	RelL2  float64 `json:"rel_l2"`
	// ConvertedRelL2 is RelL2 of the tensors alone whose formats differ, which is what a
	// tolerance is for. It is nil where there are none.
	ConvertedRelL2 *float64 `json:"rel_l2_converted"`
	// Verdict sums it up.
	Verdict Verdict `json:"verdict"`

	layout bool // shapes do not match
	// apart counts the numbers, codes and scales that differ between equal formats.
	apart int64
	// all and converted are of all tensors, and of those whose formats differ.
	all, converted squares
}

// squares are sums of squares: of A's values and of the differences.
type squares struct{ a, diff float64 }

// add adds what comparing values has found.
func (s *squares) add(t *tally) { s.a, s.diff = s.a+t.sumA, s.diff+t.sum }

// relL2 returns the length of the differences over that of A's values.
func (s squares) relL2() float64 {
	switch {
	case s.a > 0:
		return clamp(math.Sqrt(s.diff / s.a))
	case s.diff > 0:
		return 1
	}
	return 0
}

// CompareScales tells how scales compare.
type CompareScales struct {
	Differ int64 `json:"differ"`
	// MaxRel is the largest difference of two over the larger of them.
	MaxRel float64 `json:"max_rel"`
}

// judge sums up what was found.
func (f *CompareFamily) judge(tolerance float64) {
	f.RelL2 = f.all.relL2()
	if f.ConvertedRelL2 != nil {
		*f.ConvertedRelL2 = f.converted.relL2()
	}
	switch {
	case f.layout:
		f.Verdict = VerdictLayout
	case f.OnlyA > 0 && f.OnlyB > 0:
		f.Verdict = VerdictOnlyOne
	case f.OnlyA > 0:
		f.Verdict = VerdictOnlyA
	case f.OnlyB > 0:
		f.Verdict = VerdictOnlyB
	case f.apart > 0:
		f.Verdict = VerdictDiffers
	case f.Differ == 0:
		f.Verdict = VerdictEqual
	case *f.ConvertedRelL2 <= tolerance:
		f.Verdict = VerdictClose
	default:
		f.Verdict = VerdictDiffers
	}
}

// add enters what comparing values has found.
func (f *CompareFamily) add(t *tally) {
	f.Numbers, f.Differ = f.Numbers+t.numbers, f.Differ+t.differ
	f.MaxAbs = max(f.MaxAbs, t.maxAbs)
	f.all.add(t)
}

// clamp makes a number that JSON can hold of any.
func clamp(x float64) float64 {
	if !(x <= math.MaxFloat64) { // not a number, too
		return math.MaxFloat64
	}
	return x
}

// familyOf replaces the numbers of layers in a name.
func familyOf(name string) string {
	parts := strings.Split(name, ".")
	for i, p := range parts {
		if p != "" && strings.Trim(p, "0123456789") == "" {
			parts[i] = "*"
		}
	}
	return strings.Join(parts, ".")
}

// constantFamilies compares single numbers, by name.
func constantFamilies(a, b map[string]float32) []CompareFamily {
	found := make(map[string]*CompareFamily)
	tallies := make(map[string]*tally)
	for _, side := range [...]map[string]float32{a, b} {
		for name := range side {
			family := familyOf(name)
			if found[family] == nil {
				found[family], tallies[family] = &CompareFamily{Name: family, Constant: true}, &tally{}
			}
		}
	}
	// In the order of names, so that sums come out the same every time.
	for _, name := range slices.Sorted(maps.Keys(a)) {
		f := found[familyOf(name)]
		f.TensorsA++
		if vb, ok := b[name]; ok {
			tallies[f.Name].add(float64(a[name]), float64(vb))
		} else {
			f.OnlyA++
		}
	}
	for name := range b {
		f := found[familyOf(name)]
		f.TensorsB++
		if _, ok := a[name]; !ok {
			f.OnlyB++
		}
	}
	var list []CompareFamily
	for _, name := range slices.Sorted(maps.Keys(found)) {
		f := found[name]
		f.add(tallies[name])
		f.apart = f.Differ
		list = append(list, *f)
	}
	return list
}
