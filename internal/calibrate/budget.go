package calibrate

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/passes"
)

// Options say what Choose is to reach.
type Options struct {
	Precision string   // fp8 or nvfp4
	MinCosine float64  // of every slice that Measure names; 0: quantise all that can be
	Keep      []string // layers that stay at fp16, by the name of a node in them
	Target    *target.Target
	Technique Technique
	// Measure says how far the program that a plan becomes is from the file in float64 on the calibration inputs, slice by
	// slice.
	Measure func(ctx context.Context, q *passes.Quantisation) ([]Quality, error)
}

// DefaultMinCosine is the accuracy budget where none is given.
const DefaultMinCosine = 0.999

// Best is every technique.
var Best = Technique{Feedback: true, Recover: true, Bias: true}

// Choice is what Choose found.
type Choice struct {
	Plan   *passes.Quantisation
	Layers []LayerChoice
}

// LayerChoice is one layer of the report.
type LayerChoice struct {
	Name      string  `json:"name"`
	Op        string  `json:"op"`
	Precision string  `json:"precision"`
	MACs      int64   `json:"macs"`
	Bytes     int     `json:"bytes"`          // of the weights, scales and padding included, in the weights file
	HalfBytes int     `json:"fp16_bytes"`     // two a weight
	Alone     float64 `json:"error_alone"`    // relative L2 of the outputs if it alone were quantised
	InPlace   float64 `json:"error_in_place"` // relative L2 of what its anchor yields, all layers as chosen
	Scale     *Range  `json:"activations,omitempty"`
	Why       string  `json:"why,omitempty"` // it stayed
	Launch    int     `json:"launch"`        // of the program's entry run
	US        float64 `json:"predicted_us,omitempty"`

	site passes.Site
}

// ladder lists the formats of a layer, fastest first; the last is Half.
func ladder(precision string, s *passes.Site) []Format {
	matvec := s.Anchor.Op.Name == "SegmentedMatVec"
	switch {
	case precision == passes.PrecisionNVFP4 && matvec:
		return []Format{NVFP4W, FP8W, Half}
	case precision == passes.PrecisionNVFP4 && s.K >= 64:
		return []Format{NVFP4W, FP8, Half}
	case matvec:
		return []Format{FP8W, Half}
	}
	return []Format{FP8, Half}
}

// bytes of a layer's weights in a format.
func (f Format) bytes(s *passes.Site) int {
	n := s.Members * s.N * s.K
	switch f.Weights {
	case ir.Float8E4M3FN:
		return n + 4*s.Members*s.N
	case ir.Float4E2M1:
		return n/2 + s.Members*s.N*(s.Blocks()+4)
	}
	return 2 * n
}

// micros predicts the time of a layer: its weights from DRAM or its arithmetic, whichever takes longer.
func (f Format) micros(s *passes.Site, t *target.Target) float64 {
	rate := t.F16MMATFLOPS
	if f.Activations == ir.Float8E4M3FN {
		rate *= 2
	}
	return max(float64(f.bytes(s))/t.MemoryGBps/1e3, 2*float64(s.MACs)/rate/1e6)
}

// demotion takes a layer one step down its ladder.
type demotion struct {
	layer int
	to    Format
	worth float64 // squared error saved for a microsecond lost
}

// Choose finds the fastest assignment, by the target's rates, whose outputs keep the budget on the calibration inputs.
func (c *Calibration) Choose(ctx context.Context, opt Options) (*Choice, error) {
	sites := c.Sites()
	start := Assignment{}
	ladders := make([][]Format, len(sites))
	kept, err := c.kept(opt.Keep, sites)
	if err != nil {
		return nil, err
	}
	for i := range sites {
		ladders[i] = ladder(opt.Precision, &sites[i])
		if kept[i] {
			ladders[i] = []Format{Half}
		}
		start[sites[i].Name()] = ladders[i][0]
	}
	c.memory = newMemory(c.walk, opt.MinCosine > 0)
	alone, err := c.alone(ctx, sites, ladders)
	if err != nil {
		return nil, err
	}
	try := func(a Assignment) (*Fitted, []Quality, error) {
		f, err := c.fit(ctx, a, opt.Technique)
		if err != nil {
			return nil, nil, err
		}
		if opt.MinCosine <= 0 { // whatever it is, it will do
			return f, nil, nil
		}
		q, err := opt.Measure(ctx, f.Plan)
		return f, q, err
	}
	best, q, err := try(start)
	if err != nil {
		return nil, err
	}
	assignment := start
	if least(q) < opt.MinCosine {
		steps := demotions(sites, ladders, alone, opt.Target)
		// The fewest demotions that meet the budget, as if each could only help.
		lo, hi := 0, len(steps) // lo misses, hi is hoped to meet
		var found *Fitted
		var foundQ []Quality
		for hi-lo > 1 {
			mid := (lo + hi) / 2
			f, fq, err := try(demoted(start, sites, steps[:mid]))
			if err != nil {
				return nil, err
			}
			c.say("%d of %d demotions: cosine %.6f", mid, len(steps), least(fq))
			if least(fq) >= opt.MinCosine {
				hi, found, foundQ = mid, f, fq
			} else {
				lo = mid
			}
		}
		assignment = demoted(start, sites, steps[:hi])
		if found == nil {
			if found, foundQ, err = try(assignment); err != nil {
				return nil, err
			}
		}
		if best, q = found, foundQ; least(q) < opt.MinCosine {
			return nil, unreachable(opt, q, sites, alone)
		}
	}
	out := &Choice{Plan: best.Plan}
	for i, s := range sites {
		out.Layers = append(out.Layers, layerChoice(s, assignment[s.Name()], ladders[i], alone[i], best, kept[i]))
	}
	return out, nil
}

