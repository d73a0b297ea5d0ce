package onnx

import (
	"bytes"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protopath"
	"google.golang.org/protobuf/reflect/protorange"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/spark-compile/spark-compile/frontend/onnx/onnxpb"
	"github.com/spark-compile/spark-compile/internal/testing/hostile"
)

// FuzzDecode: whatever the bytes, decoding ends, in an error of our own type or in a model whose parts can all be read
// and that encodes to a file which decodes to the same.
func FuzzDecode(f *testing.F) {
	f.Add(encode(f, tiny(f)))
	for _, p := range []*onnxpb.ModelProto{
		sequence(step{"if", names("x"), names("y"), inner("i", step{"i", names("x"), names("i"), nil})}),
		{Functions: []*onnxpb.FunctionProto{{Name: proto.String("F")}}, Graph: &onnxpb.GraphProto{}},
		{Graph: &onnxpb.GraphProto{Initializer: []*onnxpb.TensorProto{external("location", "w.bin", "offset", "3")}}},
	} {
		data, err := proto.Marshal(p)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		before := bytes.Clone(data)
		m, err := Decode("", data)
		ours(t, err)
		if err != nil {
			return
		}
		lib := &onnxpb.ModelProto{}
		if err := unmarshalOptions.Unmarshal(data, lib); err != nil {
			t.Fatalf("the library refuses what Decode accepts: %v", err)
		}
		again, err := m.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		want, err := proto.MarshalOptions{Deterministic: true}.Marshal(lib)
		if err != nil || !bytes.Equal(again, want) {
			t.Fatalf("decoded otherwise than by the library (%v)", err)
		}
		_ = protorange.Range(m.Proto.ProtoReflect(), func(v protopath.Values) error {
			msg, _ := v.Index(-1).Value.Interface().(protoreflect.Message)
			if msg == nil {
				return nil
			}
			p, ok := msg.Interface().(*onnxpb.TensorProto)
			if !ok {
				return nil
			}
			w, err := m.Tensor(p)
			ours(t, err)
			if err == nil && !w.Splat && len(w.Data) != w.Bytes() {
				t.Fatalf("%v with %d bytes", w.Type, len(w.Data))
			}
			return nil
		})
		_, err = m.OutputSlices(1000)
		ours(t, err)
		ours(t, m.Validate())
		if !bytes.Equal(before, data) {
			t.Fatal("the file's bytes were changed")
		}
	})
}

func ours(t *testing.T, err error) {
	t.Helper()
	if err == nil {
		return
	}
	if _, ok := err.(*Error); !ok {
		t.Fatalf("%T: %v", err, err)
	}
}

// FuzzPickle: whatever the bytes, reading them ends, with data or an error.
func FuzzPickle(f *testing.F) {
	for _, s := range []string{
		"(dp0\nS'a'\np1\n(I0\nI-3\ntp3\ns.",
		"\x80\x04}(\x8c\x01a\x8c\x08builtins\x8c\x05slice\x93K\x00J\xfe\xff\xff\xffN\x87Ru.",
		"cos\nsystem\n(S'true'\ntR.",
		"]\x94h\x00a.",
		"\x8a\x02\xfe\xffG\x3f\xf8\x00\x00\x00\x00\x00\x00\x86.",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var v any
		var err error
		hostile.Bounded(t, len(data), 512, func() { v, err = unpickle(data) })
		if err != nil {
			return
		}
		slices, err := resolveSlices(v, 100)
		for _, s := range slices {
			if s.Start < 0 || s.End < s.Start || s.End > 100 {
				t.Fatalf("%+v lies outside (%v)", s, err)
			}
		}
	})
}
