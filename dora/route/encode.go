package route

import (
	"fmt"
	"math"
	"reflect"

	"capnproto.org/go/capnp/v3"
)

// encode writes a Go value of a layout into a struct of its size.
func (l *layout) encode(s capnp.Struct, v reflect.Value) error {
	for i := range l.fields {
		f := &l.fields[i]
		src := v.Field(f.index)
		if !f.form.pointer() {
			f.encodeScalar(s, src)
			continue
		}
		p, err := f.encodePointer(s.Segment(), src)
		if err == nil {
			err = s.SetPtr(uint16(f.at), p)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
	}
	return nil
}

func (f *field) encodeScalar(s capnp.Struct, src reflect.Value) {
	at := capnp.DataOffset(f.at / 8)
	switch f.form {
	case formBool:
		s.SetBit(capnp.BitOffset(f.at), src.Bool() != (f.flip == 1))
	case formInt8:
		s.SetUint8(at, uint8(src.Int())^uint8(f.flip))
	case formUint8:
		s.SetUint8(at, uint8(src.Uint()^f.flip))
	case formUint16:
		s.SetUint16(at, uint16(src.Uint()^f.flip))
	case formInt32:
		s.SetUint32(at, uint32(src.Int())^uint32(f.flip))
	case formUint32:
		s.SetUint32(at, uint32(src.Uint()^f.flip))
	case formUint64:
		s.SetUint64(at, src.Uint()^f.flip)
	case formFloat32:
		s.SetUint32(at, math.Float32bits(src.Interface().(float32))^uint32(f.flip))
	}
}

// encodePointer allocates what a pointer leads to, preferably in a segment; nothing for what is empty.
func (f *field) encodePointer(seg *capnp.Segment, src reflect.Value) (capnp.Ptr, error) {
	if f.form == formStruct {
		s, err := capnp.NewStruct(seg, f.of.size)
		if err != nil {
			return capnp.Ptr{}, err
		}
		return s.ToPtr(), f.of.encode(s, src)
	}
	if src.Len() == 0 {
		return capnp.Ptr{}, nil
	}
	switch f.form {
	case formStructs:
		return f.of.encodeList(seg, src)
	case formText:
		t, err := capnp.NewText(seg, src.String())
		return t.ToPtr(), err
	case formData:
		d, err := capnp.NewData(seg, src.Bytes())
		return d.ToPtr(), err
	}
	xs := src.Interface().([]float32)
	list, err := capnp.NewFloat32List(seg, int32(len(xs)))
	if err != nil {
		return capnp.Ptr{}, err
	}
	for i, x := range xs {
		list.Set(i, x)
	}
	return list.ToPtr(), nil
}

// encodeList writes a slice as a list of structs.
func (l *layout) encodeList(seg *capnp.Segment, src reflect.Value) (capnp.Ptr, error) {
	if src.Len() > maxStructs {
		return capnp.Ptr{}, fmt.Errorf("%d structs in a list; no reader takes more than %d", src.Len(), maxStructs)
	}
	list, err := capnp.NewCompositeList(seg, l.size, int32(src.Len()))
	if err != nil {
		return capnp.Ptr{}, err
	}
	for i := range src.Len() {
		if err := l.encode(list.Struct(i), src.Index(i)); err != nil {
			return capnp.Ptr{}, fmt.Errorf("%d: %w", i, err)
		}
	}
	return list.ToPtr(), nil
}
