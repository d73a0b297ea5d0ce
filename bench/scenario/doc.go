// Package scenario runs closed loops by the batch: a road, a vehicle, other cars, sensors, a controller and metrics are
// one step in IR, compiled to kernels that each hold a number of all loops, with states that stay on the device.
//
// A scenario is a row of Params. The first tier, controls, is the vehicle alone. An algorithm of the second tier, a planner in abstract state, is a Controller, compiled
// into the step, or a Callback in Go, called once a step for the whole batch. That of the third tier, the model in the
// loop, is Models: openpilot's driving models, which see pictures drawn of each loop. Algorithms act at 20 Hz, physics is
// integrated at 100 Hz in f32. Random numbers are Philox4x32-10 of seed, step and loop, so a loop has the same bits in
// any batch.
//
// What it simulates is coarse: tyres are linear up to the grip, of which lateral and longitudinal forces each have all;
// the road has one curve, or knots with linear curvature between (Road); a car changes lanes once; the driver takes over
// once, to steer to the centre of the lane.
package scenario
