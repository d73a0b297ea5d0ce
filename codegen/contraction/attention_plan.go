package contraction

import (
	"fmt"
	"math"
	"strings"

	"github.com/spark-compile/spark-compile/codegen/kernel"
	"github.com/spark-compile/spark-compile/codegen/layout"
	"github.com/spark-compile/spark-compile/internal/cost"
	"github.com/spark-compile/spark-compile/internal/ptx"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/ir"
)

// attnPlan is how the attention of BM rows of q of one head is computed: walking over T in tiles of BK with the
// running maximum and sum of the softmax. Each of WarpsM warps has some rows, and each of WarpsN a part of the
// columns of Dv, padded to BN. Warps of the same rows compute the same scores.
type attnPlan struct {
	Schedule
	dp       int // D padded to a power of two
	q, k, v  tileLoad
	kParam   int
	qParam   int
	vParam   int
	mask     int // parameter
	stage    int // bytes of a tile of k and one of v
	probs    int // fma: offset of the probabilities
	kPitch   int
	rowsWarp int
}

const (
	fmaRows  = 4  // rows of q that a warp of the fma variant computes together
	keysTile = 32 // keys of a tile
)

// attnShape is the plan for so many warps, without places in shared memory.
func (p *problem) attnShape(warpsM, warpsN int) *attnPlan {
	at := &attnPlan{Schedule: Schedule{BK: keysTile, WarpsM: warpsM, WarpsN: warpsN, WarpsK: 1, Stages: 2, SplitK: 1}}
	if p.num.tensor() {
		at.rowsWarp, at.dp, at.BN = 16, powerOfTwo(p.attn.d, 16), powerOfTwo(p.n, 16)
	} else {
		at.rowsWarp, at.dp, at.BN = fmaRows, powerOfTwo(p.attn.d, 4), powerOfTwo(p.n, 32)
	}
	at.BM = warpsM * at.rowsWarp
	at.kPitch = at.dp * p.elem()
	if !p.num.tensor() {
		at.kPitch += 16 // lanes read neighbouring rows: 16 bytes more put them into different banks
	}
	return at
}

// elem is the size of an element of an attention's operands in shared memory.
func (p *problem) elem() int { return bytesFor(p.num.a, 1) }

// leastColumns is how few columns of Dv a warp can have, columnsWarp how many it has.
func (p *problem) leastColumns() int {
	if p.num.tensor() {
		return 16
	}
	return 32
}

func (at *attnPlan) columnsWarp() int { return at.BN / at.WarpsN }

// warps is the place of this warp among those of the rows and of the columns.
func (at *attnPlan) warps(g *gen) (m, n num) {
	return g.div(g.warp, at.WarpsN), g.mod(g.warp, at.WarpsN)
}

// Bytes of shared memory: rows of q, so many keys with their v, the probabilities of all warps.
func (at *attnPlan) qBytes(p *problem) int          { return at.BM * at.dp * p.elem() }
func (at *attnPlan) keyBytes(p *problem, n int) int { return n * (at.kPitch + at.BN*p.elem()) }

func (at *attnPlan) probsBytes(p *problem) int {
	if p.num.tensor() {
		return 0
	}
	return at.threads() / warpSize * fmaRows * at.BK * 4
}

// loads says how q is read, and the keys of a tile, which follow it in shared memory.
func (at *attnPlan) loads(p *problem, ctx *kernel.Context, keys int) {
	elem, swizzle, d, v := p.elem(), p.num.tensor(), p.attn.d, &p.attn.v
	width := func(l *tileLoad) {
		o := l.op
		l.strided = true
		l.gran, l.async = access(o, o.col, append(append([][]layout.Mode{}, o.z...), o.row), ctx.AlignOf(o.value), elem)
	}
	at.q = tileLoad{op: &p.a, fixed: p.a.row, extent: p.m, advance: p.a.col, k: d, chunk: at.dp, rows: at.BM, cols: at.dp, elem: elem, swizzle: swizzle}
	at.k = tileLoad{op: &p.b, fixed: p.b.col, extent: d, advance: p.b.row, k: p.k, chunk: keys, kRows: true, rows: keys, cols: at.dp, elem: elem, base: at.qBytes(p), swizzle: swizzle, pitch: at.kPitch}
	at.v = tileLoad{op: v, fixed: v.col, extent: p.n, advance: v.row, k: p.k, chunk: keys, kRows: true, rows: keys, cols: at.BN, elem: elem, base: at.k.base + keys*at.kPitch, swizzle: swizzle}
	for _, l := range []*tileLoad{&at.q, &at.k, &at.v} {
		width(l)
	}
}

// registers estimates what a thread needs: fragments of q, accumulators, scores of a tile, addresses.
func (at *attnPlan) registers(p *problem) int {
	if p.num.tensor() {
		return 4*at.dp/16 + at.columnsWarp()/2 + at.BK/2 + 56
	}
	return fmaRows*(at.columnsWarp()/32+8) + 48
}

