package dora

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"text/tabwriter"

	"google.golang.org/protobuf/proto"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/frontend/onnx/onnxpb"
	"github.com/spark-compile/spark-compile/internal/adapterfile"
)

// Inspect describes an adapter's file without its model: base, labels, and of each layer kind, rank, alpha, shapes, and how
// far its factors are from nothing.
func Inspect(path string) (string, error) {
	f, err := adapterfile.ReadTensors(path)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	settings := map[string]adapterfile.Setting{}
	if text := f.Metadata[adapterfile.KeyLayers]; text != "" {
		if err := json.Unmarshal([]byte(text), &settings); err != nil {
			return "", fmt.Errorf("%s: metadata %s: %w", path, adapterfile.KeyLayers, err)
		}
		fmt.Fprintf(&b, "base model: %s\n", f.Metadata[adapterfile.KeyBase])
	} else {
		fmt.Fprintf(&b, "base model: not in the file, whose settings are in PEFT's %s\n", adapterfile.PEFTFile)
	}
	for _, k := range slices.Sorted(maps.Keys(f.Metadata)) {
		if label, ok := strings.CutPrefix(k, adapterfile.KeyLabel); ok {
			fmt.Fprintf(&b, "%s: %s\n", label, f.Metadata[k])
		}
	}
	numbers := 0
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "tensor\tkind\trank\talpha\tshape\ttype\troot mean square")
	for _, name := range slices.Sorted(maps.Keys(f.Tensors)) {
		x := f.Tensors[name]
		module, suffix, ok := adapterfile.Split(name)
		if !ok {
			return "", fmt.Errorf("%s: tensor %q is none of an adapter", path, name)
		}
		values, err := adapterfile.Floats(x)
		if err != nil {
			return "", fmt.Errorf("%s: tensor %q: %w", path, name, err)
		}
		numbers += len(values)
		s := settings[module]
		size := "–"
		if len(values) > 0 {
			size = fmt.Sprintf("%.3g", norm(values)/math.Sqrt(float64(len(values))))
		}
		fmt.Fprintf(t, "%s%s\t%s\t%d\t%g\t%v\t%s\t%s\n", module, suffix, s.Kind, s.Rank, s.Alpha, x.Shape, x.DType, size)
	}
	if err := t.Flush(); err != nil {
		return "", err
	}
	fmt.Fprintf(&b, "%d numbers\n", numbers)
	return b.String(), nil
}

// Change is how far an initializer of one model is from that of another.
type Change struct {
	Name     string
	Shape    []int
	Relative float64 // relative L2
	Greatest float64 // greatest absolute difference
}

// Diff lists the floating-point initializers in which b differs from a, and what else differs, in words.
func Diff(a, b *onnx.Model) (changes []Change, others []string, err error) {
	p, q := proto.Clone(a.Proto).(*onnxpb.ModelProto), proto.Clone(b.Proto).(*onnxpb.ModelProto)
	by := map[string]*onnxpb.TensorProto{}
	for _, t := range b.Proto.GetGraph().GetInitializer() {
		by[t.GetName()] = t
	}
	for _, t := range a.Proto.GetGraph().GetInitializer() {
		u := by[t.GetName()]
		delete(by, t.GetName())
		if u == nil {
			others = append(others, fmt.Sprintf("initializer %q is missing", t.GetName()))
			continue
		}
		x, err := a.Tensor(t)
		if err != nil {
			return nil, nil, err
		}
		y, err := b.Tensor(u)
		if err != nil {
			return nil, nil, err
		}
		switch {
		case !x.Type.Equal(y.Type):
			others = append(others, fmt.Sprintf("initializer %q is %v and %v", t.GetName(), x.Type, y.Type))
		case slices.Equal(x.Dense(), y.Dense()):
		case !x.DType.IsFloat():
			others = append(others, fmt.Sprintf("initializer %q, of %v", t.GetName(), x.Type))
		default:
			c := Change{Name: t.GetName(), Shape: x.Shape}
			var missed, size float64
			was, is := x.Floats(), y.Floats()
			for i := range was {
				d := math.Abs(is[i] - was[i])
				c.Greatest = max(c.Greatest, d)
				missed += float64(d * d)
				size += float64(was[i] * was[i])
			}
			c.Relative = math.Sqrt(missed / size)
			changes = append(changes, c)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(by)) {
		others = append(others, fmt.Sprintf("initializer %q is new", name))
	}
	p.Graph.Initializer, q.Graph.Initializer = nil, nil
	meta, other := p.MetadataProps, q.MetadataProps
	p.MetadataProps, q.MetadataProps = nil, nil
	if !slices.EqualFunc(meta, other, func(x, y *onnxpb.StringStringEntryProto) bool { return proto.Equal(x, y) }) {
		others = append(others, "metadata")
	}
	if !proto.Equal(p, q) {
		others = append(others, "the graph, its types or the opset")
	}
	return changes, others, nil
}
