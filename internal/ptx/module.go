package ptx

import (
	"fmt"
	"sort"
	"strings"

	"github.com/spark-compile/spark-compile/internal/target"
)

// SharedName is the symbol of a kernel's dynamic shared memory, declared in every module. The code generator chooses offsets
// in it, the launch its size.
const SharedName = "smem"

// Module is a PTX file.
type Module struct {
	Target  string // sm_121, sm_90, sm_121a …
	Kernels []*Kernel
}

// Param is a kernel parameter: 8-byte pointers first, then scalars.
type Param struct {
	Name string
	Type string // u64, u32, f32 …
}

// Kernel is one .entry.
type Kernel struct {
	Doc     []string // comment lines before it
	Name    string
	Params  []Param
	Threads int // .maxntid; 0 for none
	Regs    [NumClasses]int
	Body    []Stmt

	labels int
}

// Stmt is an instruction, a label, a pragma or a comment; exactly one of the fields is set.
type Stmt struct {
	Instr   *Instr
	Label   string
	Pragma  string // a hint for ptxas, which does not affect results
	Comment string
	Line    int // 1-based, in the text that was parsed; 0: built, not parsed
}

// Instr is one instruction.
type Instr struct {
	Guard    Reg // predicate register, if Guarded
	Guarded  bool
	Negate   bool // @!p
	Def      *Def
	Operands []Operand
}

// NewModule returns an empty module.
func NewModule(arch string) *Module { return &Module{Target: arch} }

// NewKernel appends an empty kernel.
func (m *Module) NewKernel(name string, threads int) *Kernel {
	k := &Kernel{Name: name, Threads: threads}
	m.Kernels = append(m.Kernels, k)
	return k
}

// Reg returns a fresh register.
func (k *Kernel) Reg(c Class) Reg {
	k.Regs[c]++
	return Reg{c, k.Regs[c] - 1}
}

// RegVec returns n fresh registers.
func (k *Kernel) RegVec(c Class, n int) []Reg {
	out := make([]Reg, n)
	for i := range out {
		out[i] = k.Reg(c)
	}
	return out
}

// V makes a vector operand of registers.
func V(rs ...Reg) Vec {
	v := make(Vec, len(rs))
	for i, r := range rs {
		v[i] = r
	}
	return v
}

// At is the memory operand [base+off].
func At(base Operand, off int) Addr { return Addr{base, off} }

// AddParam declares a parameter and returns its symbol, to be loaded with ld.param.
func (k *Kernel) AddParam(name, typ string) Sym {
	k.Params = append(k.Params, Param{name, typ})
	return Sym(name)
}

// I appends an instruction. op is the full opcode ("add.s32"); an opcode outside the table or an operand of the wrong
// kind is a bug of the caller and panics.
func (k *Kernel) I(op string, args ...Operand) { k.add(Instr{}, op, args) }

// If appends an instruction guarded by @p.
func (k *Kernel) If(p Reg, op string, args ...Operand) {
	k.add(Instr{Guard: p, Guarded: true}, op, args)
}

// Where appends an instruction guarded by @p; nil: by nothing.
func (k *Kernel) Where(p *Reg, op string, args ...Operand) {
	if p == nil {
		k.I(op, args...)
		return
	}
	k.If(*p, op, args...)
}

// Unless appends an instruction guarded by @!p.
func (k *Kernel) Unless(p Reg, op string, args ...Operand) {
	k.add(Instr{Guard: p, Guarded: true, Negate: true}, op, args)
}

func (k *Kernel) add(in Instr, op string, args []Operand) {
	d := Lookup(op)
	if d == nil {
		panic(fmt.Sprintf("ptx: kernel %s: no instruction %q in the table", k.Name, op))
	}
	if err := d.Check(args); err != nil {
		panic(fmt.Sprintf("ptx: kernel %s: %s: %v", k.Name, op, err))
	}
	in.Def, in.Operands = d, args
	k.Body = append(k.Body, Stmt{Instr: &in})
}

// NewLabel returns a label name unique in the kernel; Place puts it.
func (k *Kernel) NewLabel(stem string) Ref {
	k.labels++
	return Ref(fmt.Sprintf("$%s_%d", stem, k.labels))
}

// Place appends a label.
func (k *Kernel) Place(l Ref) { k.Body = append(k.Body, Stmt{Label: string(l)}) }

// NoUnroll tells ptxas not to unroll the loop whose head is the label just placed (PTX ISA, .pragma "nounroll").
func (k *Kernel) NoUnroll() { k.Body = append(k.Body, Stmt{Pragma: "nounroll"}) }

