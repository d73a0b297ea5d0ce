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

// prologue computes A, the result of a region in front of the contraction: a block makes the tiles of A that it would otherwise copy, as
// they would be stored and in the layout in which they would be copied. Blocks of different columns each do so.
type prologue interface {
	// lower makes the region an expression, and its operands the kernel's first.
	lower(p *problem, ctx *kernel.Context) *lower.Lowering
	valid(s Schedule) error
	registers(s Schedule, main int) int // of a thread, whose main loop takes so many
	inStage(s Schedule) int             // bytes of a stage that it takes in place of a tile of A
	behind(s Schedule) int              // bytes of shared memory behind the stages
	// work adds what blocks multiply and read from L2 and DRAM, what a warp does on a chunk, and before its main loop.
	work(s Schedule, all, loop, tail *cost.Work)

	tilesM(s Schedule) int
	// row is the row of A that a row of the block's tile is; where there is none, the kernel goes on at a label.
	row(g *gen, row num, beyond ptx.Ref) num
	tables(pl *plan, s Schedule) // the constants of a schedule

	ahead(g *gen)                // before the wait
	constants(g *gen, stage num) // starts the copies of constants for the next chunk
	arrive(g *gen)               // behind the wait
	issue(g *gen, k, stage num)  // starts the copies for the chunk that begins at k
	begin(g *gen)                // before the main loop
	waits(s Schedule) bool       // whether begin waits for all copies in front of it
	// tile is where the tile of A of the block's chunk of that number lies, whose stage is at a byte offset of shared memory.
	tile(g *gen, chunk, stage num) num
	stem() string
	macs() int64
}

// chained is the normal form of a contraction behind regions that its blocks compute.
func chained(n *ir.Node, t *target.Target) (*problem, error) {
	parts := n.Parts()
	last := len(parts) - 1
	if !parts[last].IsFamily(ir.FamilyContraction) {
		return nil, fmt.Errorf("%s is no contraction behind what it multiplies", n.Name)
	}
	return behindParts(parts[:last], parts[last], t)
}

// behindParts is the normal form of a contraction behind regions that its blocks compute; itself behind none.
func behindParts(front []*ir.Node, n *ir.Node, t *target.Target) (*problem, error) {
	p, err := normaliseFor(n, t)
	if err != nil || len(front) == 0 {
		return p, err
	}
	switch {
	case p.attn != nil:
		return nil, fmt.Errorf("an attention's operands are read more than once")
	case p.added != nil:
		return nil, fmt.Errorf("a second product")
	case p.scalesA != nil:
		return nil, fmt.Errorf("blocks of A have scales")
	case !p.wholeA():
		return nil, fmt.Errorf("A is not the result in front of it, row by row")
	}
	switch first := front[len(front)-1]; {
	case first.IsFamily(ir.FamilyWindow):
		p.prologue, err = newSlide(p, front, t)
	case first.IsFamily(ir.FamilyContraction) && first.Region.Anchor().Op.Name == "Attention" && len(front) == 1:
		p.prologue, err = newHeads(p, first, t)
	case first.IsFamily(ir.FamilyContraction):
		p.prologue, err = newProduct(p, front, t)
	case len(front) > 1:
		return nil, fmt.Errorf("%d regions in front", len(front))
	default:
		p.prologue, err = newRows(p, first)
	}
	return p, err
}

// wholeA reports whether the elements of A lie as they are counted, in rows of k.
func (p *problem) wholeA() bool {
	col, row := layout.Coalesce(p.a.col), layout.Coalesce(p.a.row)
	shape := p.a.value.Type.Shape
	return p.conv == nil && p.batches() == p.z[0] && p.a.offset == 0 && len(col) == 1 && col[0] == layout.Mode{Size: p.k, Stride: 1} &&
		(p.m == 1 || len(row) == 1 && row[0] == layout.Mode{Size: p.m, Stride: p.k}) && shape[len(shape)-1] == p.k
}

// stageA is the size of what a stage has of A.
func (s Schedule) stageA(p *problem) int {
	if p.prologue != nil {
		return p.prologue.inStage(s)
	}
	return p.num.tileA(s.BM, s.BK)
}

// row is the row of A that a row of the block's tile is; where there is none, the kernel goes on at a label.
func (g *gen) row(row num, beyond ptx.Ref) num {
	if g.p.prologue != nil {
		return g.p.prologue.row(g, row, beyond)
	}
	return g.inOrder(row, beyond)
}

// inOrder is row where tiles have as many rows each, one behind the other.
func (g *gen) inOrder(row num, beyond ptx.Ref) num {
	m := g.add(g.mul(g.tileM, g.s.BM), row)
	if g.p.m%g.s.BM != 0 {
		g.If(g.compare("ge.u32", m, imm(g.p.m)), "bra", beyond)
	}
	return m
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

// behindStages is the size of what lies behind the stages until the main loop is done.
func (s Schedule) behindStages(p *problem) int {
	if p.prologue != nil {
		return p.prologue.behind(s)
	}
	return 0
}

// filled reports whether all copies have come that were started in front of the main loop, which waits for those that it starts itself.
func (s Schedule) filled(p *problem) bool { return p.prologue != nil && p.prologue.waits(s) }

// addresses are those of a tile of A and of a stage.
func (g *gen) addresses(tileA, stage num) (a, b num) {
	b = g.add(g.smem, stage)
	if tileA == stage {
		return b, b
	}
	return g.add(g.smem, tileA), b
}

// microseconds is the time by which schedules are compared: of a chain with weights in L2, as it is compared with launches for its parts, and with
// what its last blocks read alone. Of two products' weights some will come from DRAM, whose latency few stages do not hide.
func (p *problem) microseconds(w *cost.Work, m *cost.Machine) float64 {
	if p.prologue == nil {
		return m.Estimate(w).US
	}
	warm := *w
	warm.DRAMBytes = 0
	if _, ok := p.prologue.(*product); ok {
		warm.DRAMBytes = 1
	}
	return m.Estimate(&warm).US + m.Alone(w)
}

// envOf is where expressions of a region are emitted, behind the wait.
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
