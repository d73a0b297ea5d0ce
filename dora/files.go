package dora

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spark-compile/spark-compile/internal/atomicfile"
	"github.com/spark-compile/spark-compile/internal/safetensors"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/passes"
)

// Names in files are those of PEFT: base_model.model.MODULE.lora_A.weight [r, in], [r, in/g, taps…]; .lora_B.weight [out, r],
// [out, r/g, 1…]; .lora_magnitude_vector [out], [1, out, 1…].
const (
	prefix    = "base_model.model."
	suffixA   = ".lora_A.weight"
	suffixB   = ".lora_B.weight"
	suffixM   = ".lora_magnitude_vector"
	peftModel = "adapter_model.safetensors"
	peftFile  = "adapter_config.json"
)

// Keys of the file's metadata. The layers' settings are under keyLayers, as JSON.
const (
	keyFormat = "format"
	keyBase   = "spark-compile.base"
	keyFull   = "spark-compile.full_norm"
	keyLayers = "spark-compile.layers"
	keyLabel  = "label."
)

// layerFile is a layer's settings in the metadata.
type layerFile struct {
	Weight string             `json:"weight"`
	Kind   passes.AdapterKind `json:"kind"`
	Rank   int                `json:"rank,omitempty"`
	Alpha  float64            `json:"alpha,omitempty"`
	RS     bool               `json:"rslora,omitempty"`
	Base   string             `json:"base,omitempty"`
}

// config is PEFT's adapter_config.json, the part that says what its tensors mean.
type config struct {
	PeftType     string             `json:"peft_type"`
	Base         string             `json:"base_model_name_or_path"`
	Rank         int                `json:"r"`
	Alpha        float64            `json:"lora_alpha"`
	Dropout      float64            `json:"lora_dropout"`
	Bias         string             `json:"bias"`
	DoRA         bool               `json:"use_dora"`
	RS           bool               `json:"use_rslora"`
	Targets      any                `json:"target_modules"`
	RankPattern  map[string]int     `json:"rank_pattern"`
	AlphaPattern map[string]float64 `json:"alpha_pattern"`
}

// shapes are those of the tensors in the file.
func (l *Layer) shapes() (a, b, m []int) {
	in := []int{l.in()}
	ones := slices.Repeat([]int{1}, len(l.Taps))
	a = slices.Concat([]int{l.Rank}, in, l.Taps)
	b = slices.Concat([]int{l.Out, l.Rank / l.Group}, ones)
	m = []int{l.Out}
	if len(l.Taps) > 0 {
		m = slices.Concat([]int{1, l.Out}, ones)
	}
	return a, b, m
}

// Encode writes the adapter as a safetensors file: the same adapter gives the same bytes.
func (a *Adapter) Encode() ([]byte, error) {
	f := &safetensors.File{Tensors: map[string]safetensors.Tensor{}, Metadata: map[string]string{keyFormat: "pt", keyBase: a.Base}}
	if a.FullNorm {
		f.Metadata[keyFull] = "true"
	}
	for k, v := range a.Labels {
		f.Metadata[keyLabel+k] = v
	}
	settings := map[string]layerFile{}
	for _, l := range a.Layers {
		settings[l.Module] = layerFile{l.Name, l.Kind, l.Rank, l.Alpha, l.RS, l.Base}
		shapeA, shapeB, shapeM := l.shapes()
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
			f.Tensors[prefix+l.Module+t.suffix] = safetensors.Tensor{DType: "F32", Shape: t.shape, Data: data}
		}
	}
	text, err := json.Marshal(settings)
	if err != nil {
		return nil, err
	}
	f.Metadata[keyLayers] = string(text)
	return f.Encode()
}

// Save writes the adapter's file, whole or not at all. A file called adapter_model.safetensors gets PEFT's
// adapter_config.json beside it.
func (a *Adapter) Save(path string) error {
	data, err := a.Encode()
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if filepath.Base(path) == peftModel {
		if err := atomicfile.WriteJSON(filepath.Join(filepath.Dir(path), peftFile), a.config()); err != nil {
			return err
		}
	}
	return atomicfile.Write(path, data)
}

