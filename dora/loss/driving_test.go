package loss

import (
	"context"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/dora"
	"github.com/spark-compile/spark-compile/dora/teacher"
	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/ir"
)

// TestWeightsAreReadFromText: what is wrong is said with the term or text that it is about.
func TestWeightsAreReadFromText(t *testing.T) {
	for text, want := range map[string]map[string]float64{
		"":                                 nil,
		" ":                                nil,
		"plan=1,lead=0.5, features=0.1":    {"plan": 1, "lead": 0.5, "features": 0.1},
		"plan = 0":                         {"plan": 0},
		"features:/a=b/Conv_output_0=1e-2": {"features:/a=b/Conv_output_0": 0.01},
	} {
		got, err := Parse(text)
		require.NoError(t, err, text)
		assert.Equal(t, want, got, text)
	}
	for text, want := range map[string]string{
		"plan":          `"plan" says no weight: write NAME=WEIGHT, as in plan=1,lead=0.5,features=0.1`,
		"plan=1,":       `"" says no weight`,
		"=1":            `"=1" names no term`,
		"plan=x":        `the weight of plan is "x": give a number from 0 on`,
		"plan=-1":       `the weight of plan is "-1"`,
		"plan=NaN":      `the weight of plan is "NaN"`,
		"plan=+Inf":     `the weight of plan is "+Inf"`,
		"plan=1,plan=2": "the term plan is given twice",
	} {
		_, err := Parse(text)
		assert.ErrorContains(t, err, want, text)
	}
}

// TestTermsOfTheGenerations: by default divergences with weight 1, and 100 for what is a ratio.
func TestTermsOfTheGenerations(t *testing.T) {
	prob := map[string]float64{"lane_lines_prob": 1, "lead_prob": 1, "meta": 1, "desire_state": 1}
	dist := map[string]float64{"lane_lines": 1, "road_edges": 1, "lead": 1, "pose": 1, "road_transform": 1, "wide_from_device_euler": 1}
	with := func(base []map[string]float64, more map[string]float64) map[string]float64 {
		out := maps.Clone(more)
		for _, b := range base {
			maps.Copy(out, b)
		}
		return out
	}
	both := []map[string]float64{prob, dist}
	for name, want := range map[string]map[string]float64{
		"policy":             {"plan": 1, "desire_state": 1},
		"policy010":          {"plan": 1, "desire_state": 1, "desired_curvature": 1},
		"supercombo097":      with(both, map[string]float64{"plan": 1, "desire_pred": 1, "desired_curvature": 1, "features": 100}),
		"driving_supercombo": with(both, map[string]float64{"plan": 1, "desire_pred": 1, "action": 100, "features": 100}),
		"dmonitoring":        nil,
	} {
		terms, err := Driving(model(t, name), nil)
		require.NoError(t, err, name)
		got := weightsOf(terms)
		if want != nil {
			assert.Equal(t, want, got, name)
			assert.Equal(t, []string{"outputs"}, terms.Targets())
		} else {
			sum := 0.0
			for _, w := range got {
				sum += w
			}
			assert.InDelta(t, 1, sum, 1e-12, "%s: the mean over outputs", name)
		}
		assert.Empty(t, terms.Inner())
		assert.Empty(t, truths(terms))
	}
	terms, err := Driving(model(t, "policy"), map[string]float64{"plan_nll": 0.5, "plan_truth": 2, "plan": 0, "features:/Add_output_0": 1})
	require.NoError(t, err)
	assert.Equal(t, map[string]float64{"plan_nll": 0.5, "plan_truth": 2, "features:/Add_output_0": 1}, weightsOf(terms))
	assert.Equal(t, []string{"/Add_output_0", "outputs"}, terms.Targets())
	assert.Equal(t, []string{"/Add_output_0"}, terms.Inner())
	assert.Equal(t, []string{"plan"}, truths(terms))
}

// weightsOf are the terms' weights by name.
func weightsOf(terms Terms) map[string]float64 {
	out := map[string]float64{}
	for _, m := range terms {
		out[m.Name] = m.Weight
	}
	return out
}

// truths are the names NAME of inputs Truth(NAME) that the loss reads.
func truths(terms Terms) (out []string) {
	for _, m := range terms {
		if m.form == truth {
			out = append(out, m.part.name)
		}
	}
	return out
}

