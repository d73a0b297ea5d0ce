package ptx

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spark-compile/spark-compile/internal/target"
)

// Def is one instruction with all its modifiers: a row of the table, expanded over its types.
type Def struct {
	Op       string   // full opcode as printed: mad.lo.s32
	Name     string   // first component: mad
	Mods     []string // the others: lo, s32
	Types    []string // what replaced $ (and $2) in the row
	Args     []Arg
	Since    Version // least PTX ISA version
	Need     Feature // of the target
	Kind     Kind
	Does     Action
	Together Lanes
	Order    Order
	Foreign  bool // only PTX of other compilers has it

	// Eval is the meaning. Of a Compute row: a function of the registers of a warp, result first, whose type says which
	// files it reads and writes (lanes.go lists the types). Of mma: func(r []Row32, v []int32), on the rows v of its operands
	// in order. Of shfl: Source. Of atom and redux: Combine. Of ldmatrix: Transposed. Of movmatrix: func(d, a *Row32). Of cp.async: CopySizes.
	Eval     any
	matrices *matrices // of an mma of floats
	// Undefined, for some mma, returns a lane whose operands the ISA leaves undefined, and why; "" if there is none.
	Undefined func(r []Row32, v []int32) (lane int, why string)
}

// Kind groups instructions for statistics and schedulers.
type Kind uint8

// Instruction kinds.
const (
	KindInt Kind = iota
	KindFloat
	KindSpecial // ex2, rcp, rsqrt …
	KindConvert
	KindMove
	KindLoad
	KindStore
	KindAsync
	KindMMA
	KindMatrix // ldmatrix, stmatrix, movmatrix
	KindWarp   // shfl, vote, redux
	KindSync
	KindAtomic
	KindControl
)

// ArgKind says what an operand is.
type ArgKind uint8

// Operand kinds.
const (
	ArgDst    ArgKind = iota // register written
	ArgSrc                   // register, immediate or special register read
	ArgAddr                  // memory operand
	ArgImm                   // immediate only
	ArgLabel                 // branch target
	ArgPair                  // d|p of shfl.sync
	ArgSymbol                // address of a symbol, or a source
)

// Arg is an operand position.
type Arg struct {
	Kind    ArgKind
	Type    string // f32, s32, b16, pred …
	Count   int    // > 0: a vector of that many
	Space   string // of ArgAddr: global, shared, param
	Written bool   // of ArgAddr: memory that the instruction writes
	Chosen  int    // of selp: 1 if it is read where the last operand is true, 2 where it is false
}

// row is a line of the table before expansion. In op and args, $ stands for each word of types in turn. args is a list of
// operand descriptors:
//
//	=T      destination of type T       T      source           4*T, =4*T   vectors
//	[g] [s] [p]  address in global, shared, parameter space     =[g] =[s]   one that is written
//	L       label       #  immediate    =T|p   shfl's destination pair      T? T!  chosen by the last operand
//
// T is a PTX type, pred, or $. eval is the meaning (Def.Eval), or a meaning for each type (by), which then are the row's types
// if it names none.
type row struct {
	op, types string
	args      string
	since     Version
	need      Feature
	kind      Kind
	does      Action
	order     Order
	together  Lanes // where it is not what the action needs
	eval      any
	undefined func(r []Row32, v []int32) (lane int, why string)
	foreign   bool
}

// by holds meanings by type.
type by map[string]any

var defs = expandAll(integerRows, floatRows, compareRows, moveRows, convertRows, memoryRows, warpRows, controlRows, foreign(foreignRows))

// Lookup returns the instruction with this full opcode, or nil.
func Lookup(op string) *Def { return defs[op] }

// Available returns nil if a module of this target and version may use the instruction, else why not.
func (d *Def) Available(arch string, v Version) error {
	sm, suffix, _ := target.Parse(arch)
	switch {
	case sm < d.Need.SM:
		return fmt.Errorf("%s needs sm_%d (%s), the target is %s", d.Op, d.Need.SM, d.Need.Name, arch)
	case d.Need.Arch != "" && suffix == "":
		return fmt.Errorf("%s needs an architecture-specific target (%s), not %s", d.Op, d.Need.Name, arch)
	case v.Less(d.Since):
		return fmt.Errorf("%s needs PTX %d.%d, the module is %d.%d", d.Op, d.Since.Major, d.Since.Minor, v.Major, v.Minor)
	}
	return nil
}

func expandAll(groups ...[]row) map[string]*Def {
	m := map[string]*Def{}
	for _, g := range groups {
		for _, r := range g {
			expand(r, m)
		}
	}
	return m
}

func expand(r row, m map[string]*Def) {
	types := strings.Fields(r.types)
	meanings, perType := r.eval.(by)
	switch {
	case len(types) == 0 && perType:
		types = slices.Collect(maps.Keys(meanings))
	case len(types) == 0:
		types = []string{""}
	}
	for _, t := range types {
		sub := func(s string) string { return strings.ReplaceAll(s, "$", t) }
		d := &Def{Op: sub(r.op), Since: r.since, Need: r.need, Kind: r.kind, Does: r.does, Order: r.order, Eval: r.eval, Undefined: r.undefined, Foreign: r.foreign}
		parts := strings.Split(d.Op, ".")
		d.Name, d.Mods = parts[0], parts[1:]
		if t != "" {
			d.Types = []string{t}
		}
		if perType {
			d.Eval = meanings[t]
		}
		if m, ok := d.Eval.(matrices); ok {
			d.Eval, d.matrices = m.multiply, &m
		}
		if d.Does != Compute {
			d.Kind, d.Together = effects[d.Does].kind, max(effects[d.Does].together, r.together)
		}
		for _, f := range strings.Fields(r.args) {
			d.Args = append(d.Args, parseArg(sub(f)))
		}
		if m[d.Op] != nil {
			panic("ptx: instruction declared twice: " + d.Op)
		}
		m[d.Op] = d
	}
}

