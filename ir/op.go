package ir

import (
	"cmp"
	"fmt"
	types "reflect"
	"slices"
	"sort"
	"strings"
)

// Op is a row of the op table: everything the rest of the compiler knows about an operation.
type Op struct {
	Name    string
	Summary string // one line: what it computes, and the ONNX operator that it follows
	// In names the inputs and their element types, by default one, x, of any type: in "x number, w x, b? x" w and the
	// optional b have x's type. In "x* number" there are one or more, all of one type; in "x*" of any.
	In     string
	Inputs []Input  // In, parsed
	Out    []string // output names, by default one, y; '?' marks outputs that exist only if an attribute asks for them
	Attrs  []Attr
	Kind   Kind

	Commutative bool // the two operands may be swapped
	Exact       bool // of floats of one type the result is a value of that type: rounding to it changes nothing
	Steps       bool // a float whose value jumps where its operand moves a little, though it is stored in 16 bits or more; see Node.Steps
	ByAxis      bool // elementwise, but inputs after the first go by a dimension of the first instead of broadcasting
	Cost        int  // simple instructions an element; by default 1 for movement, else 8
	Rereads     bool // reads an element of its operand more than once: movement that repeats elements, reductions of several sweeps
	Bias        int  // input added to each output channel; 0: none
	// Fill is the attribute with what a movement puts where it takes no element of its inputs; "": 0, if anything.
	Fill string
	// Matrix lists the inputs that a contraction kernel multiplies: they may be narrow, the others may not.
	Matrix []int
	// Unscaled anchors read activations without a scale. It could not be applied after the anchor (Attention), or
	// would round small values that stay in f32 (SegmentedMatVec).
	Unscaled bool
	// Moved lists the movement ops besides Reshape that may stand between an operand and this anchor.
	Moved []string
	// Role, where Kind does not decide it, is what a node of the op may be within a region.
	Role func(n *Node) Role
	// Weights, of linear ops, is the geometry of a node's input 1; nil, or false for a node: it has no such weights.
	Weights func(n *Node) (Weights, bool)
	// MACs counts a node's multiply-accumulates; nil: none.
	MACs func(n *Node) int64

	// Infer is the shape and type rule. It may assume that inputs, but for their shapes, and attributes match the row.
	Infer func(n *Node) ([]Type, error)
	// Eval computes the op, simple rather than fast, accumulating in float64. Inputs are nil where absent. It returns
	// arrays of the inferred types; rounding to the element type is the evaluator's, not the row's.
	Eval func(n *Node, in []*Array) ([]*Array, error)
	// Expand is, for a composite op, its meaning in other ops, from which evaluation and lowering follow; Eval is
	// then nil. The values returned take the place of the outputs. Inputs are f32 or wider; see Node.Expand.
	Expand func(x *Expansion, n *Node) []*Value
	// Grad builds the gradients of the inputs from those of the outputs. A composite op without has those of what it
	// expands to, any other op none.
	Grad GradRule
	// Batch builds the node for a batch of samples. Pointwise ops need no rule; any other without is there once for
	// each sample.
	Batch BatchRule
	// Scalar is, for an elementwise op, its meaning on one element; Eval is then nil (the evaluator broadcasts). It is
	// used where an operand or the result is floating-point; bools are 0 and 1.
	Scalar func(n *Node, x []float64) float64
	// One and Two are Scalar of one or two operands where attributes play no part in it; Scalar follows from them.
	One func(x float64) float64
	Two func(a, b float64) float64
	// ScalarInt is the same where all operands and the result are integers or bools; the evaluator wraps the result to
	// the output's width. uint64 operands are their bits: the row looks at the operands' type where that matters.
	ScalarInt func(n *Node, x []int64) int64
}

// Input declares an input of an op.
type Input struct {
	Name     string
	Optional bool
	Variadic bool   // one or more; only the last
	Type     string // a class of element types, or an earlier input that has the same; "": any
}

// Attr declares an attribute of an op.
type Attr struct {
	Name     string
	Default  any // also fixes the kind: bool, int, float64, string, DType, []int, []float64, []string
	Required bool
	PerDim   bool // a list of one value for each dimension of the first input
	Axes     bool // its numbers are dimensions, of the first input
	Idle     int  // of a PerDim list: the value for a dimension that the node leaves as it is
}

// Size is the Idle value of an attribute that takes the dimension's size.
const Size = -1

// Kind groups ops by how passes and code generation may treat them.
type Kind uint8

// Kinds of ops.
const (
	KindElementwise Kind = iota // output element depends on the broadcast input elements of the same index
	KindMovement                // output elements are input elements (or a fill), index arithmetic only
	KindReduction               // ReduceX, ArgMax, Softmax, LayerNorm …: rows
	KindContraction             // MatMul, Conv, Attention …
	KindWindow                  // pools
	KindScan                    // CumSum, GRU, LSTM …: sequential along an axis
	KindOther                   // data-dependent indexing, sorting …
	KindRegion
)

var table = map[string]*Op{}

