package onnx

import (
	"encoding/base64"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/spark-compile/spark-compile/frontend/onnx/onnxpb"
)

// plain turns a pickled value into Go's usual types, for comparisons. Values must be trees.
func plain(v any) any {
	switch v := v.(type) {
	case pyTuple:
		out := []any{}
		for _, x := range v {
			out = append(out, plain(x))
		}
		return out
	case *pyList:
		return plain(pyTuple(v.items))
	case *pyDict:
		out := map[string]any{}
		for k, x := range v.values {
			out[k] = plain(x)
		}
		return out
	case pySlice:
		bound := func(p *int64) any {
			if p == nil {
				return nil
			}
			return float64(*p)
		}
		return []any{bound(v.start), bound(v.stop)}
	case int64:
		return float64(v)
	default:
		return v
	}
}

// sample is {'a': [1, (2, -3), 1.5, None, True, False], 'é': slice(0, -2, None)}; the pickles were written by hand from
// the instruction list of Lib/pickletools.py.
var sample = map[string]any{
	"a": []any{1.0, []any{2.0, -3.0}, 1.5, nil, true, false},
	"é": []any{0.0, -2.0},
}

func TestUnpickleProtocols(t *testing.T) {
	for _, c := range []struct{ name, data string }{
		{"0", "(dp0\nS'a'\np1\n(lp2\nI1\na(I2\nI-3\ntp3\naF1.5\naNaI01\naI00\nasV\xe9\np4\nc__builtin__\nslice\np5\n(I0\nL-2L\nNtp6\nRp7\ns."},
		{"0, escapes", "(dS'\\x61'\n(lI1\na(I2\nI-3\ntaF1.5\naNaI01\naI00\nasV\\u00e9\nc__builtin__\nslice\n(I0\nI-2\nNtRs."},
		{"1", "}q\x00(U\x01aq\x01]q\x02(K\x01(K\x02J\xfd\xff\xff\xfftq\x03G\x3f\xf8\x00\x00\x00\x00\x00\x00NI01\nI00\neX\x02\x00\x00\x00\xc3\xa9q\x04" +
			"c__builtin__\nslice\nq\x05(K\x00J\xfe\xff\xff\xffNtRu."},
		{"2", "\x80\x02}q\x00(X\x01\x00\x00\x00aq\x01]q\x02(K\x01K\x02J\xfd\xff\xff\xff\x86q\x03G\x3f\xf8\x00\x00\x00\x00\x00\x00N\x88\x89e" +
			"X\x02\x00\x00\x00\xc3\xa9c__builtin__\nslice\nK\x00J\xfe\xff\xff\xffN\x87Ru."},
		{"3", "\x80\x03}(X\x01\x00\x00\x00a](M\x01\x00K\x02\x8a\x01\xfd\x86G\x3f\xf8\x00\x00\x00\x00\x00\x00N\x88\x89e" +
			"X\x02\x00\x00\x00\xc3\xa9cbuiltins\nslice\nK\x00\x8a\x02\xfe\xffN\x87Ru."},
		{"4", "\x80\x04\x95\x44\x00\x00\x00\x00\x00\x00\x00}\x94(\x8c\x01a\x94]\x94(K\x01K\x02J\xfd\xff\xff\xff\x86\x94G\x3f\xf8\x00\x00\x00\x00\x00\x00N\x88\x89e" +
			"\x8c\x02\xc3\xa9\x8c\x08builtins\x8c\x05slice\x93K\x00J\xfe\xff\xff\xffN\x87Ru."},
		{"5, list through the memo", "\x80\x05}\x94(\x8c\x01a]\x94(K\x01K\x02J\xfd\xff\xff\xff\x86e0h\x01(G\x3f\xf8\x00\x00\x00\x00\x00\x00N\x88\x89e" +
			"\x8d\x02\x00\x00\x00\x00\x00\x00\x00\xc3\xa9\x8c\x08builtins\x8c\x05slice\x93(K\x00\x8b\x01\x00\x00\x00\xfeNtRu."},
	} {
		t.Run("protocol "+c.name, func(t *testing.T) {
			v, err := unpickle([]byte(c.data))
			require.NoError(t, err)
			require.Equal(t, sample, plain(v))
		})
	}
}

