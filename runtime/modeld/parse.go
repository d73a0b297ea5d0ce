package modeld

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/spark-compile/spark-compile/internal/openpilot/generation"
	"github.com/spark-compile/spark-compile/runtime"
)

// vector is one output of a program, in float64, and where its named parts lie.
type vector struct {
	values []float64
	slices []runtime.Slice
}

// parser reads the named parts of a model's vectors as openpilot's parse_model_outputs does.
type parser struct {
	parts map[string][]float64
	row   *generation.Row
	err   error // the first part that was not as it should be
}

// maxExponent is where openpilot clips exponents: e^11 is about the largest that float16 holds.
const maxExponent = 11

// PlanColumns are those of a plan: position, velocity, acceleration, orientation and its rate, 3 each.
const PlanColumns = generation.PlanColumns

// First columns of a plan's parts, of which each has three: x, y, z, or roll, pitch, yaw.
const (
	PlanVelocity        = 3
	PlanAcceleration    = 6
	PlanOrientation     = 9
	PlanOrientationRate = 12
)

const desires = generation.Desires

// newParser finds the parts of the vectors, vision's before the policy's. Of a name that both have the policy's part counts, as in
// openpilot, but hidden_state is vision's. Padding is left out.
func newParser(vectors []vector, row *generation.Row) (*parser, error) {
	p := &parser{parts: map[string][]float64{}, row: row}
	for _, v := range vectors {
		for _, s := range v.slices {
			if s.Name == generation.Padding || s.Name == generation.HiddenState && p.parts[s.Name] != nil {
				continue
			}
			if s.Start < 0 || s.Stop <= s.Start || s.Stop > len(v.values) {
				return nil, fmt.Errorf("output slice %q is %d to %d of a vector of %d values: the model's output_slices do not fit its output",
					s.Name, s.Start, s.Stop, len(v.values))
			}
			p.parts[s.Name] = v.values[s.Start:s.Stop:s.Stop]
		}
	}
	return p, nil
}

// take returns the part of a name, nil if there is none, or if it has no form that a generation has, which p.err then says.
func (p *parser) take(name string) []float64 {
	x := p.parts[name]
	var lengths []int
	for _, form := range generation.Forms(p.row.Kind, name) {
		lengths = append(lengths, form.Len())
	}
	if x == nil || slices.Contains(lengths, len(x)) {
		return x
	}
	if p.err == nil {
		p.err = fmt.Errorf("output slice %q has %d values: a model of openpilot's has %s there",
			name, len(x), strings.Trim(strings.Join(strings.Fields(fmt.Sprint(lengths)), " or "), "[]"))
	}
	return nil
}

// parseOutputs reads what the vectors of a driving model say. It fills all that needs neither the frame nor earlier frames. NaN
// stays NaN.
func parseOutputs(vectors []vector, row *generation.Row) (*Outputs, error) {
	p, err := newParser(vectors, row)
	if err != nil {
		return nil, err
	}
	out := &Outputs{
		LaneLines: p.lines("lane_lines", generation.LaneLines), RoadEdges: p.lines("road_edges", generation.RoadEdges), Leads: p.leads(), Meta: p.meta(),
		Pose: p.pose("pose"), RoadTransform: p.pose("road_transform"), HiddenState: slices.Clone(p.parts[generation.HiddenState]),
	}
	if x := p.take(generation.Plan); x != nil {
		out.Plan = p.plan(x)
	}
	if x := p.take("lane_lines_prob"); x != nil {
		for i := range out.LaneLines {
			out.LaneLines[i].Probability = p.sigmoid(x[2*i+1]) // openpilot publishes the odd ones
		}
	}
	for i := range out.RoadEdges {
		out.RoadEdges[i].Probability = 1
	}
	if x := p.take("lead_prob"); x != nil {
		for i := range out.Leads {
			out.Leads[i].Probability = p.sigmoid(x[i])
		}
	}
	if x := p.take("wide_from_device_euler"); x != nil {
		out.WideFromDevice = &Euler{[3]float64(x), [3]float64(p.exps(x[3:]))}
	}
	if x := p.take("desire_state"); x != nil {
		out.DesireState = slices.Clone(x)
		if !row.Probabilities {
			out.DesireState = softmax(x)
		}
	}
	if x := p.take("desire_pred"); x != nil {
		for row := range slices.Chunk(x, desires) {
			out.DesirePrediction = append(out.DesirePrediction, softmax(row))
		}
	}
	if x := p.take(generation.Curvature); x != nil {
		out.DesiredCurvature = &Number{x[0], p.exp(x[1])}
	}
	if x := p.parts[generation.Action]; len(x) >= 2 {
		out.Action = slices.Clone(x)
	} else {
		p.take(generation.Action)
	}
	return out, p.err
}

func (p *parser) exp(x float64) float64 {
	if p.row.Unclipped {
		return math.Exp(x)
	}
	return math.Exp(min(x, maxExponent))
}

func (p *parser) exps(x []float64) []float64 {
	e := make([]float64, len(x))
	for i := range x {
		e[i] = p.exp(x[i])
	}
	return e
}

func (p *parser) sigmoid(x float64) float64 { return 1 / (1 + p.exp(-x)) }

// softmax of the values, none of which can overflow.
func softmax(x []float64) []float64 {
	y, sum, most := make([]float64, len(x)), 0.0, slices.Max(x)
	for i := range x {
		y[i] = math.Exp(x[i] - most)
		sum += y[i]
	}
	for i := range y {
		y[i] /= sum
	}
	return y
}

