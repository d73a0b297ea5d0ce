package foreign

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/internal/ptx"
)

const head = ".version 9.4\n.target sm_121a, debug\n.address_size 64\n"

// kernelOf is a module with a kernel of these statements.
func kernelOf(body string) string {
	return head + `.extern .shared .align 16 .b8 dynamic[];
.visible .entry k(
	.param .u64 .ptr .global .align 16 p_0,
	.param .f32 p_1
)
.reqntid 64, 2
{
	.reg .pred %p<9>;
	.reg .b16 %rs<9>;
	.reg .b32 %r<9>;
	.reg .f32 %f<9>;
	.reg .b64 %rd<9>;
	.shared .align 4 .f32 own[3][5];
` + body + "\n\tret;\n}\n"
}

// TestSpellingBecomesTheDialects: statements of other compilers as they become.
func TestSpellingBecomesTheDialects(t *testing.T) {
	for _, c := range []struct{ from, to string }{
		{"add.f32 %f1, %f2, 0F3F800000;", "add.rn.f32 %r0, %r1, 0f3F800000;"},
		{"add.ftz.f32 %f1, %f2, %f3;", "add.rn.f32 %r0, %r1, %r2;"},
		{"sub.f32.f16 %f1, %rs1, %f2;", "cvt.f32.f16 %r2, %h0; sub.rn.f32 %r0, %r2, %r1;"},
		{"mov.b32 %r1, { %rs1, %rs2 };", "mov.b32 %r1, 0; cvt.u32.u16 %r3, %h0; shl.b32 %r2, %r3, 0; or.b32 %r1, %r1, %r2; cvt.u32.u16 %r5, %h1; shl.b32 %r4, %r5, 16; or.b32 %r1, %r1, %r4; mov.b32 %r0, %r1;"},
		{"mov.b64 {%r1, _}, %rd1;", "cvt.u32.u64 %r1, %rd0; shr.u64 %rd1, %rd0, 32; cvt.u32.u64 %r2, %rd1; mov.b32 %r0, %r1;"},
		{"shfl.sync.bfly.b32 %r1, %r2, 16, 31, -1;", "shfl.sync.bfly.b32 %r0|%p0, %r1, 16, 31, -1;"},
		{"cp.async.cg.shared.global [ %r1 + 0 ], [ %rd1 + -32 ], 0x10;", "cp.async.cg.shared.global [%r0+0], [%rd0+-32], 0x10, 0x10;"},
		{"@!%p1 ld.global.L1::evict_last.b32 { %r1 }, [ %rd1 + 4 ];", "@!%p0 ld.global.b32 %r0, [%rd0+4];"},
		{"ld.param.b64 %rd1, [p_0];", "ld.param.u64 %rd0, [p_0+0];"},
		{"ld.global.s8 %r1, [%rd1];", "ld.global.s8 %h0, [%rd0+0]; cvt.s32.s16 %r1, %h0; mov.b32 %r0, %r1;"},
		{"ld.global.u8 %rs1, [%rd1];", "ld.global.u8 %h0, [%rd0+0];"},
		{"ld.shared.u32 %r1, [own+8];", "ld.shared.u32 %r0, [smem+8];"},
		{"st.shared::cta.b32 [%rd1], %r1;", "cvt.u32.u64 %r1, %rd0; st.shared.b32 [%r1+0], %r0;"},
		{"mov.u32 %r1, dynamic;", "mov.u32 %r1, smem; add.u32 %r1, %r1, 128; mov.b32 %r0, %r1;"},
		{"setp.gt.and.u32 %p1, %r1, %r2, %p2;", "setp.gt.u32 %p2, %r0, %r1; and.pred %p0, %p2, %p1;"},
		{"setp.ge.f32 %p1, %f1, %f2;", "setp.le.f32 %p0, %r1, %r0;"},
		{"setp.ne.b32 %p1, %r1, 0;", "setp.ne.u32 %p0, %r0, 0;"},
		{"setp.lt.s16 %p1, %rs1, -2;", "cvt.s32.s16 %r0, %h0; setp.lt.s32 %p0, %r0, -2;"},
		{"max.f32 %f1, %f2, %f3, %f4;", "max.f32 %r4, %r1, %r2; max.f32 %r0, %r4, %r3;"},
		{"add.s16 %rs1, %rs2, 0xffff;", "cvt.s32.s16 %r1, %h1; add.s32 %r0, %r1, -1; cvt.u16.u32 %h0, %r0;"},
		{"mma.sync.aligned.kind::mxf8f6f4.block_scale.scale_vec::1X.m16n8k32.row.col.f32.e4m3.e4m3.f32.ue8m0 {%f1,%f2,%f3,%f4}, {%r1,%r2,%r3,%r4}, {%r5,%r6}, {%f1,%f2,%f3,%f4}, %r7, {0,0}, {%r8}, {0,0};",
			"mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X.f32.e4m3.e4m3.f32.ue8m0 {%r0,%r1,%r2,%r3}, {%r4,%r5,%r6,%r7}, {%r8,%r9}, {%r0,%r1,%r2,%r3}, {%r10}, {0,0}, {%r11}, {0,0};"},
		{"ldmatrix.sync.aligned.x4.trans.m8n8.shared.b16 {%r1,%r2,%r3,%r4}, [%r5];", "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%r0,%r1,%r2,%r3}, [%r4+0];"},
		{"atom.global.gpu.acq_rel.add.f32 %f1, [%rd1], %f2;", "atom.acq_rel.gpu.global.add.f32 %r0, [%rd0+0], %r1;"},
		{"red.global.add.u32 [%rd1], 1;", "atom.global.add.u32 %r0, [%rd0+0], 1;"},
		{"cvt.s64.s16 %rd1, %rs1;", "cvt.s32.s16 %r0, %h0; cvt.s64.s32 %rd0, %r0;"},
		{"cvt.rn.f32.u32 %f1, %r1;", "cvt.u64.u32 %rd0, %r1; cvt.rn.f32.u64 %r0, %rd0;"},
		{"fence.proxy.async;", ""},
		{"{ .reg .b32 %r<2>; mov.u32 %r1, 7U; mov.u32 %r2, %r1; } mov.u32 %r3, 8;", "mov.u32 %r0, 7; mov.u32 %r1, %r0; mov.u32 %r2, 8;"}, // %r1 and %r2 of the outer scope are others
		{"bra.uni $L__1; { bra here; here: } $L__1:", "bra.uni $L__1; bra here_in_1; here_in_1: $L__1:"},
	} {
		m, err := Rewrite(kernelOf(c.from))
		require.NoError(t, err, c.from)
		_, err = ptx.Parse(m.Text)
		require.NoError(t, err, "%s\n%s", c.from, m.Text)
		line := strings.Split(m.Text, "\n")[16]
		if i := strings.LastIndex(line, ">; "); strings.Contains(line, ".reg") && i >= 0 {
			line = line[i+3:]
		}
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "{") {
			line = strings.TrimSpace(line[1:])
		}
		assert.Equal(t, c.to, line, c.from)
	}
}

