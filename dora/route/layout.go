package route

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"capnproto.org/go/capnp/v3"
)

// layout is where the fields of a message's Go type are in its Cap'n Proto struct.
type layout struct {
	typ    reflect.Type
	size   capnp.ObjectSize // as it is written; what is read may be smaller or larger
	fields []field
}

// field is a field of a struct.
type field struct {
	name  string
	index int  // in the Go type
	form  form // how it is stored
	at    uint32
	flip  uint64  // the default, with which a value is XORed where it is stored
	of    *layout // of a struct, or of a list's elements
}

// form is how a field is stored: bits at an offset in the data section, or the target of the at-th pointer.
type form uint8

const (
	formBool form = iota
	formInt8
	formUint8
	formUint16
	formInt32
	formUint32
	formUint64
	formFloat32
	formText
	formData   // bytes
	formFloats // a list of Float32
	formStruct
	formStructs // a list of structs
)

// pointer reports whether a form is stored as the target of a pointer.
func (f form) pointer() bool { return f >= formText }

var scalars = map[reflect.Kind]form{
	reflect.Bool: formBool, reflect.Int8: formInt8, reflect.Uint8: formUint8, reflect.Uint16: formUint16, reflect.Int32: formInt32,
	reflect.Uint32: formUint32, reflect.Uint64: formUint64, reflect.Float32: formFloat32, reflect.String: formText, reflect.Struct: formStruct,
}

// compile reads the tags of a message's type. It panics where a tag is wrong, which is a bug of this package that any of its tests
// would show.
func compile(t reflect.Type, done map[reflect.Type]*layout) *layout {
	if l := done[t]; l != nil {
		return l
	}
	l := &layout{typ: t}
	done[t] = l
	for i := range t.NumField() {
		f := t.Field(i)
		words := strings.Fields(f.Tag.Get("capnp"))
		switch {
		case len(words) == 0:
			continue
		case f.Name == "_":
			l.size = capnp.ObjectSize{DataSize: capnp.Size(8 * number(words[0], 16)), PointerCount: uint16(number(words[1], 16))}
			continue
		}
		at, pointed := strings.CutPrefix(words[1], "p")
		row := field{name: words[0], index: i, at: uint32(number(at, 32))}
		row.form, row.of = formOf(f.Type, done)
		if pointed != row.form.pointer() {
			panic(fmt.Sprintf("%s.%s is at %s", t, f.Name, words[1]))
		}
		if len(words) > 2 {
			row.flip = number(words[2], 64)
		}
		l.fields = append(l.fields, row)
	}
	return l
}

// formOf returns how a Go type is stored.
func formOf(t reflect.Type, done map[reflect.Type]*layout) (form, *layout) {
	if t.Kind() == reflect.Slice {
		switch t.Elem().Kind() {
		case reflect.Uint8:
			return formData, nil
		case reflect.Float32:
			return formFloats, nil
		case reflect.Struct:
			return formStructs, compile(t.Elem(), done)
		}
	}
	f, ok := scalars[t.Kind()]
	if !ok {
		panic(fmt.Sprint("no form for ", t))
	}
	if f == formStruct {
		return f, compile(t, done)
	}
	return f, nil
}

func number(text string, bits int) uint64 {
	n, err := strconv.ParseUint(text, 0, bits)
	if err != nil {
		panic(err)
	}
	return n
}
