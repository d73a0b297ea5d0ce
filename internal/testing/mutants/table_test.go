package mutants

import (
	"errors"
	"fmt"
	"slices"

	"github.com/spark-compile/spark-compile/internal/ptx"
	"github.com/spark-compile/spark-compile/runtime"
)

// Kinds of kernels.
var (
	splitK16       = Site{Model: deep, Precision: deep, Name: "contraction fp16, split-K", family: "contraction", schedule: "splitk", prefix: "matmul"}
	deep16         = Site{Model: deep, Precision: deep, Name: "contraction fp16", family: "contraction", schedule: "stages=4", prefix: "matmul", but: "splitk"}
	splitK32       = Site{Model: "policy", Precision: "fp32", Name: "contraction fp32, split-K", family: "contraction", schedule: "splitk", prefix: "matmul"}
	deep32         = Site{Model: single, Precision: single, Name: "contraction fp32", family: "contraction", schedule: "stages=4", prefix: "matmul_f32_3"}
	attention      = Site{Model: "policy" + unfused, Precision: "fp16", Name: "attention fp16", family: "contraction", prefix: "attention"}
	row            = Site{Model: "policy" + unfused, Precision: "fp16", Name: "loop row (LayerNorm)", family: "loop", schedule: "row", prefix: "layernorm"}
	ragged         = Site{Model: deep, Precision: deep, Name: "loop row (ragged LayerNorm)", family: "loop", schedule: "row", prefix: "layernorm"}
	heads          = Site{Model: "policy" + unfused, Precision: "fp16", Name: "loop row (heads)", family: "loop", schedule: "row", prefix: "segmentedmatvec"}
	flat           = Site{Model: "policy" + unfused, Precision: "fp16", Name: "loop flat", family: "loop", schedule: "flat"}
	window         = Site{Model: "dmonitoring" + unfused, Precision: "fp16", Name: "window", family: "window", prefix: "dwconv5x5"}
	fusedWindows   = Site{Model: "vision", Precision: "fp16", Name: "chain of windows", family: "chain", prefix: "dwconv3x3_dwconv7x7"}
	afterAttention = Site{Model: joint, Precision: joint, Name: "product behind an attention fp16", family: "chain", prefix: "attention_matmul"}

	loops    = Site{Model: tail, Precision: tail, Name: "chain of loops", family: "chain", prefix: "layernorm_segmentedmatvec"}
	hidden   = Site{Model: perceptron, Precision: perceptron, Name: "products in one kernel fp16", family: "chain", prefix: "matmul_f16_matmul_f16"}
	expanded = Site{Model: residual, Precision: residual, Name: "inverted residual fp16", family: "chain", prefix: "conv1x1_f16_dwconv3x3"}
	rows     = Site{Model: "policy", Precision: "fp16", Name: "chain of LayerNorm and product", family: "chain", prefix: "layernorm_matmul"}
	slide    = Site{Model: "dmonitoring", Precision: "fp16", Name: "chain of window and product", family: "chain", prefix: "dwconv3x3_conv1x1"}

	fp8      = Site{Model: narrow, Precision: narrow, Name: "contraction fp8", family: "contraction", prefix: "matmul_e4m3"}
	split8   = Site{Model: narrow, Precision: narrow, Name: "contraction fp8, weights in two terms", family: "contraction", prefix: "matmul_e4m3_by_x2"}
	toFP8    = Site{Model: narrow, Precision: narrow, Name: "producer of fp8", family: "contraction", prefix: "matmul_f16"}
	nvfp4    = Site{Model: narrow, Precision: narrow, Name: "contraction NVFP4", family: "contraction", prefix: "matmul_e2m1"}
	toNVFP4  = Site{Model: narrow, Precision: narrow, Name: "producer of NVFP4", family: "contraction", prefix: "matmul_f16_2"}
	weights4 = Site{Model: narrow, Precision: narrow, Name: "contraction fp16, NVFP4 weights", family: "contraction", prefix: "matmul_f16_e2m1"}
	sums     = Site{Model: gradient, Precision: gradient, Name: "contraction fp16, sums of rows", family: "contraction", prefix: "matmul"}
	backward = Site{Model: gradient, Precision: gradient, Name: "gradient of attention fp16", family: "contraction", prefix: "attentiongrad"}
	weights6 = Site{Model: narrow, Precision: narrow, Name: "contraction fp16, e3m2 weights", family: "contraction", prefix: "matmul_f16_e3m2"}
)

