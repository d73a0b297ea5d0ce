// Package openpilot makes of openpilot's models the whole step of its modeld as one graph: camera frames and a few numbers in,
// outputs out, with everything that a step keeps for later ones as states.
//
//	Compose    one driving model, a vision model and a policy, or a driver-monitoring model → Step
//	driving    what stands in front of driving models: warp, histories of pictures, desires, features and curvatures
//	monitor    what stands in front of driver-monitoring models
//
// What a model wants is read from its inputs: openpilot's releases differ in names, lengths and rates, and some keep their
// histories in the model itself (state_… inputs that next_state_… outputs feed).
package openpilot
