package foreignkernels

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/spark-compile/spark-compile/hal/emu"
)

// Tolerances, in parts of the sum of magnitudes: of sums in f32, of functions that the CPU device rounds and hardware approximates, of
// results rounded to f16 and bf16.
const (
	exact  = 0
	summed = 2e-6
	ofHalf = 1e-3
	ofBF   = 8e-3
)

// Cases returns all cases.
func Cases() []Case {
	return slices.Concat(products(), blockScaled(), rowsOfTriton(), conversions(), plainCUDA(), atoms(), tilesOfCuTe())
}

// Find returns the case of that name.
func Find(name string) (*Case, error) {
	for _, c := range Cases() {
		if c.Name() == name {
			return &c, nil
		}
	}
	return nil, fmt.Errorf("no case %s", name)
}

func ceil(a, b int) int { return (a + b - 1) / b }

func products() (all []Case) {
	for _, p := range []struct {
		file, format string
		tile         [2]int
		turned, odd  bool
	}{
		{"f16", "f16", [2]int{32, 32}, false, false}, {"f16_new", "f16", [2]int{64, 32}, false, false}, {"f16_odd", "f16", [2]int{32, 32}, false, true},
		{"f16_turned", "f16", [2]int{32, 32}, true, false}, {"bf16", "bf16", [2]int{32, 32}, false, false}, {"bf16_turned", "bf16", [2]int{64, 32}, true, false},
		{"e4m3", "e4m3", [2]int{32, 32}, true, false}, {"e4m3_across", "e4m3", [2]int{32, 32}, false, false}, {"e5m2", "e5m2", [2]int{32, 32}, true, false},
		{"tf32", "tf32", [2]int{32, 32}, false, false}, {"tf32_new", "tf32", [2]int{32, 32}, true, false}, {"s8", "s8", [2]int{32, 32}, true, false},
	} {
		rows, columns, depth := 80, 48, 208 // multiples of 16 but not of the tiles
		if p.odd {
			rows, columns, depth = 45, 37, 115
		}
		all = append(all, Case{File: "triton_product_" + p.file, Grid: [3]int{ceil(rows, p.tile[0]), ceil(columns, p.tile[1]), 1}, Make: func(r *rand.Rand) ([]any, func() error) {
			x, w := draw(r, p.format, rows*depth), draw(r, p.format, depth*columns)
			want, size := multiply(x.values, w.values, rows, columns, depth, p.turned)
			stride := columns
			if p.turned {
				stride = depth
			}
			args := []any{x.data, w.data, nil, int32(rows), int32(columns), int32(depth), int32(depth), int32(stride)}
			if p.format == "s8" {
				y := make([]int32, rows*columns)
				args[2] = emu.Out{Data: y}
				return args, func() error { return near(y, want, nil, exact) }
			}
			y := make([]float32, rows*columns)
			args[2] = emu.Out{Data: y}
			return args, func() error { return near(y, want, size, summed) }
		}})
	}
	return all
}

func blockScaled() (all []Case) {
	for _, p := range []struct {
		file, x, w, scale string
		block             int
		tile              [2]int
		depth             int
	}{
		{"nvfp4", "e2m1", "e2m1", "ue4m3", 16, [2]int{32, 32}, 384}, {"nvfp4_wide", "e2m1", "e2m1", "ue4m3", 16, [2]int{64, 64}, 256},
		{"nvfp4_stored", "e2m1", "e2m1", "ue4m3", 16, [2]int{128, 64}, 192}, {"nvfp4_small", "e2m1", "e2m1", "ue4m3", 16, [2]int{16, 32}, 384}, {"mxfp4", "e2m1", "e2m1", "ue8m0", 32, [2]int{32, 32}, 384},
		{"mxfp8_e4m3", "e4m3", "e4m3", "ue8m0", 32, [2]int{32, 32}, 256}, {"mxfp8_e5m2_e4m3", "e5m2", "e4m3", "ue8m0", 32, [2]int{32, 32}, 256},
		{"mxfp8_e4m3_e2m1", "e4m3", "e2m1", "ue8m0", 32, [2]int{32, 32}, 256},
	} {
		rows, columns := 2*p.tile[0], 2*p.tile[1]
		all = append(all, Case{File: "triton_" + p.file, Grid: [3]int{2, 2, 1}, Make: func(r *rand.Rand) ([]any, func() error) {
			x, w := draw(r, p.x, rows*p.depth), draw(r, p.w, columns*p.depth)
			xs, ws := draw(r, p.scale, rows*p.depth/p.block), draw(r, p.scale, columns*p.depth/p.block)
			want, size := multiply(x.scaled(xs, p.block).values, w.scaled(ws, p.block).values, rows, columns, p.depth, true)
			y := make([]float32, rows*columns)
			return []any{x.data, xs.data, w.data, ws.data, emu.Out{Data: y}, int32(columns), int32(p.depth)}, func() error { return near(y, want, size, summed) }
		}})
	}
	return all
}

