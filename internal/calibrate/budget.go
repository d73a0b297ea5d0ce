package calibrate

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spark-compile/spark-compile/internal/precision"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/passes"
)

// Options set the goal and the limits of Choose.
type Options struct {
	Precision string   // one that calibrates
	MinCosine float64  // of every slice that the trial measures; 0: quantise every layer that can be
	Smaller   bool     // with a budget: prefer smaller weights to speed
	Keep      []string // layers that stay at fp16, by the name of a node in them
	Target    *target.Target
	Technique Technique
	Save      bool // findings will be saved
}

// smaller reports whether bytes are what a layer costs, not time.
func (o *Options) smaller() bool { return o.Smaller && o.MinCosine > 0 }

// Trial measures plans.
type Trial interface {
	// Measure compiles a plan and compares the program's outputs with the file's, slice by slice: what the budget is compared
	// with. It may stop at an input on which a cosine is below enough, and return the figures of that one.
	Measure(ctx context.Context, plan *passes.Quantisation, enough float64) ([]Quality, error)
	// Times predicts the time of each region's kernel in microseconds, by the name of its first output, which is a site's name, if
	// a plan is compiled.
	Times(ctx context.Context, plan *passes.Quantisation) (map[string]float64, error)
}

// Best enables every technique.
var Best = Technique{Feedback: true, Recover: true, Bias: true}

// Outcome is the outcome of Choose.
type Outcome struct {
	Plan   *passes.Quantisation
	Layers []LayerChoice
}

// LayerChoice is one layer of the report.
type LayerChoice struct {
	Name      string  `json:"name"`
	Op        string  `json:"op"`
	Precision string  `json:"precision"`
	MACs      int64   `json:"macs"`
	Weights   int     `json:"weights"`                  // number of them
	K         int     `json:"k"`                        // products summed for each output
	Alone     float64 `json:"error_alone,omitempty"`    // relative L2 of the outputs with only this layer quantised; 0 where no budget asks for it
	InPlace   float64 `json:"error_in_place,omitempty"` // relative L2 of its anchor's output, quantised against exact, when it was fitted; 0 where it was not
	Scale     *Range  `json:"activations,omitempty"`
	Why       string  `json:"why,omitempty"`   // it is not in the narrowest format
	File      bool    `json:"file,omitempty"`  // the file has quantised it, and the program keeps that
	Fixed     bool    `json:"fixed,omitempty"` // nothing of fewer bits can stand for its numbers
}

// Choose finds the assignment of formats that is predicted to be fastest, or smallest, and whose outputs stay within the
// budget.
func (c *Calibration) Choose(ctx context.Context, trial Trial, opt Options) (*Outcome, error) {
	sites := c.Sites()
	kept, err := c.kept(opt.Keep, sites)
	if err != nil {
		return nil, err
	}
	c.several = opt.MinCosine > 0 || opt.Save
	c.memory = newExactRun(c.walk, opt.MinCosine > 0)
	ladders := make([][]precision.Layer, len(sites))
	file := make([]LayerChoice, len(sites))
	for i := range sites {
		file[i], _ = fileLayer(&sites[i])
		if ladders[i] = c.candidates(opt, &sites[i]); kept[i] || file[i].File {
			ladders[i] = []precision.Layer{precision.Half}
		}
	}
	if err := c.twice(ctx, trial, sites, ladders); err != nil {
		return nil, err
	}
	if err := c.split(ctx, trial, opt, sites, ladders); err != nil {
		return nil, err
	}
	full, prices, err := c.cheapest(ctx, trial, opt, sites, ladders)
	if err != nil {
		return nil, err
	}
	var spared []string
	if p, err := precision.Lookup(opt.Precision); err == nil && coarse(p) && opt.MinCosine <= 0 && !opt.Smaller {
		if spared, err = c.spare(ctx, trial, sites, ladders); err != nil {
			return nil, err
		}
	}
	alone := make([]map[precision.Layer]float64, len(sites))
	if opt.MinCosine > 0 { // else there is nothing to rank
		if alone, err = c.alone(ctx, sites, ladders); err != nil {
			return nil, err
		}
	}
	best, err := c.search(ctx, trial, opt, sites, ladders, alone, prices)
	if err != nil {
		return nil, err
	}
	out := &Outcome{Plan: best.Plan}
	for i, s := range sites {
		l := layerChoice(s, best.Formats[s.Name()], ladders[i], alone[i], best, kept[i])
		if f := best.Formats.of(s.Name()); l.Why == "" && f != full[i][0] {
			l.Why = prices[i].why(full[i][0], f, opt.smaller())
		}
		if spared != nil && spared[i] != "" {
			l.Why = spared[i]
		}
		if file[i].File {
			l.Precision, l.Why, l.File = file[i].Precision, file[i].Why, true
		}
		out.Layers = append(out.Layers, l)
	}
	out.Layers = withFixed(c.walk.g, out.Layers)
	return out, nil
}

