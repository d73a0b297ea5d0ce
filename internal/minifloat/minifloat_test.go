package minifloat

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestEveryCodeSurvivesDecodeAndEncode(t *testing.T) {
	for _, f := range AllFormats {
		for code := range uint32(1) << f.Bits() {
			x := f.Decode(code)
			if math.IsNaN(x) {
				assert.True(t, math.IsNaN(f.Decode(f.Encode(x, false))), "%s %#x", f.Name, code)
				continue
			}
			require.Equal(t, code, f.Encode(x, false), "%s %v", f.Name, x)
		}
	}
}

// Nearest neighbour by definition: of all finite codes the closest, of two the even one.
func nearest(f *Format, x float64) float64 {
	best, bestCode := math.NaN(), uint32(0)
	for code := range uint32(1) << (f.Bits() - 1) {
		v := f.Decode(code)
		if math.IsNaN(v) || math.IsInf(v, 0) {
			continue
		}
		d, e := math.Abs(v-math.Abs(x)), math.Abs(best-math.Abs(x))
		if math.IsNaN(best) || d < e || d == e && code&1 == 0 && bestCode&1 == 1 {
			best, bestCode = v, code
		}
	}
	return math.Copysign(best, x)
}

func TestRoundPicksTheNearestWithTiesToEven(t *testing.T) {
	rng := rand.New(rand.NewSource(1))
	for _, f := range AllFormats {
		if f.Bits() > 8 {
			continue // the wide ones are held against ml_dtypes
		}
		for range 3000 {
			x := (rng.Float64()*2 - 1) * f.Max()
			if rng.Intn(2) == 0 {
				x = math.Ldexp(x, -rng.Intn(f.Bias*2+6))
			}
			if rng.Intn(3) == 0 { // exactly half way between two codes
				c := uint32(rng.Intn(int(f.Encode(f.Max(), true))))
				x = (f.Decode(c) + f.Decode(c+1)) / 2
			}
			want := nearest(f, x)
			if got := f.Round(x, false); got != want {
				t.Fatalf("%s: Round(%v) = %v, want %v", f.Name, x, got, want)
			}
		}
	}
}

// TestContains compares with the definition: every finite number of the other format is its own rounding.
// TestSaturatedIsRound compares at every number of a format, halfway between two, close to those, and beyond the
// greatest.
func TestSaturatedIsRound(t *testing.T) {
	for _, f := range AllFormats {
		for code := range uint32(1) << f.Bits() {
			x := f.Decode(code)
			if math.IsNaN(x) || math.IsInf(x, 0) {
				continue
			}
			half := x * (1 + math.Exp2(-float64(f.Mantissa+1)))
			for _, y := range []float64{x, half, math.Nextafter(half, 0), half * (1 + 1e-15), x * 1.1, x * 1e-3, x + f.quantum/2, x * 1e9} {
				want, got := f.Round(y, true), f.Saturated(y)
				require.True(t, want == got, "%s %v: %v, not %v", f.Name, y, got, want)
			}
		}
	}
}

// TestCodesAreThoseOfRoundedNumbers holds the fast way from a number to its code to the one by Round.
func TestCodesAreThoseOfRoundedNumbers(t *testing.T) {
	for _, f := range AllFormats {
		for code := range uint32(1) << f.Bits() {
			x := f.Decode(code)
			half := x * (1 + math.Exp2(-float64(f.Mantissa+1)))
			for _, y := range []float64{x, half, math.Nextafter(half, 0), half * (1 + 1e-15), x * 1.1, x * 1e-3, x + f.quantum/2, x * 1e9, x * 1e300} {
				for _, saturate := range []bool{false, true} {
					require.Equal(t, f.encode(y, saturate), f.Encode(y, saturate), "%s %v", f.Name, y)
				}
			}
		}
	}
}

func TestContains(t *testing.T) {
	for _, f := range AllFormats {
		for _, g := range AllFormats {
			all := true
			for code := range uint32(1) << g.Bits() {
				if x := g.Decode(code); !math.IsNaN(x) && !math.IsInf(x, 0) {
					all = all && f.Round(x, false) == x
				}
			}
			require.Equal(t, all, f.Contains(g), "%s in %s", g.Name, f.Name)
		}
	}
}

