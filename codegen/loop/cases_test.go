package loop

import (
	"fmt"
	"math"
	"math/rand"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/codegen/kerneltest"
	"github.com/spark-compile/spark-compile/codegen/lower"
	"github.com/spark-compile/spark-compile/ir"
)

func uniform(lo, hi float64) kerneltest.Draw {
	return func(r *rand.Rand, _ int) float64 { return lo + (hi-lo)*r.Float64() }
}

func below(n int) kerneltest.Draw {
	return func(r *rand.Rand, _ int) float64 { return float64(r.Intn(n)) }
}

func special(r *rand.Rand, i int) float64 {
	return []float64{math.NaN(), math.Inf(1), math.Inf(-1), 0, 1, -2.5, 2.5, 1e-30}[i%8]
}

type data = []kerneltest.Draw

// cases exercises every op of the table.
func cases() []*testCase {
	T := ir.T
	f16, f32, f64, bf16 := ir.Float16, ir.Float32, ir.Float64, ir.BFloat16
	i8, u8, i16, u16, i32, u32, i64, u64, boolean := ir.Int8, ir.Uint8, ir.Int16, ir.Uint16, ir.Int32, ir.Uint32, ir.Int64, ir.Uint64, ir.Bool
	var cs []*testCase
	add := func(op, name string, attrs ir.Attrs, d data, in ...ir.Type) *testCase {
		c := &testCase{name: op + " " + name, build: node(op, attrs), inputs: in, data: d}
		cs = append(cs, c)
		return c
	}
	type A = ir.Attrs
	floats := []ir.DType{f16, bf16, f32, f64}
	ints := []ir.DType{i8, u8, i16, u16, i32, u32, i64, u64}

	// Elementwise.
	domain := map[string]kerneltest.Draw{
		"Log": uniform(0.01, 9), "Log1p": uniform(-0.9, 9), "Sqrt": uniform(0, 9), "Asin": uniform(-1, 1), "Acos": uniform(-1, 1),
		"Acosh": uniform(1, 9), "Atanh": uniform(-0.95, 0.95), "Exp": uniform(-8, 8), "Tan": uniform(-1, 1), "Ceil": uniform(-9, 9),
		"Floor": uniform(-9, 9), "Round": func(r *rand.Rand, _ int) float64 { return float64(r.Intn(40)-20) / 2 },
	}
	for _, op := range []string{"Ceil", "Floor", "Round", "Reciprocal", "Sqrt", "Exp", "Log", "Log1p", "Sin", "Cos", "Tan", "Asin", "Acos",
		"Atan", "Sinh", "Cosh", "Tanh", "Asinh", "Acosh", "Atanh", "Erf", "Sigmoid", "Silu", "Gelu", "Abs", "Neg", "Sign", "Relu", "IsNaN", "IsInf"} {
		for _, d := range floats {
			c := add(op, d.String(), nil, data{domain[op]}, T(d, 5, 24))
			if (op == "Tan" || op == "Gelu") && d == f64 {
				c.tol = 1e-11
			}
		}
		add(op, "special", nil, data{special}, T(f32, 16)).tol = 1e-5
	}
	add("Gelu", "tanh", A{"tanh": true}, nil, T(f32, 100))
	add("Gelu", "sqrt2", A{"sqrt2": 1.4140625}, nil, T(f16, 7))
	add("IsInf", "negative", A{"positive": false}, data{special}, T(f16, 16))
	for _, op := range []string{"Abs", "Neg", "Sign", "Relu", "BitNot"} {
		for _, d := range ints {
			add(op, d.String(), nil, nil, T(d, 3, 5))
		}
	}
	add("Not", "", nil, nil, T(boolean, 33))
	for _, op := range []string{"Add", "Sub", "Mul", "Div", "Min", "Max", "Mod", "Pow", "Equal", "Less", "LessEqual", "Greater", "GreaterEqual"} {
		for _, d := range floats {
			var fs data
			if op == "Pow" {
				fs = data{uniform(0.1, 3), uniform(-2, 2)}
			}
			c := add(op, d.String(), nil, fs, T(d, 4, 1, 8), T(d, 3, 8))
			if op == "Pow" && d == f64 {
				c.tol = 1e-11
			}
		}
		for _, d := range ints {
			var fs data
			if op == "Pow" {
				fs = data{nil, below(5)}
			}
			add(op, d.String(), nil, fs, T(d, 4, 1, 6), T(d, 3, 6))
		}
		add(op, "special", nil, data{special, func(_ *rand.Rand, i int) float64 { return special(nil, i/8) }}, T(f32, 64), T(f32, 64))
	}
	add("Mod", "fmod", A{"fmod": true}, nil, T(f32, 64), T(f32, 64))
	add("Mod", "fmod i32", A{"fmod": true}, nil, T(i32, 64), T(i32, 64))
	add("Pow", "f32^i64", nil, data{uniform(-3, 3), func(r *rand.Rand, _ int) float64 { return float64(r.Intn(9) - 4) }}, T(f32, 64), T(i64, 64))
	add("Pow", "i32^f32", nil, data{below(9), below(4)}, T(i32, 64), T(f32, 64))
	for _, op := range []string{"And", "Or", "Xor", "Equal"} {
		add(op, "bool", nil, nil, T(boolean, 4, 5), T(boolean, 5))
	}
	for _, op := range []string{"BitAnd", "BitOr", "BitXor", "ShiftLeft", "ShiftRight"} {
		for _, d := range ints {
			add(op, d.String(), nil, data{nil, below(70)}, T(d, 40), T(d, 40))
		}
	}
	for _, d := range append(slices.Clone(floats), append(ints, boolean)...) {
		add("Where", d.String(), nil, nil, T(boolean, 4, 1), T(d, 1, 6), T(d, 4, 6))
	}
	wide := func(r *rand.Rand, i int) float64 { return r.NormFloat64() * math.Ldexp(1, r.Intn(24)-12) }
	small := []ir.DType{ir.Float8E4M3FN, ir.Float8E4M3FNUZ, ir.Float8E5M2, ir.Float8E5M2FNUZ, ir.Float4E2M1, ir.Float8E8M0}
	for _, from := range append(slices.Clone(floats), append(ints, boolean)...) {
		for _, to := range append(append(slices.Clone(floats), append(ints, boolean)...), small...) {
			if to == ir.Float8E8M0 && from != f32 {
				continue
			}
			var f kerneltest.Draw
			if from.IsFloat() {
				f = wide
			}
			add("Cast", from.String()+" to "+to.String(), A{"to": to}, data{f}, T(from, 40))
		}
		if from.IsFloat() {
			add("Cast", "special to i32 from "+from.String(), A{"to": i32}, data{special}, T(from, 8))
			add("Cast", "special to i64 from "+from.String(), A{"to": i64}, data{special}, T(from, 8))
			add("Cast", "special to e4m3 from "+from.String(), A{"to": ir.Float8E4M3FN, "saturate": false}, data{special}, T(from, 8))
			add("Cast", "special to e5m2 from "+from.String(), A{"to": ir.Float8E5M2, "saturate": false}, data{special}, T(from, 8))
		}
	}
	for _, from := range small {
		add("Cast", from.String()+" to f32", A{"to": f32}, nil, T(from, 41))
	}
	for _, from := range []ir.DType{ir.Int4, ir.Uint4, ir.Int2, ir.Uint2} {
		add("Cast", from.String()+" to f32", A{"to": f32}, nil, T(from, 37))
		add("Cast", from.String()+" from i32", A{"to": from}, nil, T(i32, 37))
	}
	add("Cast", "e8m0 up", A{"to": ir.Float8E8M0, "round": "up"}, data{uniform(0.01, 9)}, T(f32, 40))
	add("Cast", "e8m0 down", A{"to": ir.Float8E8M0, "round": "down"}, data{uniform(0.01, 9)}, T(f32, 40))
	for _, p := range [][2]ir.DType{{f32, i32}, {f32, u32}, {i32, f32}, {f16, i16}, {i16, f16}, {u16, bf16}, {f64, i64}, {u64, f64}, {i8, u8}, {ir.Float8E4M3FN, u8}} {
		add("BitCast", p[0].String()+" to "+p[1].String(), A{"to": p[1]}, nil, T(p[0], 40))
	}
	for _, d := range floats {
		add("BatchNorm", d.String(), nil, data{nil, nil, nil, nil, uniform(0.5, 2)}, T(d, 2, 6, 5), T(d, 6), T(d, 6), T(d, 6), T(d, 6))
		for _, to := range []ir.DType{i8, u8, ir.Int4, ir.Uint4, i16, u16} {
			add("QuantizeLinear", d.String()+" to "+to.String(), A{"to": to}, data{nil, uniform(0.1, 0.5)}, T(d, 2, 6, 5), T(d, 6), T(to, 6))
		}
	}
	add("QuantizeLinear", "to e4m3", A{"to": ir.Float8E4M3FN}, data{nil, uniform(0.1, 0.5)}, T(f32, 2, 6), T(f32))
	add("QuantizeLinear", "blocked", A{"to": i8, "axis": 1, "block": 4}, data{nil, uniform(0.1, 0.5)}, T(f32, 2, 12), T(f32, 2, 3), T(i8, 2, 3))
	for _, from := range []ir.DType{i8, u8, ir.Int4, i32, ir.Float8E4M3FN} {
		add("DequantizeLinear", from.String(), A{"to": f32}, data{nil, uniform(0.1, 0.5)}, T(from, 2, 6, 5), T(f32, 6), T(from, 6))
	}
	add("BlockQuantize", "", A{"scale": 0.01}, nil, T(f32, 5, 3, 64))
	add("BlockQuantize", "special", A{"scale": 0.01}, data{special}, T(f32, 32))
	add("DequantizeLinear", "to f16", A{"to": f16, "axis": 1, "block": 4}, data{nil, uniform(0.1, 0.5)}, T(i8, 2, 12), T(f16, 2, 3))

	// Movement.
	for _, d := range []ir.DType{f16, f32, f64, u8, i64, boolean} {
		s := d.String()
		add("Reshape", s, A{"shape": []int{4, 6, 8}}, nil, T(d, 8, 24))
		add("Transpose", s, A{"perm": []int{0, 2, 3, 1}}, nil, T(d, 2, 3, 4, 8))
		add("Expand", s, A{"shape": []int{3, 4, 8}}, nil, T(d, 4, 1))
		add("Slice", s, A{"starts": []int{1, 7}, "sizes": []int{3, 4}, "steps": []int{1, -2}}, nil, T(d, 5, 8))
		add("Concat", s, A{"axis": 1}, nil, T(d, 2, 8, 4), T(d, 2, 3, 4), T(d, 2, 5, 4))
		add("Concat", s+" last", A{"axis": 1}, nil, T(d, 6, 16), T(d, 6, 8))
		add("Tile", s, A{"repeats": []int{2, 3}}, nil, T(d, 3, 4))
		add("Trilu", s, A{"upper": false, "k": -1}, nil, T(d, 2, 5, 6))
		for _, mode := range []string{"constant", "reflect", "edge", "wrap"} {
			add("Pad", s+" "+mode, A{"begin": []int{1, 2}, "end": []int{2, -1}, "mode": mode, "value": 1.0}, nil, T(d, 4, 7))
		}
		index := func(n int) kerneltest.Draw {
			return func(r *rand.Rand, _ int) float64 { return float64(r.Intn(2*n) - n) }
		}
		add("Gather", s, A{"axis": 1}, data{nil, index(7)}, T(d, 3, 7, 4), T(i64, 2, 5))
		add("GatherElements", s, A{"axis": 1}, data{nil, index(7)}, T(d, 3, 7), T(i32, 2, 9))
		add("GatherND", s, A{"batch_dims": 1}, data{nil, index(4)}, T(d, 3, 4, 5, 6), T(i64, 3, 2, 2))
		add("ReverseSequence", s, nil, data{nil, below(7)}, T(d, 6, 4, 2), T(i64, 4))
		add("OneHot", s, A{"depth": 6}, data{func(r *rand.Rand, _ int) float64 { return float64(r.Intn(14) - 7) }}, T(i64, 3, 4), T(d, 2))
		if d == boolean {
			add("ScatterElements", s, A{"axis": 1}, data{nil, index(7)}, T(d, 3, 7), T(i64, 3, 4), T(d, 3, 4))
			continue
		}
		for _, red := range []string{"none", "add", "mul", "max", "min"} {
			add("ScatterElements", s+" "+red, A{"axis": 1, "reduction": red}, data{nil, index(7)}, T(d, 3, 7), T(i64, 2, 9), T(d, 2, 9))
			add("ScatterND", s+" "+red, A{"reduction": red}, data{nil, index(4)}, T(d, 4, 5), T(i64, 3, 2, 1), T(d, 3, 2, 5))
		}
	}
	add("OneHot", "float indices", A{"depth": 6, "axis": 0}, data{below(6)}, T(f32, 3), T(f32, 2))
	for _, mode := range []string{"nearest", "linear", "cubic"} {
		for _, coordinate := range []string{"half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel", "half_pixel_symmetric"} {
			add("Resize", mode+" "+coordinate, A{"sizes": []int{1, 2, 7, 9}, "scales": []float64{1, 1, 7.0 / 4, 9.0 / 5}, "mode": mode, "coordinate": coordinate}, nil, T(f32, 1, 2, 4, 5))
		}
		add("Resize", mode+" antialias", A{"sizes": []int{1, 2, 3, 4}, "scales": []float64{1, 1, 3.0 / 8, 4.0 / 9}, "mode": mode, "antialias": mode != "nearest", "exclude_outside": true}, nil, T(f32, 1, 2, 8, 9))
	}
	add("Resize", "twice f16", A{"sizes": []int{1, 8, 8, 16}, "scales": []float64{1, 2, 2, 1}, "coordinate": "asymmetric", "nearest": "floor"}, nil, T(f16, 1, 4, 4, 16))
	add("Resize", "u8", A{"sizes": []int{7, 9}, "scales": []float64{7.0 / 4, 9.0 / 5}, "mode": "linear"}, data{below(250)}, T(u8, 4, 5))
	add("Resize", "crop", A{"sizes": []int{3, 3}, "scales": []float64{1, 1}, "mode": "linear", "coordinate": "tf_crop_and_resize", "roi": []float64{0.2, -0.4, 1.2, 0.7}, "extrapolation": 9.0}, nil, T(f32, 5, 6))
	for _, mode := range []string{"linear", "nearest", "cubic"} {
		for _, padding := range []string{"zeros", "border", "reflection"} {
			add("GridSample", mode+" "+padding, A{"mode": mode, "padding": padding, "align_corners": padding == "border"}, data{nil, uniform(-1.4, 1.4)}, T(f32, 2, 3, 4, 5), T(f32, 2, 3, 4, 2))
		}
	}
	add("GridSample", "volume", nil, data{nil, uniform(-1.2, 1.2)}, T(f32, 1, 2, 3, 4, 5), T(f32, 1, 2, 3, 4, 3))
	for _, mode := range []string{"avg", "max"} {
		add("RoiAlign", mode, A{"mode": mode, "height": 3, "width": 2, "sampling_ratio": 2, "scale": 0.5, "half_pixel": mode == "avg"}, data{nil, func(r *rand.Rand, i int) float64 { return float64(i%4/2*6) + 6*r.Float64() }, below(2)}, T(f32, 2, 3, 6, 7), T(f32, 4, 4), T(i64, 4))
	}

	for _, ratio := range []int{0, 3} {
		for _, vertical := range []bool{false, true} {
			for _, d := range []ir.DType{f16, f32, ir.Float64} {
				a := A{"bins": 3, "size": 7, "vertical": vertical, "sampling_ratio": ratio, "scale": 0.3, "half_pixel": d == f32}
				draw := func(r *rand.Rand, i int) float64 { return float64(i%4/2*(i/4*9-4)) + 20*r.Float64() - 8 }
				add("RoiAlignWeights", fmt.Sprint(d, ratio, vertical), a, data{draw}, T(d, 8, 4))
			}
		}
	}

	// Frames of 20 × 12 pixels, 24 bytes from row to row, through homographies that also look outside, and through
	// those of no use.
	homography := func(r *rand.Rand, i int) float64 {
		return []float64{1.3, .1, -2, .08, 1.1, -1.5, .004, .006, 1}[i%9] * (.9 + .2*r.Float64())
	}
	format := func(_ *rand.Rand, i int) float64 { return []float64{20, 12, 24, 290}[i] }
	planes := []int{0, 0, 1, 0, 0, 1, 1, 1}
	for _, linear := range []bool{false, true} {
		for _, fill := range []int{-1, 16} {
			for i, m := range []kerneltest.Draw{homography, func(*rand.Rand, int) float64 { return 0 }, special} {
				name := []string{"homography", "zeros", "special"}[i]
				a := A{"height": 10, "width": 16, "linear": linear, "fill": fill}
				add("WarpFrame", fmt.Sprintf("luma %s linear %v fill %d", name, linear, fill), a, data{m, format, below(256)}, T(f32, 1, 3, 3), T(i32, 4), T(u8, 440))
				a = A{"height": 10, "width": 16, "linear": linear, "fill": fill, "phases": planes}
				add("WarpFrame", fmt.Sprintf("planes %s linear %v fill %d", name, linear, fill), a, data{m, format, below(256), below(256)}, T(f32, 2, 3, 3), T(i32, 4), T(u8, 440), T(u8, 440))
			}
		}
	}

	// Reductions.
	for _, op := range []string{"ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd"} {
		var fs data
		if op == "ReduceProd" {
			fs = data{uniform(0.8, 1.2)}
		}
		for _, d := range floats {
			add(op, "rows "+d.String(), A{"axes": []int{1}}, fs, T(d, 12, 200))
			add(op, "columns "+d.String(), A{"axes": []int{0}, "keepdims": true}, fs, T(d, 90, 40))
			add(op, "middle "+d.String(), A{"axes": []int{0, 2}}, fs, T(d, 3, 8, 11))
		}
		for _, d := range append(slices.Clone(ints), boolean) {
			if d == boolean && op != "ReduceMax" && op != "ReduceMin" {
				continue
			}
			add(op, "rows "+d.String(), A{"axes": []int{1}}, nil, T(d, 6, 70))
			add(op, "columns "+d.String(), A{"axes": []int{0}}, nil, T(d, 70, 40))
		}
		add(op, "all", A{"axes": []int{0, 1}}, fs, T(f32, 37, 211))
		add(op, "nothing", A{"axes": []int{}}, fs, T(f32, 37))
		add(op, "long", A{"axes": []int{1}}, fs, T(f32, 2, 20000)).tol = 1e-5
		if op != "ReduceMean" {
			add(op, "empty", A{"axes": []int{1}}, nil, T(f32, 3, 0))
			add(op, "empty i8", A{"axes": []int{1}}, nil, T(i8, 3, 0))
		}
	}
	add("ReduceMean", "pool of an image", A{"axes": []int{1, 2}, "keepdims": true}, nil, T(f16, 1, 16, 24, 64))
	add("ReduceSum", "image of channels first", A{"axes": []int{2, 3}}, nil, T(f32, 1, 40, 16, 24))
	ties := func(r *rand.Rand, _ int) float64 { return float64(r.Intn(5)) }
	for _, op := range []string{"ArgMax", "ArgMin"} {
		for _, d := range []ir.DType{f16, f32, f64, i8, i32, u64} {
			for _, last := range []bool{false, true} {
				add(op, fmt.Sprint(d, last), A{"axis": 1, "last": last, "keepdims": last}, data{ties}, T(d, 5, 40, 3))
			}
		}
	}
	for _, op := range []string{"Softmax", "LogSoftmax"} {
		for _, d := range floats {
			add(op, "rows "+d.String(), A{"axis": 1}, nil, T(d, 12, 200))
			add(op, "axis 0 "+d.String(), A{"axis": 0}, nil, T(d, 20, 24))
		}
		add(op, "short", A{"axis": 1}, nil, T(f32, 300, 25))
		add(op, "long", A{"axis": 1}, nil, T(f32, 2, 5000))
	}
	for _, op := range []string{"LayerNorm", "RMSNorm"} {
		for _, d := range floats {
			in := []ir.Type{T(d, 12, 256), T(d, 256)}
			if op == "LayerNorm" {
				in = append(in, T(d, 256))
			}
			add(op, "rows "+d.String(), A{"axis": 1}, nil, in...)
			add(op, "two dims "+d.String(), A{"axis": 1}, nil, T(d, 3, 5, 7))
		}
		add(op, "long", A{"axis": 1}, nil, T(f32, 2, 9000))
	}
	for _, op := range []string{"LayerNormGrad", "RMSNormGrad", "SoftmaxGrad"} {
		norm := op != "SoftmaxGrad"
		rows := func(what string, d ir.DType, shape ...int) {
			in := []ir.Type{T(d, shape...), T(d, shape...)}
			add(op, what+" "+d.String(), A{"axis": 1}, nil, in...)
			if norm {
				add(op, what+" with scale "+d.String(), A{"axis": 1}, nil, append(in, T(d, shape[1:]...))...)
			}
		}
		for _, d := range floats {
			rows("rows", d, 12, 256)
			rows("odd", d, 5, 333)
		}
		rows("many", f32, 800, 384)
		rows("long", f32, 3, 4099)
		if op != "RMSNormGrad" { // it leaves what ε adds to x², which f32 does not tell
			rows("one element", f32, 7, 1)
		}
		if norm {
			rows("three dims", f32, 3, 5, 7, 2)
		} else {
			add(op, "axis 0", A{"axis": 0}, nil, T(f32, 20, 24), T(f32, 20, 24))
		}
	}
	for _, op := range []string{"CumSum", "CumProd"} {
		for _, d := range []ir.DType{f16, f32, f64, i32, i64} {
			for _, m := range []int{0, 1, 2, 3} {
				add(op, fmt.Sprint(d, m), A{"axis": 1, "exclusive": m&1 > 0, "reverse": m&2 > 0}, nil, T(d, 3, 9, 2))
			}
		}
	}
	for _, d := range []ir.DType{f16, f32, f64, i8, i64, u64} {
		for _, largest := range []bool{true, false} {
			add("TopK", fmt.Sprint(d, largest), A{"k": 5, "axis": 1, "largest": largest}, data{ties}, T(d, 4, 23, 2))
		}
	}
	add("TopK", "NaN", A{"k": 8, "axis": 0}, data{special}, T(f32, 8))

	// Contractions and windows: what their families do not take.
	for _, d := range []ir.DType{f16, f32, f64, i32, u8} {
		s := d.String()
		add("MatMul", s, nil, nil, T(d, 2, 1, 5, 33), T(d, 3, 33, 6))
		add("MatMul", s+" transposed", A{"transA": true, "transB": true}, nil, T(d, 24, 5), T(d, 6, 24))
		add("MatMul", s+" vectors", nil, nil, T(d, 24), T(d, 24))
		add("MatMul", s+" matrix vector", nil, nil, T(d, 40, 128), T(d, 128))
		for _, layout := range []string{"NCHW", "NHWC"} {
			x := []int{2, 6, 9, 8}
			if layout == "NHWC" {
				x = []int{2, 9, 8, 6}
			}
			add("Conv", s+" "+layout, A{"strides": []int{2, 1}, "pads": []int{1, 0, 1, 2}, "dilations": []int{1, 2}, "group": 2, "layout": layout}, nil, T(d, x...), T(d, 4, 3, 3, 3), T(d, 4))
		}
	}
	for _, d := range floats {
		s := d.String()
		for _, layout := range []string{"NCHW", "NHWC"} {
			x := []int{2, 6, 5, 4}
			if layout == "NHWC" {
				x = []int{2, 5, 4, 6}
			}
			add("ConvTranspose", s+" "+layout, A{"strides": []int{2, 3}, "pads": []int{1, 0, 1, 1}, "dilations": []int{1, 2}, "output_padding": []int{1, 0}, "group": 2, "layout": layout}, nil, T(d, x...), T(d, 6, 2, 3, 2), T(d, 4))
			img := []int{2, 3, 9, 8}
			if layout == "NHWC" {
				img = []int{2, 9, 8, 3}
			}
			pool := A{"kernel": []int{3, 2}, "strides": []int{2, 2}, "pads": []int{1, 0, 1, 1}, "dilations": []int{1, 2}, "layout": layout}
			with := func(k string, v any) A {
				c := pool.Clone()
				c[k] = v
				return c
			}
			add("MaxPool", s+" "+layout, with("ceil", true), nil, T(d, img...))
			add("AveragePool", s+" "+layout, with("ceil", true), nil, T(d, img...))
			add("AveragePool", s+" include "+layout, with("include_pad", true), nil, T(d, img...))
			add("LpPool", s+" "+layout, pool, nil, T(d, img...))
			add("LpPool", s+" 3 "+layout, with("p", 3), nil, T(d, img...))
			if layout == "NCHW" {
				add("MaxPool", s+" indices", with("indices", true), data{ties}, T(d, img...))
				c := with("indices", true)
				c["column_major"] = true
				add("MaxPool", s+" column major", c, data{ties}, T(d, img...))
			}
		}
		add("Einsum", s, A{"equation": "bij,bjk->bik"}, nil, T(d, 2, 3, 17), T(d, 2, 17, 4))
		add("Einsum", s+" trace", A{"equation": "ii->"}, nil, T(d, 9, 9))
		add("Attention", s, A{"scale": 0.25}, nil, T(d, 1, 4, 9, 16), T(d, 1, 2, 7, 16), T(d, 1, 2, 7, 8))
		add("Attention", s+" causal", A{"scale": 0.25, "causal": true, "softcap": 2.0}, nil, T(d, 1, 2, 9, 16), T(d, 1, 2, 9, 16), T(d, 1, 2, 9, 8), T(d, 9, 9))
		add("MatMulSum", s, A{"transB": true}, nil, T(d, 2, 3, 9), T(d, 5, 9), T(d, 2, 3, 2), T(d, 2, 5), T(d, 9))
		add("AttentionGrad", s, A{"scale": 0.25, "causal": true}, nil, T(d, 1, 2, 3, 4), T(d, 1, 2, 5, 4), T(d, 1, 2, 5, 2), T(d, 1, 2, 3, 2), T(d, 3, 1))
	}
	add("MaxPool", "u8", A{"kernel": []int{2}, "strides": []int{2}, "pads": []int{1, 0}, "dilations": []int{1}}, nil, T(u8, 2, 3, 9))
	eights := func(m int) kerneltest.Draw {
		return func(r *rand.Rand, _ int) float64 { return float64(8 * r.Intn(m)) }
	}
	for _, d := range []ir.DType{f16, f32, i32} {
		c := add("SegmentedMatVec", d.String(), nil, data{nil, nil, nil, eights(3), eights(9)}, T(d, 96), T(d, 70, 64), T(d, 70), T(i32, 70), T(i32, 70))
		c.consts = []bool{false, true, true, true, true}
		c = add("SegmentedMatVec", d.String()+" odd", nil, data{nil, nil, below(20), below(20)}, T(d, 96), T(d, 7, 33), T(d, 7), T(i32, 7), T(i32, 7))
		c.data = data{nil, nil, nil, below(20), below(20)}
	}
	return cs
}

func TestEveryOpAgreesWithTheEvaluator(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range cases() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.check(t, "sm_121")
		})
		op, _, _ := cut(c.name)
		seen[op] = true
	}
	for _, op := range ir.Ops() {
		require.True(t, seen[op.Name] || op.Expand != nil || !lower.Covers(op.Name), "no case for %s", op.Name)
	}
}

func cut(name string) (op, rest string, ok bool) {
	for i := range name {
		if name[i] == ' ' {
			return name[:i], name[i+1:], true
		}
	}
	return name, "", false
}