// formOf is the form of a part that take returned.
func formOf(name string, x []float64) generation.Slice {
	forms := generation.Forms(generation.Driving, name)
	return forms[slices.IndexFunc(forms, func(s generation.Slice) bool { return s.Len() == len(x) })]
}

// plan reads one hypothesis, or several with a weight each. They are sorted by falling weight; of equal weights the first
// comes first, which openpilot leaves open.
func (p *parser) plan(x []float64) *Plan {
	form := formOf(generation.Plan, x)
	if form.Hypotheses == 0 {
		plan := p.hypothesis(x)
		plan.Probability = 1
		return &plan
	}
	all, weights := make([]Plan, form.Hypotheses), make([]float64, form.Hypotheses)
	for i := range all {
		part := x[i*len(x)/form.Hypotheses : (i+1)*len(x)/form.Hypotheses]
		last := len(part) - form.Weights
		all[i], weights[i] = p.hypothesis(part[:last]), part[last]
	}
	for i, w := range softmax(weights) {
		all[i].Probability = w
	}
	slices.SortStableFunc(all, func(a, b Plan) int {
		if a.Probability > b.Probability {
			return -1
		} else if a.Probability < b.Probability {
			return 1
		}
		return 0 // also of NaN, which all are if one is
	})
	best := all[0]
	best.Others = all[1:]
	return &best
}

// hypothesis reads means and logarithms of deviations of one plan.
func (p *parser) hypothesis(x []float64) (plan Plan) {
	means, deviations := x[:len(x)/2], p.exps(x[len(x)/2:])
	for i := range Points {
		mean, std := means[i*PlanColumns:], deviations[i*PlanColumns:]
		for c, to := range []*[Points][3]float64{&plan.Position, &plan.Velocity, &plan.Acceleration, &plan.Orientation, &plan.OrientationRate} {
			to[i] = [3]float64(mean[3*c:])
		}
		for c, to := range []*[Points][3]float64{
			&plan.PositionStd, &plan.VelocityStd, &plan.AccelerationStd, &plan.OrientationStd, &plan.OrientationRateStd,
		} {
			to[i] = [3]float64(std[3*c:])
		}
	}
	return plan
}

// lines reads lane lines or road edges: y and z of all, then logarithms of their deviations.
func (p *parser) lines(name string, n int) []Line {
	x := p.take(name)
	if x == nil {
		return nil
	}
	all := make([]Line, n)
	std := p.exps(x[len(x)/2:])
	for i := range all {
		l := &all[i]
		l.Probability = math.NaN() // until a model says
		for j := range Points {
			at := 2 * (i*Points + j)
			l.Y[j], l.Z[j], l.YStd[j], l.ZStd[j] = x[at], x[at+1], std[at], std[at+1]
		}
	}
	return all
}

// leads reads a lead for each offset, or hypotheses with a weight for each offset: the heaviest is taken, of equal weights the
// first.
func (p *parser) leads() []Lead {
	x := p.take("lead")
	if x == nil {
		return nil
	}
	const one = LeadPoints * generation.LeadColumns
	form, all := formOf("lead", x), make([]Lead, generation.LeadTimes)
	for s := range all {
		l := &all[s]
		l.Offset, l.Probability = 2*float64(s), math.NaN()
		var mean, std []float64
		if form.Hypotheses == 0 {
			l.HypothesisProbability = 1
			mean, std = x[s*one:], x[(generation.LeadTimes+s)*one:]
		} else {
			weights, each := make([]float64, form.Hypotheses), len(x)/form.Hypotheses
			for h := range weights {
				weights[h] = x[h*each+2*one+s]
			}
			weights = softmax(weights)
			for h, w := range weights {
				if w > weights[l.Hypothesis] {
					l.Hypothesis = h
				}
			}
			l.HypothesisProbability = weights[l.Hypothesis]
			mean = x[l.Hypothesis*each:]
			std = mean[one:]
		}
		for i := range LeadPoints {
			for c, to := range []*[LeadPoints]float64{&l.X, &l.Y, &l.V, &l.A} {
				to[i] = mean[i*generation.LeadColumns+c]
			}
			for c, to := range []*[LeadPoints]float64{&l.XStd, &l.YStd, &l.VStd, &l.AStd} {
				to[i] = p.exp(std[i*generation.LeadColumns+c])
			}
		}
	}
	return all
}

// meta reads probabilities of events, pedals and blinkers.
func (p *parser) meta() *Meta {
	x := p.take("meta")
	if x == nil {
		return nil
	}
	series := func(s generation.Series) (y []float64) {
		for i := range s.Len {
			y = append(y, p.sigmoid(x[s.From+i*s.Stride]))
		}
		return y
	}
	layout := generation.MetaOf(len(x))
	m := &Meta{Engaged: p.sigmoid(x[0])}
	for i, to := range []*[5]float64{&m.GasDisengage, &m.BrakeDisengage, &m.SteerDisengage, &m.Brake3, &m.Brake4, &m.Brake5} {
		*to = [5]float64(series(generation.Series{From: 1 + i, Stride: layout.Stride, Len: 5}))
	}
	m.GasPress, m.BrakePress = series(layout.GasPress), series(layout.BrakePress)
	m.LeftBlinker, m.RightBlinker = series(layout.Left), series(layout.Right)
	return m
}

func (p *parser) pose(name string) *Pose {
	x := p.take(name)
	if x == nil {
		return nil
	}
	std := p.exps(x[6:])
	return &Pose{[3]float64(x), [3]float64(x[3:]), [3]float64(std), [3]float64(std[3:])}
}
