// Package precision is the table of precisions: their names on the command line, how they store values and weights, what a
// target should multiply for them, and how far their results may be from exact ones. Whatever depends on a precision reads
// its row. Element types are named as in the text form of the IR: f16, e4m3, e2m1.
package precision

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/spark-compile/spark-compile/internal/minifloat"
)

// Names of the precisions.
const (
	File  = "file"  // every value keeps the file's type, and is rounded wherever the file rounds it
	FP32  = "fp32"  // every float narrower than f32 becomes f32; inputs and outputs keep the file's types
	FP16  = "fp16"  // as fp32, then f16 between regions
	BF16  = "bf16"  // as fp16, with bf16
	FP8   = "fp8"   // as fp16, with e4m3 where a calibration chooses it
	FP6   = "fp6"   // as fp8, and weights e3m2
	NVFP4 = "nvfp4" // as fp8, with e2m1 in blocks
)

// Default is the precision where nobody names one.
const Default = FP16

// Layer is how a layer's operands are stored; it accumulates in f32. Layers are equal if all of it is.
type Layer struct {
	Name                 string // in reports
	Weights, Activations Operand

	// Vectors: only for layers that multiply a vector, whose activations are never narrow, unless the precision has weights of
	// fewer bits. For others a format of the same weights that narrows activations too is mostly faster.
	Vectors bool
}

// Operand is how one operand of a layer is stored. A number has a scale: of its output channel if it is a weight, of the
// tensor if it is an activation.
type Operand struct {
	*minifloat.Format
	Blocks bool // neighbours share another scale
	HiLo   bool // what is multiplied is the sum of the nearest number and the one nearest to what that leaves: two products; 16 bits store it
}

var (
	f16, e4m3  = Operand{Format: minifloat.Float16}, Operand{Format: minifloat.E4M3FN}
	e4m3Twice  = Operand{Format: minifloat.E4M3FN, HiLo: true}
	e3m2, e2m1 = Operand{Format: minifloat.E3M2}, Operand{Format: minifloat.E2M1, Blocks: true}
)

// Half is the format of layers that are not narrowed.
var Half = Layer{Name: "fp16", Weights: f16, Activations: f16}

// Formats of layers.
var (
	fp8          = Layer{Name: "fp8", Weights: e4m3, Activations: e4m3}
	fp8Split     = Layer{Name: "fp8 split weights", Weights: e4m3Twice, Activations: e4m3}
	fp8Twice     = Layer{Name: "fp8 twice", Weights: e4m3, Activations: e4m3Twice}
	fp8Both      = Layer{Name: "fp8 twice split weights", Weights: e4m3Twice, Activations: e4m3Twice}
	fp8Weights   = Layer{Name: "fp8 weights", Weights: e4m3, Activations: f16, Vectors: true}
	fp6Weights   = Layer{Name: "fp6 weights", Weights: e3m2, Activations: f16}
	nvfp4        = Layer{Name: "nvfp4", Weights: e2m1, Activations: e2m1}
	nvfp4Weights = Layer{Name: "nvfp4 weights", Weights: e2m1, Activations: f16}
)

// Value is the value that stands for x, of a number that can be rounded alone.
func (o Operand) Value(x float64) float64 {
	y := o.Saturated(x)
	if o.HiLo {
		y += o.Saturated(x - y)
	}
	return y
}

// Narrow reports whether the operand has fewer than 16 bits.
func (o Operand) Narrow() bool { return o.Bits() < 16 }

// Split is the format with the same activations whose weights are two numbers of the same type; false if there is none.
func (l Layer) Split() (Layer, bool) {
	layers := Layers()
	l.Weights.HiLo = true
	at := slices.IndexFunc(layers, func(m Layer) bool { return m.Weights == l.Weights && m.Activations == l.Activations })
	if at < 0 {
		return Layer{}, false
	}
	return layers[at], true
}

// WeightsOnly is the format with the same weights and 16-bit activations. Weights in two terms have none.
func (l Layer) WeightsOnly() Layer {
	layers := Layers()
	return layers[slices.IndexFunc(layers, func(m Layer) bool { return m.Weights == l.Weights && !m.Activations.Narrow() })]
}

// Precision is a row of the table.
type Precision struct {
	Name, Alias  string
	Since        int     // compute capability ×10 of the first tensor cores that have it
	Experimental bool    // choosing it prints a warning
	Between      string  // element type of values between regions; "": the file's, and no pass changes rounding
	Candidates   []Layer // formats that a calibration chooses from, narrowest first; nil: nothing to calibrate
	Multiplies   string  // element type that a target should have an mma for
	Stored       string  // warning for a target without one, which only stores the type

	// The least cosine and the greatest relative L2 of a run against the graph in float64, before outputs are rounded. A
	// precision that calibrates is compared with the final graph, rounded as the program rounds, from which summing in another
	// order moves a few numbers to a neighbouring code.
	MinCosine, RelL2 float64
}