// What a mutant corrupts.
const (
	memory     = "memory"
	sync       = "synchronisation"
	launches   = "launch list"
	arithmetic = "arithmetic"
)

const (
	mma = "mma.sync"
	ldm = "ldmatrix"

	number6 = "-1627349248" // the mask of two e3m2 as f16: 0x9f009f00
)

// Table are the mutants.
var Table = []Mutant{
	// Synchronisation inside a block.
	{"barrier of the main loop dropped", splitK16, sync, "", drop(inside, 0, "bar.sync"), nil},
	{"barrier of the main loop dropped", deep16, sync, "", drop(inside, 0, "bar.sync"), nil},
	{"barrier of the main loop dropped", splitK32, sync, "", drop(inside, 0, "bar.sync"), nil},
	{"barrier between the loop and the sums dropped", splitK16, sync, "", drop(after, 0, "bar.sync"), nil},
	{"barrier between the warps' sums dropped", splitK16, sync, "", drop(after, 1, "bar.sync"), nil},
	{"barrier after the copies dropped", attention, sync, "", drop(before, 0, "bar.sync"), nil},
	{"barrier for some threads only", splitK16, sync, "", below(40, inside, 0, "bar.sync"), nil},
	{"warps at different barriers", splitK16, sync, "", all(below(32, inside, 0, "bar.sync"), otherBarrier), nil},
	{"wait for copies dropped", splitK16, sync, "", drop(inside, 0, "cp.async.wait_group"), nil},
	{"wait for copies dropped", attention, sync, "", drop(before, 0, "cp.async.wait_group"), nil},
	{"wait leaves one group too many in flight", deep16, sync, "", change(inside, 0, plus(0, 1), "cp.async.wait_group"), nil},
	{"barrier after the copies dropped", afterAttention, sync, "", drop(before, 0, "bar.sync"), nil},
	{"wait for copies dropped", afterAttention, sync, "", drop(before, 0, "cp.async.wait_group"), nil},
	{"barrier between the heads and the product dropped", afterAttention, sync, "", drop(inside, 0, "bar.sync"), nil},
	{"griddepcontrol.wait dropped", afterAttention, sync, "", drop(anywhere, 0, "griddepcontrol.wait"), nil},
	{"barrier after the inputs dropped", window, sync, "", drop(anywhere, 0, "bar.sync"), nil},
	{"barrier after the sums dropped", window, sync, "", drop(anywhere, 1, "bar.sync"), nil},
	{"wait for weights dropped", window, sync, "", drop(anywhere, 0, "cp.async.wait_all"), nil},
	{"barrier after the inputs dropped", fusedWindows, sync, "", drop(anywhere, 0, "bar.sync"), nil},
	{"barrier between the windows dropped", fusedWindows, sync, "", drop(anywhere, 1, "bar.sync"), nil},
	{"barrier between the last loops dropped", loops, sync, "", drop(anywhere, -1, "bar.sync"), nil},
	{"wait for the launch in front dropped", loops, sync, "", drop(anywhere, 0, "griddepcontrol.wait"), nil},
	{"barrier of the main loop dropped", rows, sync, "", drop(inside, 0, "bar.sync"), nil},
	{"barrier in front of the window dropped", slide, sync, "", drop(inside, 0, "bar.sync"), nil},
	{"barrier between window and product dropped", slide, sync, "", drop(inside, 1, "bar.sync"), nil},
	{"wait for the launch in front dropped", rows, sync, "", drop(anywhere, 0, "griddepcontrol.wait"), nil},
	{"barrier after the sums dropped", fusedWindows, sync, "", drop(anywhere, 2, "bar.sync"), nil},
	{"wait for the launch in front dropped", fusedWindows, sync, "", drop(anywhere, 0, "griddepcontrol.wait"), nil},
	{"barrier of the main loop dropped", hidden, sync, "", drop(inside, 0, "bar.sync"), nil},
	{"barrier between weights and the sums in their place dropped", hidden, sync, "", drop(inside, 1, "bar.sync"), nil},
	{"barrier between the warps' sums of hidden units dropped", hidden, sync, "", drop(inside, 2, "bar.sync"), nil},
	{"barrier between hidden units and their product dropped", hidden, sync, "", drop(inside, 3, "bar.sync"), nil},
	{"barrier between pixels and windows dropped", expanded, sync, "", drop(inside, 1, "bar.sync"), nil},
	{"barrier between windows and their product dropped", expanded, sync, "", drop(inside, 2, "bar.sync"), nil},
	{"commit of a group dropped", deep16, sync, "", drop(inside, 0, "commit_group"), nil},
	{"wait after the barrier", splitK16, sync, "", move(inside, 0, []string{"wait_group"}, inside, 0, "bar.sync"), nil},

	// Synchronisation between blocks.
	{"counter without an atomic", splitK16, sync, "", plainAdd, nil},
	{"relaxed counter without fences", splitK16, sync, "",
		all(change(after, 0, opcode("atom.global.add.u32"), "atom."), drop(after, 0, "fence"), drop(after, 0, "fence")), nil},
	{"barrier between partial sums and counter dropped", splitK16, sync, "", drop(after, 2, "bar.sync"), nil},
	{"barrier between counter and its readers dropped", splitK16, sync, "", drop(after, 3, "bar.sync"), nil},
	{"fences dropped beside an acq_rel counter", splitK16, sync, "the atomic releases what the barrier before it ordered, and acquires for the barrier after it",
		all(drop(after, 0, "fence"), drop(after, 0, "fence")), nil},
	{"counter not reset", splitK16, sync, "", drop(after, 0, "st.global.u32"), nil},
	{"counter reset to 1", splitK16, sync, "", change(after, 0, imm(1, 1), "st.global.u32"), nil},
	{"block before the last taken as the last", splitK16, sync, "", change(after, 0, plus(2, -1), "setp.eq.u32", ", 7;"), nil},
	{"griddepcontrol.wait dropped", splitK16, sync, "", drop(anywhere, 0, "griddepcontrol.wait"), nil},
	{"griddepcontrol.wait dropped", row, sync, "", drop(anywhere, 0, "griddepcontrol.wait"), nil},
	{"griddepcontrol.wait after the first load", row, sync, "",
		move(anywhere, 0, []string{"griddepcontrol.wait"}, anywhere, 0, "ld.global"), nil},
	{"griddepcontrol.wait in one warp only", splitK16, sync, "", below(32, anywhere, 0, "griddepcontrol.wait"), nil},

	// Warp-wide instructions.
	{"shuffle in half of the lanes", row, sync, "", below(16, anywhere, 0, "shfl.sync"), nil},
	{"mma in half of the lanes", splitK16, sync, "", below(16, inside, 0, mma), nil},
	{"shuffle with the wrong partner", row, arithmetic, "", change(anywhere, 0, imm(2, 4), "shfl.sync", ", 8,"), nil},
	{"a step of the reduction dropped", row, arithmetic, "", drop(anywhere, 0, "shfl.sync"), nil},

	// Memory.
	{"stage to read wraps one stage late", deep32, memory, "", change(inside, -2, wrap(1), "setp.eq.u32"), nil},
	{"stage to read wraps one stage early", deep32, memory, "", change(inside, -2, wrap(-1), "setp.eq.u32"), nil},
	{"stage to fill wraps one stage late", deep32, memory, "", change(inside, -1, wrap(1), "setp.eq.u32"), nil},
	{"stage to fill never wraps", deep32, memory, "", change(inside, -1, plus(2, 1), "setp.eq.u32"), nil},
	{"copies written to the stage that is read", splitK16, memory, "", swapStages, nil},
	{"operand copied 16 bytes off", splitK16, memory, "", change(before, 1, shift(0, -16), "cp.async.cg"), nil},
	{"operand copied 4 bytes off", splitK16, memory, "", change(before, 1, shift(0, 4), "cp.async.cg"), nil},
	{"operand copied from the wrong row", splitK16, arithmetic, "", change(before, 1, shift(1, -1024), "cp.async.cg"), nil},
	{"half of each copy zero-filled", splitK16, arithmetic, "", change(before, 0, imm(1, 8), "selp.b32", "16, 0"), nil},
	{"row bound of the copies off by seven", splitK16, memory, "", everyBound(25, 32), nil},
	{"fragment read from beyond its matrix", splitK16, memory, "", change(inside, 1, shift(1, 1<<20), ldm), nil},
	{"partial sums stored in the next block's place", splitK16, memory, "", change(after, 0, shift(0, 4096), "st.global.v4.f32"), nil},
	{"partial sums stored 16 bytes late", splitK16, memory, "", change(after, 0, shift(0, 16), "st.global.v4.f32"), nil},
	{"a partial sum read twice", splitK16, arithmetic, "", taken(after, 2, 0, 1, "ld.global.v4.f32"), nil},
	{"accumulator not zeroed", splitK16, memory, "", drop(before, 0, "mov.f32 %f0,"), nil},
	{"bound of the threads dropped", flat, memory, "", drop(anywhere, 0, "exit"), nil},
	{"bound of the copies dropped", window, memory, "", change(anywhere, 0, unguarded, "@", "cp.async"), nil},
	{"bound of the threads too low", flat, memory, "", change(anywhere, 0, plus(2, -8), "setp.ge.s32"), nil},
	{"guard of the store dropped", ragged, memory, "", change(anywhere, 1, unguarded, "st.global"), nil},
	{"guard of a load inverted", flat, memory, "", change(anywhere, 0, inverted, "ld.global.b16"), nil},
	{"guard of the padding dropped", window, memory, "", change(anywhere, 0, unguarded, "ld.global.v4.b32"), nil},
	{"padding between the windows not filled", fusedWindows, memory, "", drop(anywhere, 0, "st.shared.v4.f32"), nil},
	{"what the tile owns stored in its neighbour's place", fusedWindows, memory, "", change(anywhere, 0, shift(0, -64), "st.global"), nil},
	{"what the tile owns not stored", fusedWindows, memory, "", drop(anywhere, 2, "st.global"), nil},
	{"element between the loops in its neighbour's place", loops, memory, "", change(anywhere, -1, shift(0, 4), "st.shared"), nil},
	{"element between the loops read from beyond them", loops, memory, "", change(anywhere, -1, shift(1, 4096), "ld.shared"), nil},
	{"result stored by all blocks", loops, memory, "", change(anywhere, 0, unguarded, "st.global"), nil},
	{"hidden units stored a pair late", hidden, memory, "", change(inside, 0, shift(0, 4), "st.shared.b32"), nil},
	{"rows of hidden units copied a row late", hidden, memory, "", change(before, -1, shift(0, 256), "cp.async.cg"), nil},
	{"sums of hidden units handed over in the next pair's place", hidden, memory, "", change(inside, 0, shift(0, 256), "st.shared.v2.f32"), nil},
	{"rows of the tile that are no pixels not filled", expanded, memory, "", drop(before, 0, "st.shared.v4.b32"), nil},
	{"padding of the expanded image not filled", expanded, memory, "", drop(before, 1, "st.shared.v4.b32"), nil},
	{"expanded channels stored a pair late", expanded, memory, "", change(inside, 0, shift(0, 8), "st.shared.v2.f32"), nil},
	{"pixels copied a pixel late", expanded, memory, "", change(before, -1, shift(0, 272), "cp.async.cg"), nil},
	{"vector load 4 bytes off", row, memory, "", change(anywhere, 0, shift(1, -4), "ld.global.v4.f32"), nil},
	{"load index shifted by a row", row, memory, "", change(anywhere, 0, shift(1, 512), "ld.global.v4.f32"), nil},

	// Arithmetic.
	{"A fragment's registers swapped", splitK16, arithmetic, "", change(inside, 0, swap(1, 1, 2), mma), nil},
	{"B fragment's registers swapped", splitK16, arithmetic, "", change(inside, 0, swap(2, 0, 1), mma), nil},
	{"accumulator's registers swapped", splitK16, arithmetic, "", change(inside, 0, all2(swap(0, 0, 1), swap(3, 0, 1)), mma), nil},
	{"factor of an fma from the next row", splitK32, arithmetic, "", taken(inside, 0, 4, 1, "fma.rn.f32"), nil},
	{"ldmatrix not transposed", attention, arithmetic, "",
		change(inside, 0, opcode("ldmatrix.sync.aligned.m8n8.x4.shared.b16"), ldm, ".trans"), nil},
	{"mask of the padding dropped", attention, arithmetic, "", everyMask, nil},
	{"mask of the padding dropped", afterAttention, arithmetic, "", everyMask, nil},
	{"rows of a head exchanged", afterAttention, arithmetic, "", change(before, -1, shift(0, -512), "st.shared.b32"), nil},
	{"a head in the place of its neighbour", afterAttention, memory, "", change(before, 0, shift(0, 64), "st.shared.b32"), nil},
	{"weights of a tap from its neighbour", window, arithmetic, "", change(anywhere, 2, shift(1, 64), "ld.shared"), nil},
	{"last tap of a window left out", window, arithmetic, "", drop(anywhere, -1, "fma.rn.f32"), nil},
	{"last vector of a row not stored", rows, memory, "", drop(before, -1, "st.shared"), nil},
	{"part of a row in its neighbour's place", rows, memory, "", change(before, -1, shift(0, 16), "st.shared"), nil},
	{"part of a pixel in its neighbour's place", slide, memory, "", change(inside, 0, shift(0, 16), "st.shared"), nil},
	{"last square of a row left out", rows, arithmetic, "", drop(before, -1, "fma.rn.f32"), nil},
	{"last tap of the window left out", slide, arithmetic, "", drop(inside, -1, "fma.rn.f32"), nil},
	{"a pixel between the windows in its neighbour's place", fusedWindows, arithmetic, "", change(anywhere, -1, shift(0, 32), "st.shared.v4.f32"), nil},
	{"last tap of the second window left out", fusedWindows, arithmetic, "", drop(anywhere, -1, "fma.rn.f32"), nil},
	{"a step of the last layer's reduction dropped", loops, arithmetic, "", drop(anywhere, -1, "shfl.sync"), nil},
	{"selection of an activation inverted", heads, arithmetic, "", change(anywhere, -1, opcode("setp.ne.s32"), "setp.eq.s32"), nil},

	// Narrow floats.
	{"bias of the next pair of channels", expanded, arithmetic, "", change(inside, 0, shift(1, 8), "ld.shared.v2.f32"), nil},
	{"weights of an expansion from the next step", expanded, arithmetic, "", change(inside, 1, shift(1, 512), "ld.shared.v4.b32"), nil},
	{"sums of hidden units of one warp taken twice", hidden, arithmetic, "", taken(inside, 1, 0, 1, "ld.shared.v2.f32"), nil},
	{"sums of hidden units not set to 0", hidden, arithmetic, "", drop(inside, 0, "mov.f32", "0f00000000"), nil},
	{"bias and factor of the next chunk of hidden units", hidden, arithmetic, "", drop(inside, -1, "add.s32", ", 16;"), nil},
	{"A fragment's registers swapped", fp8, arithmetic, "", change(inside, 0, swap(1, 1, 2), mma), nil},
	{"B fragment's registers swapped", fp8, arithmetic, "", change(inside, 0, swap(2, 0, 1), mma), nil},
	{"activations read as e5m2", fp8, arithmetic, "", change(inside, 0, opcode("mma.sync.aligned.m16n8k32.row.col.f32.e5m2.e4m3.f32"), mma), nil},
	{"B fragment's registers swapped", split8, arithmetic, "", change(inside, 0, swap(2, 0, 1), mma), nil},
	{"weights read from the next tile", split8, arithmetic, "", change(inside, 0, shift(1, 512), "ld.shared.v4.b32"), nil},
	{"fragment read from the next 32 of K", fp8, arithmetic, "", change(inside, 0, shift(1, 32), ldm), nil},
	{"two codes swapped", toFP8, arithmetic, "", change(after, 0, exchange(1, 2), "cvt.rn.satfinite.e4m3x2"), nil},
	{"pairs of codes in the wrong order", toFP8, arithmetic, "", change(after, 0, imm(3, 0x1054), "prmt.b32"), nil},
	{"A fragment's registers swapped", nvfp4, arithmetic, "", change(inside, 0, swap(1, 1, 2), mma), nil},
	{"B fragment's registers swapped", nvfp4, arithmetic, "", change(inside, 0, swap(2, 0, 1), mma), nil},
	{"scales of A and B exchanged", nvfp4, arithmetic, "", change(inside, 0, exchange(4, 6), mma), nil},
	{"scales of A missing", nvfp4, arithmetic, "", change(inside, 0, one(4), mma), nil},
	{"scales of B from the next tile", nvfp4, arithmetic, "", taken(inside, 0, 1, 6, mma), nil},
	{"scales of A from the other pair of threads", nvfp4, arithmetic, "both pairs of a group of threads have read them", change(inside, 0, selector(5, 0, 1), mma), nil},
	{"scales of B from the next thread", nvfp4, arithmetic, "all threads of a group have read them", change(inside, 0, selector(7, 0, 1), mma), nil},
	{"a byte selected that four scales do not have", nvfp4, arithmetic, "", change(inside, 0, selector(5, 1, 0), mma), nil},
	{"scales of A read four bytes late", nvfp4, arithmetic, "", change(inside, 0, shift(1, 4), "ld.shared.b32"), nil},
	{"scales of A copied two rows late", nvfp4, memory, "", change(before, 0, shift(0, 8), "cp.async.ca"), nil},
	{"nibbles in the wrong order", toNVFP4, arithmetic, "", change(after, 0, exchange(1, 2), "cvt.rn.satfinite.e2m1x2"), nil},
	{"bytes of nibbles in the wrong order", toNVFP4, arithmetic, "", change(after, 0, imm(3, 0x1104), "prmt.b32", "4416"), nil},
	{"half of a block left out of its maximum", toNVFP4, arithmetic, "", drop(after, 0, "max.NaN.f32"), nil},
	{"scale stored one block late", toNVFP4, memory, "", change(after, 0, shift(0, 1), "st.global.u8"), nil},
	{"sign of a nibble from its neighbour", weights4, arithmetic, "", change(inside, 0, imm(2, 14), "shl.b32", ", 15;"), nil},
	{"magnitude of a nibble from its neighbour", weights4, arithmetic, "", change(inside, 0, imm(2, 7), "shr.u32", ", 3;"), nil},
	{"scale of the next block of weights", weights4, arithmetic, "", change(inside, 0, imm(3, 0x1414), "prmt.b32", ", 1028;"), nil},
	{"scale of a pair of weights missing", weights4, arithmetic, "", drop(inside, 1, "mul.rn.f16x2"), nil},
	{"sign of a weight masked off", weights6, arithmetic, "", change(inside, 0, imm(2, 0x1f009f00), "and.b32", number6), nil},
	{"highest bit of an exponent masked off", weights6, arithmetic, "", change(inside, 0, imm(2, 0x8f009f00-1<<32), "and.b32", number6), nil},
	{"lowest bit of a mantissa masked off", weights6, arithmetic, "", change(inside, 0, imm(2, 0x9e009f00-1<<32), "and.b32", number6), nil},
	{"a piece of the fourth word left in a weight", weights6, arithmetic, "", change(inside, 0, imm(2, 0xff009f00-1<<32), "and.b32", number6), nil},
	{"even weights shifted a place short", weights6, arithmetic, "", change(inside, 0, imm(2, 7), "shl.b32", ", 8;"), nil},
	{"odd and even weights exchanged", weights6, arithmetic, "", change(inside, 0, swap(2, 0, 1), mma), nil},
	{"piece of the fourth word from the wrong word", weights6, arithmetic, "", taken(inside, 0, 1, 1, "shr.u32"), nil},
	{"piece of the fourth word shifted a place short", weights6, arithmetic, "", change(inside, 0, imm(2, 3), "shr.u32", ", 4;"), nil},
	{"signs of the fourth word masked off", weights6, arithmetic, "", change(inside, 0, imm(2, 0), "lop3.b32", "-2139062144"), nil},
	{"last bits of the fourth word masked off", weights6, arithmetic, "", change(inside, 0, imm(2, 0), "lop3.b32", "16843009"), nil},
	{"first word of a lane used for the second", weights6, arithmetic, "", change(inside, 1, shift(1, -4), "ld.shared.b32"), nil},
	{"a lane's words read from its neighbour", weights6, arithmetic, "", change(inside, 2, shift(1, 12), "ld.shared.b32"), nil},
	{"power of two of a product not undone", weights6, arithmetic, "", drop(after, 0, "mul.rn.f32", "0f45800000"), nil},

	// Training steps.
	{"barrier in front of the sums dropped", sums, sync, "", drop(after, 1, "bar.sync"), nil},
	{"what is summed not staged", sums, arithmetic, "", drop(after, 0, "st.shared.v4.f32"), nil},
	{"staged a row late", sums, memory, "", change(after, 0, shift(0, 160), "st.shared.v4.f32"), nil},
	{"a row left out", sums, arithmetic, "", drop(after, -4, "add.rn.f32"), nil},
	{"a row read twice", sums, arithmetic, "", taken(after, 5, 4, 1, "ld.shared.f32"), nil},
	{"stored a column late", sums, memory, "", change(after, 0, shift(0, 4), "st.global.f32"), nil},
	{"bound of the columns too high", sums, memory, "", change(after, 1, plus(2, 16), "setp.ge.u32", ", 48;"), nil},
	{"bound of the threads too low", sums, memory, "", change(after, 0, plus(2, -8), "setp.ge.u32", ", 32;"), nil},
	{"wait for copies dropped", backward, sync, "", drop(anywhere, 0, "cp.async.wait_group"), nil},
	{"barrier after the copies dropped", backward, sync, "", drop(anywhere, 0, "bar.sync"), nil},
	{"barrier between the probabilities and their readers dropped", backward, sync, "", drop(anywhere, 1, "bar.sync"), nil},
	{"barrier between a result's staging and its store dropped", backward, sync, "", drop(anywhere, 2, "bar.sync"), nil},
	{"barrier between a result's store and the next one's staging dropped", backward, sync, "", drop(anywhere, 3, "bar.sync"), nil},
	{"mask of the padding dropped", backward, arithmetic, "", everyMask, nil},
	{"sum of a row over lanes of another one", backward, arithmetic, "", change(anywhere, 4, imm(2, 4), "shfl.sync"), nil},
	{"mean of a row not subtracted", backward, arithmetic, "", drop(anywhere, 16, "sub.rn.f32"), nil},
	{"scale of an element missing", backward, arithmetic, "", drop(anywhere, 0, "mul.rn.f32", "0f3E99999A"), nil},
	{"A fragment's registers swapped", backward, arithmetic, "", change(anywhere, 16, swap(1, 1, 2), mma), nil},
	{"ldmatrix not transposed", backward, arithmetic, "",
		change(anywhere, 4, opcode("ldmatrix.sync.aligned.m8n8.x4.shared.b16"), ldm, ".trans"), nil},
	{"probabilities read for their gradients", backward, arithmetic, "", change(anywhere, 4, shift(1, -2048), ldm, ".trans"), nil},
	{"probabilities stored two columns late", backward, memory, "", change(anywhere, 0, shift(0, 4), "st.shared.b32"), nil},
	{"result staged a row late", backward, memory, "", change(anywhere, 0, shift(0, 160), "st.shared.v2.f32"), nil},
	{"rows of the result one too few", backward, memory, "", change(anywhere, 0, plus(2, -4), "setp.ge.u32", ", 100;"), nil},

	// The launch list.
	{"edge dropped from After", splitK16, launches, "", nil,
		func(v *runtime.Variant, l *runtime.Launch) error { l.After = nil; return nil }},
	{"grid one block short", deep16, launches, "", nil, grid(-1)},
	{"grid one block short", flat, launches, "", nil, grid(-1)},
	{"grid one block long", deep16, launches, "", nil, grid(1)},
	{"shared memory too small", splitK16, launches, "", nil,
		func(v *runtime.Variant, l *runtime.Launch) error { l.Shared -= 16; return nil }},
	{"two pointers swapped", row, launches, "", nil,
		func(v *runtime.Variant, l *runtime.Launch) error {
			l.Params[0], l.Params[1] = l.Params[1], l.Params[0]
			return nil
		}},
	{"output placed on the input", rows, launches, "", nil, overlap},
	{"prefetch of more than is declared", rows, launches, "", nil,
		func(v *runtime.Variant, l *runtime.Launch) error {
			return changePrefetch(l, func(_, all *runtime.Param) { all.Value += 256 })
		}},
	{"prefetch of what is no constant", rows, launches, "", nil,
		func(v *runtime.Variant, l *runtime.Launch) error {
			return changePrefetch(l, func(pointer, _ *runtime.Param) { pointer.Buffer = l.Writes[0].Buffer })
		}},
	{"declared reads too short", row, launches, "", nil,
		func(v *runtime.Variant, l *runtime.Launch) error { l.Reads[0].Bytes -= 256; return nil }},
	{"block of half the threads", row, launches, "", nil,
		func(v *runtime.Variant, l *runtime.Launch) error { l.Block[0] /= 2; return nil }},
}

