package calibrate

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spark-compile/spark-compile/internal/atomicfile"
	"github.com/spark-compile/spark-compile/internal/memory"
	"github.com/spark-compile/spark-compile/internal/precision"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/passes"
	"github.com/spark-compile/spark-compile/runtime"
)

// savedVersion is the version of the file and of what makes findings: raise it when the same inputs lead to others.
const savedVersion = 10

// Origin is what findings depend on. Neither budget, nor target, nor which layers are kept is part of it.
type Origin struct {
	Precision string   `json:"precision"`
	Graph     string   `json:"graph"`  // digest of the regions that are fitted, weights included
	Inputs    []string `json:"inputs"` // digests of the calibration inputs
}

// Saved is a file of findings: a line with version and digest, then this as JSON. The same findings are the same bytes.
type Saved struct {
	Origin
	Fits      []savedFit      `json:"fits"`
	Alone     []savedAlone    `json:"alone"`
	Means     []savedMeans    `json:"means"`
	Reference *SavedReference `json:"reference,omitempty"`

	path string // of the file, for errors
}

// savedFit is what one walk through the graph found.
type savedFit struct {
	Layers []savedLayer `json:"layers"` // a site that is not listed is in 16 bits
	Scales []savedScale `json:"scales"`
}

type savedLayer struct {
	Site   string    `json:"site"`
	Format string    `json:"format"`
	Local  float64   `json:"local"`
	Codes  []byte    `json:"codes,omitempty"`  // weights, as the format packs them
	Blocks []byte    `json:"blocks,omitempty"` // their scales
	Scales []float64 `json:"scales,omitempty"` // of channels
	Bias   []float64 `json:"bias,omitempty"`
}

type savedScale struct {
	Value  string `json:"value"`
	Format string `json:"format"`
	Blocks bool   `json:"blocks,omitempty"`
	Twice  bool   `json:"twice,omitempty"`
	Range
}

type savedAlone struct {
	Site   string  `json:"site"`
	Format string  `json:"format"`
	Error  float64 `json:"error"`
}

// savedMeans are those of the channels of one exact anchor, by input that is fitted to: f32, little-endian.
type savedMeans struct {
	Region string   `json:"region"`
	Inputs [][]byte `json:"inputs"`
}

// SavedReference is what the file yields for the inputs that programs are judged on.
type SavedReference struct {
	Inputs    []string               `json:"inputs"` // digests
	Outputs   map[string][][]float64 `json:"outputs"`
	Float64   []bool                 `json:"float64"` // by input: evaluated in float64
	FP32RelL2 map[string]float64     `json:"apart,omitempty"`
}

// Origin describes this calibration.
func (c *Calibration) Origin(precision string) Origin {
	return Origin{precision, fmt.Sprintf("%x", sha256.Sum256([]byte(c.walk.g.String()))), Digests(c.inputs)}
}

// Digests are those of inputs of a graph.
func Digests(inputs []map[string]*ir.Array) (out []string) {
	for _, in := range inputs {
		h := sha256.New()
		for _, name := range slices.Sorted(maps.Keys(in)) {
			t := in[name].Tensor()
			fmt.Fprintf(h, "%s %v\n", name, t.Type)
			h.Write(t.Data)
		}
		out = append(out, fmt.Sprintf("%x", h.Sum(nil)[:16]))
	}
	return out
}

// differs says in what an origin is not the one of a file, and what to do about it.
func (o Origin) differs(file Origin) (what string) {
	same := 0
	for _, d := range o.Inputs {
		if slices.Contains(file.Inputs, d) {
			same++
		}
	}
	switch {
	case o.Precision != file.Precision:
		return fmt.Sprintf("it was made for --precision %s, not %s", file.Precision, o.Precision)
	case o.Graph != file.Graph && (same == 0 || same == len(o.Inputs)): // a graph may have means of the inputs
		return "it was made from another model, or one with other shapes, passes or calibration inputs"
	case !slices.Equal(o.Inputs, file.Inputs):
		return fmt.Sprintf("it was made from other calibration inputs: %d of these %d are among its %d, which must be the same in the same order", same, len(o.Inputs), len(file.Inputs))
	}
	return ""
}