func rowsOfTriton() (all []Case) {
	for _, target := range []string{"80", "121"} {
		all = append(all, Case{File: "triton_normal_" + target, Grid: [3]int{3, 1, 1}, Make: func(r *rand.Rand) ([]any, func() error) {
			const rows, columns = 3, 413
			x, gain, y := draw(r, "f16", rows*columns), draw(r, "f32", columns), make([]uint16, rows*columns)
			want, size := make([]float64, rows*columns), make([]float64, rows*columns)
			for row := range rows {
				v := x.values[row*columns : (row+1)*columns]
				squares, most, sum := 0.0, math.Inf(-1), 0.0
				for _, x := range v {
					squares += float64(x * x)
				}
				root := math.Sqrt(squares/columns + 1e-5)
				for _, x := range v {
					most = max(most, x/root)
				}
				for _, x := range v {
					sum += math.Exp(x/root - most)
				}
				for c, x := range v {
					want[row*columns+c] = math.Exp(x/root-most) / sum * gain.values[c]
					size[row*columns+c] = math.Abs(want[row*columns+c]) + 0x1p-14 // below, f16 has fewer digits
				}
			}
			return []any{x.data, gain.data, emu.Out{Data: y}, int32(columns), float32(1e-5)}, func() error { return nearValues(decoded(y, "f16"), want, size, ofHalf) }
		}}, Case{File: "triton_attend_" + target, Grid: [3]int{4, 1, 1}, Make: func(r *rand.Rand) ([]any, func() error) {
			const tokens, width = 109, 32
			q, k, v, y := draw(r, "f16", tokens*width), draw(r, "f16", tokens*width), draw(r, "f16", tokens*width), make([]uint16, tokens*width)
			want, size := make([]float64, tokens*width), make([]float64, tokens*width)
			for t := range tokens {
				scores, sum := make([]float64, t+1), 0.0
				for s := range scores {
					for d := range width {
						scores[s] += float64(q.values[t*width+d] * k.values[s*width+d])
					}
					scores[s] = math.Exp(scores[s] / math.Sqrt(width))
					sum += scores[s]
				}
				for d := range width {
					for s, p := range scores {
						want[t*width+d] += float64(p / sum * v.values[s*width+d])
						size[t*width+d] += float64(p / sum * math.Abs(v.values[s*width+d]))
					}
				}
			}
			return []any{q.data, k.data, v.data, emu.Out{Data: y}, int32(tokens), float32(math.Log2E / math.Sqrt(width))},
				func() error { return nearValues(decoded(y, "f16"), want, size, 2*ofHalf) }
		}}, Case{File: "triton_totals_" + target, Grid: [3]int{5, 1, 1}, Make: func(r *rand.Rand) ([]any, func() error) {
			const n = 1150
			x, bins := draw(r, "f32", n), make([]int32, n)
			want, size, counts := []float64{0, math.Inf(-1), math.Inf(1)}, []float64{0, 0, 0}, make([]float64, 18)
			counts[17] = 100
			for i, v := range x.values {
				bins[i] = int32(r.IntN(13)) + 2
				want[0], want[1], want[2] = want[0]+v, max(want[1], v), min(want[2], v)
				size[0] += math.Abs(v)
				counts[bins[i]]++
				counts[16], counts[17] = max(counts[16], float64(bins[i])), min(counts[17], float64(bins[i]))
			}
			counts[17] = 0 // what lies beyond the end loads as 0
			sums, got := []float32{0, float32(math.Inf(-1)), float32(math.Inf(1))}, make([]int32, 18)
			got[17] = 100
			return []any{x.data, bins, sums, got, int32(n)}, func() error {
				if err := near(got, counts, nil, exact); err != nil {
					return err
				}
				return near(sums, want, size, summed)
			}
		}}, Case{File: "triton_running_" + target, Grid: [3]int{2, 1, 1}, Make: func(r *rand.Rand) ([]any, func() error) {
			const rows, columns = 2, 470
			x, y := draw(r, "f32", rows*columns), make([]float32, rows*columns)
			want, size := make([]float64, rows*columns), make([]float64, rows*columns)
			for row := range rows {
				sum, of := 0.0, 0.0
				for c := range columns {
					v := x.values[row*columns+c]
					sum, of = sum+v, of+math.Abs(v)
					want[row*columns+c], size[row*columns+c] = sum, of
				}
			}
			return []any{x.data, emu.Out{Data: y}, int32(columns)}, func() error { return near(y, want, size, summed) }
		}}, Case{File: "triton_turn_" + target, Grid: [3]int{2, 2, 1}, Make: func(r *rand.Rand) ([]any, func() error) {
			const rows, columns = 80, 48
			x, y, want := draw(r, "f16", rows*columns), make([]uint16, rows*columns), make([]float64, rows*columns)
			for row := range rows {
				for c := range columns {
					want[c*rows+row] = x.values[row*columns+c]
				}
			}
			return []any{x.data, emu.Out{Data: y}, int32(rows), int32(columns)}, func() error { return nearValues(decoded(y, "f16"), want, nil, exact) }
		}})
	}
	all = append(all, Case{File: "triton_soften", Grid: [3]int{3, 1, 1}, Make: func(r *rand.Rand) ([]any, func() error) {
		const rows, columns = 3, 777
		x, y := draw(r, "f32", rows*columns), make([]float32, rows*columns)
		want := make([]float64, rows*columns)
		for row := range rows {
			v, sum := x.values[row*columns:(row+1)*columns], 0.0
			most := slices.Max(v)
			for _, x := range v {
				sum += math.Exp(x - most)
			}
			for c, x := range v {
				want[row*columns+c] = math.Exp(x-most) / sum
			}
		}
		return []any{x.data, emu.Out{Data: y}, int32(columns)}, func() error { return near(y, want, nil, 5*summed) }
	}}, Case{File: "triton_centred", Grid: [3]int{3, 1, 1}, Make: func(r *rand.Rand) ([]any, func() error) {
		const rows, columns = 3, 413
		x, y := draw(r, "f16", rows*columns), make([]uint16, rows*columns)
		want, size := make([]float64, rows*columns), make([]float64, rows*columns)
		for row := range rows {
			sum := 0.0
			for _, v := range x.values[row*columns : (row+1)*columns] {
				sum += v
			}
			for c, v := range x.values[row*columns : (row+1)*columns] {
				want[row*columns+c], size[row*columns+c] = v-sum/columns, math.Abs(v)+math.Abs(sum/columns)
			}
		}
		return []any{x.data, emu.Out{Data: y}, int32(columns)}, func() error { return nearValues(decoded(y, "f16"), want, size, ofHalf) }
	}})
	all = append(all, Case{File: "triton_greatest", Grid: [3]int{3, 1, 1}, Make: func(r *rand.Rand) ([]any, func() error) {
		const rows, columns = 3, 413
		x, y, want := draw(r, "f32", rows*columns), make([]int32, rows), make([]float64, rows)
		for row := range rows {
			v := x.values[row*columns : (row+1)*columns]
			want[row] = float64(slices.Index(v, slices.Max(v)))
		}
		return []any{x.data, emu.Out{Data: y}, int32(columns)}, func() error { return near(y, want, nil, exact) }
	}}, Case{File: "triton_digits", Grid: [3]int{2, 1, 1}, Make: func(r *rand.Rand) ([]any, func() error) {
		const n = 900
		x, y, want := draw(r, "s32", n), make([]int32, n), make([]float64, n)
		for i, v := range x.data.([]int32) {
			want[i] = float64((v/7 + v%1000) ^ int32(uint64(uint32(v))*2654435761>>32) ^ int32(int16(v)/37))
		}
		return []any{x.data, emu.Out{Data: y}, int32(n)}, func() error { return near(y, want, nil, exact) }
	}})
	for format, tolerance := range map[string]float64{"f16": ofHalf, "bf16": ofBF} {
		all = append(all, Case{File: "triton_halves_" + format, Grid: [3]int{2, 1, 1}, Make: func(r *rand.Rand) ([]any, func() error) {
			const n = 900
			x, w, y := draw(r, format, n), draw(r, format, n), make([]uint16, n)
			want, size := make([]float64, n), make([]float64, n)
			for i, v := range x.values {
				p := float64(v * w.values[i])
				want[i], size[i] = max(p+v, 0), math.Abs(p)+math.Abs(v)
			}
			return []any{x.data, w.data, emu.Out{Data: y}, int32(n)}, func() error { return nearValues(decoded(y, format), want, size, tolerance) }
		}})
	}
	return all
}