// attnKernel is the plan of a kernel that computes an attention alone: q, two stages of a tile of keys, probabilities.
func (p *problem) attnKernel(ctx *kernel.Context, warpsM, warpsN int) *attnPlan {
	at := p.attnShape(warpsM, warpsN)
	at.loads(p, ctx, at.BK)
	at.stage = at.keyBytes(p, at.BK)
	at.probs = at.qBytes(p) + at.Stages*at.stage
	return at
}

func (at *attnPlan) shared(p *problem) int {
	return max(at.probs+at.probsBytes(p), at.stagingBytes()) + 16
}

// attended is the kernel of an attention, whose warps are open.
type attended struct {
	p          *problem
	plan       *plan
	ctx        *kernel.Context
	q, k, v, m int // parameters, m of the mask
}

func newAttention(p *problem, ctx *kernel.Context) (*attended, error) {
	a := &attended{p: p, plan: start(p, ctx), ctx: ctx}
	a.q, a.k, a.v = a.plan.Input(p.a.value), a.plan.Input(p.b.value), a.plan.Input(p.attn.v.value)
	if p.attn.mask != nil {
		a.m = a.plan.Input(p.attn.mask.value)
	}
	return a, a.plan.close(p)
}

// Signature implements kernel.Kernel.
func (a *attended) Signature() string {
	return a.ctx.Signature(ir.FamilyContraction, stem(a.p)+strings.TrimPrefix(a.note(), a.p.anchor.Op.Name), a.p.region)
}

func (a *attended) note() string {
	p := a.p
	return fmt.Sprintf("Attention s=%d t=%d d=%d dv=%d heads=%d", p.m, p.k, p.attn.d, p.n, p.batches())
}

// Key implements kernel.Kernel: there are few to choose from.
func (a *attended) Key() string { return "" }

// all are the plans for as many warps as fit.
func (a *attended) all() (list []*attnPlan, err error) {
	shared := 0
	for warpsM := 4; warpsM > 0; warpsM /= 2 {
		for warpsN := 1; warpsN <= 4; warpsN *= 2 {
			at := a.p.attnKernel(a.ctx, warpsM, warpsN)
			if shared = at.shared(a.p); shared > a.ctx.Target.SharedBlock || warpsN > 1 && at.columnsWarp() < a.p.leastColumns() {
				continue
			}
			at.qParam, at.kParam, at.vParam, at.mask = a.q, a.k, a.v, a.m
			list = append(list, at)
		}
	}
	if len(list) == 0 {
		err = fmt.Errorf("attention: %d bytes of shared memory, a block has %d", shared, a.ctx.Target.SharedBlock)
	}
	return list, err
}

func (a *attended) choice(at *attnPlan) kernel.Choice {
	c := kernel.Choice{Schedule: at, Work: at.work(a.p, a.plan, cost.Of(a.ctx.Target))}
	if b := at.blocks(a.p); b < a.ctx.Target.SMs {
		c.Reason = fmt.Sprintf("%d blocks: %d heads of %d rows", b, a.p.batches(), a.p.m)
	}
	return c
}

// Choose implements kernel.Kernel.
func (a *attended) Choose() (best kernel.Choice, err error) {
	list, err := a.all()
	least, m := math.Inf(1), cost.Of(a.ctx.Target)
	for _, at := range list {
		c := a.choice(at)
		if us := m.Estimate(c.Work).US; us < least {
			best, least = c, us
		}
	}
	return best, err
}

// Parse implements kernel.Kernel.
func (a *attended) Parse(text string) (kernel.Choice, error) {
	list, err := a.all()
	var forms []string
	for _, at := range list {
		if at.String() == text {
			return a.choice(at), nil
		}
		forms = append(forms, at.String())
	}
	if err == nil {
		err = fmt.Errorf("no such attention; forms are %q", forms)
	}
	return kernel.Choice{}, err
}

// Candidates implements kernel.Kernel.
func (a *attended) Candidates(own kernel.Choice) (plans []kernel.Candidate, err error) {
	list, err := a.all()
	m := cost.Of(a.ctx.Target)
	for _, at := range list {
		plans = append(plans, kernel.Candidate{Schedule: at.String(), At: at.coordinates(), US: m.Estimate(at.work(a.p, a.plan, m)).US})
	}
	if err == nil {
		plans = kernel.Within(plans, own.Schedule.(*attnPlan).coordinates())
	}
	return plans, err
}

// Spec implements kernel.Kernel.
func (a *attended) Spec(c kernel.Choice) (*kernel.Spec, error) {
	p, at := a.p, c.Schedule.(*attnPlan)
	return &kernel.Spec{
		Stem:     stem(p),
		Family:   ir.FamilyContraction,
		Grid:     [3]int{at.blocks(p), 1, 1},
		Block:    [3]int{at.threads(), 1, 1},
		Shared:   at.shared(p),
		Operands: a.plan.Operands,
		Emit: func(k *ptx.Kernel, params []ptx.Sym) {
			g := &gen{asm: asm{k}, p: p, s: at.Schedule, t: a.ctx.Target, plan: a.plan, params: params}
			g.emitAttention(at)
		},
		MACs:     p.region.MACs(),
		Schedule: at.String(),
		Note:     a.note(),
	}, nil
}