func grid(n int) func(*runtime.Variant, *runtime.Launch) error {
	return func(v *runtime.Variant, l *runtime.Launch) error { l.Grid[0] += n; return nil }
}

// changePrefetch changes the parameters of a launch's prefetch: where it begins, and how many bytes it has.
func changePrefetch(l *runtime.Launch, change func(pointer, all *runtime.Param)) error {
	if l.Prefetch == nil {
		return errors.New("it prefetches nothing")
	}
	at := slices.IndexFunc(l.Params, func(p runtime.Param) bool { return p.Buffer == l.Prefetch.Buffer && p.Offset == l.Prefetch.Offset })
	change(&l.Params[at], &l.Params[len(l.Params)-1])
	return nil
}

// overlap gives what the launch writes the place of what it reads.
func overlap(v *runtime.Variant, l *runtime.Launch) error {
	in, out := &v.Buffers[l.Params[0].Buffer], &v.Buffers[l.Writes[0].Buffer]
	if in.Kind != runtime.ArenaBuffer || out.Kind != runtime.ArenaBuffer {
		return fmt.Errorf("%s and %s are not in the arena", in.Name, out.Name)
	}
	out.Offset = in.Offset
	return nil
}

// otherBarrier has the warps that pass by the main loop's barrier wait at another one.
func otherBarrier(k *ptx.Kernel) error {
	i, err := find(k, inside, 0, "bar.sync")
	if err != nil {
		return err
	}
	in := *k.Body[i].Instr
	in.Negate, in.Operands = !in.Negate, []ptx.Operand{ptx.Imm(1)}
	k.Body = slices.Insert(k.Body, i+1, ptx.Stmt{Instr: &in})
	return nil
}

