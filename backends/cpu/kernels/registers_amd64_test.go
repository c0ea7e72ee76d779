package kernels_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// beyondAVX2 finds what a machine with AVX2 and F16C may lack.
var beyondAVX2 = regexp.MustCompile(`\b(?:` + strings.Join([]string{
	// Registers, and what follows a mnemonic for masks, broadcasts and roundings.
	`Z\d+`, `K[0-7]`, `[XY](?:1[6-9]|2\d|3[01])`, `V\w+\.(?:BCST|Z|SAE|R[NDUZ]_SAE)`,
	// Masks.
	`K(?:ADD|AND|ANDN|MOV|NOT|OR|ORTEST|SHIFTL|SHIFTR|TEST|UNPCK|XNOR|XOR)(?:[BWDQ]|BW|WD|DQ)`,
	`VP?BLENDM\w+`, `VPTESTN?M[BWDQ]`, `VPCMPU?[BWDQ]`, `VPMOV[BWDQ]2M`, `VPMOVM2[BWDQ]`, `VFPCLASS\w+`,
	// Moves, logic and integers.
	`VMOVDQU(?:8|16|32|64)`, `VMOVDQA(?:32|64)`, `VP(?:AND|ANDN|OR|XOR)[DQ]`, `VPTERNLOG[DQ]`, `VPDPBUSDS?`, `VPDPWSSDS?`, `VPABSQ`, `VPM(?:AX|IN)[SU]Q`,
	`VPMULLQ`, `VPSRAQ`, `VPS(?:LL|RL|RA)VW`, `VPSRAVQ`, `VPRO[LR]V?[DQ]`, `VPSH[LR]DV?[WDQ]`, `VPLZCNT[DQ]`, `VPCONFLICT[DQ]`, `VPOPCNT[BWDQ]`, `VDBPSADBW`, `VPMULTISHIFTQB`,
	`VPMADD52[HL]UQ`, `VP?SCATTER\w+`,
	// Shuffles.
	`VPERM[BW]`, `VPERM[IT]2\w+`, `VALIGN[DQ]`, `VSHUF[FI]\d+X\d`, `VP?(?:COMPRESS|EXPAND)\w+`,
	`V(?:BROADCAST|EXTRACT|INSERT)[FI](?:32X[248]|64X[24])`, `VPBROADCASTM\w+`,
	// Conversions and floats.
	`VPMOVU?S?(?:WB|D[BW]|Q[BWD])`, `VCVT\w*(?:UDQ|UQQ|QQ)\w*`, `VCVTT?S[DS]2USI\w*`, `VCVTNE\w+`, `VDPBF16PS`, `VRNDSCALE\w+`, `VRANGE\w+`, `VREDUCE\w+`, `VFIXUPIMM\w+`,
	`VGET(?:EXP|MANT)\w+`, `VSCALEF\w+`, `VRCP(?:14|28)\w+`, `VRSQRT(?:14|28)\w+`, `VEXP2\w+`,
	// Fused products: they are a feature of their own, and round once.
	`VFN?M(?:ADD|SUB)(?:ADD|SUB)?(?:132|213|231)[PS][SD]`,
	// BMI1, BMI2, and counts that older machines take for other instructions.
	`(?:ANDN|BEXTR|BLSI|BLSR|BLSMSK|BZHI|MULX|PDEP|PEXT|RORX|SARX|SHLX|SHRX)[LQ]`, `(?:LZCNT|TZCNT)[WLQ]`,
}, "|") + `)\b`)

// TestAVX2Registers looks for what AVX2 lacks in the kernels of its set: the
// assembler would encode it for AVX-512 without a word.
func TestAVX2Registers(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*_amd64.s")
	if err != nil || len(files) == 0 {
		t.Fatalf("no assembly: %v", err)
	}
	functions := map[bool]int{} // by whether the set of AVX2 has them
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range strings.Split(string(text), "\nTEXT ")[1:] {
			name, body, _ := strings.Cut(f, "(SB)")
			only := !strings.HasSuffix(name, "AVX512") // AVX and AVX2
			functions[only]++
			switch found := beyondAVX2.FindString(body); {
			case only && found != "":
				t.Errorf("%s: %s uses %s", path, name, found)
			case !only && found == "":
				t.Errorf("%s: %s uses nothing that is known to be beyond AVX2", path, name)
			}
		}
	}
	if functions[true] == 0 || functions[false] == 0 {
		t.Error("kernels of one set are missing")
	}
}