// work is what the launch does, on average over its blocks: a warp's instructions are counted in the code.
func (at *attnPlan) work(p *problem, pl *plan, m *cost.Machine) *cost.Work {
	blocks, tiles := at.blocks(p), float64(at.chunks(p))
	w := &cost.Work{Blocks: blocks, Warps: at.threads() / warpSize, Resident: m.Resident(at.threads(), at.shared(p), at.registers(p)),
		Trips: 1, Barriers: 3}
	if tiles > 1 {
		w.Trips, w.Barriers = 1+tiles, 3+tiles
	}
	g := at.scratch(p, pl, m.Target)
	c := p.attnCore()
	var copies *attnCopies
	begin := g.counted(func() {
		g.coordinates()
		copies = g.attnCopies(at)
		copies.of(g)
		copies.masked(g)
		copies.q.issue(g, imm(0), imm(0))
		c.place(g, at)
		c.begin(g, at, imm(0))
	})
	next, first := inReg(g.Reg(ptx.B32)), imm(0)
	if tiles > 1 {
		first = next
	} else {
		next = imm(0)
	}
	each := g.counted(func() {
		copies.k.issue(g, next, first)
		copies.v.issue(g, next, first)
		c.compute(g, at, first, first, first)
	})
	end := g.counted(func() { c.results(g, at, g.toStaging) })
	tail := at.tail(p, pl)
	tail.Issued -= 50
	tail.Integer -= 80
	w.Loads = begin.Loads + float64(tiles*each.Loads) + end.Loads + tail.Loads
	warps := float64(blocks * w.Warps)
	addCode(w, begin, warps)
	addCode(w, each, float64(warps*tiles))
	addCode(w, end, warps)
	tail.Issued += tail.Float + tail.Integer + tail.Special + tail.Memory
	addCode(w, &tail, warps)
	elements := p.batches() * p.m * p.n
	w.L2Read = p.attnBytes(at.tilesM(p)) + float64(elements*(pl.epilogue.reads[1]/p.group()))
	w.L2Written = float64(float64(elements) * at.stored(p, pl))
	return w
}

// addCode adds the instructions of x, so many times, to those of w.
func addCode(w, x *cost.Work, times float64) {
	w.Float += float64(times * x.Float)
	w.Integer += float64(times * x.Integer)
	w.Special += float64(times * x.Special)
	w.Memory += float64(times * x.Memory)
	w.Issued += float64(times * x.Issued)
	w.Wavefronts += float64(times * x.Wavefronts)
	for _, product := range x.Products {
		product.MACs = float64(product.MACs * times)
		w.Products = append(w.Products, product)
	}
}

// attnBytes is what is read of every head, where keys are read so many times.
func (p *problem) attnBytes(times int) float64 {
	a := p.attn
	bytes := func(o *operand, elements int) int { return elements * o.dtype.Bits() / 8 }
	return float64(p.batches() * (bytes(&p.a, a.s*a.d) + times*(bytes(&p.b, a.t*a.d)+bytes(&a.v, a.t*p.n))))
}

// scratch is a generator of a block for which code is written that is only counted.
func (at *attnPlan) scratch(p *problem, pl *plan, t *target.Target) *gen {
	k := ptx.NewModule(t.Name).NewKernel("counted", at.threads())
	g := &gen{asm: asm{k}, p: p, s: at.Schedule, t: t, plan: pl}
	for i := range pl.Operands {
		g.params = append(g.params, k.AddParam(fmt.Sprint("p", i), "u64"))
	}
	return g
}

// counted is what a warp does in the code that f writes.
func (g *gen) counted(f func()) *cost.Work {
	all := g.Body
	g.Body = nil
	f()
	w := &cost.Work{Blocks: 1, Warps: 1}
	w.Code(g.Kernel, nil)
	w.Wavefronts = 0
	for _, s := range g.Body {
		if s.Instr != nil {
			w.Wavefronts += wavefronts(s.Instr)
		}
	}
	g.Body = append(all, g.Body...)
	return w
}

// wavefronts of an access to shared memory whose lanes do not meet in banks.
func wavefronts(in *ptx.Instr) float64 {
	op := in.Def.Op
	switch {
	case strings.HasPrefix(op, "ldmatrix"), strings.HasPrefix(op, "cp.async.c"), strings.Contains(op, ".shared.v4"):
		return 4
	case strings.Contains(op, ".shared.v2"):
		return 2
	case strings.HasPrefix(op, "ld.shared"), strings.HasPrefix(op, "st.shared"):
		return 1
	}
	return 0
}

func powerOfTwo(x, least int) int {
	n := least
	for n < x {
		n *= 2
	}
	return n
}
