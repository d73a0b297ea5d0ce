package ptx

// warpRows: instructions of a whole warp: shuffles and matrices (PTX ISA 9.7.9.6, 9.7.14).
var warpRows = []row{
	{op: "shfl.sync.bfly.b32", args: "=b32|p b32 b32 b32 b32", since: v60, does: Shuffle, eval: Source(butterfly)},
	{op: "ldmatrix.sync.aligned.m8n8.x4.shared.b16", args: "=4*b32 [s]", since: Version{6, 5}, does: LoadMatrix, eval: Transposed(false)},
	{op: "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16", args: "=4*b32 [s]", since: Version{6, 5}, does: LoadMatrix, eval: Transposed(true)},
	{op: "movmatrix.sync.aligned.m8n8.trans.b16", args: "=b32 b32", since: Version{7, 8}, does: MoveMatrix, eval: transpose},

	{op: "mma.sync.aligned.m16n8k16.row.col.f32.$.$.f32", args: "=4*f32 4*b32 2*b32 4*f32", since: v70, need: Matrix16, does: Multiply, eval: by{"f16": matrices{a: elementsF16, b: elementsF16}, "bf16": matrices{a: elementsBF16, b: elementsBF16}}},
	{op: "mma.sync.aligned.m16n8k32.row.col.f32.$.e4m3.f32", args: "=4*f32 4*b32 2*b32 4*f32", since: Version{8, 4}, need: FP8, does: Multiply,
		eval: by{"e4m3": matrices{a: elementsE4M3, b: elementsE4M3}, "e5m2": matrices{a: elementsE5M2, b: elementsE4M3}}},
	// d, a, b, c, scales of a, {byte, thread} selector, scales of b, selector.
	{op: "mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3", args: "=4*f32 4*b32 2*b32 4*f32 1*b32 2*u16 1*b32 2*u16",
		since: Version{8, 7}, need: FP4, does: Multiply, eval: matrices{elementsE2M1, elementsE2M1, scales4X}, undefined: scales4X.bad},
}

// The sources of shfl.sync (PTX ISA, shfl.sync, pseudocode): c holds a clamp and, from bit 8, the mask of segments.
func butterfly(lane, b, c uint32) (uint32, bool) { return upTo(lane, lane^b&31, c) }
func downwards(lane, b, c uint32) (uint32, bool) { return upTo(lane, lane+b&31, c) }
func indexed(lane, b, c uint32) (uint32, bool) {
	segment := c >> 8 & 31
	return upTo(lane, lane&segment|b&31&^segment, c)
}

func upwards(lane, b, c uint32) (uint32, bool) {
	least := last(lane, c)
	if from := int32(lane) - int32(b&31); from >= int32(least) {
		return uint32(from), true
	}
	return lane, false
}

func upTo(lane, from, c uint32) (uint32, bool) {
	if from > last(lane, c) {
		return lane, false
	}
	return from, true
}

// last is the clamp within the lane's segment.
func last(lane, c uint32) uint32 {
	clamp, segment := c&31, c>>8&31
	return lane&segment | clamp&^segment
}

// transpose is that of the 8×8 matrix of which lane l holds columns 2(l%4), +1 of row l/4.
func transpose(d, a *Row32) {
	in := *a
	at := func(row, col int) uint32 { return in[4*row+col/2] >> (16 * (col % 2)) & 0xffff }
	for l := range d {
		row, col := l/4, l%4*2
		d[l] = at(col, row) | at(col+1, row)<<16
	}
}
