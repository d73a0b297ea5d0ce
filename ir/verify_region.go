package ir

import (
	"fmt"
	"slices"
)

// Families of regions, each with what a body of it may hold.
const (
	FamilyContraction = "contraction"
	FamilyLoop        = "loop"
	FamilyWindow      = "window"
	FamilyView        = "view"
	FamilyFused       = "chain"
)

var contracts = map[string]func(r *Region) error{
	FamilyContraction: func(r *Region) error { return r.anchorContract(RoleContraction) },
	FamilyLoop:        (*Region).loopContract,
	FamilyWindow:      func(r *Region) error { return r.anchorContract(RoleWindow) },
	FamilyView:        (*Region).viewContract,
	FamilyFused:       (*Region).fusedContract,
}

// contract checks what kernels rely on beyond types (docs/design/regions.md): what a body of each family may hold,
// and which operands and results may be stored how.
func (n *Node) contract() error {
	if len(n.Inputs) == 0 {
		return fmt.Errorf("it has no inputs")
	}
	r := n.Region
	uses := r.Body.Uses()
	for i, v := range r.Body.Inputs {
		if len(uses[v]) == 0 {
			return fmt.Errorf("operand %d is not read", i)
		}
	}
	variable := slices.ContainsFunc(n.Inputs, func(v *Value) bool { return !v.IsConst() })
	for _, v := range r.Body.Constants() {
		if variable && !v.Const.Splat && v.Type.Numel() > 1 {
			return fmt.Errorf("constant %%%s %v stands in the body: it must be an operand", v.Name, v.Type)
		}
	}
	if err := r.storage(); err != nil {
		return err
	}
	return contracts[r.Family](r)
}

// storage checks what no kernel could read or write.
func (r *Region) storage() error {
	if r.Family == FamilyView {
		return r.viewStorage()
	}
	a := r.Anchor()
	for i, o := range r.Operands {
		scaled := o.PerChannel || o.Block > 0 || o.Factor() != 1 || o.Read.DType != Invalid
		switch {
		case o.SplitTerms != 0:
			return fmt.Errorf("operand %d is stored in %d terms: only what an anchor sees is", i, o.SplitTerms)
		case o.Read.SplitTerms != 0 && o.Read.SplitTerms != 2:
			return fmt.Errorf("operand %d is read in %d terms, not in 2", i, o.Read.SplitTerms)
		case !scaled:
		case (o.PerChannel || o.Block > 0 || o.Read.DType != Invalid) && (a == nil || r.ReadByEpilogue(i)):
			return fmt.Errorf("operand %d, stored as %v, is read by other nodes than the anchor", i, o.Storage)
		case o.PerChannel && (len(a.Inputs) < 2 || a.Inputs[1] != r.Body.Inputs[i]):
			return fmt.Errorf("operand %d has scales of channels, but is not the anchor's weights", i)
		case !o.PerChannel && r.ReadByPrologue(i) && a.Op.Unscaled:
			return fmt.Errorf("%s cannot read operand %d, stored as %v", a.Op.Name, i, o.Storage)
		}
	}
	for i, s := range r.Results {
		switch {
		case s.SplitTerms != 0:
			return fmt.Errorf("result %d is stored in %d terms: only what an anchor sees is", i, s.SplitTerms)
		case s.PerChannel:
			return fmt.Errorf("result %d has scales of channels", i)
		case s.Block > 0 && (len(r.Results) > 1 || s.BlockAxis != r.Body.Outputs[i].Type.Rank()-1):
			return fmt.Errorf("result %d, stored as %v, is not the only one in blocks of its last dimension", i, s)
		}
	}
	return nil
}

// viewStorage: operands and result are stored alike, since their bytes are the same.
func (r *Region) viewStorage() error {
	s := r.Results[0]
	for i, o := range r.Operands {
		if o.Block > 0 {
			o.BlockAxis = s.BlockAxis
		}
		if o.Storage != s || o.Read.DType != Invalid || s.PerChannel {
			return fmt.Errorf("operand %d of a view is stored as %v, its result as %v", i, o.Storage, s)
		}
	}
	return nil
}

// viewContract: a sequence of nodes that rename or cut the bytes of one operand, or one Concat of adjacent operands.
func (r *Region) viewContract() error {
	if r.Members > 0 || len(r.Results) > 1 {
		return fmt.Errorf("a view with members or several results")
	}
	stored, err := r.storedView()
	if err != nil {
		return err
	}
	for _, m := range stored.Body.Nodes {
		if !m.IsView() && !(m.IsFlatConcat() && len(r.Body.Nodes) == 1) {
			return fmt.Errorf("%s in a view", m.Op.Name)
		}
	}
	return nil
}

