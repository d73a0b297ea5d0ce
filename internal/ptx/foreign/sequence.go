package foreign

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spark-compile/spark-compile/internal/ptx"
)

// sequence returns what writes an instruction that the table lacks as several with the same result, nil where there is no such
// instruction of that name; it reports false for those that the table has. Results are written last, since they may be operands, too.
func sequence(name string) func(in *instruction) bool {
	switch name {
	case "mov":
		return move
	case "ld", "st":
		return access
	case "shfl":
		return shuffle
	case "cp":
		return copyAsync
	case "atom", "red":
		return atomic
	case "cvt":
		return convert
	case "bfi":
		return insert
	case "max", "min":
		return extreme
	case "setp":
		return compare
	case "rsqrt":
		return reciprocalRoot
	case "bar":
		return barrier
	case "call":
		return call
	case "fma":
		return inF32
	case "add", "sub", "mul", "mad", "and", "or", "xor", "not", "neg", "shl", "shr", "abs", "selp":
		return half
	}
	return nil
}

func call(in *instruction) bool {
	in.fail("calls of functions are not supported: inline them")
	return true
}

func barrier(in *instruction) bool {
	if len(in.ops) == 2 {
		in.fail("barriers of some of a block's warps are not supported")
	}
	return false
}

// bits is the size of a type; of several side by side, all of them.
func bits(typ string) int {
	if strings.HasSuffix(typ, "x2") {
		return 2 * bits(strings.TrimSuffix(typ, "x2"))
	}
	n, _ := strconv.Atoi(strings.TrimLeft(typ, "abcdefghijklmnopqrstuvwxyz"))
	return n
}

// move packs and unpacks vectors, and takes addresses of shared variables.
func move(in *instruction) bool {
	if len(in.ops) != 2 {
		return false
	}
	d, s := in.ops[0], in.ops[1]
	if at, ok := in.w.k.shared[s]; ok {
		t := in.temp(ptx.B32)
		in.emit("mov.u32", t, ptx.SharedName)
		in.emit("add.u32", t, t, strconv.Itoa(at))
		if classOfReg(d) == ptx.B64 {
			in.emit("cvt.u64.u32", d, t)
		} else {
			in.emit("mov.b32", d, t)
		}
		return true
	}
	switch dv, sv := elements(d), elements(s); {
	case len(dv)+len(sv) > 1 && (max(len(dv), len(sv)) != 2 && max(len(dv), len(sv)) != 4 || bits(in.typ()) < 16):
		in.fail("a move of that many elements")
	case len(dv) > 1:
		in.unpack(dv, s, bits(in.typ()))
	case len(sv) > 1:
		in.pack(d, sv, bits(in.typ()))
	case isRegister(d) && isRegister(s) && classOfReg(d) != classOfReg(s):
		in.fail("a move between registers of different sizes")
	default:
		return false
	}
	return true
}

// whole widens an operand of so many bits to a register of 32, or returns an immediate.
func (in *instruction) whole(o string, n int, signed bool) string {
	if !isRegister(o) {
		v, err := strconv.ParseInt(o, 0, 64)
		if err != nil || n <= 0 || n > 32 {
			return o
		}
		v &= 1<<n - 1
		if signed && v>>(n-1) != 0 {
			v -= 1 << n
		}
		return strconv.FormatInt(v, 10)
	}
	c := classOfReg(o)
	if c == ptx.B32 {
		return o
	}
	from := "u"
	if signed {
		from = "s"
	}
	t := in.temp(ptx.B32)
	in.emit(fmt.Sprintf("cvt.%s32.%s%d", from, from, n), t, o)
	return t
}

// narrow moves the low bits of a 32-bit register.
func (in *instruction) narrow(d, s string) {
	switch classOfReg(d) {
	case ptx.B8:
		in.emit("cvt.u8.u32", d, s)
	case ptx.B16:
		in.emit("cvt.u16.u32", d, s)
	default:
		in.emit("mov.b32", d, s)
	}
}