// TestScopesHideNames: a name that an inner scope declares is another register than the outer scope's.
func TestScopesHideNames(t *testing.T) {
	m, err := Rewrite(kernelOf("mov.u32 %r1, 1; { .reg .b32 %r1; mov.u32 %r1, 2; } mov.u32 %r2, %r1;"))
	require.NoError(t, err)
	require.Contains(t, m.Text, "mov.u32 %r0, 2;")
	require.Contains(t, m.Text, "mov.u32 %r1, 1;")
	require.Contains(t, m.Text, "mov.u32 %r2, %r1;")
}

func TestALaunchLearnsWhatTheTextDoesNotSay(t *testing.T) {
	m, err := Rewrite(kernelOf("mov.u32 %r1, own; mov.u32 %r2, dynamic;"))
	require.NoError(t, err)
	require.Contains(t, m.Kernels[0].Registers, "%r0")
	m.Kernels[0].Registers = nil // by the file's names: TestScripts of spark-run
	require.Equal(t, []Kernel{{Name: "k", Params: []ptx.Param{{Name: "p_0", Type: "u64"}, {Name: "p_1", Type: "f32"}}, Static: 128, Threads: [3]int{64, 2, 1}}}, m.Kernels)
}

// TestForeign_RefusesUnsupportedKernels: with its line and the reason.
func TestForeign_RefusesUnsupportedKernels(t *testing.T) {
	for _, c := range []struct{ text, says string }{
		{kernelOf("popc.b32 %r1, %r2;"), "line 17: popc.b32 %r1, %r2;: the CPU device has no instruction popc.b32"},
		{kernelOf("call.uni f, (%r1);"), "line 17: call.uni f, (%r1);: calls of functions are not supported"},
		{kernelOf("ld.local.u32 %r1, [%rd1];"), "only .param, .global and .shared are"},
		{kernelOf("ld.u32 %r1, [%rd1];"), "only .param, .global and .shared are"},
		{kernelOf("ld.volatile.global.u32 %r1, [%rd1];"), "volatile accesses are not supported"},
		{kernelOf("bar.sync 1, 64;"), "barriers of some of a block's warps"},
		{kernelOf("atom.global.cta.add.u32 %r1, [%rd1], 1;"), "scope of a block"},
		{kernelOf("mov.u32 %r77, 1;"), "line 17: mov.u32 %r77, 1;: register %r77 is not declared: it is beyond %r<"},
		{head + ".visible .entry k() { .reg .b32 %x; mov.u32 %x, %r0; ret; }", "register %r0 is not declared"},
		{head + ".visible .entry k() { .reg .b32 %r<many>; ret; }", "want NAME<COUNT>"},
		{kernelOf("bfi.b32 %r1, %r2, %r3, %r4, 8;"), "bfi with a position or length in a register"},
		{kernelOf(".local .b8 depot[8];"), "line 17: .local .b8 depot[8];: the directive .local is not supported in a kernel"},
		{head + ".visible .entry k(.param .align 8 .b8 s[16]) { ret; }", "structures or arrays are not supported"},
		{head + ".visible .entry k(.param .u16 s) { ret; }", "a parameter of type .u16 is not supported"},
		{head + ".visible .entry k() { ret;", "line 4: .visible .entry k() { ret;: the kernel's body does not end"},
		{head + ".visible .entry k() { mov.u32 %r1, 1", "the text ends before the ; of an instruction"},
		{head + ".shared .align 4 .b8 huge[99999999];\n.visible .entry k() { ret; }", "is more than a block has"},
		{head, "no kernel: the text has no .entry"},
		{head + ".tex .u32 t;", "the directive .tex is not supported"},
	} {
		_, err := Rewrite(c.text)
		require.ErrorContains(t, err, c.says, c.text)
	}
	_, err := Rewrite(kernelOf(""), "other")
	require.EqualError(t, err, "no kernel other; the text has k")
}