// TestHypothesesFollowFromLengths: of plan and lead.
func TestHypothesesFollowFromLengths(t *testing.T) {
	for _, c := range []struct {
		name                         string
		size                         int
		hypotheses, numbers, choices int
	}{{"plan", 990, 1, 495, 0}, {"plan", 4955, 5, 495, 1}, {"plan", 991, 1, 495, 1}, {"lead", 102, 2, 24, 3}, {"lead", 144, 1, 72, 0}, {"lane_lines", 528, 1, 264, 0}, {"desired_curvature", 2, 1, 1, 0}} {
		p, err := partOf(onnx.Slice{Name: c.name, Start: 3, End: 3 + c.size})
		require.NoError(t, err)
		assert.Equal(t, []int{c.hypotheses, c.numbers, c.choices, 3, c.size}, []int{p.hypotheses, p.numbers, p.choices, p.from, p.size}, "%s of %d", c.name, c.size)
	}
	for name, want := range map[string]string{
		"plan":         `the slice "plan" has 5 numbers, want 990, or a multiple of 991 with hypotheses`,
		"lane_lines":   `the slice "lane_lines" has 5 numbers, want as many log scales as means`,
		"desire_state": `the slice "desire_state" has 5 numbers, want a multiple of 8`,
	} {
		_, err := partOf(onnx.Slice{Name: name, Start: 0, End: 5})
		assert.EqualError(t, err, want)
	}
}

// TestDrivingLoss_NamesUnknownTerms: with those that there are.
func TestDrivingLoss_NamesUnknownTerms(t *testing.T) {
	file := model(t, "policy")
	for _, c := range []struct {
		weights map[string]float64
		want    string
	}{
		{map[string]float64{"plant": 1}, `policy.onnx has no term "plant": its terms are plan, plan_nll, plan_truth, desire_state and features:VALUE`},
		{map[string]float64{"features": 1}, `has no term "features"`},
		{map[string]float64{"features:": 1}, `has no term "features:"`},
		{map[string]float64{"plan": math.NaN()}, "the weight of plan is NaN"},
		{map[string]float64{"plan": -1}, "the weight of plan is -1"},
		{map[string]float64{"plan": 0}, "no term has a weight above 0"},
		{map[string]float64{"features:nothing": 1}, `term features:nothing: the file has no value "nothing": name one as the file does, as "/`},
		{map[string]float64{"features:/blocks/blocks.0/Split_output_1": 1}, `"/blocks/blocks.0/Split_output_1" is one of several values of the node "/blocks/blocks.0/Split": name one`},
		{map[string]float64{}, "no term has a weight above 0"},
	} {
		_, err := Driving(file, c.weights)
		assert.ErrorContains(t, err, c.want)
	}
	terms, err := Driving(model(t, "policy010"), map[string]float64{"desired_curvature": 1})
	require.NoError(t, err)
	m, err := dora.Open(file, onnx.ImportOptions{})
	require.NoError(t, err)
	a, err := dora.Init(m, dora.InitOptions{Rank: 1})
	require.NoError(t, err)
	_, err = dora.NewStep(context.Background(), m, a, dora.StepOptions{Precision: "fp32", Loss: terms.Build})
	assert.ErrorContains(t, err, `term desired_curvature: "outputs" is f32[1,1000] in the model that is trained, want 4968 floats of 1 samples`)
}

// desireModel is a model whose output is desire_state of eight, as logits, as a softmax or as one that is spelled
// out, after two other numbers.
func desireModel(t testing.TB, how string) *onnx.Model {
	t.Helper()
	b := onnx.NewBuilder("desires", 17)
	ints := func(xs ...int) string { return b.Initializer(b.Name("ints"), ir.Vector(xs...)) }
	x := b.Input("x", ir.Float32, 1, 10)
	first := b.Op("Slice", []string{x, ints(0), ints(2), ints(1)})
	y := b.Op("Slice", []string{x, ints(2), ints(10), ints(1)})
	switch how {
	case "softmax":
		y = b.Op("Softmax", []string{y}, onnx.A("axis", 1))
	case "spelled out":
		y = b.Op("Exp", []string{y})
		y = b.Op("Div", []string{y, b.Op("ReduceSum", []string{y, ints(1)}, onnx.A("keepdims", 1))})
	}
	y = b.Op("Reshape", []string{y, ints(1, 8)})
	b.Node("Concat", []string{first, y}, []string{"outputs"}, onnx.A("axis", 1))
	b.Output("outputs", ir.Float32, 1, 10)
	b.Metadata("output_slices", onnx.EncodeOutputSlices([]onnx.Slice{{Name: "action", Start: 0, End: 2}, {Name: "desire_state", Start: 2, End: 10}}))
	file, err := b.Model()
	require.NoError(t, err)
	return file
}

// TestASoftmaxIsSeenInTheGraph: where a graph gives probabilities they are compared as such, and give what logits would have given.
func TestASoftmaxIsSeenInTheGraph(t *testing.T) {
	var want float64
	for _, how := range []string{"logits", "softmax", "spelled out"} {
		terms := allOf(t, desireModel(t, how)).only("desire_state")
		assert.Equal(t, how != "logits", terms[0].part.softmaxed, how)
		d := drawn(10, 2, 3)
		if how != "logits" {
			for _, a := range []*ir.Array{d.y, d.t} {
				for i := range 2 {
					row := a.F[10*i+2 : 10*i+10]
					sum := 0.0
					for k, x := range row {
						row[k] = math.Exp(x)
						sum += row[k]
					}
					for k := range row {
						row[k] /= sum
					}
				}
			}
		}
		got := evaluate(t, terms, d)["desire_state"]
		if how == "logits" {
			want = got
		}
		assert.Positive(t, want)
		assert.InEpsilon(t, want, got, 1e-9, how)
		d.y.F[2], d.t.F[3] = 0, 0 // never
		assert.False(t, math.IsInf(evaluate(t, terms, d)["desire_state"], 0) || math.IsNaN(evaluate(t, terms, d)["desire_state"]))
	}
}

