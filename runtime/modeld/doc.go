// Package modeld is openpilot's model loop around a compiled program: camera frames and a few numbers in, driving outputs out.
//
//	Driving     steps a program that spark-compile made of driving models: warp, histories, models
//	Monitoring  steps one that was made of a driver-monitoring model
//	Outputs     what a driving model says, parsed; Raw keeps the vectors
//
// The program does on the device what depends on the frame before: it warps the pictures and keeps the histories of pictures,
// features, desires and curvatures. This package does on the host what openpilot's modeld does there: it computes the warp's
// matrices from the calibration, finds the rising edges of desires, counts missed frames and parses outputs.
package modeld
