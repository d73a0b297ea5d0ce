// Package dora makes, keeps and merges adapters of a model: small trainable parts added to its frozen weights
// (DoRA: Liu and others 2024; LoRA: Hu and others 2021), and compiles the step that trains them.
package dora

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/internal/adapterfile"
	"github.com/spark-compile/spark-compile/internal/precision"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/passes"
)

// Weight is an initializer of a model that nodes multiply by, as a matrix [Out, Row] of each output's weights.
type Weight struct {
	adapterfile.Layer
	Name  string // of the initializer
	Nodes []string
	Op    string // MatMul or Conv

	Transposed bool // stored as [Row, Out]
	DType      ir.DType
	Bytes      int // in the file

	value *ir.Tensor
	model *Model
}

// Depthwise reports whether every output reads one channel alone: such a layer takes magnitudes only.
func (w *Weight) Depthwise() bool { return w.Group > 1 && w.In() == 1 }

// Rows are the weights [Out, Row] in float64.
func (w *Weight) Rows() []float64 {
	x := w.value.Floats()
	if !w.Transposed {
		return x
	}
	rows := make([]float64, len(x))
	for i := range w.Row {
		for o := range w.Out {
			rows[o*w.Row+i] = x[i*w.Out+o]
		}
	}
	return rows
}

// Model is a base model whose weights take adapters.
type Model struct {
	File    *onnx.Model
	Base    string // fingerprint: SHA-256 of the file and its external data
	Bytes   int    // of all initializers
	Weights []*Weight
	Refused map[string]string // initializers of floats that nodes read, and why they take no adapter

	graph   *ir.Graph // as imported
	imports onnx.ImportOptions
	batch   int
	rounded map[string]map[string]passes.RoundedRows // what RoundBase made: by its name, then by initializer
}

// Outputs are the names of the model's outputs that are floats.
func (m *Model) Outputs() (names []string) {
	for _, v := range m.graph.Outputs {
		if v.Type.DType.IsFloat() {
			names = append(names, v.Name)
		}
	}
	return names
}

// Open lists the weights of a model. Options are those of its import: shapes, batch.
func Open(m *onnx.Model, opt onnx.ImportOptions) (*Model, error) {
	g, err := onnx.Import(m, opt)
	if err != nil {
		return nil, err
	}
	base, err := m.Digest()
	if err != nil {
		return nil, err
	}
	out := &Model{File: m, Base: base, Refused: map[string]string{}, graph: g, imports: opt, batch: max(opt.Batch, 1)}
	wide, err := promoted(g)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", m.Path, err)
	}
	initializers := map[string]bool{}
	for _, t := range m.Proto.GetGraph().GetInitializer() {
		initializers[t.GetName()] = true
		if d, err := onnx.DType(t.GetDataType()); err == nil {
			shape := make([]int, len(t.Dims))
			for i, d := range t.Dims {
				shape[i] = int(d)
			}
			out.Bytes += ir.T(d, shape...).Bytes()
		}
	}
	by := map[string]*Weight{}
	for _, n := range wide.Nodes {
		for i, v := range n.Inputs {
			if v == nil || !v.IsConst() || !v.Type.DType.IsFloat() {
				continue
			}
			name := passes.FileName(v)
			if !initializers[name] || out.Refused[name] != "" {
				continue
			}
			w, err := weightOf(n, i, name, by[name])
			if err != nil {
				out.Refused[name] = err.Error()
				delete(by, name)
				continue
			}
			by[name] = w
		}
	}
	taken := map[string]bool{}
	for _, t := range m.Proto.GetGraph().GetInitializer() {
		w := by[t.GetName()]
		if w == nil {
			continue
		}
		if w.value, err = m.Tensor(t); err != nil {
			return nil, err
		}
		w.model, w.DType, w.Bytes = out, w.value.DType, w.value.Bytes()
		w.Module = module(w.Name, w.Nodes[0])
		for k := 2; taken[w.Module]; k++ {
			w.Module = fmt.Sprintf("%s_%d", module(w.Name, w.Nodes[0]), k)
		}
		taken[w.Module] = true
		out.Weights = append(out.Weights, w)
	}
	return out, nil
}