// TestSquaresAreRelatedToTheirSpread: to the teacher's own square where none is measured.
func TestSquaresAreRelatedToTheirSpread(t *testing.T) {
	all := everything(t, "driving_supercombo")
	terms := all.only("action")
	d := drawn(terms[0].length, 1, 9)
	at := terms[0].part.from
	d.y.F[at], d.y.F[at+1], d.t.F[at], d.t.F[at+1] = 1, 2, 3, 4
	assert.InDelta(t, 8./25, evaluate(t, terms, d)["action"], 1e-9)
	var v teacher.Variation
	for _, x := range []float32{3, 4, 5, 8} {
		outputs := make([]float32, terms[0].length)
		outputs[at], outputs[at+1] = x, 7
		squared := all.Squared(map[string][]float32{"outputs": outputs})
		assert.Len(t, squared, 2)
		assert.Len(t, squared["features"], 32)
		assert.Equal(t, []float32{x, 7}, squared["action"])
		v.Add(squared)
	}
	assert.InDelta(t, 8./(2*1.75), evaluate(t, terms.Spread(v.Spreads()), d)["action"], 1e-6)
	assert.InDelta(t, 8./25, evaluate(t, terms.Spread(map[string]float64{"plan": 5}), d)["action"], 1e-9)
}

// layers are the values that products of a file give, as it calls them.
func layers(t testing.TB, file *onnx.Model) (names []string) {
	t.Helper()
	g, err := imported(file)
	require.NoError(t, err)
	for _, n := range g.Nodes {
		if name := n.Outputs[0].Name; (n.Op.Name == "MatMul" || n.Op.Name == "Conv") && !strings.Contains(name, "~") {
			names = append(names, name)
		}
	}
	return names
}

// TestInnerValuesAreMatched: by a step for a batch, together with the outputs of a model without output_slices.
// The student's own values leave nothing unexplained.
func TestInnerValuesAreMatched(t *testing.T) {
	const samples = 2
	file := model(t, "dmonitoring")
	names := layers(t, file)
	weights := map[string]float64{"features:" + names[0]: 1, "features:" + names[len(names)-1]: 0.5}
	terms, err := Driving(file, nil)
	require.NoError(t, err)
	maps.Copy(weights, weightsOf(terms))
	terms, err = Driving(file, weights)
	require.NoError(t, err)
	assert.Len(t, terms.Inner(), 2)
	tr := step(t, "dmonitoring", "fp32", samples, terms)
	given(t, "dmonitoring", tr.Session(), samples)
	for _, name := range terms.Targets() {
		in := tr.Session().Input(dora.Target(name))
		require.NotEmpty(t, in, name)
		for i := 3; i < len(in); i += 8 { // every other number is 2
			in[i] = 0x40
		}
	}
	_, err = tr.Evaluate(context.Background())
	require.NoError(t, err)
	got := tr.Terms()
	require.Len(t, got, len(terms))
	for name, v := range got {
		assert.Positive(t, v, name)
	}
	assert.Contains(t, slices.Collect(maps.Keys(got)), "features:"+names[0])
}

// TestThePartOfAConcatenation: lies in one operand, or in none.
func TestThePartOfAConcatenation(t *testing.T) {
	g := ir.NewGraph("concatenated")
	first, second, third := g.AddInput("first", ir.T(ir.Float32, 1, 4)), g.AddInput("second", ir.T(ir.Float32, 1, 6)), g.AddInput("third", ir.T(ir.Float32, 1, 4))
	n, err := g.NewNode("Concat", "both", ir.Attrs{"axis": 1}, first, second, third)
	require.NoError(t, err)
	for _, c := range []struct {
		from, size int
		in         *ir.Value
		at         int
	}{{0, 4, first, 0}, {1, 3, first, 1}, {4, 6, second, 0}, {5, 2, second, 1}, {10, 4, third, 0}, {2, 4, nil, 0}, {2, 8, nil, 0}, {9, 3, nil, 0}} {
		in, at := concatenated(n, c.from, c.size)
		assert.True(t, in == c.in && at == c.at, "%d numbers from %d", c.size, c.from)
	}
	n, err = g.NewNode("Concat", "rows", ir.Attrs{"axis": 0}, first, third)
	require.NoError(t, err)
	in, _ := concatenated(n, 4, 4)
	assert.Equal(t, third, in)
}
