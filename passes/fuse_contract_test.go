package passes

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/internal/precision"
	"github.com/spark-compile/spark-compile/ir"
)

// requireContract holds every node of g against what docs/architecture.md ("Regions") promises the kernel families.
func requireContract(t testing.TB, g *ir.Graph) {
	t.Helper()
	for _, n := range g.Nodes {
		require.Equal(t, "Region", n.Op.Name, "node %q", n.Name)
		require.NoError(t, contract(n), "region %q in\n%s", n.Name, g)
	}
	for _, v := range g.Outputs {
		require.NotNil(t, v.Def, "output %%%s has no kernel", v.Name)
	}
}

func contract(n *ir.Node) error {
	b := n.Body
	if err := contractInputs(n); err != nil {
		return err
	}
	for _, v := range b.Outputs {
		if v.Type.Numel() != b.Outputs[0].Type.Numel() {
			return fmt.Errorf("outputs %v and %v", b.Outputs[0].Type, v.Type)
		}
	}
	switch family := n.Attrs.String("family", ""); family {
	case ir.FamilyView:
		return contractView(n)
	case ir.FamilyLoop:
		return contractLoop(b)
	default:
		return contractAnchor(b, family)
	}
}

func contractInputs(n *ir.Node) error {
	if len(n.Inputs) == 0 {
		return fmt.Errorf("no inputs")
	}
	seen := map[*ir.Value]bool{}
	values := 0
	for _, v := range n.Inputs {
		if seen[v] {
			return fmt.Errorf("input %%%s twice", v.Name)
		}
		seen[v] = true
		if !v.IsConst() {
			values++
		}
	}
	uses := n.Body.Uses()
	for _, v := range n.Body.Inputs {
		if len(uses[v]) == 0 {
			return fmt.Errorf("body input %%%s is not read", v.Name)
		}
	}
	for _, v := range n.Body.Constants() {
		if values > 0 && !isSplat(v.Const) {
			return fmt.Errorf("constant %v in the body", v.Type)
		}
	}
	return nil
}

func contractView(n *ir.Node) error {
	if n.Attrs.Int("members", 0) > 0 {
		return fmt.Errorf("a view with members")
	}
	if last := n.Body.Nodes[len(n.Body.Nodes)-1]; isFlatConcat(last) && len(n.Body.Nodes) == 1 {
		for _, v := range n.Inputs {
			if base := spanOf(v).base; base.Def == nil || isFamily(base.Def, ir.FamilyView) || base.Type.Numel() != v.Type.Numel() {
				return fmt.Errorf("a Concat in place of %%%s, which no kernel can write", v.Name)
			}
		}
		return nil
	}
	for _, m := range n.Body.Nodes {
		if !isViewNode(m) {
			return fmt.Errorf("%s in a view", m.Op.Name)
		}
	}
	return nil
}

func contractLoop(b *ir.Graph) error {
	heavy := 0
	for _, m := range b.Nodes {
		if m.Role() != ir.RoleLight {
			heavy++
		}
	}
	if heavy > 1 {
		return fmt.Errorf("%d heavy nodes", heavy)
	}
	return nil
}

