package kernel

import (
	"math"

	"github.com/spark-compile/spark-compile/internal/cost"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/ir"
)

// Benefit is how many microseconds a fused kernel is predicted to save over separate launches of its parts, gaps
// included; 0 or less if it is no faster, or unknown. It is the smaller of two predictions: with weights in L2, where
// they stay or were prefetched, and with some still in DRAM. DRAM round trips take longer, and a fused kernel may
// have more of them in sequence. Windows, which have few weights, read all of them from DRAM.
func (f *Families) Benefit(n *ir.Node, t *target.Target) float64 {
	fused, unfused := f.work(n, t), []*cost.Work(nil)
	for _, part := range n.Parts() {
		one := f.work(part, t)
		if one == nil {
			return 0
		}
		unfused = append(unfused, one)
	}
	if fused == nil {
		return 0
	}
	m := cost.Of(t)
	us := func(w *cost.Work, dram float64) float64 {
		served := *w
		served.DRAMBytes = min(served.DRAMBytes, dram)
		return m.Estimate(&served).US + m.SerialTail(&served)
	}
	least := math.Inf(1)
	drams := []float64{0, 1}
	if n.LastPart().IsFamily(ir.FamilyWindow) {
		drams = []float64{math.Inf(1)}
	}
	for _, dram := range drams {
		sum := 0.0
		for _, w := range unfused {
			sum += us(w, dram)
		}
		least = min(least, sum-us(fused, dram))
	}
	return least
}

// work is what the kernel of a region is planned to do; nil where it has none. Networks repeat their blocks.
func (f *Families) work(n *ir.Node, t *target.Target) *cost.Work {
	ctx := &Context{Target: t, Unpacked: true}
	key := ctx.Signature(n.Region.Family, t.Name, n)
	return f.memo.work(key, func() *cost.Work {
		spec, err := f.Lower(n, ctx)
		if err != nil {
			return nil
		}
		return spec.Work
	})
}

// work is what is remembered for a key, or else computed; of nil it is not remembered.
func (m *Memo) work(key string, compute func() *cost.Work) *cost.Work {
	if m == nil {
		return compute()
	}
	m.mu.Lock()
	w, known := m.works[key]
	m.mu.Unlock()
	if known {
		return w
	}
	w = compute()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.works == nil {
		m.works = map[string]*cost.Work{}
	}
	m.works[key] = w
	return w
}
