package gputest

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"slices"
	"strings"

	"github.com/spark-compile/spark-compile/internal/ptx"
)

// Case is a kernel that shows what one instruction does to given inputs.
type Case struct {
	Name    string // the opcode, with "+ which" if it has several cases
	Op      string
	Inputs  [][]byte // a buffer each; the kernel's first parameters
	Output  int      // bytes of the buffer that follows
	Scalars []Scalar // parameters after the buffers
	Blocks  int
	Threads int // of a block
	Shared  int // bytes
	Rule    Rule

	// scale holds inputs for which the kernel computes, instead of its result, the scale of that result's error.
	scale [][]byte
	emit  func(b *body)
}

// Scalar is a parameter that is no buffer.
type Scalar struct {
	Type string // u32, f32, u64 …
	Bits uint64
}

// body is a kernel under construction: its parameters and indices are in registers already.
type body struct {
	*ptx.Kernel
	in      []ptx.Reg // addresses of the inputs
	out     ptx.Reg   // address of the output
	scalars []ptx.Sym
	thread  ptx.Reg // %tid.x
	item    ptx.Reg // number of the thread in the grid
}

// kernel is the name of the case's kernel.
func (c *Case) kernel() string {
	return "k_" + strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, c.Name)
}

// add appends the case's kernel to a module.
func (c *Case) add(m *ptx.Module) {
	b := &body{Kernel: m.NewKernel(c.kernel(), c.Threads)}
	var symbols []ptx.Sym
	for i := range c.Inputs {
		symbols = append(symbols, b.AddParam("in"+string(rune('0'+i)), "u64"))
	}
	symbols = append(symbols, b.AddParam("out", "u64"))
	for i, s := range c.Scalars {
		b.scalars = append(b.scalars, b.AddParam("scalar"+string(rune('0'+i)), s.Type))
	}
	for _, s := range symbols {
		r := b.Reg(ptx.B64)
		b.I("ld.param.u64", r, ptx.At(s, 0))
		b.I("cvta.to.global.u64", r, r)
		b.in = append(b.in, r)
	}
	b.in, b.out = b.in[:len(c.Inputs)], b.in[len(c.Inputs)]
	r := b.RegVec(ptx.B32, 4)
	b.I("mov.u32", r[0], ptx.Special("%ctaid.x"))
	b.I("mov.u32", r[1], ptx.Special("%ntid.x"))
	b.I("mov.u32", r[2], ptx.Special("%tid.x"))
	b.I("mad.lo.s32", r[3], r[0], r[1], r[2])
	b.thread, b.item = r[2], r[3]
	c.emit(b)
	b.I("ret")
}

// PTX is a module that holds the kernels of the cases.
func PTX(target string, cases []*Case) string {
	m := ptx.NewModule(target)
	for _, c := range cases {
		c.add(m)
	}
	return m.String()
}

// Available says why the case's instruction is not to be had on a target, or nil.
func (c *Case) Available(target string) error {
	newest := ptx.Version{Major: 99}
	return ptx.Lookup(c.Op).Available(target, newest)
}

