package onnx

import (
	"encoding/binary"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/spark-compile/spark-compile/frontend/onnx/onnxpb"
	"github.com/spark-compile/spark-compile/internal/memory"
)

// The protobuf library copies every bytes field, and a model is nearly all raw_data of its initializers. So unmarshal
// first makes a lean copy of the file, in which the index of a sub-slice of the file replaces each of them. The
// library decodes the lean copy, and the sub-slices replace the indices.

// unmarshal decodes data into m; the raw_data of the graph's initializers alias data.
func unmarshal(data []byte, m *onnxpb.ModelProto) error {
	var raws [][]byte
	// ModelProto.graph, GraphProto.initializer, TensorProto.raw_data
	lean, err := cut(make([]byte, 0, 1<<16), data, &raws, 7, 5, 9)
	if err != nil {
		return err
	}
	const raw = 32 // a slice, and its index in the copy
	need := int64(len(data)) + raw*int64(len(raws)) + footprint(lean, m.ProtoReflect().Descriptor(), 0)
	if err := memory.Default().Check(need, "decoding it"); err != nil {
		return err
	}
	if err := unmarshalOptions.Unmarshal(lean, m); err != nil {
		return err
	}
	for _, t := range m.GetGraph().GetInitializer() {
		if t.RawData != nil {
			t.RawData = raws[binary.LittleEndian.Uint32(t.RawData)]
		}
	}
	return nil
}

// cut appends a message to out, with an index into raws for the contents of every field at the path, which it appends
// to raws.
func cut(out, msg []byte, raws *[][]byte, path ...protowire.Number) ([]byte, error) {
	for len(msg) > 0 {
		num, typ, tag := protowire.ConsumeTag(msg)
		if tag < 0 {
			return nil, protowire.ParseError(tag)
		}
		n := protowire.ConsumeFieldValue(num, typ, msg[tag:])
		if n < 0 {
			return nil, protowire.ParseError(n)
		}
		field := msg[:tag+n]
		msg = msg[tag+n:]
		if num != path[0] || typ != protowire.BytesType {
			out = append(out, field...)
			continue
		}
		inner, _ := protowire.ConsumeBytes(field[tag:])
		lean := binary.LittleEndian.AppendUint32(nil, uint32(len(*raws)))
		if len(path) == 1 {
			*raws = append(*raws, inner[:len(inner):len(inner)])
		} else {
			var err error
			if lean, err = cut(nil, inner, raws, path[1:]...); err != nil {
				return nil, err
			}
		}
		out = protowire.AppendBytes(append(out, field[:tag]...), lean)
	}
	return out, nil
}

// messageBytes bounds what a message takes: the struct, and what importing its node or value makes.
const messageBytes = 1 << 10

// footprint estimates how many bytes a message takes when it is decoded: two bytes of a file may be a message. The
// library checks what is not a message.
func footprint(msg []byte, d protoreflect.MessageDescriptor, depth int) int64 {
	n := int64(messageBytes)
	for len(msg) > 0 && depth < maxNesting {
		num, typ, tag := protowire.ConsumeTag(msg)
		if tag < 0 {
			break
		}
		size := protowire.ConsumeFieldValue(num, typ, msg[tag:])
		if size < 0 {
			break
		}
		field := d.Fields().ByNumber(num)
		switch {
		case typ != protowire.BytesType:
			n += 32 // an element of a slice that grows
		case field != nil && field.Message() != nil:
			inner, _ := protowire.ConsumeBytes(msg[tag:])
			n += footprint(inner, field.Message(), depth+1)
		case field != nil && field.IsPacked():
			n += 8 * int64(size) // numbers of a byte each
		default:
			n += 64 + int64(size)
		}
		msg = msg[tag+size:]
	}
	return n
}