// swapStages exchanges the registers that hold the stage to fill and the stage to compute on.
func swapStages(k *ptx.Kernel) error {
	var stages []ptx.Reg
	for n := range 2 {
		i, err := find(k, inside, n, "setp.eq.u32")
		if err != nil {
			return err
		}
		stages = append(stages, k.Body[i].Instr.Operands[1].(ptx.Reg))
	}
	other := map[ptx.Reg]ptx.Reg{stages[0]: stages[1], stages[1]: stages[0]}
	first, err := find(k, inside, 0, "")
	if err != nil {
		return err
	}
	for i := first; i < len(k.Body); i++ {
		in := k.Body[i].Instr
		if in == nil || in.Def.Op == "setp.eq.u32" || in.Def.Op == "selp.b32" || in.Def.Name == "add" && in.Operands[0] == in.Operands[1] {
			continue
		}
		for j, o := range in.Operands {
			if r, ok := o.(ptx.Reg); ok && other[r] != (ptx.Reg{}) && j > 0 {
				in.Operands[j] = other[r]
			}
		}
	}
	return nil
}

// wrap moves the end of a ring of four stages by some of them.
func wrap(stages int) func(*ptx.Instr) error {
	return operand(2, func(v ptx.Imm) ptx.Imm { return v + ptx.Imm(stages)*v/4 })
}