// Comment appends a line comment, for the reader of the PTX.
func (k *Kernel) Comment(format string, args ...any) {
	k.Body = append(k.Body, Stmt{Comment: strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", " ")})
}

// needs returns the lowest PTX version that the module's target and instructions allow, and the target: the
// architecture-specific one (sm_121a) if an instruction requires it.
func (m *Module) needs() (v Version, arch string) {
	v, arch = minVersion(m.Target), m.Target
	_, suffix, _ := target.Parse(m.Target)
	for _, k := range m.Kernels {
		for _, s := range k.Body {
			if s.Instr == nil {
				continue
			}
			d := s.Instr.Def
			if v.Less(d.Since) {
				v = d.Since
			}
			if d.Need.Arch != "" && suffix == "" {
				arch = m.Target + d.Need.Arch
			}
		}
	}
	return v, arch
}

// String prints the module, with the lowest version and the target that its instructions need.
func (m *Module) String() string {
	v, arch := m.needs()
	var b strings.Builder
	fmt.Fprintf(&b, ".version %d.%d\n.target %s\n.address_size 64\n\n.extern .shared .align 128 .b8 %s[];\n", v.Major, v.Minor, arch, SharedName)
	for _, k := range m.Kernels {
		b.WriteByte('\n')
		k.print(&b)
	}
	return b.String()
}

// bytesOfLine are about those of an instruction.
const bytesOfLine = 40

func (k *Kernel) print(b *strings.Builder) {
	for _, line := range k.Doc {
		b.WriteString(docMark + line + "\n")
	}
	fmt.Fprintf(b, ".visible .entry %s(", k.Name)
	for i, p := range k.Params {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(b, "\n\t.param .%s %s", p.Type, p.Name)
	}
	b.WriteString("\n)\n")
	if k.Threads > 0 {
		// Without the second directive ptxas sometimes spills a few registers to fit more blocks on a multiprocessor.
		fmt.Fprintf(b, ".maxntid %d, 1, 1\n.minnctapersm 1\n", k.Threads)
	}
	b.WriteString("{\n")
	for c := Class(0); c < NumClasses; c++ {
		if k.Regs[c] > 0 {
			fmt.Fprintf(b, "\t.reg %s %s<%d>;\n", c.Decl(), c.Prefix(), k.Regs[c])
		}
	}
	b.WriteByte('\n')
	b.Grow(bytesOfLine * len(k.Body))
	var line []byte
	for _, s := range k.Body {
		switch {
		case s.Instr != nil:
			line = append(s.Instr.appendTo(append(line[:0], '\t')), '\n')
			b.Write(line)
		case s.Label != "":
			b.WriteString(s.Label + ":\n")
		case s.Pragma != "":
			fmt.Fprintf(b, "\t.pragma %q;\n", s.Pragma)
		default:
			fmt.Fprintf(b, "\t// %s\n", s.Comment)
		}
	}
	b.WriteString("}\n")
}

// docMark begins a line of a kernel's Doc. Comments in a kernel's body are indented.
const docMark = "// "

// Undocumented is the text of a module without the Docs of its kernels: two texts that differ in nothing else are the same
// code.
func Undocumented(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, docMark) {
			b.WriteString(line)
		}
	}
	return b.String()
}

// String prints the instruction with its semicolon.
func (in *Instr) String() string { return string(in.appendTo(nil)) }

func (in *Instr) appendTo(b []byte) []byte {
	if in.Guarded {
		b = append(b, '@')
		if in.Negate {
			b = append(b, '!')
		}
		b = append(in.Guard.appendTo(b), ' ')
	}
	b = append(b, in.Def.Op...)
	for i, o := range in.Operands {
		if i > 0 {
			b = append(b, ',')
		}
		b = o.appendTo(append(b, ' '))
	}
	return append(b, ';')
}

// Version is a PTX ISA version.
type Version struct{ Major, Minor int }

// Less orders versions.
func (v Version) Less(w Version) bool {
	return v.Major < w.Major || v.Major == w.Major && v.Minor < w.Minor
}

// minVersion is the PTX ISA version that knows an architecture: that of the newest target whose code it runs.
func minVersion(arch string) Version {
	t, err := target.For(arch)
	if err != nil {
		return Version{}
	}
	return Version{t.ISA[0], t.ISA[1]}
}

// Opcodes lists every full opcode of the table, sorted.
func Opcodes() []string {
	out := make([]string, 0, len(defs))
	for op := range defs {
		out = append(out, op)
	}
	sort.Strings(out)
	return out
}
