package onnxgo

import (
	"errors"
	"fmt"

	"github.com/owulveryck/onnx-go"
	"google.golang.org/protobuf/encoding/protowire"
)

// Read returns the topology of an encoded model.
func Read(model []byte) (*Graph, error) {
	list, err := fields(model)
	if err != nil {
		return nil, fmt.Errorf("reading a model for onnx-go: %w", err)
	}
	for _, f := range list {
		if f.num == modelGraph && f.typ == protowire.BytesType {
			g, err := readGraph(f.data, maxDepth)
			if err != nil {
				return nil, fmt.Errorf("reading a model through onnx-go: %w", err)
			}
			return g, nil
		}
	}
	return nil, errors.New("reading a model for onnx-go: it has no graph")
}

// readGraph reads an encoded GraphProto and the graphs inside it.
func readGraph(msg []byte, depth int) (*Graph, error) {
	if depth == 0 {
		return nil, fmt.Errorf("graphs nest more than %d deep", maxDepth)
	}
	l := &lean{}
	buf, err := l.graph(msg)
	if err != nil {
		return nil, err
	}
	b, err := decode(appendField(nil, modelGraph, buf))
	if err != nil {
		return nil, err
	}
	for i, handles := range b.bodies {
		for _, h := range handles {
			body, err := readGraph(l.graphs[h], depth-1)
			if err != nil {
				return nil, err
			}
			b.out.Nodes[i].Bodies = append(b.out.Nodes[i].Bodies, body)
		}
	}
	return &b.out, nil
}

// decode runs onnx-go on a lean model.
func decode(model []byte) (b *backend, err error) {
	defer func() { // a panic of onnx-go is an error of the cross-check, not of the caller
		if r := recover(); r != nil {
			err = fmt.Errorf("onnx-go: %v", r)
		}
	}()
	b = &backend{edges: map[int64][]edge{}}
	m := onnx.NewModel(b)
	if err := m.UnmarshalBinary(model); err != nil {
		return nil, err
	}
	for _, id := range m.Input {
		b.out.Inputs = append(b.out.Inputs, b.values[id].name)
	}
	for _, id := range m.Output {
		b.out.Outputs = append(b.out.Outputs, b.values[id].name)
	}
	return b, nil
}
