package ptx

import (
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// exercise appends one instance of an instruction, with operands of every kind that its row asks for.
func exercise(k *Kernel, d *Def, addr map[string]Operand) {
	var args []Operand
	var after []Ref
	for _, a := range d.Args {
		switch a.Kind {
		case ArgAddr:
			args = append(args, At(addr[a.Space], 0))
		case ArgImm:
			args = append(args, Imm(immediateOf(d)))
		case ArgLabel:
			l := k.NewLabel("next")
			after = append(after, l)
			args = append(args, l)
		case ArgPair:
			args = append(args, Pair{k.Reg(ClassOf(a.Type)), k.Reg(Pred)})
		default:
			if a.Count > 0 {
				args = append(args, V(k.RegVec(ClassOf(a.Type), a.Count)...))
				continue
			}
			args = append(args, k.Reg(ClassOf(a.Type)))
		}
	}
	k.I(d.Op, args...)
	for _, l := range after {
		k.Place(l)
	}
}

// immediateOf is a legal value for an immediate operand: the size of a cp.async, else a small number.
func immediateOf(d *Def) int64 {
	if d.Does == CopyAsync {
		return 16
	}
	return 1
}

// everyRow is a module with one kernel for each instruction that keep admits, in order of opcode.
func everyRow(target string, keep func(*Def) bool) (*Module, []string) {
	m := NewModule(target)
	var ops []string
	for _, op := range Opcodes() {
		d := Lookup(op)
		if !keep(d) {
			continue
		}
		ops = append(ops, op)
		k := m.NewKernel("k_"+strings.NewReplacer(".", "_", "::", "_").Replace(op), 32)
		typ := "u64"
		if strings.HasPrefix(op, "ld.param.") {
			typ = d.Types[0]
		}
		g, s := k.Reg(B64), k.Reg(B32)
		p := k.AddParam("p0", typ)
		if typ == "u64" {
			k.I("ld.param.u64", g, At(p, 0))
		}
		k.I("mov.u32", s, Sym(SharedName))
		exercise(k, d, map[string]Operand{"global": g, "shared": s, "param": p})
		k.I("ret")
	}
	return m, ops
}

func TestPrintThenParseIsTheSameModule(t *testing.T) {
	m, _ := everyRow("sm_121a", func(*Def) bool { return true })
	k := m.NewKernel("mixed", 64)
	k.Doc = []string{"what it is for", "  \"an \\ indented\" line */ /* $"}
	p := k.AddParam("p0", "u64")
	k.AddParam("n", "u32")
	rd, r, f, fd, q := k.Reg(B64), k.Reg(B32), k.Reg(F32), k.Reg(F64), k.Reg(Pred)
	k.Comment("first %d", 1)
	k.I("ld.param.u64", rd, At(p, 0))
	top := k.NewLabel("loop")
	k.Place(top)
	k.NoUnroll()
	k.I("mov.u32", r, Special("%tid.x"))
	k.I("mov.u32", r, Sym(SharedName))
	k.I("mov.f32", f, FImm(-1.5))
	k.I("mov.f64", fd, DImm(0.1))
	k.I("ld.global.f32", f, At(rd, -16))
	k.I("st.shared.f32", At(Sym(SharedName), 32), f)
	k.I("add.s32", r, r, Imm(-7))
	k.I("setp.lt.s32", q, r, Imm(100))
	k.If(q, "bra", top)
	k.Unless(q, "ret")
	k.I("ret")

	text := m.String()
	back, err := Parse(text)
	require.NoError(t, err)
	require.Equal(t, text, back.String())
	lines := strings.Split(text, "\n")
	for i, want := range m.Kernels {
		got := back.Kernels[i]
		require.Equal(t, want.Doc, got.Doc)
		require.Equal(t, want.Params, got.Params)
		require.Equal(t, want.Regs, got.Regs)
		require.Len(t, got.Body, len(want.Body))
		for j, s := range got.Body {
			if s.Instr != nil {
				require.Equal(t, s.Instr.String(), strings.TrimSpace(lines[s.Line-1]))
			}
			s.Line = 0 // the built module has no text yet
			require.Equal(t, want.Body[j], s, "kernel %s, statement %d", want.Name, j)
		}
	}
}

func TestPrintingDoesNotChangeTheModule(t *testing.T) {
	for _, target := range []string{"sm_121", "sm_121a", "sm_80"} {
		m, _ := everyRow(target, func(*Def) bool { return true })
		before, _ := everyRow(target, func(*Def) bool { return true })
		text := m.String()
		require.True(t, reflect.DeepEqual(before, m), target)
		require.Equal(t, text, m.String())
	}
}

const head = ".version 8.8\n.target sm_121\n.address_size 64\n.extern .shared .align 128 .b8 smem[];\n"

func TestParseToleratesLayout(t *testing.T) {
	m, err := Parse(head + `
/* a kernel
   of few lines */ .visible .entry k(.param .u64 p0, .param .u32 n) .maxntid 32, 2, 1 { // one
	.reg .b32 %r<4>; .reg .pred %p<1>;  mov.u32 %r0, %tid.x; @!%p0 bra done; add.s32 %r1,%r0,0x10
	; // split
done: ret; }`)
	require.NoError(t, err)
	k := m.Kernels[0]
	require.Equal(t, 64, k.Threads)
	var ins []string
	for _, s := range k.Body {
		if s.Instr != nil {
			ins = append(ins, s.Instr.String())
		}
	}
	require.Equal(t, []string{"mov.u32 %r0, %tid.x;", "@!%p0 bra done;", "add.s32 %r1, %r0, 16;", "ret;"}, ins)
}

func TestParseRefusesWithLineAndReason(t *testing.T) {
	body := func(s string) string {
		return head + ".visible .entry k(.param .u64 p0)\n{\n.reg .b32 %r<2>;\n.reg .f32 %f<2>;\n.reg .b64 %rd<2>;\n.reg .pred %p<1>;\n" + s + "\nret;\n}\n"
	}
	for name, c := range map[string]struct {
		text string
		line int
		want string
	}{
		"bare rounding":         {body("add.f32 %f0, %f0, %f1;"), 11, "no instruction"},
		"undeclared register":   {body("add.s32 %r0, %r2, 1;"), 11, "not declared"},
		"wrong register class":  {body("add.s32 %f0, %r0, 1;"), 11, "class"},
		"missing operand":       {body("add.s32 %r0, %r1;"), 11, "2 operands, want 3"},
		"unknown label":         {body("bra nowhere;"), 11, "not defined"},
		"label twice":           {body("a:\na:"), 12, "twice"},
		"unknown parameter":     {body("ld.param.u64 %rd0, [p7];"), 11, "no parameter"},
		"unknown special":       {body("mov.u32 %r0, %smid2;"), 11, "unknown register"},
		"named register":        {body(".reg .b32 sum;"), 11, "want \"<\""},
		"unknown symbol":        {body("mov.u32 %r0, table;"), 11, "unknown name"},
		"no semicolon":          {body("mov.u32 %r0, 1"), 12, "want"},
		"unknown directive":     {head + ".func f\n", 5, "unexpected"},
		"pragma without text":   {body(".pragma;"), 11, "want a string"},
		"string without end":    {body(".pragma \"nounroll\n\";"), 11, "does not end"},
		"bad character":         {body("mov.u32 %r0, ?;"), 11, "unexpected character"},
		"comment without end":   {head + "/* never", 5, "does not end"},
		"unknown target":        {".version 8.8\n.target gfx90\n", 2, "unknown target"},
		"version below target":  {".version 8.0\n.target sm_121\n", 2, "needs PTX 8.8"},
		"instruction too new":   {strings.Replace(body("griddepcontrol.wait;"), "sm_121", "sm_80", 1), 11, "needs sm_90"},
		"version of the module": {strings.Replace(strings.Replace(body("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32;"), "8.8", "8.0", 1), "sm_121", "sm_90", 1), 11, "needs PTX"},
		"text that ends":        {head + ".visible .entry k(", 5, "end of the text"},
		"empty":                 {"", 1, "no .target"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Parse(c.text)
			var pe *ParseError
			require.ErrorAs(t, err, &pe)
			require.Equal(t, c.line, pe.Line, err)
			require.Contains(t, pe.Reason, c.want)
		})
	}
}

// TestTargetFollowsTheInstructions: a module with an architecture-specific instruction says so.
func TestTargetFollowsTheInstructions(t *testing.T) {
	m := NewModule("sm_121")
	k := m.NewKernel("k", 32)
	k.I("ret")
	require.Contains(t, m.String(), ".target sm_121\n")
	k.I("cvt.rn.satfinite.e2m1x2.f32", k.Reg(B8), k.Reg(F32), k.Reg(F32))
	require.Contains(t, m.String(), ".target sm_121a\n")
	require.Contains(t, m.String(), ".target sm_121a\n", "printed twice")
}