const savedMagic = "spark-compile calibration"

// Found reports whether there is anything to save.
func (c *Calibration) Found() bool { return len(c.found.fits)+len(c.found.saved) > 0 }

// ReadSaved reads a file of findings that must be of an origin; nil if there is no file.
func ReadSaved(path string, origin Origin) (*Saved, error) {
	raw, err := memory.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	s := &Saved{path: path}
	refuse := func(format string, args ...any) (*Saved, error) { return nil, s.refuse(format, args...) }
	head, body, _ := bytes.Cut(raw, []byte("\n"))
	version, sum, ok := strings.Cut(strings.TrimPrefix(string(head), savedMagic+" "), " ")
	switch {
	case !bytes.HasPrefix(head, []byte(savedMagic+" ")) || !ok:
		return refuse("it is not a file that spark-compile --calibration has written")
	case version != fmt.Sprint(savedVersion):
		return refuse("it has version %s, and this compiler reads %d", version, savedVersion)
	case sum != fmt.Sprintf("%x", sha256.Sum256(body)):
		return refuse("it is damaged: its contents do not have the digest that its first line gives")
	}
	if err := memory.UnmarshalStrict(body, s); err != nil && !errors.Is(err, io.EOF) {
		return refuse("%v", err)
	}
	if what := origin.differs(s.Origin); what != "" {
		return refuse("%s", what)
	}
	if same, err := s.bytes(); err != nil || !bytes.Equal(same, raw) { // members of one name, of which JSON takes the last
		return refuse("its contents are not written as spark-compile --calibration writes them")
	}
	return s, nil
}

// refuse is the error of a file that cannot be used: why, and what to do.
func (s *Saved) refuse(format string, args ...any) error {
	return fmt.Errorf("--calibration %s: %s; name another file, or delete this one to calibrate anew", s.path, fmt.Sprintf(format, args...))
}

// bytes is the file.
func (s *Saved) bytes() ([]byte, error) {
	body, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	body = append(body, '\n')
	return append(fmt.Appendf(nil, "%s %d %x\n", savedMagic, savedVersion, sha256.Sum256(body)), body...), nil
}

// Write replaces a file by the findings, unless it holds them already.
func (s *Saved) Write(path string) error {
	raw, err := s.bytes()
	if err != nil {
		return fmt.Errorf("--calibration %s: %w", path, err)
	}
	if was, err := os.ReadFile(path); err == nil && bytes.Equal(was, raw) {
		return nil
	}
	return atomicfile.Write(path, raw)
}

// Save is everything that was found so far.
func (c *Calibration) Save(precision string) *Saved {
	s := &Saved{Origin: c.Origin(precision)}
	fits := slices.Clone(c.found.saved)
	for _, f := range c.found.fits {
		if !slices.Contains(fits, f) {
			fits = append(fits, f)
		}
	}
	for _, f := range fits {
		s.Fits = append(s.Fits, f.save())
	}
	for _, k := range slices.SortedFunc(maps.Keys(c.found.alone), layerKey.compare) {
		s.Alone = append(s.Alone, savedAlone{k.name, k.format.Name, c.found.alone[k]})
	}
	for _, name := range slices.Sorted(maps.Keys(c.found.means)) {
		m := savedMeans{Region: name}
		for _, x := range c.found.means[name] {
			m.Inputs = append(m.Inputs, runtime.Bytes(x))
		}
		s.Means = append(s.Means, m)
	}
	return s
}

