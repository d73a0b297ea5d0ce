package emu

import "strings"

// The fragments of warp-level matrix instructions, written from the figures of the PTX ISA (9.7.14.5, "Matrix Fragments
// for mma.m16n8k16 with floating point type", "… for mma.m16n8k32", "… for mma.m16n8k64", "Block Scaling for mma.sync", and
// ldmatrix): groupID = lane / 4, threadID_in_group = lane % 4. Whatever the type, a register holds neighbours along k, n of
// them, the registers of a group of four threads hold 4n, and the latter half of the registers goes on where the first
// ends: n is 2 in m16n8k16, 4 in m16n8k32, 8 in m16n8k64. Codegen has its own description; a test holds the two against
// each other.

// fragA is the (row, k) of element e of a lane's 4n elements of A: register e/n, place e%n in it. Registers alternate
// between rows 0–7 and 8–15.
func fragA(n, lane, e int) (row, k int) {
	group, thread, register := lane/4, lane%4, e/n
	return group + 8*(register%2), 4*n*(register/2) + n*thread + e%n
}

// fragB is the (k, column) of element e of a lane's 2n elements of B.
func fragB(n, lane, e int) (k, col int) {
	group, thread, register := lane/4, lane%4, e/n
	return 4*n*register + n*thread + e%n, group
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

// scaleLaneA is the lane that holds the scales of a row of A: thread-id-a selects a pair of threads of the quad, the first
// of them for rows 0–7, the second for rows 8–15. All four bytes of its register are scales (scale_vec::4X): byte i of k
// 16i…16i+15.
func scaleLaneA(row, thread int) int { return row%8*4 + 2*thread + row/8 }

// scaleLaneB is the lane that holds the scales of a column of B: thread-id-b selects the thread of the quad.
func scaleLaneB(col, thread int) int { return col*4 + thread }

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
			row, k := fragA(2, lane, e)
			a[row][k] = widen(r[v[4+e/2]][lane] >> (16 * (e % 2)) & 0xffff)
		}
		for e := 0; e < 4; e++ {
			k, col := fragB(2, lane, e)
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
