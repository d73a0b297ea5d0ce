// Package driving makes models like openpilot's with random weights: the same operators in the same order as in a PyTorch
// export of the real architectures, including unmerged training-time branches. The same call returns the same bytes on every
// machine.
//
// With random weights alone, outputs would hardly depend on the inputs. So a model is evaluated, approximately and in
// float32, on a few random inputs while it is built: each layer draws its weights, computes its samples, and scales
// itself so that activations stay near unit variance. BatchNorms get the statistics that they would have learned.
//
//	model.go     the models by name, sizes, inputs
//	vision.go    two FastViT towers, whitening, ten heads; tower.go: FastViT
//	policy.go    a transformer over 25 steps
//	dmonitoring.go  an EfficientNet with 23 Gemms
//	contract.go  the models of other generations of openpilot: their inputs, outputs and histories; luma.go: driver monitoring
//	supercombo.go   towers, transformer and GRU in one file, with state
//	net.go       emitting nodes; layers.go: layers; attention.go: the two spellings of attention
//	samples.go   the arithmetic on samples; random.go: the generator of numbers and of frames
package driving
