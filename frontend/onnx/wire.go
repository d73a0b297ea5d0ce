package onnx

import (
	"encoding/binary"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/spark-compile/spark-compile/frontend/onnx/onnxpb"
)

// The protobuf library copies every bytes field. A model is nearly all raw_data, so unmarshal first makes a lean copy of
// the file, in which each raw_data is replaced by its index in a list of sub-slices of the file; the library decodes the
// lean copy, and the sub-slices are put in place of the indices.

// place is a message type as far as the way to raw_data goes: which fields lead on, and whether this is a tensor.
type place struct {
	next   map[protowire.Number]*place
	tensor bool
}

// The messages on the way from a model to its tensors, by field number.
var modelPlace = func() *place {
	tensor := &place{tensor: true}
	sparse := &place{next: map[protowire.Number]*place{1: tensor, 2: tensor}}
	graph := &place{}
	attr := &place{next: map[protowire.Number]*place{5: tensor, 6: graph, 10: tensor, 11: graph, 22: sparse, 23: sparse}}
	node := &place{next: map[protowire.Number]*place{5: attr}}
	graph.next = map[protowire.Number]*place{1: node, 5: tensor, 15: sparse}
	function := &place{next: map[protowire.Number]*place{7: node, 11: attr}}
	return &place{next: map[protowire.Number]*place{7: graph, 25: function}}
}()

const rawDataField = 9 // of TensorProto

// unmarshal decodes data into m; the raw_data of m's tensors alias data.
func unmarshal(data []byte, m *onnxpb.ModelProto) error {
	l := lean{}
	buf, err := l.message(make([]byte, 0, 1<<16), data, modelPlace, maxNesting)
	if err != nil {
		return err
	}
	if err := unmarshalOptions.Unmarshal(buf, m); err != nil {
		return err
	}
	return l.restore(m)
}

type lean struct {
	raws [][]byte
}

// message appends the lean form of a message's fields to out.
func (l *lean) message(out, msg []byte, p *place, depth int) ([]byte, error) {
	if depth == 0 {
		return nil, fmt.Errorf("messages nest more than %d deep", maxNesting)
	}
	for len(msg) > 0 {
		num, typ, tagLen := protowire.ConsumeTag(msg)
		if tagLen < 0 {
			return nil, protowire.ParseError(tagLen)
		}
		n := protowire.ConsumeFieldValue(num, typ, msg[tagLen:])
		if n < 0 {
			return nil, protowire.ParseError(n)
		}
		field := msg[:tagLen+n]
		msg = msg[tagLen+n:]
		next := p.next[num]
		switch {
		case typ == protowire.BytesType && p.tensor && num == rawDataField:
			raw, _ := protowire.ConsumeBytes(field[tagLen:])
			out = append(out, field[:tagLen]...)
			out = protowire.AppendVarint(out, 4)
			out = binary.LittleEndian.AppendUint32(out, uint32(len(l.raws)))
			l.raws = append(l.raws, raw[:len(raw):len(raw)])
		case typ == protowire.BytesType && next != nil:
			inner, _ := protowire.ConsumeBytes(field[tagLen:])
			sub, err := l.message(nil, inner, next, depth-1)
			if err != nil {
				return nil, err
			}
			out = append(out, field[:tagLen]...)
			out = protowire.AppendBytes(out, sub)
		default:
			out = append(out, field...)
		}
	}
	return out, nil
}

// restore puts the file's bytes where the lean copy has indices.
func (l *lean) restore(m *onnxpb.ModelProto) error {
	for _, t := range tensors(m) {
		if t.RawData == nil {
			continue
		}
		if len(t.RawData) != 4 {
			return fmt.Errorf("tensor %q: data lost while decoding", t.GetName())
		}
		i := binary.LittleEndian.Uint32(t.RawData)
		if int(i) >= len(l.raws) {
			return fmt.Errorf("tensor %q: data lost while decoding", t.GetName())
		}
		t.RawData = l.raws[i]
	}
	return nil
}

// tensors lists all tensors of a model, those inside attributes and functions included.
func tensors(m *onnxpb.ModelProto) []*onnxpb.TensorProto {
	out := tensorsOfGraph(nil, m.GetGraph())
	for _, f := range m.GetFunctions() {
		out = tensorsOfAttrs(out, f.GetAttributeProto())
		for _, n := range f.GetNode() {
			out = tensorsOfAttrs(out, n.GetAttribute())
		}
	}
	return out
}

func tensorsOfGraph(out []*onnxpb.TensorProto, g *onnxpb.GraphProto) []*onnxpb.TensorProto {
	out = append(out, g.GetInitializer()...)
	out = tensorsOfSparse(out, g.GetSparseInitializer()...)
	for _, n := range g.GetNode() {
		out = tensorsOfAttrs(out, n.GetAttribute())
	}
	return out
}

func tensorsOfAttrs(out []*onnxpb.TensorProto, attrs []*onnxpb.AttributeProto) []*onnxpb.TensorProto {
	for _, a := range attrs {
		if a.T != nil {
			out = append(out, a.T)
		}
		out = append(out, a.Tensors...)
		out = tensorsOfSparse(out, a.SparseTensor)
		out = tensorsOfSparse(out, a.SparseTensors...)
		out = tensorsOfGraph(out, a.G)
		for _, g := range a.Graphs {
			out = tensorsOfGraph(out, g)
		}
	}
	return out
}

func tensorsOfSparse(out []*onnxpb.TensorProto, list ...*onnxpb.SparseTensorProto) []*onnxpb.TensorProto {
	for _, s := range list {
		for _, t := range []*onnxpb.TensorProto{s.GetValues(), s.GetIndices()} {
			if t != nil {
				out = append(out, t)
			}
		}
	}
	return out
}
