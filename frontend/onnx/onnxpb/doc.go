// Package onnxpb holds the messages of the ONNX file format, generated from onnx.proto.
//
// To regenerate, put protoc (for example python -m grpc_tools.protoc of grpcio-tools) and protoc-gen-go v1.36.12 on
// PATH.
package onnxpb

//go:generate protoc -I . --go_out=. --go_opt=paths=source_relative onnx.proto
