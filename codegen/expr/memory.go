package expr

import (
	"fmt"
	"slices"
	"sort"

	"github.com/spark-compile/spark-compile/internal/ptx"
	"github.com/spark-compile/spark-compile/ir"
)

// loadGroup is a run of neighbouring elements read by one instruction.
type loadGroup struct {
	loads []*Expr // in order of address; all that differs is the constant part of the index
}

// maxEarly bounds the vectors of constants that are read before griddepcontrol.wait: more would only occupy registers.
const maxEarly = 16

// groupLoads finds neighbouring loads among the nodes that es still need.
func (m *Emitter) groupLoads(es []*Expr) {
	type key struct {
		operand, pred, els, base int
		dtype                    ir.DType
	}
	classes := map[key][]*Expr{}
	var order []key
	m.pending(es, func(e *Expr) {
		if e.Op != OpLoad {
			return
		}
		k := key{operand: int(e.I), dtype: e.DType, pred: -1, els: -1, base: m.B.Offset(e.Args[0], -constPart(e.Args[0])).id}
		if len(e.Args) == 3 {
			k.pred, k.els = e.Args[1].id, e.Args[2].id
		}
		if classes[k] == nil {
			order = append(order, k)
		}
		classes[k] = append(classes[k], e)
	})
	groups := map[*Expr]*loadGroup{}
	var early []*Expr
	for _, k := range order {
		loads := classes[k]
		sort.Slice(loads, func(i, j int) bool { return constPart(loads[i].Args[0]) < constPart(loads[j].Args[0]) })
		for i := 0; i < len(loads); {
			w := m.vectorWidth(loads[i:])
			if w > 1 {
				g := &loadGroup{loads: loads[i : i+w]}
				for _, l := range g.loads {
					groups[l] = g
				}
			}
			if !m.waited && m.isConstant(int(loads[i].I)) && m.early(loads[i]) {
				early = append(early, loads[i])
			}
			i += w
		}
	}
	m.top().groups = groups
	if !m.waited && len(m.scopes) == 1 {
		for i, e := range early {
			if i < maxEarly {
				m.reg(e)
			}
		}
	}
}

func (m *Emitter) isConstant(operand int) bool {
	return operand >= 0 && m.env.Constant != nil && m.env.Constant(operand)
}

// early reports whether a load's address and predicate depend on no other load.
func (m *Emitter) early(e *Expr) bool {
	ok := true
	m.pending(e.Args, func(x *Expr) {
		if x.Op == OpLoad || x.Op == OpReduce {
			ok = false
		}
	})
	return ok
}

// pending visits what is still to be computed for es, arguments before users, without entering reductions.
func (m *Emitter) pending(es []*Expr, visit func(*Expr)) {
	m.walk(es, func(e *Expr) []*Expr {
		if e.Op == OpReduce {
			return nil
		}
		return e.Args
	}, visit)
}

// walk visits what is still to be computed for es, after what below says of each node.
func (m *Emitter) walk(es []*Expr, below func(*Expr) []*Expr, visit func(*Expr)) {
	seen := map[*Expr]bool{}
	var walk func(e *Expr)
	walk = func(e *Expr) {
		if seen[e] || e.Op == OpConst || e.Op == OpVar {
			return
		}
		seen[e] = true
		if _, ok := m.lookup(e); ok {
			return
		}
		for _, a := range below(e) {
			walk(a)
		}
		visit(e)
	}
	for _, e := range es {
		walk(e)
	}
}

func constPart(e *Expr) int64 {
	switch e.Op {
	case OpConst, OpAffine:
		return e.I
	}
	return 0
}

// vectorWidth is how many of the loads, sorted by address, one instruction can read.
func (m *Emitter) vectorWidth(loads []*Expr) int {
	e := loads[0]
	size := e.DType.Bits() / 8
	align := 256
	if m.env.Align != nil {
		align = m.env.Align(int(e.I))
	}
	at := constPart(e.Args[0])
	base := m.B.Offset(e.Args[0], -at)
	if base.wraps() || e.I < 0 && size == 8 {
		return 1
	}
	for w := 16 / size; w > 1; w /= 2 {
		if w > len(loads) || at%int64(w) != 0 || base.mult%int64(w) != 0 || align%(w*size) != 0 {
			continue
		}
		ok := true
		for i := 1; i < w && ok; i++ {
			ok = constPart(loads[i].Args[0]) == at+int64(i)
		}
		if ok {
			return w
		}
	}
	return 1
}