// register adds rows to the op table while package variables are initialised. Each ops_*.go file declares its rows as
// one slice: var _ = register(Op{…}, …).
func register(rows ...Op) bool {
	for i := range rows {
		r := &rows[i]
		if table[r.Name] != nil {
			panic("op declared twice: " + r.Name)
		}
		for _, p := range strings.Split(cmp.Or(r.In, "x"), ", ") {
			name, class, _ := strings.Cut(p, " ")
			r.Inputs = append(r.Inputs, Input{strings.TrimRight(name, "?*"), strings.HasSuffix(name, "?"), strings.HasSuffix(name, "*"), class})
		}
		switch {
		case r.One != nil:
			r.Scalar = func(_ *Node, x []float64) float64 { return r.One(x[0]) }
		case r.Two != nil:
			r.Scalar = func(_ *Node, x []float64) float64 { return r.Two(x[0], x[1]) }
		}
		if r.Out == nil {
			r.Out = []string{"y"}
		}
		if r.Cost == 0 {
			r.Cost = 8
			if r.Kind == KindMovement {
				r.Cost = 1
			}
		}
		table[r.Name] = r
	}
	return true
}

// Pointwise reports whether each output element depends on the operands' (broadcast) elements at its index alone, and
// no position matters to the op.
func (o *Op) Pointwise() bool { return o.Kind == KindElementwise && !o.ByAxis }

// Steps reports whether the least error of a floating-point operand may move the node's result by a whole step: it
// rounds, compares or counts.
func (n *Node) Steps() bool {
	if n.Op.Kind == KindMovement || len(n.Inputs) == 0 || n.Inputs[0] == nil || !n.Inputs[0].Type.DType.IsFloat() {
		return false
	}
	to := n.Outputs[0].Type.DType
	return n.Op.Steps || !to.IsFloat() || to.Bits() <= 8
}

// LookupOp returns the row, or nil.
func LookupOp(name string) *Op { return table[name] }

// Ops returns all rows, sorted by name.
func Ops() []*Op {
	var out []*Op
	for _, r := range table {
		out = append(out, r)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Name < out[j].Name })
	return out
}

// input is the declaration of input i.
func (o *Op) input(i int) Input { return o.Inputs[min(i, len(o.Inputs)-1)] }

// checkInputs checks number and element types of the node's inputs.
func (o *Op) checkInputs(n *Node) error {
	least := len(o.Inputs)
	var names []string
	for _, p := range o.Inputs {
		name := p.Name
		if p.Optional {
			least--
			name += "?"
		}
		names = append(names, name)
	}
	if len(n.Inputs) < least || len(n.Inputs) > len(o.Inputs) && !o.input(len(o.Inputs)).Variadic {
		return fmt.Errorf("%d inputs, want %v", len(n.Inputs), names)
	}
	for i, v := range n.Inputs {
		p := o.input(i)
		var err error
		switch like := slices.IndexFunc(o.Inputs, func(q Input) bool { return q.Name == p.Type }); {
		case v == nil && !p.Optional:
			err = fmt.Errorf("input %d is absent", i)
		case like >= 0:
			err = n.alike(like, i)
		case p.Variadic && p.Type != "":
			err = firstError(n.want(i, p.Type), n.alike(len(o.Inputs)-1, i))
		case p.Type != "":
			err = n.want(i, p.Type)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (o *Op) infer(n *Node) ([]Type, error) {
	if err := o.checkInputs(n); err != nil {
		return nil, err
	}
	if err := o.checkAttrs(n); err != nil {
		return nil, err
	}
	types, err := o.Infer(n)
	if err != nil {
		return nil, err
	}
	for i, t := range types {
		if err := CheckShape(t.Shape); err != nil {
			return nil, fmt.Errorf("output %d: %w", i, err)
		}
		types[i].Shape = slices.Clone(t.Shape) // rules may return an input's shape
	}
	return types, nil
}

func (o *Op) checkAttrs(n *Node) error {
	for _, a := range o.Attrs {
		v, ok := n.Attrs[a.Name]
		if !ok {
			if a.Required {
				return fmt.Errorf("attribute %q is missing", a.Name)
			}
			continue
		}
		if types.TypeOf(v) != types.TypeOf(a.Default) {
			return fmt.Errorf("attribute %q is a %T, want %T", a.Name, v, a.Default)
		}
		if a.PerDim {
			if got, want := len(n.Attrs.Ints(a.Name))+len(n.Attrs.Floats(a.Name)), n.Inputs[0].Type.Rank(); got != want {
				return fmt.Errorf("%s=%v, want %d values", a.Name, v, want)
			}
		}
	}
	var unknown []string
	for k := range n.Attrs {
		if o.attr(k) == nil {
			unknown = append(unknown, k)
		}
	}
	if len(unknown) > 0 {
		return fmt.Errorf("unknown attribute %q", slices.Min(unknown))
	}
	return nil
}

// HasAttr reports whether the row declares an attribute.
func (o *Op) HasAttr(name string) bool { return o.attr(name) != nil }

// attr returns the attribute's declaration, or nil.
func (o *Op) attr(name string) *Attr {
	for i := range o.Attrs {
		if o.Attrs[i].Name == name {
			return &o.Attrs[i]
		}
	}
	return nil
}

// Array is a tensor while it is evaluated: floating-point elements in F, integers and bools in I (uint64 as its bits).
// Exactly one of them is in use, by Type.DType.
type Array struct {
	Type
	F []float64
	I []int64
}

// As is the same numbers, of float element types, as elements of another; they are not rounded.
func (a *Array) As(d DType) *Array {
	if a.DType == d {
		return a
	}
	return &Array{Type: T(d, a.Shape...), F: a.F, I: a.I}
}

// NewArray returns a zeroed array of the type.
func NewArray(t Type) *Array {
	a := &Array{Type: t}
	if t.DType.IsFloat() {
		a.F = make([]float64, t.Numel())
	} else {
		a.I = make([]int64, t.Numel())
	}
	return a
}
