package cli

import (
	"fmt"
	"os"
	"reflect"
	"regexp"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/spark-compile/spark-compile/internal/atomicfile"
)

// Tags of flags for checkOutputs.
const (
	// tagWrites marks a flag that names an output, which is a file or a directory.
	tagWrites = "writes"
	// tagOver names the flag of a file that such an output may replace.
	tagOver = "over"
	// tagNames marks an argument of names or files: without a dot or a slash it is a name.
	tagNames = "names"
)

// place is a path of the command line.
type place struct {
	flag *kong.Value // nil: of an argument that was taken out of the command line before
	path string
}

func (p place) is() string {
	if p.flag == nil {
		return "an input"
	}
	return p.flag.ShortSummary()
}

// mayBe reports whether a value names an input: a file that is there, or, of an argument or a flag for directories, a
// directory. Others are names, of which there may be a directory too: -o fp8 --precision fp8.
func (p place) mayBe() bool {
	info, err := os.Stat(p.path)
	return err == nil && (!info.IsDir() || p.flag == nil || p.flag.Flag == nil || strings.Contains(p.flag.Flag.PlaceHolder, "DIR"))
}

// checkOutputs refuses outputs that are an input or another output: they would replace it. others are inputs that were
// taken out of the command line before it was parsed.
func checkOutputs(parsed *kong.Context, others []string) error {
	var outputs, inputs []place
	for _, path := range others {
		inputs = append(inputs, place{nil, path})
	}
	for _, v := range given(parsed) {
		for _, text := range texts(v.Target) {
			switch {
			case v.Tag.Has(tagWrites):
				outputs = append(outputs, place{v, text})
			default:
				for _, path := range paths(v, text) {
					inputs = append(inputs, place{v, path})
				}
			}
		}
	}
	for i, out := range outputs {
		for _, in := range inputs {
			if over := out.flag.Tag.Get(tagOver); over != "" && in.flag != nil && in.flag.Name == over {
				continue
			}
			if in.mayBe() && atomicfile.Same(out.path, in.path) {
				return fmt.Errorf("%s %s: it is an input too (%s), which would be overwritten: give another name",
					out.is(), out.path, in.is())
			}
		}
		for _, other := range outputs[:i] {
			if other.flag != out.flag && atomicfile.Same(out.path, other.path) {
				return fmt.Errorf("%s and %s are both %s: give another name to one of them", other.is(), out.is(), out.path)
			}
		}
	}
	return nil
}

// given are the flags and arguments that the command line has.
func given(parsed *kong.Context) (all []*kong.Value) {
	seen := map[*kong.Value]bool{}
	for _, g := range parsed.Path {
		v := g.Positional
		if g.Flag != nil {
			v = g.Flag.Value
		}
		if v != nil && !seen[v] {
			seen[v] = true
			all = append(all, v)
		}
	}
	return all
}

// texts are the strings of a flag's value.
func texts(v reflect.Value) (all []string) {
	switch {
	case v.Kind() == reflect.String:
		return []string{v.String()}
	case v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.String:
		for i := range v.Len() {
			all = append(all, v.Index(i).String())
		}
	case v.Kind() == reflect.Map && v.Type().Elem().Kind() == reflect.String:
		for _, key := range v.MapKeys() {
			all = append(all, v.MapIndex(key).String())
		}
	}
	return all
}

// parts separates files in a value: vision.onnx+policy.onnx, a.npz,b.npz, NAME=FILE, KIND:FILE, FILE:fp16.
var parts = regexp.MustCompile(`[+,=:]`)

// paths are the files that a value may name.
func paths(v *kong.Value, text string) (all []string) {
	for _, path := range append(parts.Split(text, -1), text) {
		if v.Tag.Has(tagNames) && !strings.ContainsAny(path, "./") {
			continue
		}
		all = append(all, path)
		if file, err := ONNX(path); err == nil && file != path {
			all = append(all, file)
		}
	}
	return all
}