// config describes the adapter to PEFT: the first layer's rank and alpha, and those that differ.
func (a *Adapter) config() *config {
	c := &config{PeftType: "LORA", Base: a.Base, Bias: "none", RankPattern: map[string]int{}, AlphaPattern: map[string]float64{}}
	var targets []string
	for _, l := range a.Layers {
		if l.Kind == Magnitude {
			continue // PEFT has no such kind
		}
		targets = append(targets, l.Module)
		if c.Rank == 0 {
			c.Rank, c.Alpha, c.RS = l.Rank, l.Alpha, l.RS
		}
		c.DoRA = c.DoRA || l.Kind == DoRA
		if l.Rank != c.Rank {
			c.RankPattern[l.Module] = l.Rank
		}
		if l.Alpha != c.Alpha {
			c.AlphaPattern[l.Module] = l.Alpha
		}
	}
	c.Targets = targets
	return c
}

// Load reads an adapter of the model: our file, or PEFT's with its adapter_config.json beside it. An adapter of another base, a
// tensor that the model has no layer for, one of another shape, and numbers that are not finite are errors.
func Load(path string, m *Model) (*Adapter, error) {
	f, err := safetensors.Read(path)
	if err != nil {
		return nil, err
	}
	a, err := decode(f, path, m)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return a, nil
}

func decode(f *safetensors.File, path string, m *Model) (*Adapter, error) {
	a := &Adapter{Base: m.Base, Labels: map[string]string{}, FullNorm: f.Metadata[keyFull] == "true"}
	for k, v := range f.Metadata {
		if label, ok := strings.CutPrefix(k, keyLabel); ok {
			a.Labels[label] = v
		}
	}
	var settings map[string]layerFile
	var peft *config
	if text, ours := f.Metadata[keyLayers]; ours {
		if base := f.Metadata[keyBase]; base != m.Base {
			return nil, fmt.Errorf("it belongs to another base: the adapter was made of %s, %s is %s", short(base), m.File.Path, short(m.Base))
		}
		if err := json.Unmarshal([]byte(text), &settings); err != nil {
			return nil, fmt.Errorf("metadata %s: %w", keyLayers, err)
		}
	} else {
		var err error
		if peft, err = readConfig(filepath.Join(filepath.Dir(path), peftFile)); err != nil {
			return nil, err
		}
	}
	layers := map[string]*Layer{}
	for _, name := range slices.Sorted(maps.Keys(f.Tensors)) {
		module, suffix, ok := split(name)
		if !ok {
			return nil, fmt.Errorf("tensor %q is none of an adapter: want names ending in %s, %s or %s", name, suffixA, suffixB, suffixM)
		}
		i := slices.IndexFunc(m.Weights, func(w *Weight) bool { return w.Module == module })
		if i < 0 {
			return nil, fmt.Errorf("tensor %q: the model has no layer %q that takes an adapter", name, module)
		}
		l := layers[module]
		if l == nil {
			l = &Layer{Weight: m.Weights[i]}
			if s, ok := settings[module]; ok {
				l.Kind, l.Rank, l.Alpha, l.RS, l.Base = s.Kind, s.Rank, s.Alpha, s.RS, s.Base
			} else if peft == nil {
				return nil, fmt.Errorf("tensor %q: the metadata says nothing of layer %q", name, module)
			} else if err := peft.layer(l, f); err != nil {
				return nil, err
			}
			if err := l.check(); err != nil {
				return nil, fmt.Errorf("layer %q: %w", module, err)
			}
			layers[module] = l
			a.Layers = append(a.Layers, l)
		}
		if err := l.take(suffix, f.Tensors[name]); err != nil {
			return nil, fmt.Errorf("tensor %q: %w", name, err)
		}
	}
	for _, l := range a.Layers {
		low, sized := l.Kind != Magnitude, l.Kind != LoRA
		if low != (l.A != nil) || low != (l.B != nil) || sized != (l.M != nil) {
			return nil, fmt.Errorf("layer %q of kind %s has not the tensors of that kind", l.Module, l.Kind)
		}
	}
	for module := range settings {
		if layers[module] == nil {
			return nil, fmt.Errorf("layer %q is in the metadata, but has no tensors", module)
		}
	}
	if len(a.Layers) == 0 {
		return nil, errors.New("there is no tensor of an adapter")
	}
	order := map[*Weight]int{}
	for i, w := range m.Weights {
		order[w] = i
	}
	slices.SortFunc(a.Layers, func(x, y *Layer) int { return order[x.Weight] - order[y.Weight] })
	return a, nil
}