func contractAnchor(b *ir.Graph, family string) error {
	want := map[string]ir.Role{ir.FamilyContraction: ir.RoleContraction, ir.FamilyWindow: ir.RoleWindow}[family]
	var anchor *ir.Node
	for _, m := range b.Nodes {
		switch r := m.Role(); {
		case r == want && anchor == nil:
			anchor = m
		case r != ir.RoleLight:
			return fmt.Errorf("%s beside the anchor", m.Op.Name)
		}
	}
	if anchor == nil || len(b.Outputs) != 1 {
		return fmt.Errorf("anchor %v, %d outputs", anchor, len(b.Outputs))
	}
	if anchor.Outputs[0].Type.DType != ir.Float32 {
		return fmt.Errorf("anchor of type %v", anchor.Outputs[0].Type)
	}
	before := map[*ir.Node]bool{anchor: true}
	operands := anchor.Op.Matrix
	if family == ir.FamilyWindow {
		operands = []int{0}
		if anchor.Op.Name == "Conv" {
			operands = []int{0, 1}
		}
	}
	for _, i := range operands {
		v := anchor.Inputs[i]
		for ; v.Def != nil; v = v.Def.Inputs[0] {
			m := v.Def
			before[m] = true
			switch {
			case m.Op.Name == "Cast" && m.Outputs[0].Type.DType == ir.Float32 && m.Inputs[0].Type.DType.Bits() == 16:
			case m.Op.Name == "Reshape", isFamilyMove(anchor, m):
			default:
				return fmt.Errorf("%s in front of the anchor", m.Op.Name)
			}
		}
		if v.IsConst() {
			return fmt.Errorf("operand %d is a constant of the body", i)
		}
	}
	transposed := false
	for _, m := range b.Nodes {
		if before[m] {
			continue
		}
		isSide := !dependsOn(m, anchor)
		switch {
		case m.Op.Name == "Cast", m.Op.Name == "Reshape":
		case m.Op.Name == "Transpose" && !isSide:
			transposed = transposed || !isViewNode(m)
		case m.Op.Pointwise() && !transposed:
		default:
			return fmt.Errorf("%s behind the anchor", m.Op.Name)
		}
		if !isSide && m.Outputs[0].Type.Numel() != anchor.Outputs[0].Type.Numel() {
			return fmt.Errorf("%s yields %v behind an anchor of %v", m.Op.Name, m.Outputs[0].Type, anchor.Outputs[0].Type)
		}
	}
	return nil
}

func isFamilyMove(anchor, m *ir.Node) bool {
	return anchor.Op.Name == "Attention" && slices.Contains([]string{"Transpose", "Slice"}, m.Op.Name)
}

func dependsOn(n, on *ir.Node) bool {
	if n == on {
		return true
	}
	for _, v := range n.Inputs {
		if v != nil && v.Def != nil && dependsOn(v.Def, on) {
			return true
		}
	}
	return false
}

// launches counts the regions that need a kernel.
func launches(g *ir.Graph) int {
	k := 0
	for _, n := range g.Nodes {
		if !isFamily(n, ir.FamilyView) {
			k++
		}
	}
	return k
}

func TestLaunchBudgets(t *testing.T) {
	for _, c := range []struct {
		model string
		want  int
	}{{"dmonitoring_model", 40}, {"driving_policy", 26}, {"driving_vision", 73}} {
		for _, precision := range []string{precision.FP32, precision.FP16} {
			t.Run(c.model+" "+precision, func(t *testing.T) {
				g := importShared(t, c.model)
				require.NoError(t, Run(&Context{Precision: precision}, g, nil, nil))
				requireContract(t, g)
				require.Equal(t, c.want, launches(g), "%s", g)
			})
		}
	}
}

// fusedTolerance is the relative L2 distance to a recorded float64 run that the final graph may have when it is
// evaluated as it is stored: f16 between regions.
var fusedTolerance = map[string]float64{"dmonitoring_model": 2.5e-3, "driving_policy": 1e-3, "driving_vision": 6e-3}

func TestRealModelsSurviveFusion(t *testing.T) {
	for _, name := range []string{"dmonitoring_model", "driving_policy", "driving_vision"} {
		t.Run(name, func(t *testing.T) {
			if testing.Short() && name == "driving_vision" {
				t.Skip("evaluates 1.9 GMAC")
			}
			g := importShared(t, name)
			require.NoError(t, Run(&Context{Precision: precision.FP16}, g, nil, nil))
			inputs, want := golden(t, g, name, 0)
			got, err := ir.EvaluateList(t.Context(), g, inputs, ir.EvalOptions{Round: true})
			require.NoError(t, err)
			distance := relativeL2(got[0].Floats(), want)
			t.Log("relative L2", distance)
			require.LessOrEqual(t, distance, fusedTolerance[name])
		})
	}
}