func layerChoice(s passes.Site, f Format, ladder []Format, alone map[Format]float64, fit *Fitted, kept bool) LayerChoice {
	l := LayerChoice{Name: s.Region.Name, Op: s.Anchor.Op.Name, Precision: f.String(), MACs: s.MACs, Bytes: f.bytes(&s), HalfBytes: Half.bytes(&s),
		Alone: alone[f], InPlace: fit.Local[s.Name()], site: s}
	if r, ok := fit.Ranges[s.Name()]; ok {
		l.Scale = &r
	}
	switch {
	case kept:
		l.Why = "--keep"
	case f != ladder[0]:
		l.Why = fmt.Sprintf("%v costs %.2g of the outputs alone", ladder[0], alone[ladder[0]])
		l.Alone = alone[ladder[0]]
	}
	return l
}

// kept finds the layers that --keep names: by region, or by any node of its body.
func (c *Calibration) kept(names []string, sites []passes.Site) ([]bool, error) {
	out := make([]bool, len(sites))
	for _, name := range names {
		found := false
		for i, s := range sites {
			if s.Region.Name == name || slices.ContainsFunc(s.Region.Body.Nodes, func(n *ir.Node) bool { return n.Name == name }) {
				out[i], found = true, true
			}
		}
		if !found {
			var known []string
			for _, s := range sites {
				known = append(known, s.Region.Name)
			}
			return nil, fmt.Errorf("--keep %s: no layer that can be quantised holds that node (layers: %s)", name, strings.Join(known, ", "))
		}
	}
	return out, nil
}

// demotions orders every step down a ladder by what it saves in error for the time that it costs.
func demotions(sites []passes.Site, ladders [][]Format, alone []map[Format]float64, t *target.Target) []demotion {
	var out []demotion
	for i := range sites {
		limit := math.Inf(1)
		for k := 1; k < len(ladders[i]); k++ {
			from, to := ladders[i][k-1], ladders[i][k]
			saved := alone[i][from]*alone[i][from] - alone[i][to]*alone[i][to]
			cost := max(to.micros(&sites[i], t)-from.micros(&sites[i], t), 1e-3)
			limit = min(limit, saved/cost) // a ladder is taken step by step
			out = append(out, demotion{i, to, limit})
		}
	}
	slices.SortStableFunc(out, func(a, b demotion) int { return cmp.Compare(b.worth, a.worth) })
	return out
}

func demoted(start Assignment, sites []passes.Site, steps []demotion) Assignment {
	a := Assignment{}
	for name, f := range start {
		a[name] = f
	}
	for _, d := range steps {
		a[sites[d.layer].Name()] = d.to
	}
	return a
}

func least(q []Quality) float64 {
	x := 1.0
	for _, s := range q {
		x = min(x, s.Cosine)
	}
	return x
}

// unreachable says what was reached with every layer at fp16, and which outputs block.
func unreachable(opt Options, q []Quality, sites []passes.Site, alone []map[Format]float64) error {
	var low []string
	for _, s := range q {
		if s.Cosine < opt.MinCosine {
			low = append(low, fmt.Sprintf("%s %.6f", s.Name, s.Cosine))
		}
	}
	order := make([]int, len(sites))
	for i := range order {
		order[i] = i
	}
	worst := func(i int) float64 {
		x := 0.0
		for _, e := range alone[i] {
			x = max(x, e)
		}
		return x
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(worst(b), worst(a)) })
	var layers []string
	for _, i := range order[:min(3, len(order))] {
		layers = append(layers, fmt.Sprintf("%s (%.2g)", sites[i].Region.Name, worst(i)))
	}
	return fmt.Errorf("--min-cosine %g cannot be reached at %s: with every layer at fp16 it is %.6f (%s); the layers that hurt most alone: %s; compile with --precision fp16 or fp32, or a lower --min-cosine",
		opt.MinCosine, opt.Precision, least(q), strings.Join(low, ", "), strings.Join(layers, ", "))
}

// Site is the layer's region.
func (l LayerChoice) Site() passes.Site { return l.site }
