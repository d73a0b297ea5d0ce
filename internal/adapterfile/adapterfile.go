// Package adapterfile reads and writes adapters as safetensors files with PEFT's tensor names. It knows only which layers of a model take
// adapters, so programs load adapters without a compiler.
package adapterfile

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spark-compile/spark-compile/internal/atomicfile"
	"github.com/spark-compile/spark-compile/internal/memory"
	"github.com/spark-compile/spark-compile/internal/npy"
)

// Kind is what an adapter of a layer trains.
type Kind string

// Kinds of adapters of a layer y = W·x + b, with the norms over all but the first dimension of W [out, …].
const (
	DoRA      Kind = "dora"      // y = m/‖V‖·(V·x) + b, V = W + s·B·A (Liu and others 2024, equation 5)
	LoRA      Kind = "lora"      // y = (W + s·B·A)·x + b (Hu and others 2021)
	Magnitude Kind = "magnitude" // y = m/‖W‖·(W·x) + b
)

// Layer is a layer of a model, with a weight [Out, Row], that takes an adapter.
type Layer struct {
	Module string `json:"module"` // name of the layer in files, unique in the model
	Out    int    `json:"out"`
	Row    int    `json:"row"`
	Group  int    `json:"group"`
	Taps   []int  `json:"taps,omitempty"` // of a convolution's kernel
}

// In is the number of input channels of a group.
func (l *Layer) In() int {
	in := l.Row
	for _, t := range l.Taps {
		in /= t
	}
	return in
}

// MaxRank is the greatest rank of an adapter of the weight.
func (l *Layer) MaxRank() int { return min(l.Out/l.Group, l.Row) * l.Group }

// Part is the adapter of a layer. Kind Magnitude has M alone, LoRA only A and B.
type Part struct {
	Kind  Kind
	Rank  int
	Alpha float64
	RS    bool      // rank-stabilised scaling, α/√r
	Base  string    // how W was stored when it was trained: a precision that rounds weights, or "" as in the file
	A     []float32 // [Rank, Row]
	B     []float32 // [Out, Rank/Group]
	M     []float32 // [Out]
}

// Scale is s of W + s·B·A.
func (p *Part) Scale() float64 {
	switch {
	case p.Rank == 0:
		return 0
	case p.RS:
		return p.Alpha / math.Sqrt(float64(p.Rank))
	}
	return p.Alpha / float64(p.Rank)
}

// Entry is a layer and its adapter.
type Entry struct {
	*Layer
	*Part
	Weight string // name of the initializer
}

// File is an adapter's file.
type File struct {
	Base     string // fingerprint of the base model
	FullNorm bool   // gradients pass through the norms too
	Labels   map[string]string
	Entries  []Entry
}

// Model is what a file is read for.
type Model struct {
	Name   string
	Base   string // fingerprint
	Layers []*Layer
}

// Names in files are those of PEFT: base_model.model.MODULE.lora_A.weight [r, in], [r, in/g, taps…]; .lora_B.weight [out, r],
// [out, r/g, 1…]; .lora_magnitude_vector [out], [1, out, 1…].
const (
	Prefix    = "base_model.model."
	suffixA   = ".lora_A.weight"
	suffixB   = ".lora_B.weight"
	suffixM   = ".lora_magnitude_vector"
	peftModel = "adapter_model.safetensors"
	PEFTFile  = "adapter_config.json"
)

// Keys of the file's metadata. The layers' settings are under KeyLayers, as JSON.
const (
	keyFormat = "format"
	KeyBase   = "spark-compile.base"
	keyFull   = "spark-compile.full_norm"
	KeyLayers = "spark-compile.layers"
	KeyLabel  = "label."
)

// Setting is a layer's settings in the metadata.
type Setting struct {
	Weight string  `json:"weight"`
	Kind   Kind    `json:"kind"`
	Rank   int     `json:"rank,omitempty"`
	Alpha  float64 `json:"alpha,omitempty"`
	RS     bool    `json:"rslora,omitempty"`
	Base   string  `json:"base,omitempty"`
}

// Shapes are those of the tensors in the file.
func (p *Part) Shapes(l *Layer) (a, b, m []int) {
	ones := slices.Repeat([]int{1}, len(l.Taps))
	a = slices.Concat([]int{p.Rank, l.In()}, l.Taps)
	b = slices.Concat([]int{l.Out, p.Rank / l.Group}, ones)
	m = []int{l.Out}
	if len(l.Taps) > 0 {
		m = slices.Concat([]int{1, l.Out}, ones)
	}
	return a, b, m
}

