// Package damage changes weights of a model on purpose, for tests, demos and measurements of training.
package damage

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/spark-compile/spark-compile/dora"
	"github.com/spark-compile/spark-compile/internal/minifloat"
	"github.com/spark-compile/spark-compile/ir"
)

// Kind is a way to change weights.
type Kind string

// Kinds. An adapter of rank 2 undoes the first wholly, none of the others.
const (
	Mendable Kind = "mendable" // row norms scaled at random and a change of rank 2, in a third of the layers
	Noise    Kind = "noise"    // on all weights, relative to the root mean square of the row
	Int8     Kind = "int8"     // rounding with one scale a weight
	NVFP4    Kind = "nvfp4"    // rounding of all but depthwise weights, those of few channels too
)

// Rounds reports whether the damage has a strength of its own.
func (d Kind) Rounds() bool { return d == Int8 || d == NVFP4 }

// Rank of the change that an adapter can undo.
const Rank = 2

// layerBytes is what the header of an adapter's file takes for a layer, about.
const layerBytes = 512

// Undone are the layers that Mendable damages: a third, drawn until the adapter that undoes it takes at most a share of the
// bytes of the model's weights. Depthwise convolutions have their rows scaled alone.
func Undone(m *dora.Model, share float64, seed uint64) ([]*dora.Weight, error) {
	rng := rand.New(rand.NewPCG(seed, 1))
	for range 100_000 {
		var chosen []*dora.Weight
		bytes := 0
		for _, i := range rng.Perm(len(m.Weights))[:len(m.Weights)/3] {
			w := m.Weights[i]
			chosen = append(chosen, w)
			bytes += layerBytes + 4*w.Out
			if !w.Depthwise() {
				bytes += 4 * min(Rank*w.Group, w.MaxRank()) * (w.Row + w.Out/w.Group)
			}
		}
		if float64(bytes) <= share*float64(m.Bytes) {
			return chosen, nil
		}
	}
	return nil, fmt.Errorf("%s: no third of its layers is undone by an adapter of %.3g %%", m.File.Path, 100*share)
}

// Rows are the damaged weights by the name of the initializer. Strength is relative; roundings have none. Chosen are those
// that Mendable changes.
func (d Kind) Rows(m *dora.Model, chosen []*dora.Weight, strength float64, seed uint64) map[string][]float64 {
	out := map[string][]float64{}
	rng := rand.New(rand.NewPCG(seed, 2))
	weights := m.Weights
	if d == Mendable {
		weights = chosen
	}
	for _, w := range weights {
		rows := w.Rows()
		switch d {
		case Mendable:
			if !w.Depthwise() {
				lowRank(rng, w, rows, strength)
			}
			for o := range w.Out {
				f := ir.Exp(float64(strength * rng.NormFloat64()))
				for i := range w.Row {
					rows[o*w.Row+i] *= f
				}
			}
		case Noise:
			for o := range w.Out {
				row := rows[o*w.Row : (o+1)*w.Row]
				by := strength * norm(row) / math.Sqrt(float64(w.Row))
				for i := range row {
					row[i] += float64(by * rng.NormFloat64())
				}
			}
		case Int8:
			scale := greatest(rows) / 127
			for i, x := range rows {
				rows[i] = float64(math.RoundToEven(x/scale) * scale)
			}
		case NVFP4:
			if !w.Depthwise() {
				blocks(w, rows)
			}
		}
		out[w.Name] = rows
	}
	return out
}

// lowRank adds a random change of rank 2 whose norm is a part of that of the rows; in a grouped convolution one for each group.
func lowRank(rng *rand.Rand, w *dora.Weight, rows []float64, part float64) {
	size := len(rows) / w.Group
	for g := range w.Group {
		rows := rows[g*size : (g+1)*size]
		change := make([]float64, size)
		for range Rank {
			b, a := normals(rng, w.Out/w.Group), normals(rng, w.Row)
			for i := range change {
				change[i] += float64(b[i/w.Row] * a[i%w.Row])
			}
		}
		by := part * norm(rows) / norm(change)
		for i, x := range change {
			rows[i] += float64(by * x)
		}
	}
}

func normals(rng *rand.Rand, n int) []float64 {
	out := make([]float64, n)
	for i := range out {
		out[i] = rng.NormFloat64()
	}
	return out
}

// blocks rounds to e2m1 with an e4m3 scale for 16 neighbours along the input channels and one scale for all.
func blocks(w *dora.Weight, rows []float64) {
	const block = 16
	taps := 1
	for _, t := range w.Taps {
		taps *= t
	}
	all := greatest(rows) / (minifloat.E4M3FN.Max() * minifloat.E2M1.Max())
	if all == 0 {
		return
	}
	in := w.Row / taps
	for o := range w.Out {
		for t := range taps {
			for from := 0; from < in; from += block {
				at := func(c int) *float64 { return &rows[o*w.Row+c*taps+t] }
				most, to := 0.0, min(from+block, in)
				for c := from; c < to; c++ {
					most = max(most, math.Abs(*at(c)))
				}
				scale := float64(minifloat.E4M3FN.Round(most/minifloat.E2M1.Max()/all, true) * all)
				for c := from; c < to; c++ {
					if scale == 0 {
						*at(c) = 0
						continue
					}
					*at(c) = float64(minifloat.E2M1.Round(*at(c)/scale, true) * scale)
				}
			}
		}
	}
}

func norm(x []float64) float64 {
	sum := 0.0
	for _, v := range x {
		sum += float64(v * v)
	}
	return math.Sqrt(sum)
}

func greatest(x []float64) float64 {
	most := 0.0
	for _, v := range x {
		most = max(most, math.Abs(v))
	}
	return most
}
