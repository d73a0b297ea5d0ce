package ir

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const diamond = `graph "diamond" {
  input %x: f32[2]
  const %c: f32[2] = [1, 2]
  %a: f32[2] = Exp(%x) "a"
  %b: f32[2] = Add(%a, %c) "b"
  %d: f32[2] = Mul(%a, %b) "d"
  %dead: f32[2] = Log(%a) "dead"
  output %d, %b
}`

func parsed(t *testing.T, text string) *Graph {
	t.Helper()
	g, err := Parse(text)
	require.NoError(t, err)
	return g
}

func TestUsesNameEveryReader(t *testing.T) {
	g := parsed(t, diamond)
	uses := g.Uses()
	a, b := g.Nodes[0].Outputs[0], g.Nodes[1].Outputs[0]
	assert.Equal(t, []Use{{g.Nodes[1], 0}, {g.Nodes[2], 0}, {g.Nodes[3], 0}}, uses[a])
	assert.Equal(t, []Use{{g.Nodes[2], 1}, {nil, 1}}, uses[b])
	assert.Len(t, g.Constants(), 1)
}

func TestReplaceAllAndRemoveDead(t *testing.T) {
	g := parsed(t, diamond)
	g.ReplaceAll(g.Nodes[1].Outputs[0], g.Inputs[0])
	assert.Equal(t, 2, g.RemoveDead(), "b and dead")
	require.NoError(t, g.Verify())
	want := parsed(t, "graph \"w\" {\n input %x: f32[2]\n %a: f32[2] = Exp(%x)\n %d: f32[2] = Mul(%a, %x)\n output %d, %x\n}")
	assert.Empty(t, g.Diff(want))
}

func TestSubstitute_FollowsReplacements(t *testing.T) {
	g := parsed(t, diamond)
	a, b, d := g.Nodes[0].Outputs[0], g.Nodes[1].Outputs[0], g.Nodes[2].Outputs[0]
	g.Substitute(map[*Value]*Value{d: b, b: a})
	assert.Equal(t, []*Value{a, a}, g.Outputs)
}

func TestToposortKeepsOrderWherePossible(t *testing.T) {
	g := parsed(t, diamond)
	n := g.Nodes
	g.Nodes = []*Node{n[2], n[3], n[1], n[0]}
	require.ErrorContains(t, g.Verify(), `node 0 "d" (Mul): input 0: %a is read before it is defined`)
	require.NoError(t, g.Toposort())
	assert.Equal(t, []*Node{n[0], n[1], n[2], n[3]}, g.Nodes)

	n[0].Inputs[0] = n[2].Outputs[0]
	assert.EqualError(t, g.Toposort(), `cycle through node "a" (Exp) and %a`)
}

func TestCloneSharesNothingThatChanges(t *testing.T) {
	g := parsed(t, sample)
	c := g.Clone()
	require.NoError(t, c.Verify())
	assert.Empty(t, g.Diff(c))
	c.Nodes[0].Attrs["group"] = 2
	c.Nodes[4].Region.Body.Nodes[0].Name = "changed"
	c.Inputs[0].Type.Shape[0] = 9
	c.Meta["checkpoint"] = "other"
	assert.Equal(t, sample, g.String())
}

func TestDiffSeesWhatDiffers(t *testing.T) {
	for _, c := range []struct {
		name string
		edit func(g *Graph)
		want string
	}{
		{"attribute", func(g *Graph) { g.Nodes[3].Attrs["epsilon"] = 1e-6 }, `node 3 "norm" (LayerNorm): attributes`},
		{"constant", func(g *Graph) { g.Nodes[0].Inputs[1].Const = Splat(T(Float16, 2, 2, 1, 1), 1) }, "input 1 differs"},
		{"wiring", func(g *Graph) { g.Outputs[0] = g.Nodes[3].Outputs[0] }, "output 0"},
		{"body", func(g *Graph) { g.Nodes[4].Region.Body.Nodes[0].Op = LookupOp("Mul") }, "against Mul"},
		{"nothing that matters", func(g *Graph) { g.Nodes[0].Name = "other"; g.Inputs[0].Name = "renamed" }, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			g, h := parsed(t, sample), parsed(t, sample)
			c.edit(h)
			if c.want == "" {
				assert.Empty(t, g.Diff(h))
				return
			}
			assert.Contains(t, g.Diff(h), c.want)
		})
	}
}

func TestVerifyFindsEveryDamage(t *testing.T) {
	for _, c := range []struct {
		name   string
		damage func(g *Graph)
		want   string
	}{
		{"a name twice", func(g *Graph) { g.Nodes[2].Outputs[0].Name = "x" }, "output 0: two values are named %x"},
		{"an empty name", func(g *Graph) { g.Inputs[0].Name = "" }, `input 0: "" is not a valid value name`},
		{"a stale type", func(g *Graph) { g.Nodes[2].Outputs[0].Type = T(Float16, 1, 2, 2, 2) }, "output 0 is f16[1,2,2,2], the op yields f32[1,2,2,2]"},
		{"a foreign definition", func(g *Graph) { g.Nodes[2].Outputs[0].Def = g.Nodes[1] }, "output 0 does not refer back to the node"},
		{"a wrong index", func(g *Graph) { g.Nodes[1].Outputs[1].Index = 0 }, "output 1 does not refer back to the node"},
		{"a missing output", func(g *Graph) { g.Nodes[1].Outputs = g.Nodes[1].Outputs[:1] }, "1 outputs, the op has 2"},
		{"an undefined value", func(g *Graph) { g.Nodes[2].Inputs[0] = &Value{Name: "z", Type: T(Float32)} }, "%z is read before it is defined, or is not defined"},
		{"an absent input", func(g *Graph) { g.Nodes[2].Inputs[0] = nil }, "input 0 is absent"},
		{"a foreign row", func(g *Graph) { op := *g.Nodes[2].Op; g.Nodes[2].Op = &op }, "its op is not in the op table"},
		{"an unknown attribute", func(g *Graph) { g.Nodes[2].Attrs["slope"] = 1 }, `unknown attribute "slope"`},
		{"short data", func(g *Graph) { c := g.Nodes[0].Inputs[1].Const; c.Data = c.Data[1:] }, "constant %w~1 is f16[2,2,1,1] with 7 bytes of data, want 8"},
		{"a constant of another type", func(g *Graph) { g.Nodes[0].Inputs[1].Type = T(Float16, 4) }, "constant %w~1 is f16[4], its data f16[2,2,1,1]"},
		{"a lost body", func(g *Graph) { g.Nodes[4].Region = nil }, "exactly the Region nodes must have a body"},
		{"damage in a body", func(g *Graph) { g.Nodes[4].Region.Body.Nodes[0].Outputs[0].Index = 1 }, `node 4 "fused" (Region): body: node 0 "" (Add): output 0 does not refer back`},
		{"a body of other types", func(g *Graph) { g.Nodes[4].Region.Body.Inputs[0].Type = T(Float32, 2, 2, 2) }, "input 0 is f32[1,2,2,2], its body wants f32[2,2,2]"},
		{"an output of nothing", func(g *Graph) { g.Outputs[0] = nil }, "output 0 is absent"},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := parsed(t, sample)
			require.NoError(t, g.Verify())
			c.damage(g)
			assert.ErrorContains(t, g.Verify(), c.want)
		})
	}
}