func (f *found) save() (s savedFit) {
	for _, name := range slices.Sorted(maps.Keys(f.layers)) {
		was := f.layers[name]
		l := savedLayer{Site: name, Format: f.formats.of(name).Name, Local: was.local, Scales: was.layer.Scales, Bias: was.layer.Bias}
		if was.layer.Weights != nil {
			l.Codes = was.layer.Weights.Data
		}
		if was.layer.Blocks != nil {
			l.Blocks = was.layer.Blocks.Data
		}
		s.Layers = append(s.Layers, l)
	}
	for k, r := range f.scales {
		s.Scales = append(s.Scales, savedScale{k.group.Name, k.format.Name, k.format.Blocks, k.format.HiLo, r})
	}
	slices.SortFunc(s.Scales, func(a, b savedScale) int {
		return cmp.Or(cmp.Compare(a.Value, b.Value), cmp.Compare(a.Format, b.Format), cmp.Compare(fmt.Sprint(a.Twice), fmt.Sprint(b.Twice)))
	})
	return s
}

func (k layerKey) compare(o layerKey) int {
	return cmp.Or(cmp.Compare(k.name, o.name), cmp.Compare(k.format.Name, o.format.Name))
}

// Use takes over what was found before from the same origin. Contents that no calibration of this graph can have found are an
// error that names the file and the region, and nothing is taken over.
func (c *Calibration) Use(s *Saved) error {
	if err := c.check(s); err != nil {
		return s.refuse("%v", err)
	}
	n := c.named(s.Precision)
	for _, f := range s.Fits {
		fit, err := n.fit(f)
		if err != nil {
			return s.refuse("%v", err)
		}
		c.found.saved = append(c.found.saved, fit)
	}
	for _, x := range s.Alone {
		c.found.alone[layerKey{x.Site, n.formats[x.Format]}] = x.Error
	}
	for _, m := range s.Means {
		for _, x := range m.Inputs {
			c.found.means[m.Region] = append(c.found.means[m.Region], slices.Clone(runtime.View[float32](x)))
		}
	}
	return nil
}

// names are what a file refers to by name.
type names struct {
	sites    map[string]*passes.Site
	anchors  map[string]*step // steps that are split after their anchor, sites or not
	values   map[string]*ir.Value
	formats  map[string]precision.Layer   // of the precision, and Half
	operands map[string]precision.Operand // narrow activations
}

func (c *Calibration) named(of string) *names {
	n := &names{map[string]*passes.Site{}, map[string]*step{}, map[string]*ir.Value{},
		map[string]precision.Layer{precision.Half.Name: precision.Half}, map[string]precision.Operand{}}
	for _, site := range c.Sites() {
		n.sites[site.Name()] = &site
	}
	for _, st := range c.walk.steps {
		for _, v := range slices.Concat(st.node.Inputs, st.node.Outputs) {
			n.values[v.Name] = v
		}
		if st.channels > 0 {
			n.anchors[st.node.Outputs[0].Name] = st
		}
	}
	p, err := precision.Lookup(of)
	if err != nil {
		return n
	}
	for _, f := range p.Candidates {
		n.formats[f.Name] = f
		if o := f.Activations; o.Narrow() {
			n.operands[fmt.Sprint(o.Name, o.Blocks, o.HiLo)] = o
		}
		if !f.Weights.HiLo { // as layers get whose activations cannot be narrow
			n.formats[f.WeightsOnly().Name] = f.WeightsOnly()
		}
	}
	return n
}

// key is what a scale is found by; its parts are nil where the file names no value or format.
func (n *names) key(x savedScale) scaleKey {
	return scaleKey{n.values[x.Value], n.operands[fmt.Sprint(x.Format, x.Blocks, x.Twice)]}
}

// fit takes a fit that was checked.
func (n *names) fit(s savedFit) (*found, error) {
	out := newFound(Assignment{})
	for _, l := range s.Layers {
		f, layer := n.formats[l.Format], passes.Layer{Scales: l.Scales, Bias: l.Bias}
		if f != precision.Half {
			layer.Split = f.Weights.HiLo
			var err error
			if layer.Weights, layer.Blocks, err = l.tensors(n.sites[l.Site], f); err != nil {
				return nil, err
			}
		}
		out.formats[l.Site], out.layers[l.Site] = f, finding{layer, l.Local}
	}
	for _, x := range s.Scales {
		out.scales[n.key(x)] = x.Range
	}
	return out, nil
}
