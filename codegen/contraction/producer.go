package contraction

import (
	"fmt"

	"github.com/spark-compile/spark-compile/codegen/expr"
	"github.com/spark-compile/spark-compile/codegen/kernel"
	"github.com/spark-compile/spark-compile/codegen/layout"
	"github.com/spark-compile/spark-compile/codegen/lower"
	"github.com/spark-compile/spark-compile/internal/cost"
	"github.com/spark-compile/spark-compile/internal/ptx"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/ir"
)

// A producer makes the tiles of A that blocks multiply, where A is computed by producer regions and is not in memory:
// in the type in which it would be stored, and in the layout in which it would be copied. Blocks of different columns
// each make their own.
type producer interface {
	traits() traits
	// lower makes the regions an expression, and their operands the kernel's first.
	lower(p *problem, ctx *kernel.Context) *lower.Lowering
	shape(s Schedule) (tileShape, error) // the error says why the schedule cannot be
	registers(s Schedule, main int) int  // of a thread, whose main loop takes so many
	// work adds what blocks multiply and read from L2 and DRAM, what a warp does on a chunk, and before its main loop.
	work(s Schedule, all, loop, tail *cost.Work)
	tables(pl *plan, s Schedule) // sets the constants of a schedule
	emit(g *gen) emission
}

// traits are what is known of a producer before its schedule.
type traits struct {
	stem string // of the kernel's name
	macs int64
	// schedules are all that such a kernel can have; nil: those of any contraction.
	schedules   func() []Schedule
	precomputed bool // all tiles are made before the main loop, and nothing else follows the stages
	cold        bool // some of the kernel's weights will come from DRAM, whose latency few stages do not hide
}

// tileShape is what a block has of A.
type tileShape struct {
	tilesM      int
	stage       int  // bytes of a stage, in place of a copied tile
	afterStages int  // bytes of shared memory after the stages, until the main loop is done
	waits       bool // emission.begin waits for all copies issued before it
}

// emission is what a producer emits, in the order of the pipeline. Functions that are nil emit nothing.
type emission struct {
	beforeWait func()             // before the kernel waits for its predecessor
	constants  func(stage num)    // starts the copies of constants for the next chunk
	arrive     func()             // after that wait
	issue      func(k, stage num) // starts the copies for the chunk that begins at k
	begin      func()             // before the main loop
	// tile makes the tile of the block's chunk of that number, whose stage is at a byte offset of shared memory, and
	// returns where it is.
	tile func(chunk, stage num) num
	// row is the row of A at a row of the block's tile; if there is none, the kernel jumps to a label. nil: tiles are
	// consecutive runs of rows.
	row func(row num, beyond ptx.Ref) num
}

// copied emits copies of A, which lies in memory.
func (g *gen) copied() emission {
	return emission{
		arrive: func() {
			g.a = g.plan.loadA
			g.a.ptr, g.a.origin = g.matrix(g.plan.a, &g.p.a), g.mul(g.tileM, g.s.BM)
			g.a.begin(g)
		},
		issue: func(k, stage num) { g.a.issue(g, k, stage) },
		tile:  func(_, stage num) num { return stage },
	}
}

// emission makes the problem's A: by its producer, or by copies.
func (p *problem) emission(g *gen) emission {
	if p.producer == nil {
		return g.copied()
	}
	return p.producer.emit(g)
}

// shape is what a block has of A; of a schedule that cannot be, it says nothing.
func (p *problem) shape(s Schedule) tileShape {
	if p.producer == nil {
		return tileShape{tilesM: ceilDiv(p.m, s.BM), stage: p.num.tileA(s.BM, s.BK)}
	}
	shape, _ := p.producer.shape(s)
	return shape
}

// producerOf makes A from the producer regions, by the kind of the last of them; the error says why it cannot.
func (p *problem) producerOf(producers []*ir.Node, t *target.Target) (producer, error) {
	switch last := producers[len(producers)-1]; {
	case last.IsFamily(ir.FamilyWindow) && p.scalesA != nil:
		return nil, fmt.Errorf("a window makes no blocks with scales")
	case last.IsFamily(ir.FamilyWindow):
		return newWindowProducer(p, producers, t)
	case last.IsFamily(ir.FamilyContraction) && last.Region.Anchor().Op.Name == "Attention":
		return newAttentionProducer(p, producers, t)
	case last.IsFamily(ir.FamilyContraction):
		return newProductProducer(p, producers, t)
	case last.IsFamily(ir.FamilyLoop):
		return newRowsProducer(p, producers)
	default:
		return nil, fmt.Errorf("no contraction multiplies what a %s computes in its blocks", last.Region.Family)
	}
}

// normaliseFused is the normal form of a contraction fused with producers that its blocks compute.
func normaliseFused(n *ir.Node, t *target.Target) (*problem, error) {
	parts := n.Parts()
	last := len(parts) - 1
	switch {
	case !parts[last].IsFamily(ir.FamilyContraction):
		return nil, fmt.Errorf("%s does not end in a contraction", n.Name)
	case len(n.Outputs) > len(parts[last].Outputs):
		return nil, fmt.Errorf("what %s multiplies has other readers", parts[last].Name)
	}
	return normaliseWithProducers(parts[:last], parts[last], t)
}