// conversions are to a narrower type and back: both exactly as rounding once gives.
func conversions() (all []Case) {
	for _, p := range []struct{ file, wide, format, back string }{
		{"e4m3", "f32", "e4m3", "f32"}, {"e5m2", "f32", "e5m2", "f16"}, {"f16", "f32", "f16", "f32"}, {"bf16", "f32", "bf16", "f32"},
		{"e4m3_f16", "f16", "e4m3", "f16"}, {"e4m3_bf16", "bf16", "e4m3", "bf16"}, {"s8", "f32", "s8", "f32"}, {"s16", "f32", "s16", "f32"}, {"s32", "f32", "s32", "f32"},
	} {
		all = append(all, Case{File: "triton_narrow_" + p.file, Grid: [3]int{4, 1, 1}, Make: func(r *rand.Rand) ([]any, func() error) {
			const n = 2000
			x := draw(r, p.wide, n)
			for i := range x.values { // from far below the least to beyond the greatest, halfway cases among them
				v := x.values[i] * math.Exp2(float64(r.IntN(30)-12))
				switch {
				case p.format[0] == 's':
					v = x.values[i] * map[string]float64{"s8": 40, "s16": 1e4, "s32": 1e8}[p.format]
					v = min(max(v, map[string]float64{"s8": -128, "s16": -32768, "s32": -1e9}[p.format]), map[string]float64{"s8": 127, "s16": 32767, "s32": 1e9}[p.format])
				case i%4 == 0:
					f := narrow[p.format]
					code := uint32(r.IntN(1<<(f.Bits()-1) - 1))
					if v = (f.Decode(code) + f.Decode(code+1)) / 2; math.IsNaN(v) || math.IsInf(v, 0) {
						v = 1
					}
				}
				if p.wide == "f32" {
					x.data.([]float32)[i] = float32(v)
					x.values[i] = float64(float32(v))
				} else {
					code := narrow[p.wide].Encode(v, true)
					x.data.([]uint16)[i] = uint16(code)
					x.values[i] = narrow[p.wide].Decode(code)
				}
			}
			want := make([]float64, n)
			saturates := p.format == "e4m3" || p.format == "e5m2"
			for i, v := range x.values {
				if p.format[0] == 's' {
					want[i] = math.Trunc(v)
				} else {
					want[i] = narrow[p.format].Decode(narrow[p.format].Encode(v, saturates))
				}
			}
			var y, z any
			var values func() ([]float64, []float64)
			results := func(a any, format string) []float64 {
				switch a := a.(type) {
				case []uint8:
					if format == "s8" {
						out := make([]float64, len(a))
						for i, b := range a {
							out[i] = float64(int8(b))
						}
						return out
					}
					return decoded(a, format)
				case []uint16:
					return decoded(a, format)
				case []int16:
					return floats(a)
				case []int32:
					return floats(a)
				}
				return floats(a.([]float32))
			}
			make1 := func(format string) any {
				switch format {
				case "e4m3", "e5m2", "s8":
					return make([]uint8, n)
				case "f16", "bf16":
					return make([]uint16, n)
				case "s16":
					return make([]int16, n)
				case "s32":
					return make([]int32, n)
				}
				return make([]float32, n)
			}
			y, z = make1(p.format), make1(p.back)
			values = func() ([]float64, []float64) { return results(y, p.format), results(z, p.back) }
			return []any{x.data, emu.Out{Data: y}, emu.Out{Data: z}, int32(n)}, func() error {
				gotY, gotZ := values()
				if err := nearValues(gotY, want, nil, exact); err != nil {
					return err
				}
				again := slices.Clone(want)
				if p.format == "s32" { // the way back rounds
					for i := range again {
						again[i] = float64(float32(want[i]))
					}
				}
				return nearValues(gotZ, again, nil, exact)
			}
		}})
	}
	return all
}