func (in *instruction) pack(d string, v []string, n int) {
	each := n / len(v)
	if each == 32 {
		lo, hi := in.temp(ptx.B64), in.temp(ptx.B64)
		for i, t := range []string{lo, hi} {
			w := in.temp(ptx.B32)
			in.emit("mov.b32", w, v[i])
			in.emit("cvt.u64.u32", t, w)
		}
		in.emit("shl.b64", hi, hi, "32")
		in.emit("or.b64", d, lo, hi)
		return
	}
	if n == 64 { // four of 16 bits
		lo, hi := in.temp(ptx.B32), in.temp(ptx.B32)
		in.pack(lo, v[:2], 32)
		in.pack(hi, v[2:], 32)
		in.pack(d, []string{lo, hi}, 64)
		return
	}
	sum := in.temp(ptx.B32)
	in.emit("mov.b32", sum, "0")
	for i, x := range v {
		t := in.temp(ptx.B32)
		in.emit("shl.b32", t, in.inRegister(in.whole(x, each, false)), strconv.Itoa(each*i))
		in.emit("or.b32", sum, sum, t)
	}
	in.narrow(d, sum)
}

// inRegister is an operand of 32 bits that may have been an immediate.
func (in *instruction) inRegister(o string) string {
	if isRegister(o) {
		return o
	}
	t := in.temp(ptx.B32)
	in.emit("mov.b32", t, o)
	return t
}

func (in *instruction) unpack(v []string, s string, n int) {
	each := n / len(v)
	if n == 64 {
		lo, hi, t := in.temp(ptx.B32), in.temp(ptx.B32), in.temp(ptx.B64)
		in.emit("cvt.u32.u64", lo, s)
		in.emit("shr.u64", t, s, "32")
		in.emit("cvt.u32.u64", hi, t)
		if each == 32 {
			for i, w := range []string{lo, hi} {
				if v[i] != "_" {
					in.emit("mov.b32", v[i], w)
				}
			}
			return
		}
		in.unpack(v[:2], lo, 32)
		in.unpack(v[2:], hi, 32)
		return
	}
	s = in.whole(s, n, false)
	for i, x := range v {
		if x == "_" {
			continue
		}
		t := in.temp(ptx.B32)
		in.emit("bfe.u32", t, s, strconv.Itoa(each*i), strconv.Itoa(each))
		in.narrow(x, t)
	}
}

// access is a load or store: bytes have other names, and a load may widen.
func access(in *instruction) bool {
	if len(in.ops) != 2 {
		return false
	}
	if in.mods[0] != "param" && in.mods[0] != "global" && in.mods[0] != "shared" && in.mods[0] != "acquire" && in.mods[0] != "release" {
		in.fail("%s accesses a state space that is not supported: only .param, .global and .shared are", in.opcode())
	}
	if in.mods[0] == "param" && in.name == "ld" {
		if n := bits(in.typ()); n == 32 || n == 64 {
			in.emit("ld.param.u"+strconv.Itoa(n), in.ops...)
			return true
		}
		in.fail("parameters of fewer than 32 bits are not supported")
	}
	n := bits(in.typ())
	at := 0
	if in.name == "st" {
		at = 1
	}
	if n == 32 && classOfReg(in.ops[at]) == ptx.B64 { // the register is wider
		t, r := in.temp(ptx.B32), in.ops[at]
		if in.name == "st" {
			in.emit("cvt.u32.u64", t, r)
		}
		in.ops[at] = t
		in.plain()
		switch {
		case in.name == "ld" && in.typ() == "s32":
			in.emit("cvt.s64.s32", r, t)
		case in.name == "ld":
			in.emit("cvt.u64.u32", r, t)
		}
		return true
	}
	if n > 16 {
		return false
	}
	vector := elements(in.ops[at])
	if vector == nil {
		vector = []string{in.ops[at]}
	}
	typ := "u8"
	switch {
	case n == 16:
		typ = "b16"
	case in.typ() == "s8" && in.name == "ld":
		typ = "s8"
	}
	in.mods[len(in.mods)-1] = typ
	signed := strings.HasPrefix(in.typ(), "s")
	data := slices.Clone(vector)
	for i, r := range vector {
		if c := classOfReg(r); c == ptx.B16 || c == ptx.B8 && in.name == "st" {
			continue
		}
		data[i] = in.temp(ptx.B16)
		if in.name == "st" {
			in.emit("cvt.u16.u32", data[i], in.inRegister(in.whole(r, n, false)))
		}
	}
	in.ops[at] = data[0]
	if len(data) > 1 {
		in.ops[at] = "{" + strings.Join(data, ", ") + "}"
	}
	in.emit(in.opcode(), in.ops...)
	for i, r := range vector {
		if data[i] == r || in.name == "st" {
			continue
		}
		t := in.temp(ptx.B32)
		if signed {
			in.emit("cvt.s32.s16", t, data[i])
		} else {
			in.emit("cvt.u32.u16", t, data[i])
		}
		in.narrow(r, t)
	}
	return true
}

