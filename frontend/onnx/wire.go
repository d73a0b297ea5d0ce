package onnx

import (
	"encoding/binary"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/spark-compile/spark-compile/frontend/onnx/onnxpb"
)

// The protobuf library copies every bytes field, and a model is nearly all raw_data. So unmarshal first makes a lean copy of
// the file, in which the index of a sub-slice of the file replaces each raw_data. The library decodes the lean copy, and
// the sub-slices replace the indices.

const rawDataField = 9 // of TensorProto

var tensorMessage = (&onnxpb.TensorProto{}).ProtoReflect().Descriptor()

// unmarshal decodes data into m; the raw_data of m's tensors alias data.
func unmarshal(data []byte, m *onnxpb.ModelProto) error {
	l := lean{}
	buf, err := l.message(make([]byte, 0, 1<<16), data, m.ProtoReflect().Descriptor(), maxNesting)
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
func (l *lean) message(out, msg []byte, kind protoreflect.MessageDescriptor, depth int) ([]byte, error) {
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
		known := kind.Fields().ByNumber(num)
		switch {
		case typ == protowire.BytesType && kind == tensorMessage && num == rawDataField:
			raw, _ := protowire.ConsumeBytes(field[tagLen:])
			out = append(out, field[:tagLen]...)
			out = protowire.AppendVarint(out, 4)
			out = binary.LittleEndian.AppendUint32(out, uint32(len(l.raws)))
			l.raws = append(l.raws, raw[:len(raw):len(raw)])
		case typ == protowire.BytesType && known != nil && known.Message() != nil:
			inner, _ := protowire.ConsumeBytes(field[tagLen:])
			sub, err := l.message(nil, inner, known.Message(), depth-1)
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
	for _, t := range tensors(nil, m.ProtoReflect()) {
		if t.RawData == nil {
			continue
		}
		i := len(l.raws)
		if len(t.RawData) == 4 {
			i = int(binary.LittleEndian.Uint32(t.RawData))
		}
		if i >= len(l.raws) {
			return fmt.Errorf("tensor %q: data lost while decoding", t.GetName())
		}
		t.RawData = l.raws[i]
	}
	return nil
}

// tensors appends all tensors inside a message, however deep, to list.
func tensors(list []*onnxpb.TensorProto, m protoreflect.Message) []*onnxpb.TensorProto {
	if t, ok := m.Interface().(*onnxpb.TensorProto); ok {
		return append(list, t)
	}
	m.Range(func(d protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case d.Message() == nil:
		case d.IsList():
			for i := range v.List().Len() {
				list = tensors(list, v.List().Get(i).Message())
			}
		default:
			list = tensors(list, v.Message())
		}
		return true
	})
	return list
}
