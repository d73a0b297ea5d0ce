package ptx

// narrowRows: matrix instructions and conversions of 8-bit and 4-bit element types (PTX ISA 9.7.9.21 and 9.7.14.5). Two
// e2m1 live in a register of 8 bits (%b), which only cvt can read and write.
var narrowRows = []row{
	{op: "mma.sync.aligned.m16n8k32.row.col.f32.$.$2.f32", types: "e4m3 e5m2", types2: "e4m3 e5m2", args: "=4*f32 4*b32 2*b32 4*f32", since: Version{8, 4}, sm: 89, kind: KindMMA},
	{op: "mma.sync.aligned.m16n8k32.row.col.s32.$.$2.s32", types: "s8 u8", types2: "s8 u8", args: "=4*s32 4*b32 2*b32 4*s32", since: v70, sm: 80, kind: KindMMA},
	{op: "mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.$.$2.f32", types: "e4m3 e5m2 e2m1", types2: "e4m3 e5m2 e2m1", args: "=4*f32 4*b32 2*b32 4*f32", since: Version{8, 7}, sm: 120, arch: "a", kind: KindMMA},
	// d, a, b, c, scales of a, {byte, thread} selector, scales of b, selector.
	{op: "mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3", args: "=4*f32 4*b32 2*b32 4*f32 1*b32 2*u16 1*b32 2*u16", since: Version{8, 7}, sm: 120, arch: "a", kind: KindMMA},

	{op: "cvt.rn.satfinite.$.f32", types: "e4m3x2 e5m2x2", args: "=$ f32 f32", since: Version{7, 8}, sm: 89, kind: KindConvert},
	{op: "cvt.rn.satfinite.$.f16x2", types: "e4m3x2 e5m2x2", args: "=$ f16x2", since: Version{7, 8}, sm: 89, kind: KindConvert},
	{op: "cvt.rn.f16x2.$", types: "e4m3x2 e5m2x2", args: "=f16x2 $", since: Version{7, 8}, sm: 89, kind: KindConvert},
	{op: "cvt.rn.satfinite.e2m1x2.f32", types: "e2m1x2", args: "=e2m1x2 f32 f32", since: Version{8, 6}, sm: 120, arch: "a", kind: KindConvert},
	{op: "cvt.rn.f16x2.e2m1x2", types: "e2m1x2", args: "=f16x2 e2m1x2", since: Version{8, 6}, sm: 120, arch: "a", kind: KindConvert},
	{op: "cvt.u8.u32", args: "=e2m1x2 u32", since: v10, kind: KindConvert},
}