// shuffle gives shfl the predicate that the dialect asks for.
func shuffle(in *instruction) bool {
	if len(in.ops) != 5 {
		in.fail("shfl without a member mask is not supported")
	}
	d, p, ok := strings.Cut(in.ops[0], "|")
	if p = strings.TrimSpace(p); !ok || p == "_" {
		p = in.temp(ptx.Pred)
	}
	in.ops[0] = strings.TrimSpace(d) + "|" + p
	return false
}

// copyAsync copies as many bytes as it writes where it does not say how many.
func copyAsync(in *instruction) bool {
	if len(in.ops) == 3 && (in.has("cg") || in.has("ca")) {
		in.ops = append(in.ops, in.ops[2])
	}
	return false
}

// atomic orders the modifiers of atom, and makes one of red, whose result nobody reads.
func atomic(in *instruction) bool {
	var space, sem, kind string
	for _, m := range in.mods[:len(in.mods)-1] {
		switch m {
		case "global", "shared":
			space = m
		case "acq_rel", "relaxed":
			sem = m
		case "gpu", "sys", "noftz":
		case "cta":
			if in.has("global") {
				in.fail("atomics of the scope of a block are not supported")
			}
		case "add", "min", "max", "and", "or", "xor", "exch", "cas", "inc", "dec":
			kind = m
		default:
			in.fail("%s: the modifier .%s is not supported", in.opcode(), m)
		}
	}
	typ := in.typ()
	if kind == "add" && typ == "s32" {
		typ = "u32"
	}
	before := ""
	if sem == "acq_rel" && space == "global" {
		before = "acq_rel.gpu."
	}
	op := "atom." + before + space + "." + kind + "." + typ
	if stronger := "atom.acq_rel.gpu." + space + "." + kind + "." + typ; ptx.Lookup(op) == nil && in.mods[0] != "" && ptx.Lookup(stronger) != nil {
		in.fail("%s is supported with .acq_rel alone", in.opcode())
	}
	ops := in.ops
	if in.name == "red" {
		ops = append([]string{in.temp(ptx.B32)}, ops...)
	}
	in.emit(op, ops...)
	return true
}

// insert is bfi, whose position and length are immediates in the table.
func insert(in *instruction) bool {
	if len(in.ops) == 5 && (isRegister(in.ops[3]) || isRegister(in.ops[4])) {
		in.fail("bfi with a position or length in a register is not supported")
	}
	return false
}

// extreme is max or min: of three operands, or of integers of 16 bits.
func extreme(in *instruction) bool {
	if len(in.ops) == 4 {
		t := in.temp(ptx.B32)
		op := in.opcode()
		in.emit(op, t, in.ops[1], in.ops[2])
		in.emit(op, in.ops[0], t, in.ops[3])
		return true
	}
	if in.typ() == "f16" || in.typ() == "bf16" {
		return in.name == "min" && inF32(in)
	}
	return half(in)
}

