// Package openpilot makes of openpilot's models the whole step of its modeld as one graph: camera frames and a few numbers in,
// outputs out, with everything that a step keeps for later ones as states.
//
//	Compose    one driving model, a vision model and a policy, or a driver-monitoring model → Step
//	driving    producers of a driving model's inputs: warp, histories of pictures, desires, features and curvatures
//	monitoring producers of a driver-monitoring model's inputs
//	drive      pictures that the cameras of a synthetic drive see, NV12 as openpilot lays it out; frame i depends on i alone
//
// What a model wants is read from its inputs: openpilot's releases differ in names, lengths and rates, and some keep their
// histories in the model itself (state_… inputs that next_state_… outputs feed).
package openpilot
