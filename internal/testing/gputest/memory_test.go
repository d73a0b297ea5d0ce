package gputest

import (
	"fmt"
	"math"
	"strings"

	"github.com/spark-compile/spark-compile/internal/ptx"
)

// access is the memory operand of a load or store and its other operand.
func access(d *ptx.Def) (memory, value ptx.Arg, bytes int) {
	for _, a := range d.Args {
		if a.Kind == ptx.ArgAddr {
			memory = a
		} else {
			value = a
		}
	}
	return memory, value, ptx.Bytes(value.Type) * max(value.Count, 1)
}

// load reads each item's bytes with the instruction and stores the registers whole, so that extension shows.
func load(d *ptx.Def) *Case {
	memory, value, bytes := access(d)
	class := ptx.ClassOf(value.Type)
	_, size := bitsOf(class)
	count := max(value.Count, 1)
	c := &Case{Name: d.Op, Op: d.Op, Blocks: blocks, Threads: threads, Output: items * size * count}
	c.Inputs = [][]byte{valuesFor(d.Op).bytes(items * bytes)}
	regs := func(b *body) []ptx.Reg { return b.RegVec(class, count) }
	if memory.Space == "global" {
		c.emit = func(b *body) {
			out := regs(b)
			b.I(d.Op, operand(value, out), ptx.At(b.at(b.in[0], b.item, bytes), 0))
			b.store(out...)
		}
		return c
	}
	// Through shared memory, written byte by byte; a thread reads what its neighbour wrote.
	c.Shared = threads * bytes
	c.emit = func(b *body) {
		from, to := b.at(b.in[0], b.item, bytes), b.shared(b.thread, bytes)
		for i := range bytes {
			x := b.Reg(ptx.B16)
			b.I("ld.global.u8", x, ptx.At(from, i))
			b.I("st.shared.u8", ptx.At(to, i), x)
		}
		b.I("bar.sync", ptx.Imm(0))
		other := b.Reg(ptx.B32)
		b.I("xor.b32", other, b.thread, ptx.Imm(1))
		out := regs(b)
		b.I(d.Op, operand(value, out), ptx.At(b.shared(other, bytes), 0))
		b.store(out...)
	}
	return c
}

// store writes each item's registers with the instruction.
func store(d *ptx.Def) *Case {
	memory, value, bytes := access(d)
	class := ptx.ClassOf(value.Type)
	_, size := bitsOf(class)
	count := max(value.Count, 1)
	c := &Case{Name: d.Op, Op: d.Op, Blocks: blocks, Threads: threads, Output: items * bytes}
	c.Inputs = [][]byte{valuesFor(d.Op).bytes(items * size * count)}
	if memory.Space == "global" {
		c.emit = func(b *body) {
			b.I(d.Op, ptx.At(b.at(b.out, b.item, bytes), 0), operand(value, b.load(0, class, count)))
		}
		return c
	}
	c.Shared = threads * bytes
	c.emit = func(b *body) {
		b.I(d.Op, ptx.At(b.shared(b.thread, bytes), 0), operand(value, b.load(0, class, count)))
		b.I("bar.sync", ptx.Imm(0))
		other := b.Reg(ptx.B32)
		b.I("xor.b32", other, b.thread, ptx.Imm(1))
		from, to := b.shared(other, bytes), b.at(b.out, b.item, bytes)
		for i := range bytes {
			x := b.Reg(ptx.B16)
			b.I("ld.shared.u8", x, ptx.At(from, i))
			b.I("st.global.u8", ptx.At(to, i), x)
		}
	}
	return c
}

func loadParam(d *ptx.Def) *Case {
	typ := d.Types[0]
	class := ptx.ClassOf(typ)
	_, size := bitsOf(class)
	c := &Case{Name: d.Op, Op: d.Op, Blocks: blocks, Threads: threads, Output: items * size}
	v := valuesFor(d.Op)
	bits := v.Uint64()
	if size == 4 {
		bits = uint64(uint32(bits))
	}
	c.Scalars = []Scalar{{"u32", 7}, {typ, bits}} // the first moves the second off the pointers' alignment
	if size == 8 {
		c.Scalars = c.Scalars[1:]
	}
	c.emit = func(b *body) {
		x := b.Reg(class)
		b.I(d.Op, x, ptx.At(b.scalars[len(b.scalars)-1], 0))
		b.store(x)
	}
	return c
}

func prefetch(d *ptx.Def) *Case {
	c := echo(d, d.Op)
	c.emit = func(b *body) {
		b.I(d.Op, ptx.At(b.at(b.in[0], b.item, 4), 0))
		b.store(b.load(0, ptx.B32, 1)[0])
	}
	return c
}

// Sizes of bulk prefetches: the least, and the greatest that ptxas does not cut, in 16 bits of units of 16 bytes.
const (
	leastBulk = 16
	mostBulk  = 1<<20 - 16
)

