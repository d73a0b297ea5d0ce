package onnx

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"

	"github.com/spark-compile/spark-compile/frontend/onnx/onnxpb"
)

// Error tells the user what is wrong with a model: where, why, and what to do about it. It prints as
//
//	driving_vision.onnx: node "/wide/Conv_3" (Conv, opset 17): group 3 does not divide 64 output channels; re-export it
//
// and leaves out the parts that do not apply.
type Error struct {
	File   string // the model's path as given
	Node   string // the node's name, or the name of its first output; empty for an error of the whole file
	Op     string // operator, with its domain unless that is ai.onnx
	Opset  int64  // version of the operator's domain; 0 if unknown
	Reason string
	Remedy string

	// Unsupported marks a well-formed file that the compiler does not support by design, as opposed to bad input.
	Unsupported bool
	Err         error // the error that Reason was made from, if any
}

// Error implements error.
func (e *Error) Error() string {
	text := e.Reason
	switch {
	case e.Op != "" && e.Opset != 0:
		text = fmt.Sprintf("node %q (%s, opset %d): %s", e.Node, e.Op, e.Opset, text)
	case e.Op != "":
		text = fmt.Sprintf("node %q (%s): %s", e.Node, e.Op, text)
	case e.Node != "":
		text = fmt.Sprintf("node %q: %s", e.Node, text)
	}
	if e.File != "" {
		text = e.File + ": " + text
	}
	if e.Remedy != "" {
		text += "; " + e.Remedy
	}
	return text
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// broken is the remedy for files that break the rules of the format.
const broken = "the file breaks the rules of ONNX here, of which onnx.checker may say more: export it again"

// WithRemedy sets what the user can do about the error, in place of exporting the model again, and returns e.
func (e *Error) WithRemedy(format string, args ...any) *Error {
	e.Remedy = fmt.Sprintf(format, args...)
	return e
}

// AsUnsupported sets Unsupported and the remedy, and returns e.
func (e *Error) AsUnsupported(remedy string, args ...any) *Error {
	e.Unsupported = true
	return e.WithRemedy(remedy, args...)
}

// fileError is an error about the file as a whole, which is to be exported again unless another remedy is set.
func (m *Model) fileError(format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{File: m.Path, Reason: err.Error(), Remedy: broken, Err: err}
}

// at returns the error with its place: node n, named label, and its operator's opset. An error that already has one
// stays.
func (e *Error) at(n *onnxpb.NodeProto, label string, opset int64) *Error {
	if e.Node != "" || e.Op != "" {
		return e
	}
	c := *e
	c.Node, c.Op, c.Opset = label, opLabel(n), opset
	return &c
}

// nodeLabel is a node's name, or its first output's where it has none.
func nodeLabel(n *onnxpb.NodeProto) string {
	return cmp.Or(append([]string{n.GetName()}, n.GetOutput()...)...)
}

// opLabel is the operator with its domain: Conv, com.microsoft.FusedConv.
func opLabel(n *onnxpb.NodeProto) string {
	op := cmp.Or(n.GetOpType(), "no operator")
	if d := Domain(n.GetDomain()); d != "" {
		return d + "." + op
	}
	return op
}

var specifics = regexp.MustCompile(`"[^"]*"|\d+`)

// Class is the operator and the reason, without names and numbers, for grouping.
func (e *Error) Class() string {
	r, _, _ := strings.Cut(e.Reason, "; ")
	r = specifics.ReplaceAllString(r, "…")
	if e.Op != "" {
		r = e.Op + ": " + r
	}
	return r
}