func parseArg(s string) Arg {
	a := Arg{Kind: ArgSrc}
	s, written := strings.CutPrefix(s, "=")
	if written {
		a.Kind = ArgDst
	}
	switch s {
	case "[g]", "[s]", "[p]":
		return Arg{Kind: ArgAddr, Space: map[string]string{"[g]": "global", "[s]": "shared", "[p]": "param"}[s], Written: written}
	case "#":
		return Arg{Kind: ArgImm}
	case "L":
		return Arg{Kind: ArgLabel}
	}
	if n := len(s) - 1; s[n] == '?' || s[n] == '!' {
		a.Chosen, s = 1+strings.IndexByte("?!", s[n]), s[:n]
	}
	if t, ok := strings.CutSuffix(s, "|p"); ok {
		a.Kind, s = ArgPair, t
	}
	if i := strings.IndexByte(s, '*'); i > 0 {
		fmt.Sscan(s[:i], &a.Count)
		s = s[i+1:]
	}
	a.Type = s
	return a
}

// ClassOf is the register class that holds a value of a PTX type.
func ClassOf(t string) Class {
	switch t {
	case "pred":
		return Pred
	case "f32":
		return F32
	case "f64":
		return F64
	case "b8", "u8", "s8", "b16", "u16", "s16", "f16", "bf16", "e4m3x2", "e5m2x2":
		return B16
	case "e2m1x2":
		return B8
	case "b64", "u64", "s64", "f32x2":
		return B64
	}
	return B32 // b32 u32 s32 f16x2 bf16x2 tf32
}

// Bytes is the size of a type in memory; 0 for types that memory does not hold.
func Bytes(typ string) int {
	switch typ {
	case "u8", "s8":
		return 1
	case "b16", "u16", "s16", "f16", "bf16":
		return 2
	case "b32", "u32", "s32", "f32":
		return 4
	case "b64", "u64", "s64", "f64":
		return 8
	}
	return 0
}

// Check checks operands against the row.
func (d *Def) Check(args []Operand) error {
	if len(args) != len(d.Args) {
		return fmt.Errorf("%d operands, want %d", len(args), len(d.Args))
	}
	for i, a := range d.Args {
		if err := a.check(args[i]); err != nil {
			return fmt.Errorf("operand %d (%s): %w", i, textOf(args[i]), err)
		}
	}
	return nil
}

func (a Arg) check(o Operand) error {
	switch a.Kind {
	case ArgAddr:
		ad, ok := o.(Addr)
		if !ok {
			return fmt.Errorf("want an address")
		}
		if r, ok := ad.Base.(Reg); ok {
			want := B64
			if a.Space == "shared" {
				want = B32
			}
			if r.Class != want {
				return fmt.Errorf("address register of a %s address is %s", a.Space, r)
			}
		}
		return nil
	case ArgImm:
		if _, ok := o.(Imm); !ok {
			return fmt.Errorf("want an immediate")
		}
		return nil
	case ArgLabel:
		if _, ok := o.(Ref); !ok {
			return fmt.Errorf("want a label")
		}
		return nil
	case ArgPair:
		p, ok := o.(Pair)
		if !ok || p.P.Class != Pred {
			return fmt.Errorf("want d|p")
		}
		return Arg{Kind: ArgDst, Type: a.Type}.check(p.D)
	}
	if a.Count > 0 {
		v, ok := o.(Vec)
		if !ok || len(v) != a.Count {
			return fmt.Errorf("want a vector of %d", a.Count)
		}
		for _, e := range v {
			if err := (Arg{Kind: a.Kind, Type: a.Type}).check(e); err != nil {
				return err
			}
		}
		return nil
	}
	want := ClassOf(a.Type)
	switch o := o.(type) {
	case Reg:
		if o.Class == want || loose(want, o.Class, a.Type) {
			return nil
		}
		return fmt.Errorf("register of class %s, want %s", o.Class.Prefix(), want.Prefix())
	case Imm, FImm, DImm, Special, Sym:
		if a.Kind == ArgDst {
			return fmt.Errorf("a destination must be a register")
		}
		if strings.HasPrefix(a.Type, "f16") || strings.HasPrefix(a.Type, "bf16") {
			return fmt.Errorf("%s has no immediates", a.Type)
		}
		return nil
	}
	return fmt.Errorf("unexpected operand")
}

// loose admits what PTX admits beyond equal classes: .b32 and .b64 instructions take float registers of that size, and
// float instructions take untyped registers (PTX ISA 9.2, "Operand types").
func loose(want, have Class, typ string) bool {
	switch {
	case typ == "b32" && have == F32, typ == "b64" && have == F64:
		return true
	case want == F32 && have == B32, want == F64 && have == B64:
		return true
	case have == B8 && (typ == "u8" || typ == "s8"):
		return true
	}
	return false
}