// Encode writes the adapter as a safetensors file: the same adapter gives the same bytes.
func (a *File) Encode() ([]byte, error) {
	f := &TensorFile{Tensors: map[string]Tensor{}, Metadata: map[string]string{keyFormat: "pt", KeyBase: a.Base}}
	if a.FullNorm {
		f.Metadata[keyFull] = "true"
	}
	for k, v := range a.Labels {
		f.Metadata[KeyLabel+k] = v
	}
	settings := map[string]Setting{}
	for _, l := range a.Entries {
		settings[l.Module] = Setting{l.Weight, l.Kind, l.Rank, l.Alpha, l.RS, l.Base}
		shapeA, shapeB, shapeM := l.Shapes(l.Layer)
		for _, t := range []struct {
			suffix string
			shape  []int
			data   []float32
		}{{suffixA, shapeA, l.A}, {suffixB, shapeB, l.B}, {suffixM, shapeM, l.M}} {
			if t.data == nil {
				continue
			}
			if i := slices.IndexFunc(t.data, func(x float32) bool { return x-x != 0 }); i >= 0 {
				return nil, fmt.Errorf("layer %s: %s[%d] is %v", l.Module, strings.Trim(t.suffix, "."), i, t.data[i])
			}
			data := make([]byte, 0, 4*len(t.data))
			for _, x := range t.data {
				data = binary.LittleEndian.AppendUint32(data, math.Float32bits(x))
			}
			f.Tensors[Prefix+l.Module+t.suffix] = Tensor{DType: "F32", Shape: t.shape, Data: data}
		}
	}
	text, err := json.Marshal(settings)
	if err != nil {
		return nil, err
	}
	f.Metadata[KeyLayers] = string(text)
	return f.Encode()
}

// Save writes the adapter's file atomically. For a file called adapter_model.safetensors it also writes PEFT's
// adapter_config.json to the same directory. It refuses that name where PEFT would read something else.
func (a *File) Save(path string) error {
	data, err := a.Encode()
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if filepath.Base(path) == peftModel {
		c, err := a.config()
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if err := atomicfile.WriteJSON(filepath.Join(filepath.Dir(path), PEFTFile), c); err != nil {
			return err
		}
	}
	return atomicfile.Write(path, data)
}

// Read reads an adapter of the model: our file, or PEFT's with adapter_config.json in the same directory. It
// rejects an adapter of another base, a tensor without a matching layer, a wrong shape, and numbers that are not
// finite.
func Read(path string, m Model) (*File, error) {
	f, err := ReadTensors(path)
	if err != nil {
		return nil, err
	}
	a, err := decode(f, path, m)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return a, nil
}

func decode(f *TensorFile, path string, m Model) (*File, error) {
	a := &File{Base: m.Base, Labels: map[string]string{}, FullNorm: f.Metadata[keyFull] == "true"}
	for k, v := range f.Metadata {
		if label, ok := strings.CutPrefix(k, KeyLabel); ok {
			a.Labels[label] = v
		}
	}
	var settings map[string]Setting
	var peft *config
	if text, ours := f.Metadata[KeyLayers]; ours {
		if base := f.Metadata[KeyBase]; base != m.Base {
			return nil, fmt.Errorf("it belongs to another base: the adapter was made of %s, %s is %s", short(base), m.Name, short(m.Base))
		}
		if err := memory.Unmarshal([]byte(text), &settings); err != nil {
			return nil, fmt.Errorf("metadata %s: %w", KeyLayers, err)
		}
	} else {
		var err error
		if peft, err = readConfig(filepath.Join(filepath.Dir(path), PEFTFile)); err != nil {
			return nil, err
		}
	}
	entries := map[string]*Entry{}
	var list []*Entry
	for _, name := range slices.Sorted(maps.Keys(f.Tensors)) {
		module, suffix, ok := Split(name)
		if !ok {
			return nil, notOfAnAdapter(name)
		}
		i := slices.IndexFunc(m.Layers, func(l *Layer) bool { return l.Module == module })
		if i < 0 {
			return nil, fmt.Errorf("tensor %q: the model has no layer %q that takes an adapter", name, module)
		}
		e := entries[module]
		if e == nil {
			e = &Entry{Layer: m.Layers[i], Part: &Part{}}
			if s, ok := settings[module]; ok {
				e.Weight, e.Kind, e.Rank, e.Alpha, e.RS, e.Base = s.Weight, s.Kind, s.Rank, s.Alpha, s.RS, s.Base
			} else if peft == nil {
				return nil, fmt.Errorf("tensor %q: the metadata says nothing of layer %q", name, module)
			} else if err := peft.layer(e, f.Tensors); err != nil {
				return nil, err
			}
			if err := e.check(); err != nil {
				return nil, fmt.Errorf("layer %q: %w", module, err)
			}
			entries[module], list = e, append(list, e)
		}
		if e.has(suffix) {
			return nil, fmt.Errorf("tensor %q: layer %q has another one of its kind; keep one adapter in a file", name, module)
		}
		if err := e.take(suffix, f.Tensors[name]); err != nil {
			return nil, fmt.Errorf("tensor %q: %w", name, err)
		}
	}
	for _, e := range list {
		low, sized := e.Kind != Magnitude, e.Kind != LoRA
		if low != (e.A != nil) || low != (e.B != nil) || sized != (e.M != nil) {
			return nil, fmt.Errorf("layer %q of kind %s has not the tensors of that kind", e.Module, e.Kind)
		}
	}
	for _, module := range slices.Sorted(maps.Keys(settings)) {
		if entries[module] == nil {
			return nil, fmt.Errorf("layer %q is in the metadata, but has no tensors", module)
		}
	}
	if len(list) == 0 {
		return nil, errors.New("there is no tensor of an adapter")
	}
	for _, l := range m.Layers {
		if e := entries[l.Module]; e != nil {
			a.Entries = append(a.Entries, *e)
		}
	}
	return a, nil
}

