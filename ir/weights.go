package ir

// Weights says how the weights of a linear op, its input 1, connect the channels of its input 0 with those of its
// output. Their shape is [Rows, Columns, taps…], perhaps with leading dimensions of 1.
type Weights struct {
	Rows, Columns, Taps int
	// ByOutput: each row belongs to an output channel, and columns are the input channels of its group. Otherwise
	// rows are input channels, and columns the output channels of their group.
	ByOutput bool
	Group    int
	RowAxis  int // the weights' dimension of rows; that of columns is the next one
	// InAxis is input 0's dimension of channels, or -1 if each row reads a part of input 0 of its own.
	InAxis int
}

// Weights returns the geometry of n's weights; ok is false if n has none.
func (n *Node) Weights() (w Weights, ok bool) {
	if n.Op.Weights == nil {
		return Weights{}, false
	}
	return n.Op.Weights(n)
}

// Outputs is the number of output channels.
func (w Weights) Outputs() int {
	if w.ByOutput {
		return w.Rows
	}
	return w.Columns * w.Group
}

// Inputs is the number of input channels.
func (w Weights) Inputs() int {
	w.ByOutput = !w.ByOutput
	return w.Outputs()
}

// OutputAxis is the weights' dimension along which output channels lie.
func (w Weights) OutputAxis() int {
	if w.ByOutput {
		return w.RowAxis
	}
	return w.RowAxis + 1
}

// InputAxis is the weights' dimension along which the input channels of a group lie.
func (w Weights) InputAxis() int {
	w.ByOutput = !w.ByOutput
	return w.OutputAxis()
}

// Output is the output channel of weight i.
func (w Weights) Output(i int) int {
	row, column := i/w.Taps/w.Columns, i/w.Taps%w.Columns
	if w.ByOutput {
		return row
	}
	return row/(w.Rows/w.Group)*w.Columns + column
}

// Input is the input channel of weight i.
func (w Weights) Input(i int) int {
	w.ByOutput = !w.ByOutput
	return w.Output(i)
}

func matMulWeights(n *Node) (Weights, bool) {
	a, b := n.Inputs[0].Type, n.Inputs[1].Type
	axis := b.Rank() - 2
	if axis < 0 || (Type{Shape: b.Shape[:axis]}).Numel() != 1 {
		return Weights{}, false
	}
	in := a.Rank() - 1
	if n.Attrs.Bool("transA") {
		in--
	}
	return Weights{Rows: b.Shape[axis], Columns: b.Shape[axis+1], Taps: 1, Group: 1, RowAxis: axis, ByOutput: n.Attrs.Bool("transB"), InAxis: in}, true
}

func convWeights(n *Node) (Weights, bool) {
	shape := n.Inputs[1].Type.Shape
	taps := Type{Shape: shape[2:]}.Numel()
	return Weights{Rows: shape[0], Columns: shape[1], Taps: taps, Group: n.Attrs.Int("group", 1), ByOutput: true, InAxis: n.ChannelAxis()}, true
}

func convTransposeWeights(n *Node) (Weights, bool) {
	w, ok := convWeights(n)
	w.ByOutput = false
	return w, ok
}

func segmentedMatVecWeights(n *Node) (Weights, bool) {
	shape := n.Inputs[1].Type.Shape
	return Weights{Rows: shape[0], Columns: shape[1], Taps: 1, Group: 1, ByOutput: true, InAxis: -1}, true
}
