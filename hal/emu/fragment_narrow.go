package emu

// Fragments of matrix instructions on 8-bit and 4-bit elements, written from the figures of the PTX ISA ("Matrix
// Fragments for mma.m16n8k32", "… for mma.m16n8k64", "Block Scaling for mma.sync"); groupID = lane / 4,
// threadID_in_group = lane % 4.

// fragA8 is the (row, k) of element e of a lane's sixteen 8-bit elements of A, m16n8k32: register e/4, byte e%4.
func fragA8(lane, e int) (row, k int) {
	group, thread := lane/4, lane%4
	row = group
	if e >= 4 && e < 8 || e >= 12 {
		row += 8
	}
	k = thread*4 + e%4
	if e >= 8 {
		k += 16
	}
	return row, k
}

// fragB8 is the (k, column) of element e of a lane's eight 8-bit elements of B, m16n8k32.
func fragB8(lane, e int) (k, col int) {
	group, thread := lane/4, lane%4
	k = thread*4 + e%4
	if e >= 4 {
		k += 16
	}
	return k, group
}

// fragA4 is the (row, k) of element e of a lane's thirty-two 4-bit elements of A, m16n8k64: register e/8, nibble e%8.
func fragA4(lane, e int) (row, k int) {
	group, thread := lane/4, lane%4
	row = group
	if e >= 8 && e < 16 || e >= 24 {
		row += 8
	}
	k = thread*8 + e%8
	if e >= 16 {
		k += 32
	}
	return row, k
}

// fragB4 is the (k, column) of element e of a lane's sixteen 4-bit elements of B, m16n8k64.
func fragB4(lane, e int) (k, col int) {
	group, thread := lane/4, lane%4
	k = thread*8 + e%8
	if e >= 8 {
		k += 32
	}
	return k, group
}

// scaleLaneA is the lane that holds the scales of a row of A: thread-id-a selects a pair of threads of the quad, the first
// of them for rows 0–7, the second for rows 8–15. All four bytes of its register are scales (scale_vec::4X): byte i of k
// 16i…16i+15.
func scaleLaneA(row, thread int) int { return row%8*4 + 2*thread + row/8 }

// scaleLaneB is the lane that holds the scales of a column of B: thread-id-b selects the thread of the quad.
func scaleLaneB(col, thread int) int { return col*4 + thread }