func TestUnpickleKeepsOrderAndReplaces(t *testing.T) {
	v, err := unpickle([]byte("}(U\x01zK\x01U\x01aK\x02U\x01zK\x03u."))
	require.NoError(t, err)
	d := v.(*pyDict)
	require.Equal(t, []string{"z", "a"}, d.keys)
	require.Equal(t, int64(3), d.values["z"])
}

func TestUnpickleRefuses(t *testing.T) {
	for _, c := range []struct{ name, data, want string }{
		{"os.system", "cos\nsystem\n(S'true'\ntR.", `it refers to "os.system"; only slice is allowed`},
		{"os.system by STACK_GLOBAL", "\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x04true\x85R.", `it refers to "os.system"`},
		{"eval", "cbuiltins\neval\n(S'1'\ntR.", `"builtins.eval"`},
		{"slice of another module", "cmine\nslice\n(I0\ntR.", `"mine.slice"`},
		{"INST", "(S'true'\nios\nsystem\n.", "instruction 0x69 makes something other than plain data"},
		{"BUILD", "}}b.", "instruction 0x62"},
		{"NEWOBJ", "cbuiltins\nslice\n)\x81.", "instruction 0x81"},
		{"EXT1", "\x82\x01.", "instruction 0x82"},
		{"PERSID", "P1\n.", "instruction 0x50"},
		{"bytes", "C\x01a.", "instruction 0x43"},
		{"set", "\x8f.", "instruction 0x8f"},
		{"unknown instruction", "\xff.", "instruction 0xff"},
		{"calling data", "K\x01)R.", "a int is called"},
		{"the type itself", "cbuiltins\nslice\n.", "the value is a type, not data"},
		{"slice of str", "cbuiltins\nslice\n(U\x01aK\x01NtR.", "a bound of a slice is a str"},
		{"slice with a step", "cbuiltins\nslice\n(K\x00K\x09K\x02tR.", "a slice has step 2; only 1 is supported"},
		{"slice of nothing", "cbuiltins\nslice\n)R.", "slice takes one to three arguments"},
		{"no end", "K\x01", "the pickle has no end"},
		{"empty", "", "the pickle has no end"},
		{"nothing on the stack", ".", "the stack is empty"},
		{"cut in an argument", "M\x01", "ends within an instruction"},
		{"cut in a string", "X\xff\xff\xff\x7fabc", "ends within an instruction"},
		{"huge string", "\x8d\xff\xff\xff\xff\xff\xff\xff\xffabc", "ends within an instruction"},
		{"frame beyond the end", "\x95\xff\x00\x00\x00\x00\x00\x00\x00N.", "ends within an instruction"},
		{"line without an end", "I12", "ends within an instruction"},
		{"newer protocol", "\x80\x06N.", "pickle protocol 6 is newer than 5"},
		{"int of 72 bits", "\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x00\x01.", "an int has more than 64 bits"},
		{"int text", "Iabc\n.", `"abc" is not a number of 64 bits`},
		{"memo never set", "h\x07.", "memo 7 is not set"},
		{"memo index", "N" + "p-1\n.", `"-1" is not a memo index`},
		{"no mark", "t.", "there is no mark on the stack"},
		{"below the mark", "K\x01(\x85.", "the stack is empty"},
		{"append to a tuple", ")K\x01a.", "items are added to a tuple"},
		{"setitem on a list", "]K\x01K\x02s.", "items are added to a list"},
		{"key without a value", "(U\x01ad.", "a dict key has no value"},
		{"int key", "}K\x01K\x02s.", "a dict key is a int, not a str"},
		{"not UTF-8", "X\x01\x00\x00\x00\xff.", "a str is not UTF-8"},
		{"bad escape", "S'\\q'\n.", "escape"},
		{"unquoted", "Sabc\n.", "is not a quoted str"},
		{"bytes after the end", "N.N.", "2 bytes follow the end of the pickle"},
		{"deep stack", strings.Repeat("N", maxPickleValues+1) + ".", "the pickle holds too many values"},
		{"many marks", strings.Repeat("(", maxPickleValues+1) + ".", "the pickle holds too many values"},
		{"long", strings.Repeat("N0", maxPickle), "bytes, more than"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := unpickle([]byte(c.data))
			require.ErrorContains(t, err, c.want)
		})
	}
}