// normaliseWithProducers is the normal form of a contraction with producers, perhaps none, that its blocks compute.
func normaliseWithProducers(producers []*ir.Node, n *ir.Node, t *target.Target) (*problem, error) {
	p, err := normaliseFor(n, t)
	if err != nil || len(producers) == 0 {
		return p, err
	}
	switch {
	case p.attn != nil:
		return nil, fmt.Errorf("an attention's operands are read more than once")
	case p.added != nil:
		return nil, fmt.Errorf("a second product")
	case !p.wholeA():
		return nil, fmt.Errorf("A is not all of the producer's result, row by row")
	}
	if p.producer, err = p.producerOf(producers, t); err != nil {
		return nil, err
	}
	p.traits, p.scalesA = p.producer.traits(), nil // tiles that are made have their scales
	return p, nil
}

// wholeA reports whether the elements of A lie as they are counted, in rows of k.
func (p *problem) wholeA() bool {
	col, row, units := layout.Coalesce(p.a.col), layout.Coalesce(p.a.row), p.k/p.num.perUnit()
	shape := p.a.value.Type.Shape
	return p.conv == nil && p.batches() == p.z[0] && p.a.offset == 0 && len(col) == 1 && col[0] == layout.Mode{Size: units, Stride: 1} &&
		(p.m == 1 || len(row) == 1 && row[0] == layout.Mode{Size: p.m, Stride: units}) && shape[len(shape)-1] == p.k
}

// row is the row of A that a row of the block's tile is; where there is none, the kernel goes on at a label.
func (g *gen) row(row num, beyond ptx.Ref) num {
	if g.made.row != nil {
		return g.made.row(row, beyond)
	}
	m := g.add(g.mul(g.tileM, g.s.BM), row)
	if g.p.m%g.s.BM != 0 {
		g.If(g.compare("ge.u32", m, imm(g.p.m)), "bra", beyond)
	}
	return m
}

// inRow is the byte of an element of a row of A that a tile has.
func (g *gen) inRow(n *numerics, column num) num {
	return g.mul(g.div(column, n.perUnit()), max(1, bytesFor(n.a, 1)))
}

// storeQuarter stores what a lane of a quad has of a block: the codes of two columns of either half, and the block's
// scale, which all four have.
func (g *gen) storeQuarter(words []ptx.Reg, codes, scale ptx.Addr, there *ptx.Reg) {
	for i, code := range words[:2] {
		codes.Off += 4 * i
		g.Where(there, "st.shared.u8", codes, code)
	}
	first := g.compare("eq.u32", g.mod(g.lane, 4), imm(0))
	g.Where(g.both(&first, there), "st.shared.u8", scale, words[2])
}

// quantised is what a lane of a quad has of a block, of whose halves it has two columns each.
func (g *gen) quantised(to *ir.Node, values []ptx.Reg) []ptx.Reg {
	codes, scale := expr.QuantizePairs(g.Kernel, values, to.Attrs.Float("scale", 1), func(own ptx.Reg) ptx.Reg { return g.across("max.NaN.f32", own, 1, 2) })
	return append(codes, scale)
}

// storeWords is the store of words to shared memory.
func storeWords(words []ptx.Reg) (op string, from ptx.Operand) {
	if len(words) == 1 {
		return "st.shared." + suffixOf(words), words[0]
	}
	return fmt.Sprintf("st.shared.v%d.%s", len(words), suffixOf(words)), ptx.V(words...)
}

func suffixOf(words []ptx.Reg) string {
	switch words[0].Class {
	case ptx.F32:
		return "f32"
	case ptx.B16:
		return "b16"
	}
	return "b32"
}

// zeroUnless replaces registers by 0 where a predicate does not hold.
func (g *gen) zeroUnless(p ptx.Reg, regs []ptx.Reg) {
	var zero ptx.Operand = ptx.Imm(0)
	if regs[0].Class == ptx.F32 {
		zero = ptx.FImm(0)
	}
	for i, x := range regs {
		regs[i] = g.Reg(x.Class)
		g.I("selp."+suffixOf(regs[i:]), regs[i], x, zero, p)
	}
}

// addresses returns the addresses of a tile of A and of a stage.
func (g *gen) addresses(tileA, stage num) (a, b num) {
	b = g.add(g.smem, stage)
	if tileA == stage {
		return b, b
	}
	return g.add(g.smem, tileA), b
}

// microseconds is the time by which schedules are compared. For a fused region, weights are in L2, as in the
// comparison with separate launches, and the serial tail is added.
func (p *problem) microseconds(w *cost.Work, m *cost.Machine) float64 {
	if p.producer == nil {
		return m.Estimate(w).US
	}
	warm := *w
	warm.DRAMBytes = 0
	if p.traits.cold {
		warm.DRAMBytes = 1
	}
	return m.Estimate(&warm).US + m.SerialTail(w)
}

// envOf is the environment in which a region's expressions are emitted, after the wait.
func (g *gen) envOf(l *lower.Lowering) expr.Env {
	pointers := make([]ptx.Reg, len(g.plan.Operands))
	for i := range pointers {
		if l.Loaded[i] {
			pointers[i] = g.pointer(i)
		}
	}
	env := l.Env(g.Kernel, pointers)
	env.Wait = nil
	return env
}
