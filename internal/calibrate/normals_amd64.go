package calibrate

import (
	"encoding/binary"
	"math"
	"math/bits"
	"math/rand/v2"

	"golang.org/x/sys/cpu"
)

// sideBySide reports whether normals8 may be called.
var sideBySide = cpu.X86.HasAVX512F && cpu.X86.HasAVX512DQ

// normals8 fills groups, 1 or more, of eight numbers with what normal yields, each with the next twelve numbers of a generator of its own,
// whose states it steps: after each group also as constants say, so that they skip what the others have drawn.
//
//go:noescape
func normals8(lo, hi *[8]uint64, constants *[14]uint64, to *float64, groups int)

// state is one of rand.PCG's generator, or what takes one there: times a number plus one, modulo 2^128.
type state struct{ hi, lo uint64 }

// The step of rand.PCG (O'Neill, PCG: A family of simple fast space-efficient statistically good algorithms for random number generation,
// 2014; its DXSM output with the multiplier cheap).
var multiplier, increment = state{2549297995355413924, 4865540595714422341}, state{6364136223846793005, 1442695040888963407}

const cheap = 0xda942042e4dd58b5

func (s state) times(by state) state {
	hi, lo := bits.Mul64(s.lo, by.lo)
	return state{hi + s.hi*by.lo + s.lo*by.hi, lo}
}

func (s state) plus(by state) state {
	lo, carry := bits.Add64(s.lo, by.lo, 0)
	hi, _ := bits.Add64(s.hi, by.hi, carry)
	return state{hi, lo}
}

// sum12 is how many numbers normal adds.
const sum12 = 12

// skip takes a state past seven numbers that normal makes.
var skip = func() [2]state {
	m, a := state{0, 1}, state{}
	for range 7 * sum12 {
		m, a = m.times(multiplier), a.times(multiplier).plus(increment)
	}
	return [2]state{m, a}
}()

// manyNormals is normals of as many groups of eight as there are, and returns how many numbers these are.
func manyNormals(source *rand.PCG, to []float64) int {
	groups := len(to) / 8
	raw, err := source.MarshalBinary() // "pcg:", upper and lower half of the state
	if !sideBySide || groups == 0 || err != nil || len(raw) != 20 {
		return 0
	}
	s := state{binary.BigEndian.Uint64(raw[4:]), binary.BigEndian.Uint64(raw[12:])}
	var lo, hi [8]uint64
	for i := range lo {
		lo[i], hi[i] = s.lo, s.hi
		for range sum12 {
			s = s.times(multiplier).plus(increment)
		}
	}
	normals8(&lo, &hi, &[14]uint64{multiplier.lo, multiplier.hi, increment.lo, increment.hi, skip[0].lo, skip[0].hi, skip[1].lo, skip[1].hi,
		math.MaxUint32, cheap, 1, 1<<53 - 1, math.Float64bits(1. / (1 << 53)), math.Float64bits(-6)}, &to[0], groups)
	binary.BigEndian.PutUint64(raw[4:], hi[0])
	binary.BigEndian.PutUint64(raw[12:], lo[0])
	if err := source.UnmarshalBinary(raw); err != nil {
		panic(err) // it is what Marshal has returned, but for the numbers
	}
	return 8 * groups
}
