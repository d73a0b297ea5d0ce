package modeld

import (
	"fmt"
	"math"
	"slices"
	"strings"

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
	// older models have no exponents clipped, and a desire_state that is a probability already (openpilot to 0.9.x).
	older bool
	err   error // the first part that was not as it should be
}

// maxExponent is where openpilot clips exponents: e^11 is about the largest that float16 holds.
const maxExponent = 11

// PlanColumns are those of a plan: position, velocity, acceleration, orientation and its rate, 3 each.
const PlanColumns = 15

// First columns of a plan's parts, of which each has three: x, y, z, or roll, pitch, yaw.
const (
	PlanVelocity        = 3
	PlanAcceleration    = 6
	PlanOrientation     = 9
	PlanOrientationRate = 12
)

// Lengths of the parts.
const (
	planLength    = 2 * Points * PlanColumns
	planChoices   = 5
	leadOffsets   = 3
	leadColumns   = 4                                          // x, y, v, a
	leadLength    = 2 * leadOffsets * LeadPoints * leadColumns // of one hypothesis for each offset
	leadChoices   = 2                                          // for all offsets,
	leadChoice    = 2*LeadPoints*leadColumns + leadOffsets     // each with a weight for every offset
	metaLength    = 1 + 5*6 + 6*4
	oldMetaLength = 1 + 5*7 + 6*2
	laneLines     = 4
	roadEdges     = 2
	lineLength    = 2 * Points * 2
)