func TestUnpickleHoldsListsThatContainThemselves(t *testing.T) {
	v, err := unpickle([]byte("]\x94h\x00a.")) // l = []; l.append(l)
	require.NoError(t, err)
	l := v.(*pyList)
	require.Same(t, l, l.items[0])
}

func withSlices(value string) *Model {
	return &Model{Path: "m.onnx", Proto: &onnxpb.ModelProto{MetadataProps: []*onnxpb.StringStringEntryProto{
		{Key: proto.String("model_checkpoint"), Value: proto.String("x")},
		{Key: proto.String("output_slices"), Value: proto.String(value)},
	}}}
}

func TestOutputSlices(t *testing.T) {
	b64 := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
	slice := func(start, stop string) string { return "cbuiltins\nslice\n" + start + stop + "N\x87R" }
	one := func(s string) string { return b64("\x80\x04}U\x01a" + s + "s.") }

	t.Run("in order, negative and missing bounds", func(t *testing.T) {
		v := b64("\x80\x04}(U\x01z" + slice("K\x00", "K\x09") + "U\x06hidden" + slice("K\x09", "J\xfe\xff\xff\xff") + "U\x03pad" + slice("J\xfe\xff\xff\xff", "N") +
			"U\x03all" + slice("N", "N") + "u.")
		got, err := withSlices(v[:7] + "\n" + v[7:] + "\n").OutputSlices(20)
		require.NoError(t, err)
		require.Equal(t, []Slice{{"z", 0, 9}, {"hidden", 9, 18}, {"pad", 18, 20}, {"all", 0, 20}}, got)
	})
	t.Run("what EncodeOutputSlices writes", func(t *testing.T) {
		want := []Slice{{"plan", 0, 990}, {"desire", 990, 70000}}
		got, err := withSlices(EncodeOutputSlices(want)).OutputSlices(70000)
		require.NoError(t, err)
		require.Equal(t, want, got)
	})
	t.Run("none", func(t *testing.T) {
		got, err := (&Model{Proto: &onnxpb.ModelProto{}}).OutputSlices(20)
		require.NoError(t, err)
		require.Nil(t, got)
	})
	for _, c := range []struct{ name, value, want string }{
		{"not base64", "!!!!", "m.onnx: metadata output_slices: not base64"},
		{"not a pickle", b64("hello"), "m.onnx: metadata output_slices: pickle, byte 0: memo"},
		{"hostile", b64("cos\nsystem\n(S'true'\ntR."), `m.onnx: metadata output_slices: pickle, byte 0: it refers to "os.system"`},
		{"not a dict", b64("K\x01."), "the pickle holds a int, not a dict of slices"},
		{"not a slice", one("K\x01"), `"a" is a int, not a slice`},
		{"beyond the output", one(slice("K\x00", "K\x15")), `the end of slice "a": 21 is outside the output's 20 elements`},
		{"before the output", one(slice("J\xeb\xff\xff\xff", "N")), `the start of slice "a": -21 is outside the output's 20 elements`},
		{"backwards", one(slice("K\x05", "K\x04")), `slice "a" ends at 4, before it starts at 5`},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := withSlices(c.value).OutputSlices(20)
			require.ErrorContains(t, err, c.want)
		})
	}
}

// sharedModels is the directory of models that may be next to the repository.
func sharedModels(t testing.TB) string {
	t.Helper()
	dir := filepath.Join("..", "..", "..", "shared", "models")
	if _, err := os.Stat(dir); err != nil {
		t.Skip("no models next to the repository")
	}
	return dir
}

func TestPublishedMetadataPickles(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(sharedModels(t), "metadata", "*.pkl"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, f := range files {
		t.Run(filepath.Base(f), func(t *testing.T) {
			data, err := os.ReadFile(f)
			require.NoError(t, err)
			got, err := unpickle(data)
			require.NoError(t, err)
			text, err := os.ReadFile(strings.TrimSuffix(f, ".pkl") + ".json")
			require.NoError(t, err)
			var want any
			require.NoError(t, json.Unmarshal(text, &want))
			require.Equal(t, want, plain(got))
		})
	}
}
