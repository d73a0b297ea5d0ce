package tinyphysics

import (
	"math"

	"github.com/spark-compile/spark-compile/codegen"
	"github.com/spark-compile/spark-compile/internal/compile"
	"github.com/spark-compile/spark-compile/internal/precision"
	"github.com/spark-compile/spark-compile/ir"
)

// Constants of the controls challenge, version 2 (tinyphysics.py, controllers/pid.py).
const (
	window     = 20   // rows that the network sees
	features   = 4    // of a row: steer, roll, speed, acceleration
	vocabulary = 1024 // tokens

	ControlStart = 100 // the row from which the controller steers and the vehicle responds
	CostEnd      = 500 // the row after the last that costs count

	maxLataccel = 5.0 // m/s², of a token
	maxSteer    = 2.0
	maxChange   = 0.5 // m/s² from row to row
	rowSeconds  = 0.1
	temperature = 0.8

	proportional, integral, derivative = 0.195, 0.100, -0.053 // PID gains

	lataccelWeight = 50.0 // of the lateral cost in the total
	costScale      = 100.0
)

// Names of the network's inputs and output.
const (
	networkStates = "states" // f32 [N, 20, 4]
	networkTokens = "tokens" // i64 [N, 20]
	networkOutput = "output" // f32 [N, 20, 1024]
)

// Inputs of a step. All but the row are f64 [N].
const (
	inputRow      = "row" // i32: the index of the row
	inputRoll     = "roll"
	inputSpeed    = "v"
	inputAccel    = "a"
	inputTarget   = "target"
	inputSteerLog = "steer_log"
	inputUniform  = "uniform"
)

// Outputs of a step: f64 [N], tokens i64 [N].
const (
	outputSteer        = "steer"
	outputLataccel     = "lataccel"
	outputToken        = "token"
	outputLataccelCost = "lataccel_cost"
	outputJerkCost     = "jerk_cost"
	outputTotalCost    = "total_cost"
)

// What a drive keeps. Every value is set anew in the first rows, so a program may begin another drive at row 0 at any
// time.
const (
	keptHistory    = "history"      // f32 [N, 20, 4]: rows before this one
	keptTokens     = networkTokens  // i64 [N, 20]: of the lateral accelerations before this row
	keptCurrent    = "current"      // f64 [N]: the lateral acceleration of the row before, m/s²
	keptErrorSum   = "error_sum"    // f64 [N]
	keptError      = "error_before" // f64 [N]
	keptLateralSum = "lateral_sum"  // f64 [N]: of squared errors, (m/s²)²
	keptJerkSum    = "jerk_sum"     // f64 [N]: of squared jerks, (m/s³)²
)

// logits is what the network gives at its last position, f32 [N, 1024].
const logits = "logits"

// step is an entry that is being built.
type step struct {
	batch int
	entry *compile.Entry
	g     *ir.Graph
	x     *ir.Expansion
	row   *ir.Value
}

// part appends a graph that build makes, whose values keep their types.
func (s *step) part(name string, build func()) error {
	s.g = ir.NewGraph(name)
	s.entry.Parts = append(s.entry.Parts, compile.Part{Graph: s.g, Precision: precision.File})
	err := s.g.Build(name, func(x *ir.Expansion) {
		s.x, s.row = x, s.g.AddInput(inputRow, ir.T(ir.Int32))
		build()
	})
	if err != nil {
		return err
	}
	return s.g.Verify()
}

func (s *step) op(name string, in ...*ir.Value) *ir.Value { return s.x.Add(name, nil, in...) }

func (s *step) number(x float64) *ir.Value { return s.x.Constant(ir.ScalarFloat(ir.Float64, x)) }

func (s *step) cast(v *ir.Value, to ir.DType) *ir.Value {
	return s.x.Add("Cast", ir.Attrs{"to": to}, v)
}

// each is an input with a number for each drive.
func (s *step) each(name string) *ir.Value { return s.g.AddInput(name, ir.T(ir.Float64, s.batch)) }

// before reports whether the row is one before the given one.
func (s *step) before(row int) *ir.Value {
	return s.op("Less", s.row, s.x.Constant(ir.ScalarInt(ir.Int32, int64(row))))
}

func (s *step) clip(v, low, high *ir.Value) *ir.Value { return s.op("Min", s.op("Max", v, low), high) }

func (s *step) output(name string, v *ir.Value) {
	v.Name = name
	s.g.Outputs = append(s.g.Outputs, v)
}

// keep makes an output the value that an input has in the next row.
func (s *step) keep(input, output string, next *ir.Value) {
	s.output(output, next)
	s.entry.States = append(s.entry.States, codegen.StateBinding{Input: input, Output: output})
}

// push drops the oldest row of a history [N, 20, …] and appends one.
func (s *step) push(old, row *ir.Value) *ir.Value {
	starts, sizes := make([]int, old.Type.Rank()), append([]int(nil), old.Type.Shape...)
	starts[1], sizes[1] = 1, window-1
	kept := s.x.Add("Slice", ir.Attrs{"starts": starts, "sizes": sizes}, old)
	return s.x.Add("Concat", ir.Attrs{"axis": 1}, kept, row)
}

