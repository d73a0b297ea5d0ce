package route

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"

	"capnproto.org/go/capnp/v3"
)

// maxStructs is how many structs a list may have: the longest that is known, of a CAN message, has some hundred. It bounds the
// memory that a damaged message can ask for.
const maxStructs = 1 << 14

// maxGrowth is how much larger than in the message an element of a list may be in Go: the lists of logs of 2019 grow
// fivefold, since the types have more fields than the messages of that time. Reading a message takes no more than twice that
// for each of its bytes.
const maxGrowth = 8

// decode reads a struct into a Go value of its layout. A field beyond the end of either section, and a null pointer, read as the
// default; slices of the value are used again. The error names the field.
func (l *layout) decode(s capnp.Struct, v reflect.Value) error {
	for i := range l.fields {
		f := &l.fields[i]
		dst := v.Field(f.index)
		if !f.form.pointer() {
			f.decodeScalar(s, dst)
			continue
		}
		p, err := s.Ptr(uint16(f.at))
		if err == nil {
			err = f.decodePointer(p, dst)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
	}
	return nil
}

func (f *field) decodeScalar(s capnp.Struct, dst reflect.Value) {
	at := capnp.DataOffset(f.at / 8)
	switch f.form {
	case formBool:
		dst.SetBool(s.Bit(capnp.BitOffset(f.at)) != (f.flip == 1))
	case formInt8:
		dst.SetInt(int64(int8(s.Uint8(at) ^ uint8(f.flip))))
	case formUint8:
		dst.SetUint(uint64(s.Uint8(at)) ^ f.flip)
	case formUint16:
		dst.SetUint(uint64(s.Uint16(at)) ^ f.flip)
	case formInt32:
		dst.SetInt(int64(int32(s.Uint32(at) ^ uint32(f.flip))))
	case formUint32:
		dst.SetUint(uint64(s.Uint32(at)) ^ f.flip)
	case formUint64:
		dst.SetUint(s.Uint64(at) ^ f.flip)
	case formFloat32:
		*dst.Addr().Interface().(*float32) = math.Float32frombits(s.Uint32(at) ^ uint32(f.flip))
	}
}

func (f *field) decodePointer(p capnp.Ptr, dst reflect.Value) error {
	switch f.form {
	case formText:
		b, err := bytesOf(p)
		if n := len(b); n > 0 {
			if b[n-1] != 0 {
				return errors.New("not a text: no zero byte at its end")
			}
			b = b[:n-1]
		}
		dst.SetString(string(b))
		return err
	case formData:
		b, err := bytesOf(p)
		dst.SetBytes(append(dst.Bytes()[:0], b...))
		return err
	case formFloats:
		return decodeFloats(p, dst.Addr().Interface().(*[]float32))
	case formStructs:
		return f.of.decodeList(p, dst)
	}
	s := p.Struct()
	if p.IsValid() && !s.IsValid() {
		return errors.New("not a struct")
	}
	return f.of.decode(s, dst)
}

// bytesOf returns the bytes that a pointer of text or data leads to, which belong to the message.
func bytesOf(p capnp.Ptr) ([]byte, error) {
	b := p.Data()
	if b == nil && p.IsValid() {
		return nil, errors.New("not a list of bytes")
	}
	return b, nil
}

// listOf returns the list that a pointer leads to, and how large its elements are; nothing for a null pointer.
func listOf(p capnp.Ptr) (l capnp.List, n int, size capnp.ObjectSize, err error) {
	l = p.List()
	if p.IsValid() && !l.IsValid() {
		return l, 0, size, errors.New("not a list")
	}
	if n = l.Len(); n > 0 {
		size = l.Struct(0).Size()
	}
	return l, n, size, nil
}

func decodeFloats(p capnp.Ptr, dst *[]float32) error {
	l, n, size, err := listOf(p)
	if err != nil {
		return err
	}
	if n > 0 && size.DataSize < 4 {
		return errors.New("not a list of Float32")
	}
	xs := slices.Grow((*dst)[:0], n)[:n]
	for i := range xs {
		xs[i] = capnp.Float32List(l).At(i)
	}
	*dst = xs
	return nil
}

// decodeList reads a list of structs into a slice.
func (l *layout) decodeList(p capnp.Ptr, dst reflect.Value) error {
	list, n, size, err := listOf(p)
	switch {
	case err != nil:
		return err
	case n > maxStructs:
		return fmt.Errorf("a list of %d structs, more than %d", n, maxStructs)
	case n > 0 && size == (capnp.ObjectSize{}):
		return errors.New("not a list of structs")
	case n > 0 && int(l.typ.Size()) > maxGrowth*(int(size.DataSize)+8*int(size.PointerCount)):
		const text = "a list of structs of %d data bytes and %d pointers, too few for a %s"
		return fmt.Errorf(text, size.DataSize, size.PointerCount, l.typ)
	}
	if n > dst.Cap() {
		dst.Grow(n - dst.Len())
	}
	dst.SetLen(n)
	for i := range n {
		if err := l.decode(list.Struct(i), dst.Index(i)); err != nil {
			return fmt.Errorf("%d: %w", i, err)
		}
	}
	return nil
}