// short is the beginning of a fingerprint.
func short(base string) string {
	if base == "" {
		return "none"
	}
	return base[:min(12, len(base))]
}

// split takes a tensor's name apart. PEFT's has an adapter's name behind lora_A and the magnitudes in older files.
func split(name string) (module, suffix string, ok bool) {
	name = strings.TrimPrefix(name, prefix)
	for _, s := range []string{suffixA, suffixB, suffixM, suffixM + ".weight"} {
		if m, found := strings.CutSuffix(name, s); found && m != "" {
			return m, strings.TrimSuffix(strings.TrimSuffix(s, ".weight"), ".weight"), true
		}
	}
	return "", "", false
}

// check holds a layer's settings against its weight.
func (l *Layer) check() error {
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
	_, err := baseStorage(l.Base)
	return err
}

// take converts a tensor of the layer.
func (l *Layer) take(suffix string, t safetensors.Tensor) error {
	a, b, m := l.shapes()
	to, want := &l.M, m
	switch suffix + ".weight" {
	case suffixA:
		to, want = &l.A, a
	case suffixB:
		to, want = &l.B, b
	}
	if l.Kind == Magnitude && want[0] == 0 || !slices.Equal(t.Shape, want) && !(to == &l.M && slices.Equal(t.Shape, []int{l.Out})) {
		return fmt.Errorf("shape %v, layer %q of kind %s and rank %d wants %v", t.Shape, l.Module, l.Kind, l.Rank, want)
	}
	values, err := floats(t)
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

// floats are a tensor's elements.
func floats(t safetensors.Tensor) ([]float64, error) {
	d, ok := map[string]ir.DType{"F16": ir.Float16, "BF16": ir.BFloat16, "F32": ir.Float32, "F64": ir.Float64}[t.DType]
	if !ok {
		return nil, fmt.Errorf("elements of type %s, want F32, F16, BF16 or F64", t.DType)
	}
	x, err := ir.NewTensor(ir.T(d, t.Shape...), t.Data)
	if err != nil {
		return nil, err
	}
	return x.Floats(), nil
}

// readConfig reads PEFT's settings.
func readConfig(path string) (*config, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("it has no settings: neither metadata of spark-dora nor PEFT's %s beside it", peftFile)
	}
	if err != nil {
		return nil, err
	}
	c := &config{}
	if err := json.Unmarshal(data, c); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if c.PeftType != "LORA" {
		return nil, fmt.Errorf("%s: peft_type %q, only LORA is supported", path, c.PeftType)
	}
	return c, nil
}

// layer fills in what PEFT's settings say of a layer. Patterns name modules, or how their names end.
func (c *config) layer(l *Layer, f *safetensors.File) error {
	l.Kind, l.Rank, l.Alpha, l.RS = LoRA, c.Rank, c.Alpha, c.RS
	if c.DoRA {
		l.Kind = DoRA
	}
	ends := func(pattern string) bool {
		return l.Module == pattern || strings.HasSuffix(l.Module, "."+pattern)
	}
	for _, p := range slices.Sorted(maps.Keys(c.RankPattern)) {
		if ends(p) {
			l.Rank = c.RankPattern[p]
		}
	}
	for _, p := range slices.Sorted(maps.Keys(c.AlphaPattern)) {
		if ends(p) {
			l.Alpha = c.AlphaPattern[p]
		}
	}
	if t, ok := f.Tensors[prefix+l.Module+suffixA]; ok && len(t.Shape) > 0 && t.Shape[0] != l.Rank {
		return fmt.Errorf("layer %q: lora_A has rank %s, %s says %d", l.Module, strconv.Itoa(t.Shape[0]), peftFile, l.Rank)
	}
	return nil
}