// bulkPrefetches ask for the end of an input, whose words all items then add. The size is part of the code, or of the
// input; a grid asks for it whole or in as many parts as it has items.
func bulkPrefetches(d *ptx.Def) []*Case {
	var all []*Case
	for _, bytes := range []int{leastBulk, mostBulk} {
		for _, inCode := range []bool{true, false} {
			name := fmt.Sprintf("%s+%d", d.Op, bytes)
			if !inCode {
				name += "+register"
			}
			all = append(all, bulkPrefetch(d, name, bytes, inCode))
		}
	}
	parts := bulkPrefetch(d, d.Op+"+parts", mostBulk, true)
	whole := parts.emit
	parts.emit = func(b *body) {
		b.I(d.Op, ptx.At(b.at(b.in[0], b.item, mostBulk/items&^15), 0), ptx.Imm(mostBulk/items&^15))
		whole(b)
	}
	return append(all, parts)
}

func bulkPrefetch(d *ptx.Def, name string, bytes int, inCode bool) *Case {
	c := &Case{Name: name, Op: d.Op, Blocks: blocks, Threads: threads, Output: 4 * items}
	c.Inputs = [][]byte{valuesFor(d.Op).bytes(bytes + 16)}
	if !inCode {
		c.Scalars = []Scalar{{"u32", uint64(bytes)}}
	}
	c.emit = func(b *body) {
		first, size := b.Reg(ptx.Pred), ptx.Operand(ptx.Imm(bytes))
		if !inCode {
			r := b.Reg(ptx.B32)
			b.I("ld.param.u32", r, ptx.At(b.scalars[0], 0))
			size = r
		}
		b.I("setp.eq.u32", first, b.item, ptx.Imm(0))
		b.If(first, d.Op, ptx.At(b.in[0], 16), size)
		at, i, sum, word, more := b.Reg(ptx.B64), b.Reg(ptx.B32), b.Reg(ptx.B32), b.Reg(ptx.B32), b.Reg(ptx.Pred)
		top, end := b.NewLabel("words"), b.NewLabel("end")
		b.I("mov.b32", sum, ptx.Imm(0))
		b.I("mov.b32", i, b.item)
		b.Place(top)
		b.I("setp.ge.u32", more, i, ptx.Imm((bytes+16)/4))
		b.If(more, "bra", end)
		b.I("mad.wide.u32", at, i, ptx.Imm(4), b.in[0])
		b.I("ld.global.b32", word, ptx.At(at, 0))
		b.I("add.u32", sum, sum, word)
		b.I("add.u32", i, i, ptx.Imm(items))
		b.I("bra", top)
		b.Place(end)
		b.store(sum)
	}
	return c
}

// atomOwn: every item applies the atomic twice to a word of its own. The output holds the words, which begin as zero, or for
// the least as the greatest number, followed by what the second one returned.
func atomOwn(d *ptx.Def) *Case {
	c := echo(d, d.Op)
	c.Output = 8 * items
	if d.Args[0].Type == "f32" {
		c.Inputs = [][]byte{numbers(d.Op, items)}
		c.Rule = Rule{Float: "f32"}
	}
	c.emit = func(b *body) {
		x, old := b.load(0, ptx.B32, 1)[0], b.Reg(ptx.B32)
		at := b.at(b.out, b.item, 8)
		if d.Mods[len(d.Mods)-2] == "min" { // of zeros and anything unsigned nothing would show
			most := b.Reg(ptx.B32)
			b.I("mov.b32", most, ptx.Imm(1<<31-1))
			b.I("st.global.b32", ptx.At(at, 0), most)
		}
		b.I(d.Op, old, ptx.At(at, 0), x)
		b.I(d.Op, old, ptx.At(at, 0), x)
		b.I("st.global.b32", ptx.At(at, 4), old)
	}
	return c
}

// numbers are n small integers as f32, whose sums are exact in any order.
func numbers(name string, n int) []byte {
	v, words := valuesFor(name), make([]uint64, n)
	for i := range words {
		words[i] = uint64(math.Float32bits(float32(v.IntN(2001) - 900)))
	}
	return pack(4, words)
}

// atomShared: all items apply the atomic to one word, in any order.
func atomShared(d *ptx.Def) *Case {
	c := echo(d, d.Op+"+one")
	c.Output = 4
	if d.Args[0].Type == "f32" {
		c.Inputs = [][]byte{numbers(d.Op, items)}
	}
	c.emit = func(b *body) { b.I(d.Op, b.Reg(ptx.B32), ptx.At(b.out, 0), b.load(0, ptx.B32, 1)[0]) }
	return c
}

