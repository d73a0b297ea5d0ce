// Package driving makes models of the shape of openpilot's, with random weights: the same operators in the same order as
// a PyTorch export of the real networks' architecture, unmerged training-time branches included. The same call gives the
// same bytes on every machine.
//
// Random weights alone would give outputs that hardly depend on the inputs. So a model is evaluated, roughly and in
// float32, on a few random inputs while it is built: each layer draws its weights, computes its samples, and scales
// itself such that activations stay near unit variance; BatchNorms get the statistics that they would have learned.
//
//	model.go     the models by name, sizes, inputs
//	vision.go    two FastViT towers, whitening, ten heads; tower.go: FastViT
//	policy.go    a transformer over 25 steps
//	dmonitoring.go  an EfficientNet with 23 Gemms
//	supercombo.go   towers, transformer and GRU in one file, with state
//	net.go       emitting nodes; layers.go: layers; attention.go: the two spellings of attention
//	samples.go   the arithmetic on samples; random.go: the generator of numbers and of frames
package driving
