package console

// Costs of work in nanoseconds of one core, measured on driving_vision. They only set the relative lengths of
// phases.
const (
	CostForward  = 0.09 // by multiplication of a graph that is computed region by region in f32
	CostRun      = 0.11 // by multiplication of a program that the CPU device runs
	CostCount    = 0.6  // by multiplication of a program whose run is counted
	CostEvaluate = 0.5  // by multiplication of a graph that is evaluated in float64
	CostCompile  = 42   // by weight of a program that is compiled
	CostRound    = 0.2  // by product of a weight that is rounded with the others of its output channel
	CostMoment   = 0.35 // by cube of a layer's products for each output
)