func floats[T number](a []T) []float64 {
	out := make([]float64, len(a))
	for i, x := range a {
		out[i] = float64(x)
	}
	return out
}

func plainCUDA() []Case {
	const file = "nvcc_plain"
	return []Case{
		{File: file, Kernel: "sum", Grid: [3]int{3, 1, 1}, Block: [3]int{256, 1, 1}, Make: func(r *rand.Rand) ([]any, func() error) {
			x, y, want, size := draw(r, "f32", 2900), []float32{0}, []float64{0}, []float64{0}
			for _, v := range x.values {
				want[0], size[0] = want[0]+v, size[0]+math.Abs(v)
			}
			return []any{x.data, y, int32(2900)}, func() error { return near(y, want, size, summed) }
		}},
		{File: file, Kernel: "bins", Grid: [3]int{2, 1, 1}, Block: [3]int{128, 1, 1}, Make: func(r *rand.Rand) ([]any, func() error) {
			x, y, want := draw(r, "u8", 1500), make([]uint32, 64), make([]float64, 64)
			for _, v := range x.data.([]uint8) {
				want[v%64]++
			}
			return []any{x.data, y, int32(1500)}, func() error { return near(y, want, nil, exact) }
		}},
		{File: file, Kernel: "prefix", Grid: [3]int{3, 1, 1}, Block: [3]int{128, 1, 1}, Make: func(r *rand.Rand) ([]any, func() error) {
			x, y, want := make([]int32, 384), make([]int32, 384), make([]float64, 384)
			for i := range x {
				x[i] = int32(r.IntN(2001) - 1000)
				want[i] = float64(x[i])
				if i%128 > 0 {
					want[i] += want[i-1]
				}
			}
			return []any{x, emu.Out{Data: y}}, func() error { return near(y, want, nil, exact) }
		}},
		{File: file, Kernel: "lanes", Grid: [3]int{4, 1, 1}, Block: [3]int{32, 1, 1}, Make: func(r *rand.Rand) ([]any, func() error) {
			x, from, y, want := draw(r, "s32", 128).data.([]int32), make([]int32, 128), make([]int32, 512), make([]float64, 512)
			for i := range from {
				from[i] = int32(r.IntN(32))
				w := i / 32 * 32
				var sum int32
				most, least := int32(math.MinInt32), uint32(math.MaxUint32)
				for _, v := range x[w : w+32] {
					sum, most, least = sum+v, max(most, v), min(least, uint32(v))
				}
				want[4*i], want[4*i+1], want[4*i+2], want[4*i+3] = 0, float64(sum), float64(most), float64(int32(least))
			}
			for i := range from {
				want[4*i] = float64(x[i/32*32+int(from[i])])
			}
			return []any{x, from, emu.Out{Data: y}}, func() error { return near(y, want, nil, exact) }
		}},
		{File: file, Kernel: "integers", Grid: [3]int{2, 1, 1}, Block: [3]int{64, 1, 1}, Make: func(r *rand.Rand) ([]any, func() error) {
			x, y, want := make([]uint32, 128), make([]uint32, 1024), make([]float64, 1024)
			for i := range x {
				v := r.Uint32()
				x[i] = v
				h, wide := uint16(v), uint64(v)*2654435761+uint64(v)
				perm := func(sel uint32) (out uint32) {
					all := uint64(^v)<<32 | uint64(v)
					for b := range 4 {
						out |= uint32(all>>(8*(sel>>(4*b)&7))&255) << (8 * b)
					}
					return out
				}
				for j, u := range []uint32{uint32(h/10) + uint32(h%10)*65536, v>>3&31 | v>>7&2047<<5 | v<<16, uint32(wide >> 32), v<<7 | v>>25,
					uint32(int32(v)/1000) ^ v/48271, perm(0x2614), uint32(int8(v)) + uint32(int16(v)), uint32(wide % 1000003)} {
					want[8*i+j] = float64(u)
				}
			}
			return []any{x, emu.Out{Data: y}}, func() error { return near(y, want, nil, exact) }
		}},
		{File: file, Kernel: "numbers", Grid: [3]int{2, 1, 1}, Block: [3]int{64, 1, 1}, Make: func(r *rand.Rand) ([]any, func() error) {
			x, y, z := draw(r, "f32", 128), make([]float32, 1024), make([]float64, 128)
			want, wantZ := make([]float64, 1024), make([]float64, 128)
			for i := range x.values {
				v := float32(x.values[i] * 4)
				x.data.([]float32)[i], x.values[i] = v, float64(v)
				e := float64(v)
				down := float64(e*float64(float32(1.1))) + float64(float32(0.3)) // exact enough to distinguish the neighbours
				f := float32(down)
				if float64(f) > down {
					f = math.Nextafter32(f, float32(math.Inf(-1)))
				}
				quotient := float64(float32(e * e))
				if v > 1 {
					quotient = float64(v / 3)
				}
				for j, u := range []float64{min(max(e, 0), 1), float64(f), math.Trunc(e), math.Trunc(e), math.Floor(e) + 0.5*math.Ceil(e),
					float64(float32(min(e, 3.25) - max(e, -1.5))), quotient, float64(uint8(int32(v)))} {
					want[8*i+j] = u
				}
				wantZ[i] = e*e/3 - 0.5
			}
			return []any{x.data, emu.Out{Data: y}, emu.Out{Data: z}}, func() error {
				if err := near(y, want, nil, exact); err != nil {
					return err
				}
				return near(z, wantZ, nil, 1e-13)
			}
		}},
		{File: file, Kernel: "tiled", Grid: [3]int{3, 3, 1}, Block: [3]int{16, 16, 1}, Make: func(r *rand.Rand) ([]any, func() error) {
			const rows, columns, depth = 45, 37, 70
			x, w, y := draw(r, "f32", rows*depth), draw(r, "f32", depth*columns), make([]float32, rows*columns)
			want, size := multiply(x.values, w.values, rows, columns, depth, false)
			return []any{x.data, w.data, emu.Out{Data: y}, int32(rows), int32(columns), int32(depth)}, func() error { return near(y, want, size, summed) }
		}},
	}
}

