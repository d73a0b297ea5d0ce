// Package tinyphysics runs comma's lateral-dynamics network, the simulator of the controls challenge
// (github.com/commaai/controls_challenge), as the vehicle of a closed loop: a step of a batch of drives is one
// compiled program, and what a drive keeps from step to step stays on the device.
//
//	Compile   network file → program whose entry run is one row of a drive
//	Vehicle   the program on a device; Rollout runs drives through it
//	step.go   the loop as IR: PID, limits, tokeniser, sampling, costs, all in f64 as in the challenge
//	last.go   the network cut down to what its last position needs
//
// The network takes the last 20 rows of (steer command, roll, speed, acceleration) and the tokens of the 20 lateral
// accelerations before them, and gives logits over 1,024 tokens for each position. Its weights are not part of this
// project: Compile takes a file of that contract.
package tinyphysics
