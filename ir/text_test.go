package ir

import (
	"bytes"
	"fmt"
	"math"
	"math/rand"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func full(t testing.TB, g *Graph) string {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, g.Print(&b, PrintOptions{Full: true}))
	return b.String()
}

const sample = `graph "sample" {
  meta "checkpoint" = "a\nb"
  input %x: f16[1,2,4,4]
  input %"a b:0": i64[3]
  const %w~1: f16[2,2,1,1] = [1, -0.5, 0.1, bits:0x7e00]
  const %b~2: f16[2] = splat 0.25
  %y~3: f16[1,2,4,4] = Conv(%x, %w~1, %b~2) {dilations=[1,1], group=1, pads=[0,0,0,0], strides=[1,1]} "/stem/Conv \"0\""
  %p~4: f16[1,2,2,2], %i~5: i64[1,2,2,2] = MaxPool(%y~3) {dilations=[1,1], indices=true, kernel=[2,2], pads=[0,0,0,0], strides=[2,2]}
  %c~6: f32[1,2,2,2] = Cast(%p~4) {to=f32}
  const %m~7: f32[1] = [inf]
  %l~8: f32[1,2,2,2] = LayerNorm(%c~6, _, %m~7) {axis=1, epsilon=1e-05} "norm"
  const %s~9: f32[2,1,2,2,2] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 3.4028235e+38]
  %r~10: f32[2,1,2,2,2] = Region(%l~8, %s~9) {family="loop", members=2} "fused" graph "body" {
    input %l: f32[1,2,2,2]
    input %s: f32[1,2,2,2]
    operand 1: f32 stacked
    %t~1: f32[1,2,2,2] = Add(%l, %s)
    output %t~1
  }
  output %r~10, %"a b:0", %r~10
}
`

func TestTextReadsLikeTheGraph(t *testing.T) {
	g, err := Parse(sample)
	require.NoError(t, err)
	assert.Equal(t, sample, g.String())
	h, err := Parse(full(t, g))
	require.NoError(t, err)
	assert.Empty(t, g.Diff(h))
	assert.Equal(t, g.Meta, h.Meta)
	assert.Equal(t, "z~11", g.Fresh("z"), "names of the text are not given again")
}

func TestParseSaysWhatIsWrong(t *testing.T) {
	line := func(s string) string { return "graph \"g\" {\n  input %x: f32[2,3]\n  " + s + "\n  output %x\n}" }
	for _, c := range []struct{ text, want string }{
		{"", "line 1: the text ends, want \"graph\""},
		{line("%y: f32[2,3] = Nope(%x)"), `line 3: no op "Nope"`},
		{line("input %s: f32[2] delay 5000"), "line 3: a delay of 5000 runs: want 0 to 4096"},
		{line("input %s: f32[2] sample [1.0,no]"), `line 3: strconv.ParseFloat: parsing "no": invalid syntax`},
		{line("%y: f32[2] = Relu(%x)"), "line 3: %y is declared f32[2], Relu yields [f32[2,3]]"},
		{line("%y: f32[2,3] = Relu(%z)"), "line 3: %z is not defined"},
		{line("%x: f32[2,3] = Relu(%x)"), "line 3: %x is defined twice"},
		{line("%y: f32[2,3] = Relu(%x) {slope=1}"), `line 3: Relu has no attribute "slope"`},
		{line("%y: f32[2,3] = Softmax(%x) {axis=one}"), `line 3: attribute "axis": strconv.Atoi: parsing "one": invalid syntax`},
		{line("%y: f32[3,3] = Softmax(%x)"), `line 3: Softmax: attribute "axis" is missing`},
		{line("const %c: f32[2] = [1]"), "line 3: constant %c: 1 elements for f32[2]"},
		{line("const %c: i8[1] = [200]"), `line 3: constant %c: "200" is no i8`},
		{line("const %c: f32[99] = sha256:00"), "line 3: constant %c: its data was printed as a hash: print the graph with full constants (spark opt --full)"},
		{line("%y: f32[2,3] = Region(%x) {family=\"loop\"}"), "line 3: Region: it has no body"},
		{"graph \"g\" {\n  input %x: f9[2]", "line 2: unknown element type \"f9\""},
		{"graph \"g\" {\n  input %x: f32[99999999999,99999999999]", "line 2: shape [99999999999 99999999999] has more than 2^40 elements"},
	} {
		_, err := Parse(c.text)
		assert.EqualError(t, err, c.want, "%s", c.text)
	}
}