// withFixed inserts the layers that are no sites between those of the sites, in the order of the graph.
func withFixed(g *ir.Graph, sites []LayerChoice) []LayerChoice {
	var out []LayerChoice
	for _, n := range g.Nodes {
		for _, part := range n.Parts() {
			if _, ok := passes.SiteOf(part); ok {
				out, sites = append(out, sites[0]), sites[1:]
				continue
			}
			why := passes.Unquantisable(part)
			if why == "" || part.MACs() == 0 {
				continue
			}
			a := part.Region.Anchor()
			weights := a.Inputs[1].Type
			l := LayerChoice{Name: part.Name, Op: a.Op.Name, Precision: weights.DType.String(), Why: why, Fixed: true}
			l.MACs, l.Weights = part.MACs(), part.Region.Count()*weights.Numel()
			if weights.DType == ir.Float32 {
				l.Precision = precision.Half.Name
			}
			l.K = int(l.MACs / int64(part.Region.Count()*a.Outputs[0].Type.Numel()))
			out = append(out, l)
		}
	}
	return out
}

func layerChoice(s passes.Site, f precision.Layer, candidates []precision.Layer, alone map[precision.Layer]float64, fit *Fitted, kept bool) LayerChoice {
	l := LayerChoice{Name: s.Node.Name, Op: s.Anchor.Op.Name, Precision: f.Name, MACs: s.MACs, Weights: s.Members * s.N * s.K, K: s.K,
		Alone: alone[f], InPlace: fit.Local[s.Name()]}
	if r, ok := fit.Ranges[s.Name()]; ok {
		l.Scale = &r
	}
	switch {
	case kept:
		l.Why = "--keep"
	case !slices.Contains(candidates, f), f != candidates[0] && alone == nil: // weights only, where the first candidate also quantises activations
		l.Why = "another reader of its activations is not " + candidates[0].Name
	case f != candidates[0]:
		l.Why = fmt.Sprintf("%s costs %.2g of the outputs alone", candidates[0].Name, alone[candidates[0]])
		l.Alone = alone[candidates[0]]
	}
	return l
}

// kept finds the layers that --keep names, by region, by a node of its body, or by a node of the file, of any tower.
func (c *Calibration) kept(names []string, sites []passes.Site) ([]bool, error) {
	out := make([]bool, len(sites))
	for _, name := range names {
		found := false
		for i, s := range sites {
			computes := func(o ir.Origin) bool { return o.Name == name }
			if s.Node.Name == name || slices.ContainsFunc(s.Node.Region.Body.Nodes, func(n *ir.Node) bool { return n.Name == name }) ||
				slices.ContainsFunc(s.Node.Region.Origins(), computes) {
				out[i], found = true, true
			}
		}
		if !found {
			var known []string
			for _, s := range sites {
				known = append(known, s.Node.Name)
			}
			return nil, fmt.Errorf("--keep %s: no layer that can be quantised contains that node; choose one of %s", name, strings.Join(known, ", "))
		}
	}
	return out, nil
}

// unreachable is the error of a budget that even fp16 misses: what was reached, by which outputs and layers.
func unreachable(opt Options, q []Quality, sites []passes.Site, alone []map[precision.Layer]float64) error {
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
		if worst(i) > 0 {
			layers = append(layers, fmt.Sprintf("%s (%.2g)", sites[i].Node.Name, worst(i)))
		}
	}
	why := "the layers that hurt most alone: " + strings.Join(layers, ", ")
	if len(layers) == 0 {
		why = "no layer could go down, so 16 bits cost that, and codes of layers that the file has quantised, which roundings in front of them move"
	}
	return fmt.Errorf("--min-cosine %g cannot be reached at %s: with every layer at fp16 it is %.9f (%s); %s; compile with --precision %s, or a lower --min-cosine",
		opt.MinCosine, opt.Precision, Least(q), strings.Join(Below(q, opt.MinCosine), ", "), why, precision.Wider(opt.Precision))
}