// address is the memory operand of element index. Addresses in shared memory have 32 bits.
func (m *Emitter) address(operand int64, index *Expr, size int) ptx.Addr {
	base := m.env.Operand(int(operand))
	k := constPart(index)
	if k < -(1<<24) || k > 1<<24 {
		k = 0 // offsets of instructions have 32 bits
	}
	x := m.B.Offset(index, -k)
	off := int(k) * size
	if x.IsConstInt(0) {
		return ptx.At(base, off)
	}
	key := addrKey{operand, x, size}
	for i := len(m.scopes) - 1; i >= 0; i-- {
		if r, ok := m.scopes[i].addrs[key]; ok {
			return ptx.At(r, off)
		}
	}
	r := m.K.Reg(base.Class)
	switch {
	case operand < 0:
		m.K.I("mad.lo.s32", r, m.reg(x), ptx.Imm(int64(size)), base)
	case x.Type == S64:
		m.K.I("mad.lo.s64", r, m.reg(x), ptx.Imm(int64(size)), base)
	default:
		m.K.I("mad.wide.s32", r, m.reg(x), ptx.Imm(int64(size)), base)
	}
	m.top().addrs[key] = r
	return ptx.At(r, off)
}

// load emits a load, together with its neighbours if it has any.
func (m *Emitter) load(e *Expr) ptx.Reg {
	loads := []*Expr{e}
	if g := m.top().groups[e]; g != nil {
		loads = g.loads
	}
	k := m.K
	size := e.DType.Bits() / 8
	addr := m.address(e.I, loads[0].Args[0], size)
	var pred *ptx.Reg
	if len(e.Args) == 3 {
		p := m.reg(e.Args[1])
		pred = &p
	}
	op := "ld.global."
	switch constant := m.isConstant(int(e.I)); {
	case e.I < 0:
		op = "ld.shared."
	case constant && m.waited:
		op = "ld.global.nc."
	case !constant:
		m.Wait()
	} // before the wait only plain loads stay: ptxas moves ld.global.nc after it
	if m.env.Loads != nil && e.I >= 0 {
		m.env.Loads(loads[0].Args[0], len(loads)*size, size)
	}
	words := m.loadWords(op, len(loads)*size, e.DType, addr, pred)
	if !m.waited {
		m.begun = len(m.K.Body)
	}
	var pairs []ptx.Reg
	if e.DType == ir.Float8E4M3FN {
		pairs = m.decodeE4M3(words, len(loads))
	}
	for i, l := range loads {
		var r ptx.Reg
		if pairs != nil {
			r = pairs[i]
		} else {
			r = m.decode(words, i, l.DType)
		}
		if pred != nil && !e.Args[2].IsConstInt(0) && !e.Args[2].isFloatConst(0) {
			els := m.arg(e.Args[2])
			s := k.Reg(r.Class)
			k.I("selp."+suffix(r.Class), s, r, els, *pred)
			r = s
		}
		m.top().regs[l] = r
	}
	return m.top().regs[e]
}

// loadWords reads a run of bytes into registers of up to 4 (or 8) bytes each.
func (m *Emitter) loadWords(op string, bytes int, d ir.DType, addr ptx.Addr, pred *ptx.Reg) []ptx.Reg {
	k := m.K
	typ, class, n := "b32", ptx.B32, bytes/4
	switch {
	case d == ir.Float32:
		typ, class = "f32", ptx.F32
	case d == ir.Float64 && n == 2:
		typ, class, n = "f64", ptx.F64, 1
	case d == ir.Float64:
		typ, class, n = "b64", ptx.F64, bytes/8
	case d.Bits() == 64:
		typ, class, n = "b64", ptx.B64, bytes/8
	case bytes == 2:
		typ, class, n = "b16", ptx.B16, 1
	case bytes == 1 && d == ir.Int8:
		typ, class, n = "s8", ptx.B16, 1
	case bytes == 1:
		typ, class, n = "u8", ptx.B16, 1
	}
	rs := k.RegVec(class, n)
	var dst ptx.Operand = rs[0]
	if n > 1 {
		op += fmt.Sprintf("v%d.", n)
		dst = ptx.V(rs...)
	}
	if pred == nil {
		k.I(op+typ, dst, addr)
		return rs
	}
	var zero ptx.Operand = ptx.Imm(0)
	switch class {
	case ptx.F32:
		zero = ptx.FImm(0)
	case ptx.F64:
		zero = ptx.DImm(0)
	}
	for _, r := range rs {
		k.I("mov."+suffix(class), r, zero)
	}
	k.If(*pred, op+typ, dst, addr)
	return rs
}