// TestAKernelThatIsNotWantedMayHoldAnything.
func TestAKernelThatIsNotWantedMayHoldAnything(t *testing.T) {
	m, err := Rewrite(head+".func f() { call g; }\n.visible .entry other() { popc.b32 %r1, { %r2 }; }\n.visible .entry k() { ret; }", "k")
	require.NoError(t, err)
	require.Len(t, m.Kernels, 1)
	_, err = ptx.Parse(m.Text)
	require.NoError(t, err)
}

// FuzzRewrite: any text is rewritten or refused.
func FuzzRewrite(f *testing.F) {
	f.Add(kernelOf("mov.b64 {%r1, _}, %rd1; setp.lt.s16 %p1, %rs1, -2;"))
	f.Add(kernelOf("mov.b16 %rs1, {}; cvt.rn.f16x2 %r1; atom; shfl.sync %r1; ld; setp %p1; mul;"))
	for _, name := range []string{"nvcc_plain", "triton_mxfp4"} {
		raw, err := os.ReadFile(filepath.Join("..", "..", "testing", "foreignkernels", "testdata", "ptx", name+".ptx"))
		require.NoError(f, err)
		f.Add(string(raw))
	}
	f.Fuzz(func(t *testing.T, text string) {
		m, err := Rewrite(text)
		if err == nil {
			_, err = ptx.Parse(m.Text)
		}
		_ = fmt.Sprint(err)
	})
}