// randomGraph strings random ops together; nested adds regions.
func randomGraph(rng *rand.Rand, nested bool) *Graph {
	g := NewGraph(fmt.Sprintf("g%d", rng.Intn(100)))
	if rng.Intn(2) == 0 {
		g.Meta["k\"ey"] = "välue\x00\xff"
	}
	floatTypes := []DType{Float16, BFloat16, Float32, Float64, Float8E4M3FN, Float4E2M1}
	d := floatTypes[rng.Intn(len(floatTypes))]
	values := []*Value{g.AddInput("x", T(d, 2, 3)), g.AddInput("in put/0:1", T(d, 3))}
	if rng.Intn(2) == 0 {
		values[0].Delay, values[1].Sample = rng.Intn(5), []float64{rng.NormFloat64(), 0, -3}
	}
	pick := func() *Value { return values[rng.Intn(len(values))] }
	add := func(op string, attrs Attrs, in ...*Value) {
		if n, err := g.Add(op, fmt.Sprintf("/n%d", len(g.Nodes)), attrs, in...); err == nil {
			values = append(values, n.Outputs...)
		}
	}
	random := func(n int) *Tensor {
		if !nested { // a region's constants are splats
			return Splat(T(d, n), rng.NormFloat64())
		}
		data := make([]byte, T(d, n).Bytes())
		rng.Read(data)
		if d.Bits() < 8 && n%2 == 1 {
			data[len(data)-1] &= 0x0F
		}
		return &Tensor{Type: T(d, n), Data: data}
	}
	for range 12 {
		switch rng.Intn(8) {
		case 0:
			add("Add", nil, pick(), g.Constant("c", random(3)))
		case 1:
			add("Mul", nil, pick(), g.Constant("s", Splat(T(d), rng.NormFloat64())))
		case 2:
			add("Gelu", Attrs{"sqrt2": rng.NormFloat64(), "tanh": rng.Intn(2) == 0}, pick())
		case 3:
			add("Clip", nil, pick())
		case 4:
			add("Concat", Attrs{"axis": 0}, pick(), pick(), g.Constant("big", random(40)))
		case 5:
			add("Cast", Attrs{"to": d, "round": "up"}, pick())
		case 6:
			add("TopK", Attrs{"k": 1, "axis": pick().Type.Rank() - 1}, values[0])
		case 7:
			if nested {
				body := randomGraph(rng, false)
				body.Inputs[0].Type, body.Inputs[1].Type = body.Inputs[0].Type.Clone(), body.Inputs[1].Type.Clone()
				x, y := g.AddInput(g.Fresh("rx"), body.Inputs[0].Type), g.AddInput(g.Fresh("ry"), body.Inputs[1].Type)
				if n, err := g.NewRegion(FamilyLoop, "r", body, x, y); err == nil && n.contract() == nil {
					g.Nodes = append(g.Nodes, n)
					values = append(values, n.Outputs...)
				}
			}
		}
	}
	g.Outputs = []*Value{pick(), pick(), values[len(values)-1]}
	return g
}

func TestEveryGraphSurvivesPrintAndParse(t *testing.T) {
	rng := rand.New(rand.NewSource(5))
	regions := 0
	for range 300 {
		g := randomGraph(rng, true)
		require.NoError(t, g.Verify())
		for _, n := range g.Nodes {
			if n.Region != nil {
				regions++
			}
		}
		text := full(t, g)
		h, err := Parse(text)
		require.NoError(t, err, "%s", text)
		require.Empty(t, g.Diff(h), "%s", text)
		require.Equal(t, text, full(t, h), "names, metadata and node names too")
		c := g.Clone()
		require.NoError(t, c.Verify())
		require.Equal(t, text, full(t, c))
	}
	require.Greater(t, regions, 20)
}

func TestElementsPrintExactly(t *testing.T) {
	for _, d := range []DType{Float16, BFloat16, Float8E4M3FN, Float8E4M3FNUZ, Float8E5M2, Float8E5M2FNUZ, Float8E8M0, Float4E2M1, Int2, Uint4, Int8} {
		for code := range uint64(1) << d.Bits() {
			text := elementText(d, code)
			bits, err := elementBits(d, text)
			if err != nil || bits != code {
				t.Fatalf("%v %#x prints as %s, which reads as %#x, %v", d, code, text, bits, err)
			}
		}
	}
	for _, x := range []float64{0, math.Copysign(0, -1), 1, 0.1, math.Pi, 1e300, 5e-324, math.Inf(-1), math.NaN()} {
		bits, err := elementBits(Float64, floatText(x))
		assert.NoError(t, err)
		assert.Equal(t, math.Float64bits(x), bits)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(sample)
	f.Add(strings.ReplaceAll(sample, "f16", "e4m3"))
	f.Fuzz(func(t *testing.T, text string) {
		g, err := Parse(text)
		if err != nil {
			return
		}
		h, err := Parse(full(t, g))
		if err != nil {
			t.Fatal(err)
		}
		if d := g.Diff(h); d != "" {
			t.Fatal(d)
		}
	})
}
