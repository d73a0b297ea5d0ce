package emu

import "strings"

// The fragments of warp-level matrix instructions, written from the figures of the PTX ISA (9.7.14.5, "Matrix Fragments
// for mma.m16n8k16 with floating point type", and ldmatrix): groupID = lane / 4, threadID_in_group = lane % 4. Codegen
// has its own description; a test holds the two against each other.

// fragA16 is the (row, k) of element e of a lane's eight 16-bit elements of A, m16n8k16: register e/2, half e%2.
func fragA16(lane, e int) (row, k int) {
	group, thread := lane/4, lane%4
	row = group
	if e == 2 || e == 3 || e == 6 || e == 7 {
		row += 8
	}
	k = thread*2 + e%2
	if e >= 4 {
		k += 8
	}
	return row, k
}

// fragB16 is the (k, column) of element e of a lane's four 16-bit elements of B, m16n8k16.
func fragB16(lane, e int) (k, col int) {
	group, thread := lane/4, lane%4
	k = thread*2 + e%2
	if e >= 2 {
		k += 8
	}
	return k, group
}

// fragC is the (row, column) of element e of a lane's four accumulators, m16n8.
func fragC(lane, e int) (row, col int) {
	group, thread := lane/4, lane%4
	row = group
	if e >= 2 {
		row += 8
	}
	return row, thread*2 + e%2
}

// ldmatrixElement is the (row, column) of half e of the register that a lane receives of an 8×8 matrix.
func ldmatrixElement(lane, e int, trans bool) (row, col int) {
	if trans {
		return lane%4*2 + e, lane / 4
	}
	return lane / 4, lane%4*2 + e
}

// mmaFunc computes one mma on rows r; v names d0…d3, a0…a3, b0, b1, c0…c3.
type mmaFunc = func(r []row32, v []int32)

// mmaOf returns the function of an mma instruction, or nil.
func mmaOf(op string) mmaFunc {
	switch op {
	case "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32":
		return mmaF16
	case "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32":
		return mmaBF16
	case "mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3":
		return mmaScaled4
	}
	m := strings.Split(op, ".")
	return mmaNarrow(m[3], m[len(m)-3], m[len(m)-2])
}

func mmaF16Go(r []row32, v []int32) { mma16(r, v, halfToFloat) }

func mmaBF16Go(r []row32, v []int32) {
	mma16(r, v, func(h uint32) float32 { return f32(h << 16) })
}

// mma16 is the definition: for every element of C, k ascending, one fused multiply-add rounded to f32 each.
func mma16(r []row32, v []int32, widen func(uint32) float32) {
	var a [16][16]float32
	var b [16][8]float32
	var c [16][8]float32
	for lane := 0; lane < 32; lane++ {
		for e := 0; e < 8; e++ {
			row, k := fragA16(lane, e)
			a[row][k] = widen(r[v[4+e/2]][lane] >> (16 * (e % 2)) & 0xffff)
		}
		for e := 0; e < 4; e++ {
			k, col := fragB16(lane, e)
			b[k][col] = widen(r[v[8+e/2]][lane] >> (16 * (e % 2)) & 0xffff)
			row, col := fragC(lane, e)
			c[row][col] = f32(r[v[10+e]][lane])
		}
	}
	for row := range c {
		for k := range b {
			for col := range c[row] {
				c[row][col] = fma32(a[row][k], b[k][col], c[row][col])
			}
		}
	}
	for lane := 0; lane < 32; lane++ {
		for e := 0; e < 4; e++ {
			row, col := fragC(lane, e)
			r[v[e]][lane] = b32(c[row][col])
		}
	}
}