// decode takes element i out of loaded words and converts it to its register type.
func (m *Emitter) decode(words []ptx.Reg, i int, d ir.DType) ptx.Reg {
	k := m.K
	size := d.Bits() / 8
	switch {
	case size == 8, d == ir.Float32, d == ir.Int32:
		return words[i]
	case d == ir.Uint32:
		r := k.Reg(ptx.B64)
		k.I("cvt.u64.u32", r, words[i])
		return r
	case size == 2:
		h := words[0]
		if h.Class == ptx.B32 {
			w := words[i/2]
			if i%2 == 1 {
				s := k.Reg(ptx.B32)
				k.I("shr.u32", s, w, ptx.Imm(16))
				w = s
			}
			h = k.Reg(ptx.B16)
			k.I("cvt.u16.u32", h, w)
		}
		return m.half(h, d)
	}
	w := words[0]
	if w.Class == ptx.B16 {
		r := k.Reg(ptx.B32)
		switch {
		case len(words) == 1 && i == 0 && d == ir.Int8:
			k.I("cvt.s32.s8", r, w)
			return r
		case i == 0 && d != ir.Int8:
			k.I("cvt.u32.u8", r, w)
			return r
		}
		k.I("cvt.u32.u16", r, w)
		w = r
	} else {
		w = words[i/4]
	}
	r := k.Reg(ptx.B32)
	op := "bfe.u32"
	if d == ir.Int8 {
		op = "bfe.s32"
	}
	k.I(op, r, w, ptx.Imm(int64(i%4*8)), ptx.Imm(8))
	return r
}

func (m *Emitter) half(h ptx.Reg, d ir.DType) ptx.Reg {
	k := m.K
	switch d {
	case ir.Float16:
		r := k.Reg(ptx.F32)
		k.I("cvt.f32.f16", r, h)
		return r
	case ir.BFloat16:
		return m.bf16Value(h)
	}
	r := k.Reg(ptx.B32)
	if d == ir.Int16 {
		k.I("cvt.s32.s16", r, h)
	} else {
		k.I("cvt.u32.u16", r, h)
	}
	return r
}

// Store writes values to consecutive elements starting at index, where pred holds (nil: always). Values have the
// register type of the element type (Loaded). Floats are rounded to it, integers truncated to its width; 8-bit floats
// that the target does not convert are given as their bits.
func (m *Emitter) Store(operand int, index *Expr, d ir.DType, values []*Expr, pred *Expr) {
	rs, where, ok := m.emitWhere(pred, Stored(values, d))
	if !ok {
		return
	}
	size := d.Bits() / 8
	align := 256
	if m.env.Align != nil {
		align = m.env.Align(operand)
	}
	at := constPart(index)
	base := m.B.Offset(index, -at)
	for i := 0; i < len(values); {
		w := 16 / size
		for w > 1 && (i+w > len(values) || (at+int64(i))%int64(w) != 0 || base.mult%int64(w) != 0 || base.wraps() || align%(w*size) != 0) {
			w /= 2
		}
		first := m.B.Offset(index, int64(i))
		m.store(m.address(int64(operand), first, size), first, d, rs[i:i+w], where)
		i += w
	}
}

// emitWhere computes values that are to be written where pred holds (nil: always), and the predicate; ok is false
// where it never does.
func (m *Emitter) emitWhere(pred *Expr, values []*Expr) (rs []ptx.Reg, where *ptx.Reg, ok bool) {
	switch {
	case pred == nil || pred.IsConstInt(1):
		rs = m.EmitAll(values)
	case pred.IsConstInt(0):
		return nil, nil, false
	default:
		rs = m.EmitAll(append(slices.Clip(values), pred))
		where = &rs[len(values)]
	}
	m.Wait()
	return rs, where, true
}

