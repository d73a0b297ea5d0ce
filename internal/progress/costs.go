package progress

// Costs of work in nanoseconds of one core, as driving_vision takes them. They say how long phases are beside each other, and
// decide nothing else.
const (
	Forward  = 0.09 // by multiplication of a graph that is computed region by region in f32
	Run      = 0.11 // by multiplication of a program that the CPU device runs
	Count    = 0.6  // by multiplication of a program whose run is counted
	Evaluate = 0.5  // by multiplication of a graph that is evaluated in float64
	Compile  = 42   // by weight of a program that is compiled
	Round    = 0.2  // by product of a weight that is rounded with the others of its output channel
	Moment   = 0.35 // by cube of a layer's products for each output
)