func TestRoundingHappensOnce(t *testing.T) {
	// 1 + 2^-11 is half way between two f16 values; a hair above it must round up even if that hair is below f32's reach.
	x := 1 + math.Ldexp(1, -11) + math.Ldexp(1, -40)
	assert.Equal(t, 1+math.Ldexp(1, -10), Float16.Round(x, false))
	assert.Equal(t, 1.0, Float16.Round(float64(float32(x)), false), "through f32 it would round twice")
	assert.Equal(t, math.Ldexp(1, -24), Float16.Round(math.Ldexp(1, -25)+math.Ldexp(1, -70), false))
	assert.Equal(t, 0.0, Float16.Round(math.Ldexp(1, -25), false))
}

func TestOverflowAndSpecialValues(t *testing.T) {
	inf, nan := math.Inf(1), math.NaN()
	for _, c := range []struct {
		f         *Format
		x         float64
		plain, at uint32 // codes without and with saturation
	}{
		{Float16, 65519.999, 0x7BFF, 0x7BFF},
		{Float16, 65520, 0x7C00, 0x7BFF},
		{Float16, -inf, 0xFC00, 0xFBFF},
		{Float16, nan, 0x7E00, 0x7E00},
		{BFloat16, math.MaxFloat64, 0x7F80, 0x7F7F},
		{E4M3FN, 464, 0x7E, 0x7E},
		{E4M3FN, 465, 0x7F, 0x7E},
		{E4M3FN, -inf, 0xFF, 0xFE},
		{E4M3FNUZ, 256, 0x80, 0x7F},
		{E4M3FNUZ, math.Copysign(0, -1), 0, 0},
		{E4M3FNUZ, -1e-9, 0, 0},
		{E5M2, 61440, 0x7C, 0x7B},
		{E5M2, 61439, 0x7B, 0x7B},
		{E5M2FNUZ, inf, 0x80, 0x7F},
		{E2M1, 7, 7, 7},
		{E2M1, -inf, 15, 15},
		{E2M1, nan, 8, 8},
		{E2M1, 2.5, 4, 4},
		{E2M1, 0.25, 0, 0},
	} {
		assert.Equal(t, c.plain, c.f.Encode(c.x, false), "%s(%v)", c.f.Name, c.x)
		assert.Equal(t, c.at, c.f.Encode(c.x, true), "%s(%v), saturated", c.f.Name, c.x)
	}
}

func TestE8M0(t *testing.T) {
	for _, c := range []struct {
		x         float64
		d         Direction
		plain, at uint8
	}{
		{1, Nearest, 127, 127}, {1.5, Nearest, 128, 128}, {1.49, Nearest, 127, 127}, {3, Nearest, 129, 129},
		{1.01, Up, 128, 128}, {1.99, Down, 127, 127}, {0, Up, 255, 0}, {0, Nearest, 255, 0},
		{math.Inf(1), Up, 255, 254}, {math.Ldexp(1.9, 127), Nearest, 255, 254}, {math.Ldexp(1.9, 127), Down, 254, 254},
		{math.NaN(), Up, 255, 255}, {-1, Down, 255, 255}, {1e-300, Nearest, 255, 0}, {1e-300, Up, 0, 0},
	} {
		assert.Equal(t, c.plain, EncodeE8M0(c.x, c.d, false), "%v", c)
		assert.Equal(t, c.at, EncodeE8M0(c.x, c.d, true), "%v, saturated", c)
	}
	for code := range 255 {
		assert.Equal(t, uint8(code), EncodeE8M0(DecodeE8M0(uint8(code)), Nearest, false))
	}
}

func TestIntegers(t *testing.T) {
	assert.Equal(t, int64(-56), Wrap(200, 8, true))
	assert.Equal(t, int64(200), Wrap(-56, 8, false))
	assert.Equal(t, int64(-1), Wrap(3, 2, true))
	assert.Equal(t, int64(-3), Truncate(-3.9, 8, true))
	assert.Equal(t, int64(127), Truncate(1e9, 8, true))
	assert.Equal(t, int64(0), Truncate(-5, 8, false))
	assert.Equal(t, int64(math.MaxInt64), Truncate(1e30, 64, true))
	big := float64(1<<63) * 1.5
	assert.Equal(t, uint64(big), uint64(Truncate(big, 64, false)))
	assert.Equal(t, int64(0), Truncate(math.NaN(), 32, true))
}