// Bounds are the least cosine and the greatest relative L2 of an output of an element type: the row's. Where values between
// regions have more bits than the output, rounding it adds half a unit in its last place.
func (p *Precision) Bounds(output string) (minCosine, relL2 float64) {
	f := minifloat.Named(output)
	if p.Between != "f32" || f == nil || f.Mantissa >= 23 {
		return p.MinCosine, p.RelL2
	}
	relL2 = p.RelL2 + math.Ldexp(1, -f.Mantissa-1)
	return min(p.MinCosine, math.Floor(1e7*math.Sqrt(1-float64(relL2*relL2)))/1e7), relL2
}

var table = []*Precision{
	{Name: File, MinCosine: 0.9999, RelL2: 1e-2},
	{Name: FP32, Between: "f32", MinCosine: 0.9999999, RelL2: 1e-4},
	{Name: FP16, Since: 70, Between: "f16", MinCosine: 0.9999, RelL2: 1e-2},
	{Name: BF16, Since: 80, Between: "bf16", MinCosine: 0.999, RelL2: 5e-2},
	{Name: FP8, Since: 90, Between: "f16", MinCosine: 0.9999, RelL2: 2e-2,
		Candidates: []Layer{fp8, fp8Split, fp8Twice, fp8Both, fp8Weights, Half}, Multiplies: "e4m3",
		Stored: "has no mma on 8-bit floats: it stores numbers in fp8 and multiplies them in fp16; --precision fp16 may be faster"},
	{Name: FP6, Since: 100, Between: "f16", MinCosine: 0.9999, RelL2: 2e-2,
		Candidates: []Layer{fp6Weights, fp8, fp8Weights, Half}},
	{Name: NVFP4, Alias: "fp4", Since: 100, Experimental: true, Between: "f16", MinCosine: 0.9999, RelL2: 2e-2,
		Candidates: []Layer{nvfp4, nvfp4Weights, fp8, fp8Weights, Half}, Multiplies: "e2m1",
		Stored: "has no block-scaled mma: it stores weights in nvfp4 and multiplies them in fp16"},
}

// Layers lists the formats of layers that any precision chooses from.
func Layers() []Layer {
	var out []Layer
	for _, p := range table {
		for _, l := range p.Candidates {
			if !slices.Contains(out, l) {
				out = append(out, l)
			}
		}
	}
	return out
}

// All lists the precisions: file first, then from the widest to the narrowest.
func All() []*Precision { return slices.Clone(table) }

// Lookup returns the precision of that name or alias; the error lists the names.
func Lookup(name string) (*Precision, error) {
	for _, p := range table {
		if name != "" && (name == p.Name || name == p.Alias) {
			return p, nil
		}
	}
	return nil, fmt.Errorf("unknown precision %q: use %s", name, List("or"))
}

// Names are those of the command line, without aliases, in the order of All.
func Names() []string { return names(func(*Precision) bool { return true }) }

func names(take func(p *Precision) bool) (out []string) {
	for _, p := range table {
		if take(p) {
			out = append(out, p.Name)
		}
	}
	return out
}

// On lists the precisions that the tensor cores of a compute capability support, the recommended one last; only fp32 where
// the capability is unknown (0.0).
func On(major, minor int) []string {
	return names(func(p *Precision) bool { return p.Name != File && 10*major+minor >= p.Since })
}

// List joins the names of the command line with commas, and the last with a word: "and" or "or".
func List(word string) string { return join(Names(), word) }

// Calibrating joins the names of the precisions that calibrate.
func Calibrating() string { return join(names((*Precision).Calibrates), "and") }

// Wider joins the names of the precisions that are more accurate than the named one and need no calibration, the narrowest
// first; "" if there is none.
func Wider(name string) string {
	p, err := Lookup(name)
	if err != nil {
		return ""
	}
	out := names(func(q *Precision) bool { return q.Name != File && !q.Calibrates() && q.RelL2 < p.RelL2 })
	slices.Reverse(out)
	return join(out, "or")
}

func join(names []string, word string) string {
	last := len(names) - 1
	if last < 1 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:last], ", ") + " " + word + " " + names[last]
}

// Calibrates reports whether layers have formats to choose from.
func (p *Precision) Calibrates() bool { return len(p.Candidates) > 0 }

// Calibrates reports whether the named precision calibrates; false for an unknown name.
func Calibrates(name string) bool {
	p, err := Lookup(name)
	return err == nil && p.Calibrates()
}