// newParser finds the parts of the vectors, vision's before the policy's. Of a name that both have the policy's part counts, as in
// openpilot, but hidden_state is vision's. Padding is left out.
func newParser(vectors []vector, older bool) (*parser, error) {
	p := &parser{parts: map[string][]float64{}, older: older}
	for _, v := range vectors {
		for _, s := range v.slices {
			if s.Name == "pad" || s.Name == "hidden_state" && p.parts[s.Name] != nil {
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

// take returns the part of a name, nil if there is none, or if it does not have one of the lengths, which p.err then says.
func (p *parser) take(name string, lengths ...int) []float64 {
	x := p.parts[name]
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
// stays NaN. older is as in parser.
func parseOutputs(vectors []vector, older bool) (*Outputs, error) {
	p, err := newParser(vectors, older)
	if err != nil {
		return nil, err
	}
	out := &Outputs{
		LaneLines: p.lines("lane_lines", laneLines), RoadEdges: p.lines("road_edges", roadEdges), Leads: p.leads(), Meta: p.meta(),
		Pose: p.pose("pose"), RoadTransform: p.pose("road_transform"), HiddenState: slices.Clone(p.parts["hidden_state"]),
	}
	if x := p.take("plan", planLength, planChoices*(planLength+1)); x != nil {
		out.Plan = p.plan(x)
	}
	if x := p.take("lane_lines_prob", 2*laneLines); x != nil {
		for i := range out.LaneLines {
			out.LaneLines[i].Probability = p.sigmoid(x[2*i+1]) // openpilot publishes the odd ones
		}
	}
	for i := range out.RoadEdges {
		out.RoadEdges[i].Probability = 1
	}
	if x := p.take("lead_prob", leadOffsets); x != nil {
		for i := range out.Leads {
			out.Leads[i].Probability = p.sigmoid(x[i])
		}
	}
	if x := p.take("wide_from_device_euler", 6); x != nil {
		out.WideFromDevice = &Euler{[3]float64(x), [3]float64(p.exps(x[3:]))}
	}
	if x := p.take("desire_state", desires); x != nil {
		out.DesireState = slices.Clone(x)
		if !older {
			out.DesireState = softmax(x)
		}
	}
	if x := p.take("desire_pred", 4*desires); x != nil {
		for row := range slices.Chunk(x, desires) {
			out.DesirePrediction = append(out.DesirePrediction, softmax(row))
		}
	}
	if x := p.take("desired_curvature", 2); x != nil {
		out.DesiredCurvature = &Number{x[0], p.exp(x[1])}
	}
	if x := p.parts["action"]; len(x) >= 2 {
		out.Action = slices.Clone(x)
	} else {
		p.take("action", 2)
	}
	return out, p.err
}

func (p *parser) exp(x float64) float64 {
	if p.older {
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

// plan reads one hypothesis, or five of them with a weight each. They are sorted by falling weight; of equal weights the first
// comes first, which openpilot leaves open.
func (p *parser) plan(x []float64) *Plan {
	if len(x) == planLength {
		plan := p.hypothesis(x)
		plan.Probability = 1
		return &plan
	}
	all, weights := make([]Plan, planChoices), make([]float64, planChoices)
	for i := range all {
		part := x[i*(planLength+1) : (i+1)*(planLength+1)]
		all[i], weights[i] = p.hypothesis(part[:planLength]), part[planLength]
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
	x := p.take(name, n*lineLength)
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

// leads reads a lead for each offset, or two hypotheses with a weight for each offset: the heaviest is taken, of equal weights the
// first.
func (p *parser) leads() []Lead {
	x := p.take("lead", leadLength, leadChoices*leadChoice)
	if x == nil {
		return nil
	}
	const one = LeadPoints * leadColumns
	all := make([]Lead, leadOffsets)
	for s := range all {
		l := &all[s]
		l.Offset, l.Probability = 2*float64(s), math.NaN()
		var mean, std []float64
		if len(x) == leadLength {
			l.HypothesisProbability = 1
			mean, std = x[s*one:], x[(leadOffsets+s)*one:]
		} else {
			weights := softmax([]float64{x[2*one+s], x[leadChoice+2*one+s]})
			if weights[1] > weights[0] {
				l.Hypothesis = 1
			}
			l.HypothesisProbability = weights[l.Hypothesis]
			mean = x[l.Hypothesis*leadChoice:]
			std = mean[one:]
		}
		for i := range LeadPoints {
			for c, to := range []*[LeadPoints]float64{&l.X, &l.Y, &l.V, &l.A} {
				to[i] = mean[i*leadColumns+c]
			}
			for c, to := range []*[LeadPoints]float64{&l.XStd, &l.YStd, &l.VStd, &l.AStd} {
				to[i] = p.exp(std[i*leadColumns+c])
			}
		}
	}
	return all
}

// meta reads 55 values, or the 48 of models before the brake pedal was predicted.
func (p *parser) meta() *Meta {
	x := p.take("meta", metaLength, oldMetaLength)
	if x == nil {
		return nil
	}
	// every returns n probabilities, the first at from, then one every step numbers.
	every := func(from, apart, n int) []float64 {
		y := make([]float64, n)
		for i := range y {
			y[i] = p.sigmoid(x[from+i*apart])
		}
		return y
	}
	apart := 6
	if len(x) == oldMetaLength {
		apart = 7
	}
	m := &Meta{Engaged: p.sigmoid(x[0])}
	for i, to := range []*[5]float64{&m.GasDisengage, &m.BrakeDisengage, &m.SteerDisengage, &m.Brake3, &m.Brake4, &m.Brake5} {
		*to = [5]float64(every(1+i, apart, 5))
	}
	if len(x) == oldMetaLength {
		m.GasPress, m.LeftBlinker, m.RightBlinker = every(7, 7, 5), every(36, 2, 6), every(37, 2, 6)
		return m
	}
	m.GasPress, m.BrakePress, m.LeftBlinker, m.RightBlinker = every(31, 4, 6), every(32, 4, 6), every(33, 4, 6), every(34, 4, 6)
	return m
}

func (p *parser) pose(name string) *Pose {
	x := p.take(name, 12)
	if x == nil {
		return nil
	}
	std := p.exps(x[6:])
	return &Pose{[3]float64(x), [3]float64(x[3:]), [3]float64(std), [3]float64(std[3:])}
}