// promoted is a graph in f32, without the casts that this leaves, before any pass that changes weights.
func promoted(g *ir.Graph) (*ir.Graph, error) {
	g = g.Clone()
	return g, passes.Run(&passes.Context{Precision: precision.FP16}, g, []string{"promote-f32", "simplify"}, nil)
}

// weightOf describes the constant that node n reads as input i, which other nodes may read too.
func weightOf(n *ir.Node, i int, name string, before *Weight) (*Weight, error) {
	if err := passes.Adaptable(n, i); err != nil {
		return nil, err
	}
	s := n.Inputs[i].Type.Shape
	w := &Weight{Name: name, Op: n.Op.Name, Nodes: []string{n.Name}}
	w.Group = n.Attrs.Int("group", 1)
	if n.Op.Name == "MatMul" {
		w.Transposed = !n.Attrs.Bool("transB")
		w.Out, w.Row = s[0], s[1]
		if w.Transposed {
			w.Out, w.Row = s[1], s[0]
		}
	} else {
		w.Out, w.Taps = s[0], slices.Clone(s[2:])
		w.Row = s[1] * ir.T(ir.Bool, w.Taps...).Numel()
	}
	if before == nil {
		return w, nil
	}
	if before.Op != w.Op || before.Group != w.Group || before.Transposed != w.Transposed {
		return nil, fmt.Errorf("nodes %q and %q read it in different ways", before.Nodes[0], n.Name)
	}
	before.Nodes = append(before.Nodes, n.Name)
	return before, nil
}

// module names a layer as PyTorch does: by the initializer blocks.0.qkv.weight, or where an exporter gave that a number, by the
// node /blocks/blocks.0/qkv/MatMul, whose scopes repeat what they are in.
func module(initializer, node string) string {
	if name, ok := strings.CutSuffix(initializer, ".weight"); ok && name != "" {
		return name
	}
	var parts []string
	for _, s := range strings.Split(path.Dir(node), "/") {
		if n := len(parts); n > 0 && strings.HasPrefix(s, parts[n-1]+".") {
			parts[n-1] = s
		} else if s != "" && s != "." {
			parts = append(parts, s)
		}
	}
	if len(parts) == 0 {
		return initializer
	}
	return strings.Join(parts, ".")
}

// Targets chooses weights by patterns: globs, in which * stands for any characters, or regular expressions between slashes.
// Each is held against the names of module, initializer and nodes. One that matches no weight is an error that says why; no
// patterns choose all.
func (m *Model) Targets(patterns []string) ([]*Weight, error) {
	if len(m.Weights) == 0 {
		return nil, fmt.Errorf("%s: no weight takes an adapter: none is a constant operand of MatMul, Gemm or Conv", m.File.Path)
	}
	if len(patterns) == 0 {
		return m.Weights, nil
	}
	chosen := map[*Weight]bool{}
	for _, p := range patterns {
		match, err := matcher(p)
		if err != nil {
			return nil, err
		}
		found := false
		for _, w := range m.Weights {
			if slices.ContainsFunc(append([]string{w.Module, w.Name}, w.Nodes...), match) {
				found, chosen[w] = true, true
			}
		}
		if found {
			continue
		}
		for name, why := range m.Refused {
			if match(name) {
				return nil, fmt.Errorf("%s: target %q: initializer %q takes no adapter: %s", m.File.Path, p, name, why)
			}
		}
		var have []string
		for _, w := range m.Weights[:min(8, len(m.Weights))] {
			have = append(have, w.Module)
		}
		return nil, fmt.Errorf("%s: target %q matches none of the %d weights that take an adapter, such as %s", m.File.Path, p, len(m.Weights), strings.Join(have, ", "))
	}
	return slices.DeleteFunc(slices.Clone(m.Weights), func(w *Weight) bool { return !chosen[w] }), nil
}

func matcher(pattern string) (func(string) bool, error) {
	expr := "^" + strings.NewReplacer(`\*`, ".*", `\?`, ".").Replace(regexp.QuoteMeta(pattern)) + "$"
	if len(pattern) > 1 && strings.HasPrefix(pattern, "/") && strings.HasSuffix(pattern, "/") {
		expr = pattern[1 : len(pattern)-1]
	}
	re, err := regexp.Compile(expr)
	if err != nil {
		return nil, fmt.Errorf("target %q: %w", pattern, err)
	}
	return re.MatchString, nil
}