// inF32 computes with f16 or bf16 in f32 and rounds once more, which gives the same as rounding once (Figueroa, 1995): 24 bits are
// more than twice as many as the operands have, and two.
func inF32(in *instruction) bool {
	typ := in.typ()
	if typ != "f16" && typ != "bf16" || ptx.Lookup(in.opcode()) != nil {
		return false
	}
	if in.has("f32") { // add.f32.f16 d, a, c: all but the last source are narrow
		ops := []string{in.ops[0]}
		for _, o := range in.ops[1 : len(in.ops)-1] {
			t := in.temp(ptx.B32)
			in.emit("cvt.f32."+typ, t, in.inHalf(o))
			ops = append(ops, t)
		}
		in.emit(in.name+".rn.f32", append(ops, in.ops[len(in.ops)-1])...)
		return true
	}
	op := in.opcode()
	op = strings.TrimSuffix(op, typ) + "f32"
	if in.name == "add" || in.name == "sub" || in.name == "mul" {
		op = in.name + ".rn.f32"
	} else if in.name != "min" {
		return false
	}
	var ops []string
	for _, o := range in.ops[1:] {
		t := in.temp(ptx.B32)
		in.emit("cvt.f32."+typ, t, in.inHalf(o))
		ops = append(ops, t)
	}
	d := in.temp(ptx.B32)
	in.emit(op, append([]string{d}, ops...)...)
	in.emit("cvt.rn."+typ+".f32", in.ops[0], d)
	return true
}

func (in *instruction) inHalf(o string) string {
	if isRegister(o) {
		return o
	}
	t := in.temp(ptx.B16)
	in.emit("mov.b16", t, o)
	return t
}

// half computes with integers of 16 bits in 32 and keeps the lower ones.
func half(in *instruction) bool {
	if len(in.mods) == 0 || ptx.Lookup(in.opcode()) != nil {
		return false
	}
	switch typ := in.typ(); typ {
	case "f16", "bf16":
		return inF32(in)
	case "s16", "u16", "b16":
		signed, wide := typ[0] == 's', map[byte]string{'s': "s32", 'u': "u32", 'b': "b32"}[typ[0]]
		if in.has("wide") || in.has("hi") || in.has("sat") || in.has("cc") {
			return false
		}
		ops := []string{in.temp(ptx.B32)}
		for i, o := range in.ops[1:] {
			switch {
			case in.name == "selp" && i == 2:
				ops = append(ops, o)
			case (in.name == "shl" || in.name == "shr") && i == 1:
				ops = append(ops, o)
			default:
				ops = append(ops, in.whole(o, 16, signed))
			}
		}
		if in.name == "shr" && typ == "b16" {
			wide = "u32"
		}
		op := &instruction{w: in.w, line: in.line, guard: in.guard, name: in.name, mods: append(slices.Clone(in.mods[:len(in.mods)-1]), wide), ops: ops}
		op.plain()
		in.narrow(in.ops[0], ops[0])
		return true
	}
	return false
}

// compare is setp: of 16 bits, and combined with a predicate.
func compare(in *instruction) bool {
	if len(in.mods) == 3 && len(in.ops) == 4 { // setp.lt.and.s32 p, a, b, c
		p := in.temp(ptx.Pred)
		first := &instruction{w: in.w, line: in.line, guard: in.guard, name: "setp", mods: []string{in.mods[0], in.mods[2]}, ops: []string{p, in.ops[1], in.ops[2]}}
		first.rewrite()
		in.emit(in.mods[1]+".pred", in.ops[0], p, in.ops[3])
		return true
	}
	typ := in.typ()
	var wide string
	ops := []string{in.ops[0]}
	switch typ {
	case "f16", "bf16":
		wide = "f32"
		for _, o := range in.ops[1:] {
			t := in.temp(ptx.B32)
			in.emit("cvt.f32."+typ, t, in.inHalf(o))
			ops = append(ops, t)
		}
	case "s16", "u16", "b16":
		wide = map[byte]string{'s': "s32", 'u': "u32", 'b': "u32"}[typ[0]]
		for _, o := range in.ops[1:] {
			ops = append(ops, in.whole(o, 16, typ[0] == 's'))
		}
	default:
		return false
	}
	op := &instruction{w: in.w, line: in.line, guard: in.guard, name: "setp", mods: []string{in.mods[0], wide}, ops: ops}
	op.plain()
	return true
}

func reciprocalRoot(in *instruction) bool {
	if in.opcode() != "rsqrt.approx.f32" {
		return false
	}
	t := in.temp(ptx.B32)
	in.emit("sqrt.rn.f32", t, in.ops[1])
	in.emit("rcp.rn.f32", in.ops[0], t)
	return true
}