// atoms are single mma of one warp, of 16 rows and 8 columns, added to what y holds.
func atoms() (all []Case) {
	for _, p := range []struct {
		file, kernel, x, w, scale string
		depth, block              int
	}{
		{"cute_80", "atom_f16", "f16", "f16", "", 16, 0}, {"cute_80", "atom_bf16", "bf16", "bf16", "", 16, 0}, {"cute_80", "atom_tf32", "tf32", "tf32", "", 8, 0},
		{"cute_80", "atom_s8", "s8", "s8", "", 32, 0}, {"cute_80", "atom_u8_s8", "u8", "s8", "", 32, 0}, {"cute_80", "atom_s8_u8", "s8", "u8", "", 32, 0},
		{"cute_121", "atom_e4m3", "e4m3", "e4m3", "", 32, 0}, {"cute_121", "atom_e4m3_e5m2", "e4m3", "e5m2", "", 32, 0}, {"cute_121", "atom_e5m2_e4m3", "e5m2", "e4m3", "", 32, 0},
		{"cute_121", "atom_e5m2", "e5m2", "e5m2", "", 32, 0}, {"cute_121", "atom_e4m3_e2m1", "e4m3", "e2m1byte", "", 32, 0}, {"cute_121", "atom_e2m1_e5m2", "e2m1byte", "e5m2", "", 32, 0},
		{"cute_121", "atom_nvfp4", "e2m1byte", "e2m1byte", "ue4m3", 64, 16}, {"cute_121", "atom_mxfp4", "e2m1byte", "e2m1byte", "ue8m0", 64, 32},
		{"cute_121", "atom_mxfp8", "e4m3", "e4m3", "ue8m0", 32, 32},
	} {
		all = append(all, Case{File: p.file, Kernel: p.kernel, Grid: [3]int{1, 1, 1}, Block: [3]int{32, 1, 1}, Make: func(r *rand.Rand) ([]any, func() error) {
			x, w := draw(r, p.x, 16*p.depth), draw(r, p.w, 8*p.depth)
			args, xv, wv := []any{x.data, w.data}, x, w
			if p.scale != "" {
				xs, ws := draw(r, p.scale, 16*p.depth/p.block), draw(r, p.scale, 8*p.depth/p.block)
				args = []any{x.data, xs.data, w.data, ws.data}
				xv, wv = x.scaled(xs, p.block), w.scaled(ws, p.block)
			}
			want, size := multiply(xv.values, wv.values, 16, 8, p.depth, true)
			if p.x[1:] == "8" && (p.x[0] == 's' || p.x[0] == 'u') {
				y := make([]int32, 128)
				for i := range y {
					y[i] = int32(r.IntN(1e6))
					want[i] += float64(y[i])
				}
				return append(args, y), func() error { return near(y, want, nil, exact) }
			}
			y := make([]float32, 128)
			for i := range y {
				y[i] = float32(r.NormFloat64() * 10)
				want[i], size[i] = want[i]+float64(y[i]), size[i]+math.Abs(float64(y[i]))
			}
			return append(args, y), func() error { return near(y, want, size, summed) }
		}})
	}
	return all
}