// control computes the steer command and appends the row to what the network sees. The controller begins at row 20.
func (s *step) control() {
	target := s.each(inputTarget)
	begins, zero := s.before(window), s.number(0)
	deviation := s.op("Sub", target, s.each(keptCurrent))
	sum := s.op("Add", s.each(keptErrorSum), deviation)
	change := s.op("Sub", deviation, s.each(keptError))
	pid := s.op("Add", s.op("Mul", s.number(proportional), deviation), s.op("Mul", s.number(integral), sum))
	pid = s.op("Add", pid, s.op("Mul", s.number(derivative), change))
	log := s.each(inputSteerLog)
	steer := s.op("Where", s.before(ControlStart), log, pid)
	steer = s.op("Where", begins, log, s.clip(steer, s.number(-maxSteer), s.number(maxSteer)))
	s.keep(keptErrorSum, "next:"+keptErrorSum, s.op("Where", begins, zero, sum))
	s.keep(keptError, "next:"+keptError, s.op("Where", begins, zero, deviation))

	var columns []*ir.Value
	for _, v := range []*ir.Value{steer, s.each(inputRoll), s.each(inputSpeed), s.each(inputAccel)} {
		columns = append(columns, s.x.Reshape(v, s.batch, 1, 1))
	}
	row := s.cast(s.x.Add("Concat", ir.Attrs{"axis": 2}, columns...), ir.Float32)
	s.keep(keptHistory, networkStates, s.push(s.g.AddInput(keptHistory, ir.T(ir.Float32, s.batch, window, features)), row))
	s.output(outputSteer, steer)
}

// respond samples the next lateral acceleration from the network's logits, limits it and adds to the costs.
func (s *step) respond() {
	target, current := s.each(inputTarget), s.each(keptCurrent)
	token, fails := s.sample(s.each(inputUniform))
	s.output(outputToken, token)
	change := s.number(maxChange)
	next := s.x.Add("Gather", nil, s.bins(), token)
	next = s.clip(next, s.op("Sub", current, change), s.op("Add", current, change))
	next = s.op("Where", fails, s.number(math.NaN()), next)
	next = s.op("Where", s.before(ControlStart), target, next)
	tokens := s.g.AddInput(keptTokens, ir.T(ir.Int64, s.batch, window))
	s.keep(keptTokens, "next:"+keptTokens, s.push(tokens, s.x.Reshape(s.token(next), s.batch, 1)))
	s.costs(target, current, next)
	s.keep(keptCurrent, outputLataccel, next)
}

// sample draws a token: the first whose cumulative probability is above the uniform number, i64 [N]. It fails for a
// drive whose logits are not finite.
func (s *step) sample(uniform *ir.Value) (token, fails *ir.Value) {
	last := ir.Attrs{"axes": []int{1}, "keepdims": true}
	y := s.g.AddInput(logits, ir.T(ir.Float32, s.batch, vocabulary))
	y = s.op("Div", s.cast(y, ir.Float64), s.number(temperature))
	p := s.op("Exp", s.op("Sub", y, s.x.Add("ReduceMax", last, y)))
	sum := s.x.Add("ReduceSum", last, p)
	cumulative := s.x.Add("CumSum", ir.Attrs{"axis": 1}, s.op("Div", p, sum))
	under := s.op("LessEqual", cumulative, s.x.Reshape(uniform, s.batch, 1))
	end := s.x.Constant(ir.ScalarInt(ir.Int64, vocabulary-1))
	return s.op("Min", s.count(under), end), s.op("IsNaN", s.x.Reshape(sum, s.batch))
}

// count is how many of each drive's values are true, i64 [N].
func (s *step) count(v *ir.Value) *ir.Value {
	return s.x.Add("ReduceSum", ir.Attrs{"axes": []int{1}}, s.cast(v, ir.Int64))
}

// token is the index of the first bin that is not below a value, i64 [N].
func (s *step) token(v *ir.Value) *ir.Value {
	v = s.clip(v, s.number(-maxLataccel), s.number(maxLataccel))
	return s.count(s.op("Less", s.x.Reshape(s.bins(), 1, vocabulary), s.x.Reshape(v, s.batch, 1)))
}

// bins are the lateral accelerations of the tokens, m/s².
func (s *step) bins() *ir.Value {
	return s.x.Constant(ir.FromFloats(ir.T(ir.Float64, vocabulary), Bins()))
}

// costs adds the row to the costs: means of squared errors and of squared jerks over the rows from ControlStart to
// CostEnd.
func (s *step) costs(target, current, next *ir.Value) {
	mean := func(kept string, begin int, each *ir.Value) *ir.Value {
		sum := s.each(kept)
		sum = s.op("Where", s.before(CostEnd), s.op("Add", sum, s.op("Mul", each, each)), sum)
		sum = s.op("Where", s.before(begin), s.number(0), sum)
		s.keep(kept, "next:"+kept, sum)
		rows := s.op("Sub", s.cast(s.row, ir.Float64), s.number(float64(begin-1)))
		rows = s.clip(rows, s.number(1), s.number(float64(CostEnd-begin)))
		return s.op("Div", s.op("Mul", s.number(costScale), sum), rows)
	}
	lateral := mean(keptLateralSum, ControlStart, s.op("Sub", target, next))
	jerk := mean(keptJerkSum, ControlStart+1, s.op("Div", s.op("Sub", next, current), s.number(rowSeconds)))
	s.output(outputLataccelCost, lateral)
	s.output(outputJerkCost, jerk)
	s.output(outputTotalCost, s.op("Add", s.op("Mul", s.number(lataccelWeight), lateral), jerk))
}

// Bins are the lateral accelerations of the tokens, m/s², as numpy.linspace gives them.
func Bins() []float64 {
	bins := make([]float64, vocabulary)
	step := 2 * maxLataccel / (vocabulary - 1)
	for i := range bins {
		bins[i] = float64(float64(i)*step) - maxLataccel
	}
	bins[vocabulary-1] = maxLataccel
	return bins
}
