// Package bench measures compiled models: how long a run takes, on what kind of machine and in what state it was, how
// exact the outputs are, and whether that differs from an earlier measurement.
//
//	stats.go        summaries of times, the Mann–Whitney U test
//	measure.go      one model on one device
//	layers.go       time by launch
//	monitor.go      clocks, power and utilisation while a model runs
//	concurrent.go   all models of a run at the same time
//	onnxruntime.go  the same model in ONNX Runtime
//	report.go       results as data, baselines
//	table.go        results on a terminal
//	html.go, svg.go results as a self-contained page
package bench
