package route

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write testdata/log.capnp")

func TestTheSchemaIsAsItWas(t *testing.T) {
	path := filepath.Join("testdata", "log.capnp")
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(schemaText()), 0o644))
	}
	have, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(have), schemaText(), "go test ./dora/route -run TheSchema -update, if the new places are those of real logs")
}

// schemaText is the schema as other readers of Cap'n Proto take it. Ordinals are this text's own but in Event; what pads makes their
// compiler place each field where its tag says.
func schemaText() string {
	b := &schemaWriter{seen: map[*layout]bool{}}
	b.text.WriteString("# Places of fields in openpilot's logs, for other readers of Cap'n Proto. Made of the Go types by a test: do not edit.\n@0xd314cfd957229c12;\n")
	b.event()
	for len(b.queue) > 0 {
		next := b.queue[0]
		b.queue = b.queue[1:]
		b.structure(next)
	}
	return b.text.String()
}

type schemaWriter struct {
	text  strings.Builder
	seen  map[*layout]bool
	queue []*layout
}

// name returns the name of a layout's struct, which is then to be written.
func (b *schemaWriter) name(l *layout) string {
	if !b.seen[l] {
		b.seen[l] = true
		b.queue = append(b.queue, l)
	}
	return l.typ.Name()
}

// event writes the root, with all ordinals that the union has: a member's is its tag + 1, or + 2 beyond that of valid.
func (b *schemaWriter) event() {
	b.text.WriteString("struct Event {\n  logMonoTime @0 :UInt64;\n  valid @67 :Bool = true;\n  union {\n")
	for tag := range Kind(150) {
		ordinal := int(tag) + 1
		if ordinal >= 67 {
			ordinal++
		}
		name, typ := fmt.Sprint("pad", uint16(tag)), "Void"
		if m := tag.row(); m != nil {
			name, typ = m.name, b.name(m.payload.of)
			if m.typ.Kind() == reflect.Slice {
				typ = "List(" + typ + ")"
			}
		}
		fmt.Fprintf(&b.text, "    %s @%d :%s;\n", name, ordinal, typ)
	}
	b.text.WriteString("  }\n}\n")
}

// structure writes a struct in the order of its offsets, without gaps.
func (b *schemaWriter) structure(l *layout) {
	fmt.Fprintf(&b.text, "struct %s {\n", l.typ.Name())
	ordinal, at, pointers := 0, 0, 0
	put := func(name, typ string) {
		fmt.Fprintf(&b.text, "  %s @%d :%s;\n", name, ordinal, typ)
		ordinal++
	}
	padTo := func(bit int) {
		for at < bit {
			size := 64
			for at%size != 0 || at+size > bit {
				size /= 2
			}
			if size < 8 {
				size = 1
			}
			put(fmt.Sprint("pad", ordinal), map[int]string{1: "Bool", 8: "UInt8", 16: "UInt16", 32: "UInt32", 64: "UInt64"}[size])
			at += size
		}
	}
	padPointers := func(n int) {
		for ; pointers < n; pointers++ {
			put(fmt.Sprint("pad", ordinal), "Data")
		}
	}
	for _, f := range slices.SortedFunc(slices.Values(l.fields), func(a, b field) int { return cmp.Compare(a.at, b.at) }) {
		if f.form.pointer() {
			padPointers(int(f.at))
			put(f.name, b.typeOf(f))
			pointers++
			continue
		}
		padTo(int(f.at))
		put(f.name, scalarTypes[f.form].name)
		at += scalarTypes[f.form].bits
	}
	padTo(8 * int(l.size.DataSize))
	padPointers(int(l.size.PointerCount))
	b.text.WriteString("}\n")
}

var scalarTypes = map[form]struct {
	name string
	bits int
}{
	formBool: {"Bool", 1}, formInt8: {"Int8", 8}, formUint8: {"UInt8", 8}, formUint16: {"UInt16", 16}, formInt32: {"Int32", 32},
	formUint32: {"UInt32", 32}, formUint64: {"UInt64", 64}, formFloat32: {"Float32", 32},
}

func (b *schemaWriter) typeOf(f field) string {
	switch f.form {
	case formText:
		return "Text"
	case formData:
		return "Data"
	case formFloats:
		return "List(Float32)"
	case formStructs:
		return "List(" + b.name(f.of) + ")"
	}
	return b.name(f.of)
}
