package onnxgo

import (
	"errors"
	"fmt"

	"github.com/owulveryck/onnx-go"
	"gonum.org/v1/gonum/graph/simple"
	"google.golang.org/protobuf/proto"

	"github.com/spark-compile/spark-compile/frontend/onnx/onnxpb"
)

// Read returns the topology of an encoded model.
func Read(model []byte) (*Graph, error) {
	var m onnxpb.ModelProto
	err := proto.Unmarshal(model, &m)
	if err == nil && m.Graph == nil {
		err = errors.New("it has no graph")
	}
	if err != nil {
		return nil, fmt.Errorf("reading a model for onnx-go: %w", err)
	}
	g, err := readGraph(m.Graph)
	if err != nil {
		return nil, fmt.Errorf("reading a model through onnx-go: %w", err)
	}
	return g, nil
}

// readGraph reads a graph and the graphs inside it.
func readGraph(g *onnxpb.GraphProto) (*Graph, error) {
	l := &lean{}
	small, err := l.graph(g)
	if err != nil {
		return nil, err
	}
	data, err := proto.Marshal(&onnxpb.ModelProto{Graph: small})
	if err != nil {
		return nil, err
	}
	b, err := decode(data)
	if err != nil {
		return nil, err
	}
	for i, handles := range b.handles {
		for _, h := range handles {
			body, err := readGraph(l.bodies[h])
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
	b = &backend{edges: map[int64][]simple.WeightedEdge{}}
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
