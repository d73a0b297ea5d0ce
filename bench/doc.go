// Package bench measures compiled models: latency, the machine and its state during the run, accuracy, and changes since
// an earlier measurement.
//
//	stats.go        the Mann–Whitney U test
//	measure.go      one model on one device
//	layers.go       time by launch
//	monitor.go      clocks, power and utilisation while a model runs
//	ablate.go       what mechanisms are worth: with and without them, in turns
//	concurrent.go   several models at the same time
//	onnxruntime.go  the same model in ONNX Runtime
//	report.go       results as data, comparison with a baseline
//	table.go        results as text
//	html.go, svg.go results as a self-contained page
package bench