// loopContract: at most one node is more than index arithmetic and scalar functions, and all results have as many
// elements.
func (r *Region) loopContract() error {
	heavy := 0
	for _, m := range r.Body.Nodes {
		if m.Role() != RoleLight {
			heavy++
		}
	}
	if heavy > 1 {
		return fmt.Errorf("%d heavy nodes", heavy)
	}
	for _, v := range r.Body.Outputs {
		if v.Type.Numel() != r.Body.Outputs[0].Type.Numel() {
			return fmt.Errorf("results %v and %v", r.Body.Outputs[0].Type, v.Type)
		}
	}
	return nil
}

// anchorContract: one f32 anchor, whose matrices are operands or movements of them, followed by elementwise nodes.
func (r *Region) anchorContract(want Role) error {
	anchor := r.Anchor()
	if anchor == nil || anchor.Role() != want {
		return fmt.Errorf("no anchor")
	}
	for _, m := range r.Body.Nodes {
		if m != anchor && m.Role() != RoleLight && !r.isSumOfRows(m, anchor) {
			return fmt.Errorf("%s cannot share a region with the anchor", m.Op.Name)
		}
	}
	if len(r.Results) != 1 && r.Family != FamilyContraction {
		return fmt.Errorf("%d results", len(r.Results))
	}
	prologue := map[*Node]bool{anchor: true}
	for _, k := range r.matrices(anchor) {
		_, path, ok := r.Source(anchor.Inputs[k])
		if !ok {
			return fmt.Errorf("the anchor's %s is computed before it", anchor.Op.Inputs[k].Name)
		}
		for _, m := range path {
			if m.Op.Name != "Reshape" && !slices.Contains(anchor.Op.Moved, m.Op.Name) {
				return fmt.Errorf("%s before the anchor", m.Op.Name)
			}
			prologue[m] = true
		}
	}
	return r.epilogueContract(anchor, prologue)
}

// matrices are the anchor's inputs that kernels feed straight from memory.
func (r *Region) matrices(anchor *Node) []int {
	switch {
	case r.Family == FamilyContraction:
		return anchor.Op.Matrix
	case len(anchor.Inputs) > 1: // weights of a depthwise convolution
		return []int{0, 1}
	}
	return []int{0}
}

// isSumOfRows reports whether a node sums parts [parts, rows, channels] of a value after a contraction for a result.
func (r *Region) isSumOfRows(n, anchor *Node) bool {
	y := anchor.Outputs[0].Type
	return n.Op.Name == "ReduceSum" && r.Family == FamilyContraction && slices.Contains(r.Body.Outputs, n.Outputs[0]) &&
		n.Inputs[0].Type.Rank() == 3 && n.Inputs[0].Type.Shape[2] == y.Shape[y.Rank()-1] && slices.Equal(n.Attrs.Ints("axes"), []int{1})
}

// epilogueContract: the anchor is followed by elementwise nodes of its size, Reshape, and finally Transpose and Cast.
func (r *Region) epilogueContract(anchor *Node, prologue map[*Node]bool) error {
	depends := map[*Value]bool{anchor.Outputs[0]: true}
	transposed := false
	for _, m := range r.Body.Nodes {
		if prologue[m] {
			continue
		}
		after := slices.ContainsFunc(m.Inputs, func(v *Value) bool { return depends[v] })
		for _, v := range m.Outputs {
			depends[v] = depends[v] || after
		}
		switch {
		case r.isSumOfRows(m, anchor):
			continue
		case m.Op.Name == "Cast", m.Op.Name == "Reshape":
		case m.Op.Name == "Transpose" && after:
			transposed = transposed || !m.IsView()
		case m.Op.Pointwise() && !transposed:
		default:
			return fmt.Errorf("%s after the anchor", m.Op.Name)
		}
		if after && m.Outputs[0].Type.Numel() != anchor.Outputs[0].Type.Numel() {
			return fmt.Errorf("%s yields %v after an anchor of %v", m.Op.Name, m.Outputs[0].Type, anchor.Outputs[0].Type)
		}
	}
	for i, v := range r.Body.Outputs {
		if !depends[v] {
			return fmt.Errorf("result %d does not depend on the anchor", i)
		}
	}
	return nil
}