// Stored returns the values that Store computes: a final rounding to the type is left to the storing conversion.
func Stored(values []*Expr, d ir.DType) []*Expr {
	raw := make([]*Expr, len(values))
	for i, v := range values {
		raw[i] = v
		if v.Op == OpRoundF16 && d == ir.Float16 || v.Op == OpRoundBF16 && d == ir.BFloat16 || v.Op == OpRoundE4M3 && d == ir.Float8E4M3FN {
			raw[i] = v.Args[0]
		}
	}
	return raw
}

// store writes values of consecutive elements from index on to an address.
func (m *Emitter) store(addr ptx.Addr, index *Expr, d ir.DType, rs []ptx.Reg, where *ptx.Reg) {
	words := m.Encode(rs, d)
	typ := suffix(words[0].Class)
	if typ == "f64" && len(words) > 1 {
		typ = "b64"
	}
	if d.Bits() == 8 && len(rs) == 1 {
		typ = "u8"
	}
	var src ptx.Operand = words[0]
	op := "st.global."
	if len(words) > 1 {
		op += fmt.Sprintf("v%d.", len(words))
		src = ptx.V(words...)
	}
	m.stores(index, len(rs)*d.Bits()/8, d.Bits()/8)
	m.K.Where(where, op+typ, addr, src)
}

// stores says that a store follows.
func (m *Emitter) stores(index *Expr, bytes, size int) {
	if m.env.Stores != nil {
		m.env.Stores(index, bytes, size)
	}
}

// Encode converts registers to the element type and packs them into words for one store.
func (m *Emitter) Encode(rs []ptx.Reg, d ir.DType) []ptx.Reg {
	k := m.K
	if d == ir.Float8E4M3FN {
		return m.encodeE4M3(rs)
	}
	switch d.Bits() {
	case 64:
		return rs
	case 32:
		if d != ir.Uint32 {
			return rs
		}
		out := k.RegVec(ptx.B32, len(rs))
		for i, r := range rs {
			k.I("cvt.u32.u64", out[i], r)
		}
		return out
	case 16:
		return m.encodeHalves(rs, d)
	}
	if len(rs) == 1 {
		h := k.Reg(ptx.B16)
		k.I("cvt.u16.u32", h, rs[0])
		return []ptx.Reg{h}
	}
	var out []ptx.Reg
	for i := 0; i < len(rs); i += 4 {
		w := m.join(rs[i], rs[i+1], 8)
		if len(rs) == 2 {
			h := k.Reg(ptx.B16)
			k.I("cvt.u16.u32", h, w)
			return []ptx.Reg{h}
		}
		out = append(out, m.join(w, m.join(rs[i+2], rs[i+3], 8), 16))
	}
	return out
}

// join is lo's low bits below hi's.
func (m *Emitter) join(lo, hi ptx.Reg, bits int) ptx.Reg {
	k := m.K
	mask, sh, r := k.Reg(ptx.B32), k.Reg(ptx.B32), k.Reg(ptx.B32)
	k.I("and.b32", mask, lo, ptx.Imm(1<<bits-1))
	k.I("shl.b32", sh, hi, ptx.Imm(int64(bits)))
	k.I("or.b32", r, mask, sh)
	return r
}

func (m *Emitter) encodeHalves(rs []ptx.Reg, d ir.DType) []ptx.Reg {
	k := m.K
	float := d == ir.Float16 || d == ir.BFloat16
	if len(rs) == 1 {
		h := k.Reg(ptx.B16)
		if float {
			k.I("cvt.rn."+d.String()+".f32", h, rs[0])
		} else {
			k.I("cvt.u16.u32", h, rs[0])
		}
		return []ptx.Reg{h}
	}
	var out []ptx.Reg
	for i := 0; i < len(rs); i += 2 {
		if !float {
			out = append(out, m.join(rs[i], rs[i+1], 16))
			continue
		}
		w := k.Reg(ptx.B32)
		k.I("cvt.rn."+d.String()+"x2.f32", w, rs[i+1], rs[i])
		out = append(out, w)
	}
	return out
}