// everyBound changes a bound before the main loop.
func everyBound(from, to int) func(*ptx.Kernel) error {
	return func(k *ptx.Kernel) error {
		n := 0
		for _, s := range k.Body {
			if s.Instr != nil && s.Instr.Def.Op == "setp.lt.u32" && s.Instr.Operands[2] == ptx.Operand(ptx.Imm(from)) {
				s.Instr.Operands[2] = ptx.Imm(to)
				n++
			}
		}
		if n == 0 {
			return fmt.Errorf("no bound of %d", from)
		}
		return nil
	}
}

// everyMask drops the selections of minus infinity.
func everyMask(k *ptx.Kernel) error {
	n := len(k.Body)
	k.Body = slices.DeleteFunc(k.Body, func(s ptx.Stmt) bool {
		if s.Instr == nil || s.Instr.Def.Op != "selp.f32" {
			return false
		}
		f, ok := s.Instr.Operands[1].(ptx.FImm)
		return ok && float32(f) < -1e38
	})
	if len(k.Body) == n {
		return fmt.Errorf("nothing is masked")
	}
	return nil
}

// all2 applies two changes to an instruction.
func all2(a, b func(*ptx.Instr) error) func(*ptx.Instr) error {
	return func(in *ptx.Instr) error {
		if err := a(in); err != nil {
			return err
		}
		return b(in)
	}
}

// one makes operand i, a register of four scales, four ones.
func one(i int) func(*ptx.Instr) error {
	return func(in *ptx.Instr) error { in.Operands[i] = ptx.Vec{ptx.Imm(0x38383838)}; return nil }
}

// selector sets operand i, the byte and the thread that select scales.
func selector(i, byteID, thread int) func(*ptx.Instr) error {
	return func(in *ptx.Instr) error {
		in.Operands[i] = ptx.Vec{ptx.Imm(byteID), ptx.Imm(thread)}
		return nil
	}
}
