package scenario

// Controller is an algorithm that is compiled into the step: from observations to the commands of openpilot, with
// numbers that it keeps from step to step, zero at first.
type Controller struct {
	Name   string
	Doc    string
	Memory int
	build  func(b *builder, seen map[string]num, memory []num) (curvature, accel num, next []num)
}

// Controllers are those that are built in.
var Controllers = []Controller{
	{Name: "pid", Doc: "curvature of the road ahead, and a PID on the distance from the centre of its lane", Memory: 1, build: pid},
	{Name: "mpc", Doc: "steers by a quadratic program over 1.25 s, within the limit of lateral acceleration", build: mpc},
	{Name: "feedforward", Doc: "curvature of the road ahead alone; nothing corrects an error", build: feedforward},
}

// pid follows the road and turns distance and angle back as a system of second order of 0.8 rad/s and damping 1 would; the
// integral of the distance adds 2 m/s² at most, with a time constant of 10 s.
func pid(b *builder, seen map[string]num, memory []num) (curvature, accel num, next []num) {
	v := b.max(seen["speed"], b.c(5))
	squared := b.mul(v, v)
	sum := b.clip(b.sum(memory[0], b.mul(b.c(Step), seen["offset"])), b.c(-40), b.c(40))
	back := b.sum(b.mul(b.c(0.64), seen["offset"]), b.mul(b.c(0.05), sum), b.mul(b.c(1.6), v, seen["heading"]))
	return b.sub(seen["road1"], b.div(back, squared)), follow(b, seen), []num{sum}
}

func feedforward(b *builder, seen map[string]num, _ []num) (curvature, accel num, next []num) {
	return seen["road1"], follow(b, seen), nil
}

// Asked commands what the scenario asks for, as openpilot's maneuvers do: of tier controls.
var Asked = &Controller{Name: "asked", Doc: "what the scenario asks for, of tier controls", build: asked}

func asked(_ *builder, seen map[string]num, _ []num) (curvature, accel num, next []num) {
	return seen["road0"], seen["ask_accel"], nil
}

// follow keeps the driver's speed, or 4 m and 1.45 s to a leading car.
func follow(b *builder, seen map[string]num) num {
	v := seen["speed"]
	free := b.clip(b.mul(b.c(0.5), b.sub(seen["cruise"], v)), b.c(-2), b.c(1.5))
	wanted := b.sum(b.c(4), b.mul(b.c(1.45), v))
	following := b.sum(b.mul(b.c(0.25), b.sub(seen["gap"], wanted)), b.mul(b.c(0.8), b.sub(seen["lead_speed"], v)))
	return b.where(b.less(b.c(0.5), seen["lead"]), b.min(free, following), free)
}