// digest tells whether recorded results belong to these inputs.
func (c *Case) digest() string {
	h := sha256.New()
	word := func(v uint64) { h.Write(binary.LittleEndian.AppendUint64(nil, v)) }
	for _, in := range c.Inputs {
		word(uint64(len(in)))
		h.Write(in)
	}
	for _, s := range c.Scalars {
		h.Write([]byte(s.Type))
		word(s.Bits)
	}
	word(uint64(c.Output))
	word(uint64(c.Blocks))
	word(uint64(c.Threads))
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// at is the address base + index·stride.
func (b *body) at(base, index ptx.Reg, stride int) ptx.Reg {
	r := b.Reg(ptx.B64)
	b.I("mad.wide.u32", r, index, ptx.Imm(stride), base)
	return r
}

// shared is the shared address of index·stride.
func (b *body) shared(index ptx.Reg, stride int) ptx.Reg {
	s, r := b.Reg(ptx.B32), b.Reg(ptx.B32)
	b.I("mov.u32", s, ptx.Sym(ptx.SharedName))
	b.I("mad.lo.u32", r, index, ptx.Imm(stride), s)
	return r
}

// bitsOf is the suffix of an access that moves a register of the class as it is. Predicates and pairs of 4-bit numbers
// take a word.
func bitsOf(c ptx.Class) (suffix string, bytes int) {
	switch c {
	case ptx.B16:
		return "b16", 2
	case ptx.B64:
		return "b64", 8
	case ptx.F32:
		return "f32", 4
	case ptx.F64:
		return "f64", 8
	}
	return "b32", 4
}

// load reads the item's elements of input i into registers of a class: count of them, side by side.
func (b *body) load(i int, c ptx.Class, count int) []ptx.Reg {
	suffix, size := bitsOf(c)
	address := b.at(b.in[i], b.item, size*count)
	out := b.RegVec(c, count)
	for e, r := range out {
		switch {
		case c == ptx.B8:
			b.I("ld.global.u8", r, ptx.At(address, e*size))
			continue
		case c != ptx.Pred:
			b.I("ld.global."+suffix, r, ptx.At(address, e*size))
			continue
		}
		word := b.Reg(ptx.B32)
		b.I("ld.global.b32", word, ptx.At(address, e*size))
		b.I("setp.ne.u32", r, word, ptx.Imm(0))
	}
	return out
}

// store writes registers side by side to the item's place in the output.
func (b *body) store(regs ...ptx.Reg) {
	stride := 0
	for _, r := range regs {
		_, size := bitsOf(r.Class)
		stride += size
	}
	address, offset := b.at(b.out, b.item, stride), 0
	for _, r := range regs {
		suffix, size := bitsOf(r.Class)
		switch word := b.Reg(ptx.B32); r.Class {
		case ptx.Pred:
			b.I("selp.b32", word, ptx.Imm(1), ptx.Imm(0), r)
			r = word
		case ptx.B8:
			b.I("cvt.u32.u8", word, r)
			r = word
		}
		b.I("st.global."+suffix, ptx.At(address, offset), r)
		offset += size
	}
}

// Cases is the whole table: at least one case for each opcode, in order of their names.
func Cases() []*Case {
	var all []*Case
	for _, op := range ptx.Opcodes() {
		all = append(all, casesOf(ptx.Lookup(op))...)
	}
	slices.SortFunc(all, func(a, b *Case) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// casesOf makes the cases of an instruction; none if it does what this package does not know.
func casesOf(d *ptx.Def) []*Case {
	switch {
	case d.Name == "createpolicy":
		return asyncCases(d)
	}
	switch d.Does {
	case ptx.Compute:
		return arithmeticCases(d)
	case ptx.Load:
		if d.Args[1].Space == "param" {
			return []*Case{loadParam(d)}
		}
		return []*Case{load(d)}
	case ptx.Store:
		return []*Case{store(d)}
	case ptx.Atomic:
		if d.Args[1].Space == "shared" {
			return []*Case{atomOfBlock(d)}
		}
		if d.Args[0].Type == "u32" && d.Mods[len(d.Mods)-2] == "min" { // the word that all share begins as the least
			return []*Case{atomOwn(d)}
		}
		return []*Case{atomOwn(d), atomShared(d)}
	case ptx.Prefetch:
		if len(d.Args) > 1 {
			return bulkPrefetches(d)
		}
		return []*Case{prefetch(d)}
	case ptx.CopyAsync, ptx.CommitCopies, ptx.WaitCopies:
		return asyncCases(d)
	case ptx.Multiply:
		return products(d)
	case ptx.LoadMatrix:
		return []*Case{loadMatrix(d)}
	case ptx.StoreMatrix:
		return []*Case{storeMatrix(d)}
	case ptx.MoveMatrix:
		return []*Case{moveMatrix(d)}
	case ptx.Shuffle:
		return shuffles(d)
	case ptx.Reduce:
		return []*Case{reduction(d)}
	case ptx.Barrier, ptx.WarpBarrier:
		return []*Case{barrier(d)}
	case ptx.Branch, ptx.Exit:
		return []*Case{branch(d)}
	case ptx.Fence, ptx.GridWait, ptx.GridLaunch:
		return []*Case{between(d)}
	}
	return nil
}