// short is the beginning of a fingerprint.
func short(base string) string {
	if base == "" {
		return "none"
	}
	return base[:min(12, len(base))]
}

// tensorName is a module, what it is of the layer, and the adapter's name, which PEFT leaves out of files but not of a
// model's state: MODULE.lora_A.default.weight. Older files have magnitudes with .weight.
var tensorName = regexp.MustCompile(`^(.+)(\.lora_[AB]|\.lora_magnitude_vector)(\.[^.]+)??(\.weight)?$`)

// Split parses a tensor's name.
func Split(name string) (module, suffix string, ok bool) {
	m := tensorName.FindStringSubmatch(strings.TrimPrefix(name, Prefix))
	if m == nil || m[2] != suffixM && m[4] == "" {
		return "", "", false
	}
	return m[1], m[2], true
}

// check holds a layer's settings against its weight.
func (l *Entry) check() error {
	switch l.Kind {
	case DoRA, LoRA:
		if l.Rank < 1 || l.Rank > l.MaxRank() || l.Rank%l.Group != 0 {
			return fmt.Errorf("rank %d: want a multiple of the %d groups from %d to %d", l.Rank, l.Group, l.Group, l.MaxRank())
		}
		if !(math.Abs(l.Alpha) > 0) || math.IsInf(l.Alpha, 0) {
			return fmt.Errorf("alpha %v, want a finite number other than 0", l.Alpha)
		}
	case Magnitude:
		if l.Rank != 0 {
			return fmt.Errorf("rank %d of kind %s, which has none", l.Rank, l.Kind)
		}
	default:
		return fmt.Errorf("unknown kind %q: want %s, %s or %s", l.Kind, DoRA, LoRA, Magnitude)
	}
	return nil
}

// part is where a tensor of the layer is kept, and its shape in files.
func (l *Entry) part(suffix string) (to *[]float32, shape []int) {
	a, b, m := l.Shapes(l.Layer)
	switch suffix + ".weight" {
	case suffixA:
		return &l.A, a
	case suffixB:
		return &l.B, b
	}
	return &l.M, m
}

// has reports whether the layer has the tensor already.
func (l *Entry) has(suffix string) bool {
	to, _ := l.part(suffix)
	return *to != nil
}

// take converts a tensor of the layer.
func (l *Entry) take(suffix string, t Tensor) error {
	to, want := l.part(suffix)
	if l.Kind == Magnitude && want[0] == 0 || !slices.Equal(t.Shape, want) && !(to == &l.M && slices.Equal(t.Shape, []int{l.Out})) {
		return fmt.Errorf("shape %v, layer %q of kind %s and rank %d wants %v", t.Shape, l.Module, l.Kind, l.Rank, want)
	}
	values, err := Floats(t)
	if err != nil {
		return err
	}
	*to = []float32{}
	for i, x := range values {
		if math.IsNaN(x) || math.IsInf(x, 0) {
			return fmt.Errorf("element %d is %v", i, x)
		}
		*to = append(*to, float32(x))
	}
	return nil
}

// Floats are a tensor's elements.
func Floats(t Tensor) ([]float64, error) {
	switch t.DType {
	case "F16", "BF16", "F32", "F64":
		return npy.Float64s(strings.ToLower(t.DType), t.Data)
	}
	return nil, fmt.Errorf("elements of type %s, want F32, F16, BF16 or F64", t.DType)
}