// convert is cvt between integers of all sizes, and from narrow ones; and between narrow floats, by way of f32, which holds each of
// them exactly.
func convert(in *instruction) bool {
	if ptx.Lookup(in.opcode()) != nil && !in.mixed() {
		return false
	}
	n := len(in.mods)
	if n < 2 {
		return false
	}
	to, from := in.mods[n-2], in.typ()
	integer := func(t string) bool { return strings.Contains(" s8 u8 b8 s16 u16 s32 u32 s64 u64 ", " "+t+" ") }
	d, s := in.ops[0], in.ops[1]
	switch {
	case n == 2 && integer(to) && integer(from):
		in.resize(d, s, to, from)
	case in.mods[0] == "rn" && integer(from) && bits(from) < 32: // f32 and f64 hold them exactly
		in.emit("cvt.rn."+to+".s32", d, in.inRegister(in.whole(s, bits(from), from[0] == 's')))
	case in.mods[0] == "rn" && from == "u32":
		t := in.temp(ptx.B64)
		in.emit("cvt.u64.u32", t, in.inRegister(s))
		in.emit("cvt.rn."+to+".u64", d, t)
	case strings.HasSuffix(to, "x2") && strings.HasSuffix(from, "x2"):
		lo, hi := in.halves(s, strings.TrimSuffix(from, "x2"))
		op := "cvt." + strings.Join(in.mods[:n-1], ".") + ".f32"
		in.emit(op, d, hi, lo)
	default:
		return false
	}
	return true
}

// mixed reports a conversion whose source is an integer in a wider register, whose low bits count.
func (in *instruction) mixed() bool {
	return len(in.ops) == 2 && len(in.mods) == 2 && isRegister(in.ops[1]) && strings.Contains("usb", in.typ()[:1]) && !strings.HasPrefix(in.typ(), "bf") &&
		8*bytesOf(classOfReg(in.ops[1])) > bits(in.typ()) && !(classOfReg(in.ops[1]) == ptx.B16 && bits(in.typ()) == 8)
}

// halves are the two narrow floats of a register as f32.
func (in *instruction) halves(s, typ string) (lo, hi string) {
	lo, hi = in.temp(ptx.B32), in.temp(ptx.B32)
	switch typ {
	case "e4m3", "e5m2", "e2m1":
		t := in.temp(ptx.B32)
		in.emit("cvt.rn.f16x2."+typ+"x2", t, s)
		return in.halves(t, "f16")
	case "f16", "bf16":
		a, b := in.temp(ptx.B16), in.temp(ptx.B16)
		in.unpack([]string{a, b}, s, 32)
		in.emit("cvt.f32."+typ, lo, a)
		in.emit("cvt.f32."+typ, hi, b)
	default:
		in.fail("the CPU device has no instruction %s", in.opcode())
	}
	return lo, hi
}

// resize converts integers: the source is widened by its own sign, then the low bits are kept.
func (in *instruction) resize(d, s, to, from string) {
	signed := from[0] == 's'
	if !isRegister(s) {
		in.fail("a conversion of an immediate")
	}
	if bits(from) < 64 && classOfReg(s) == ptx.B64 {
		t := in.temp(ptx.B32)
		in.emit("cvt.u32.u64", t, s)
		s = t
	}
	w := s
	switch n := bits(from); {
	case n == 64:
	case classOfReg(s) == ptx.B32 && n < 32:
		w = in.temp(ptx.B32)
		op := "bfe.u32"
		if signed {
			op = "bfe.s32"
		}
		in.emit(op, w, s, "0", strconv.Itoa(n))
	case n < 32:
		w = in.whole(s, n, signed)
	}
	if classOfReg(w) == ptx.B64 {
		if bits(to) == 64 {
			in.emit("mov.b64", d, w)
			return
		}
		t := in.temp(ptx.B32)
		in.emit("cvt.u32.u64", t, w)
		w = t
	}
	switch n := bits(to); {
	case n == 64 && signed:
		in.emit("cvt.s64.s32", d, w)
	case n == 64:
		in.emit("cvt.u64.u32", d, w)
	case n < 32 && bits(from) > n: // a result in a wider register is extended by its own sign
		t := in.temp(ptx.B32)
		op := "bfe.u32"
		if to[0] == 's' {
			op = "bfe.s32"
		}
		in.emit(op, t, w, "0", strconv.Itoa(n))
		in.narrow(d, t)
	default:
		in.narrow(d, w)
	}
}