// atomOfBlock: the threads of a block add to one word of shared memory, after the first has set it.
func atomOfBlock(d *ptx.Def) *Case {
	c := echo(d, d.Op)
	c.Shared = 4
	c.emit = func(b *body) {
		x, zero, first := b.load(0, ptx.B32, 1)[0], b.Reg(ptx.B32), b.Reg(ptx.Pred)
		b.I("mov.b32", zero, ptx.Imm(5))
		b.I("setp.eq.u32", first, b.thread, ptx.Imm(0))
		b.If(first, "st.shared.b32", ptx.At(ptx.Sym(ptx.SharedName), 0), zero)
		b.I("bar.sync", ptx.Imm(0))
		b.I(d.Op, b.Reg(ptx.B32), ptx.At(ptx.Sym(ptx.SharedName), 0), x)
		b.I("bar.sync", ptx.Imm(0))
		b.I("ld.shared.b32", x, ptx.At(ptx.Sym(ptx.SharedName), 0))
		b.store(x)
	}
	return c
}

// asyncCases: cp.async of each size with 0 … size bytes that are really read, and the ways to wait for it.
func asyncCases(d *ptx.Def) []*Case {
	if sizes, ok := d.Eval.(ptx.CopySizes); ok && len(sizes) > 1 {
		var all []*Case
		for _, bytes := range sizes {
			all = append(all, async(d, fmt.Sprintf("%s+%d", d.Op, bytes), bytes, waitAll))
		}
		return all
	}
	how := waitGroup
	if d.Does == ptx.WaitCopies && len(d.Args) == 0 {
		how = waitAll
	}
	all := []*Case{async(d, d.Op, 16, how)}
	if d.Name == "createpolicy" {
		all = append(all, async(d, d.Op+fractions, 16, how))
	}
	return all
}

// fractions of accesses that a policy is for, in place of all: of each item its own, between 0 and 1, so that the
// device makes the policy and not the assembler.
const fractions = "+fractions"

// hinted is the copy with a cache policy, whose bits are the device's own: createpolicy is tested by a copy that has it.
const hinted = "cp.async.cg.shared.global.L2::cache_hint"

type wait int

const (
	waitAll   wait = iota
	waitGroup      // two groups: all but the last, then the last
)

// async copies bytes twice per item into shared memory, in two groups or without any, waits, and stores what arrived;
// the other half of the copies' destination is zero-filled.
func async(d *ptx.Def, name string, bytes int, how wait) *Case {
	c := &Case{Name: name, Op: d.Op, Blocks: blocks, Threads: threads, Shared: 2 * threads * bytes, Output: 2 * items * bytes}
	v := valuesFor(name)
	sizes := make([]uint64, 2*items)
	for i := range sizes {
		sizes[i] = v.Uint64N(uint64(bytes) + 1)
	}
	c.Inputs = [][]byte{v.bytes(2 * items * bytes), pack(4, sizes)}
	copyOp := "cp.async.cg.shared.global"
	if d.Name == "createpolicy" || len(d.Args) == 5 {
		copyOp = hinted
	}
	if bytes < 16 || d.Op == "cp.async.ca.shared.global" {
		copyOp = "cp.async.ca.shared.global"
	}
	c.emit = func(b *body) {
		from, to := b.at(b.in[0], b.item, 2*bytes), b.shared(b.thread, 2*bytes)
		out := b.at(b.out, b.item, 2*bytes)
		used := b.load(1, ptx.B32, 2)
		var policy []ptx.Operand
		if copyOp == hinted {
			r, part := b.Reg(ptx.B64), ptx.Operand(ptx.FImm(1))
			if strings.HasSuffix(name, fractions) {
				n, x := b.Reg(ptx.B32), b.Reg(ptx.F32)
				b.I("add.u32", n, used[0], ptx.Imm(1))
				b.I("cvt.rn.f32.s32", x, n)
				b.I("mul.rn.f32", x, x, ptx.FImm(1./32))
				part = x
			}
			b.I("createpolicy.fractional.L2::evict_first.b64", r, part)
			policy = []ptx.Operand{r}
		}
		half := func(i int) {
			for at := i * bytes; at < (i+1)*bytes; at += 4 {
				x := b.Reg(ptx.B32)
				b.I("ld.shared.b32", x, ptx.At(to, at))
				b.I("st.global.b32", ptx.At(out, at), x)
			}
		}
		for i := range 2 {
			b.I(copyOp, append([]ptx.Operand{ptx.At(to, i*bytes), ptx.At(from, i*bytes), ptx.Imm(bytes), used[i]}, policy...)...)
			if how == waitGroup {
				b.I("cp.async.commit_group")
			}
		}
		if how == waitAll {
			b.I("cp.async.wait_all")
			half(0)
			half(1)
			return
		}
		b.I("cp.async.wait_group", ptx.Imm(1))
		half(0)
		b.I("cp.async.wait_group", ptx.Imm(0))
		half(1)
	}
	return c
}
