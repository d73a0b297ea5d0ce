package contraction

import (
	"encoding/binary"
	"math"

	"github.com/spark-compile/spark-compile/codegen/layout"
	"github.com/spark-compile/spark-compile/ir"
)

// pack lays constant weights out in panels, one for every z that they depend on and every tile along N, in the order in
// which the kernel reads them: chunks of K one after the other, each in the order of the compute core. What lies beyond
// K or N is zero.
func pack(p *problem, s Schedule, panelZ []bool) []byte {
	src := p.b.src.data.Dense()
	chunks, tilesN := s.chunks(p), s.tilesN(p)
	order := tileOrder(p, s)
	rows := make([]int, chunks*s.BK) // offset of a k in the source; -1 beyond
	for k := range rows {
		rows[k] = -1
		if k < p.k {
			rows[k] = layout.Offset(p.b.row, k)
		}
	}
	cols := make([]int, tilesN*s.BN)
	for n := range cols {
		cols[n] = -1
		if n < p.n {
			cols[n] = layout.Offset(p.b.col, n)
		}
	}
	var zs []int
	zs = append(zs, p.b.offset)
	for i, extent := range p.z {
		if !panelZ[i] {
			continue
		}
		var next []int
		for _, base := range zs {
			for x := 0; x < extent; x++ {
				next = append(next, base+layout.Offset(p.b.z[i], x))
			}
		}
		zs = next
	}
	elem := p.elem()
	out := make([]byte, len(zs)*tilesN*chunks*len(order)*elem)
	at := 0
	for _, base := range zs {
		for n := 0; n < tilesN; n++ {
			for k := 0; k < chunks; k++ {
				for _, o := range order {
					r, c := rows[k*s.BK+int(o.k)], cols[n*s.BN+int(o.n)]
					if r >= 0 && c >= 0 {
						move(out[at:], elem, src, p.b.dtype, base+r+c)
					}
					at += elem
				}
			}
		}
	}
	return out
}

func move(dst []byte, elem int, src []byte, d ir.DType, i int) {
	switch {
	case d == ir.Float32:
		copy(dst[:4], src[4*i:4*i+4])
	case elem == 2:
		copy(dst[:2], src[2*i:2*i+2])
	default:
		x := ir.DecodeFloat(d, uint64(binary.LittleEndian.Uint16(src[2*i:])))
		binary.LittleEndian.PutUint32(dst, math.Float32bits(float32(x)))
	}
}

type kn struct{ k, n int32 }

// tileOrder is the element at each place of a packed chunk: for tensor cores [k16][n16][lane][n8][value], so that a lane
// reads the B fragments of two mma with one 16-byte load; for fma row-major.
func tileOrder(p *problem, s Schedule) []kn {
	var out []kn
	if !p.half {
		for k := 0; k < s.BK; k++ {
			for n := 0; n < s.BN; n++ {
				out = append(out, kn{int32(k), int32(n)})
			}
		}
		return out
	}
	f := layout.B16x8
	for k := 0; k < s.BK; k += 16 {
		for n := 0; n < s.BN; n += 16 {
			for lane := 0; lane < 32; lane++ {
				for half := 0; half < 2; half++ {
					for v := 0; v < f.Values(); v++ {
						r, c := f.At(lane, v)
						out = append(out, kn{int32(k + r), int32(n + half*8 + c)})
					}
				}
			}
		}
	}
	return out
}