func tilesOfCuTe() []Case {
	return []Case{
		{File: "cute_80", Kernel: "tiles", Grid: [3]int{1, 1, 1}, Block: [3]int{128, 1, 1}, Make: func(r *rand.Rand) ([]any, func() error) {
			const depth = 96
			x, w, y := draw(r, "f16", 32*depth), draw(r, "f16", depth*32), make([]float32, 32*32)
			want, size := multiply(x.values, w.values, 32, 32, depth, false)
			return []any{x.data, w.data, emu.Out{Data: y}, int32(depth)}, func() error { return near(y, want, size, summed) }
		}},
		{File: "cute_121", Kernel: "narrowing", Grid: [3]int{3, 1, 1}, Block: [3]int{32, 1, 1}, Make: func(r *rand.Rand) ([]any, func() error) {
			const n = 3 * 32 * 8
			x, y := draw(r, "f32", n), map[string][]uint32{"e2m1": make([]uint32, n/8), "e4m3": make([]uint32, n/4), "bf16": make([]uint32, n/2)}
			for i := range x.values {
				v := x.values[i] * math.Exp2(float64(r.IntN(6)-2))
				if f := narrow["e2m1"]; i%4 == 0 {
					code := uint32(r.IntN(7))
					v = (f.Decode(code) + f.Decode(code+1)) / 2
				}
				x.data.([]float32)[i] = float32(v)
				x.values[i] = float64(float32(v))
			}
			return []any{x.data, emu.Out{Data: y["e2m1"]}, emu.Out{Data: y["e4m3"]}, emu.Out{Data: y["bf16"]}}, func() error {
				for format, words := range y {
					f := narrow[format]
					got, want := make([]float64, n), make([]float64, n)
					for i, v := range x.values {
						each := 32 / f.Bits()
						got[i] = f.Decode(words[i/each] >> (i % each * f.Bits()) & (1<<f.Bits() - 1))
						want[i] = f.Decode(f.Encode(v, true))
					}
					if err := nearValues(got, want, nil, exact); err != nil {
						return fmt.Errorf("%s: %w", format, err)
					}
				}
				return nil
			}
		}},
		{File: "cute_121", Kernel: "storing", Grid: [3]int{1, 1, 1}, Block: [3]int{32, 1, 1}, Make: func(r *rand.Rand) ([]any, func() error) {
			x, y := draw(r, "f16", 256), make([]uint16, 256)
			return []any{x.data, emu.Out{Data: y}}, func() error { return nearValues(decoded(y, "f16"), x.values, nil, exact) }
		}},
	}
}