// mlDtype is ml_dtypes' name of a format, NumPy's of f16: fn says that it is finite.
func mlDtype(f *Format) string {
	switch {
	case f.Bits() == 16:
		return strings.Replace(f.Name, "f16", "float16", 1)
	case f.Special == OnlyNaN || f.Special == AllValid:
		return fmt.Sprintf("float%d_%sfn", f.Bits(), f.Name)
	}
	return fmt.Sprintf("float%d_%s", f.Bits(), f.Name)
}

// pythonScript converts a file of float64 to codes of 16 bits by ml_dtypes (numpy for float16) and back.
const pythonScript = `
import sys, numpy as np, ml_dtypes
x = np.fromfile(sys.argv[1], dtype='<f8')
dt = np.float16 if sys.argv[2] == 'float16' else getattr(ml_dtypes, sys.argv[2])
with np.errstate(all='ignore'):
    y = x.astype(dt)
codes = y.view(np.uint16 if y.itemsize == 2 else np.uint8).astype('<u2')
codes.tofile(sys.argv[1] + '.codes')
n = 1 << int(sys.argv[3])
every = np.arange(n).astype(np.uint16 if y.itemsize == 2 else np.uint8).view(dt).astype('<f8')
every.tofile(sys.argv[1] + '.values')
`

func TestAgainstMlDtypes(t *testing.T) {
	python := findPython(t)
	rng := rand.New(rand.NewSource(2))
	for _, f := range AllFormats {
		t.Run(f.Name, func(t *testing.T) {
			var xs []float64
			last := f.Encode(f.Max(), true)
			for c := range last { // every midpoint and its neighbours
				m := (f.Decode(c) + f.Decode(c+1)) / 2
				xs = append(xs, m, -m, math.Nextafter(m, 0), math.Nextafter(m, math.Inf(1)))
				xs = append(xs, m*(1-0x1p-22), m*(1+0x1p-22))
			}
			over := f.Max() * 1.2
			xs = append(xs, 0, math.Copysign(0, -1), math.Inf(1), math.Inf(-1), over, -over, 1e300, -1e300, 1e-300)
			for range 20000 {
				xs = append(xs, math.Ldexp(rng.NormFloat64(), rng.Intn(40)-20))
			}
			if f != Float16 { // ml_dtypes goes through float32, and so rounds twice
				for i := range xs {
					xs[i] = float64(float32(xs[i]))
				}
			}
			file := filepath.Join(t.TempDir(), "x")
			require.NoError(t, os.WriteFile(file, le(xs), 0o600))
			out, err := exec.Command(python, "-c", pythonScript, file, mlDtype(f), strconv.Itoa(f.Bits())).CombinedOutput()
			require.NoError(t, err, string(out))
			codes, err := os.ReadFile(file + ".codes")
			require.NoError(t, err)
			require.Len(t, codes, 2*len(xs))
			for i, x := range xs {
				want, got := uint32(binary.LittleEndian.Uint16(codes[2*i:])), f.Encode(x, false)
				if want != got && !(math.IsNaN(f.Decode(want)) && math.IsNaN(f.Decode(got))) {
					t.Fatalf("%v (%x): code %#x, ml_dtypes has %#x", x, x, got, want)
				}
			}
			values, err := os.ReadFile(file + ".values")
			require.NoError(t, err)
			for c := range uint32(1) << f.Bits() {
				want, got := math.Float64frombits(binary.LittleEndian.Uint64(values[8*c:])), f.Decode(c)
				if math.Float64bits(want) != math.Float64bits(got) && !(math.IsNaN(want) && math.IsNaN(got)) {
					t.Fatalf("code %#x: %v, ml_dtypes has %v", c, got, want)
				}
			}
		})
	}
}

func le(xs []float64) []byte {
	var b bytes.Buffer
	_ = binary.Write(&b, binary.LittleEndian, xs)
	return b.Bytes()
}

func findPython(t *testing.T) string {
	t.Helper()
	python := os.Getenv("SPARK_PYTHON")
	if python == "" {
		python = filepath.Join("..", "..", ".venv", "bin", "python")
	}
	if err := exec.Command(python, "-c", "import ml_dtypes").Run(); err != nil {
		t.Skipf("no python with ml_dtypes (set SPARK_PYTHON): %v", err)
	}
	return python
}
