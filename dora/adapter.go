package dora

import (
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"strings"

	"github.com/spark-compile/spark-compile/internal/adapterfile"
	"github.com/spark-compile/spark-compile/passes"
)

// Kinds of adapters.
const (
	DoRA      = passes.DoRA
	LoRA      = passes.LoRA
	Magnitude = passes.Magnitude
)

// Adapter is what is trained of a base model.
type Adapter struct {
	Base     string // fingerprint of the base model
	Layers   []*Layer
	FullNorm bool              // gradients pass through the norms too
	Labels   map[string]string // car, condition, user, or any other
}

// Layer is a weight W [Out, Row] and its adapter.
type Layer struct {
	*Weight
	adapterfile.Part
}

// Params is the number of trained numbers.
func (l *Layer) Params() int { return len(l.A) + len(l.B) + len(l.M) }

// Params is the number of trained numbers of all layers.
func (a *Adapter) Params() int {
	n := 0
	for _, l := range a.Layers {
		n += l.Params()
	}
	return n
}

// passes are the layers as the pass insert-dora takes them.
func (a *Adapter) passes() []passes.Adapter {
	var out []passes.Adapter
	for _, l := range a.Layers {
		out = append(out, passes.Adapter{Name: l.Module, Weight: l.Name, Kind: l.Kind, Rank: l.Rank, Scale: l.Scale(), FullNorm: a.FullNorm})
	}
	return out
}

// passContext is that of adapters and their base.
func passContext(precision string, adapters []passes.Adapter, base passes.Base) *passes.Context {
	c := &passes.Context{Precision: precision}
	c.Adapters, c.Base = adapters, base
	return c
}

// file is the adapter as its file has it.
func (a *Adapter) file() *adapterfile.File {
	f := &adapterfile.File{Base: a.Base, FullNorm: a.FullNorm, Labels: a.Labels}
	for _, l := range a.Layers {
		f.Entries = append(f.Entries, adapterfile.Entry{Layer: &l.Weight.Layer, Part: &l.Part, Weight: l.Name})
	}
	return f
}

// Encode writes the adapter as a safetensors file: the same adapter gives the same bytes.
func (a *Adapter) Encode() ([]byte, error) { return a.file().Encode() }

// Save writes the adapter's file atomically. For a file called adapter_model.safetensors it also writes PEFT's
// adapter_config.json to the same directory.
func (a *Adapter) Save(path string) error { return a.file().Save(path) }

// Load reads an adapter of the model: our file, or PEFT's with adapter_config.json in the same directory. It
// rejects an adapter of another base, a tensor without a matching layer, a wrong shape, and numbers that are not
// finite.
func Load(path string, m *Model) (*Adapter, error) {
	target := adapterfile.Model{Name: m.File.Path, Base: m.Base}
	by := map[string]*Weight{}
	for _, w := range m.Weights {
		target.Layers = append(target.Layers, &w.Layer)
		by[w.Module] = w
	}
	f, err := adapterfile.Read(path, target)
	if err != nil {
		return nil, err
	}
	a := &Adapter{Base: f.Base, FullNorm: f.FullNorm, Labels: f.Labels}
	for _, e := range f.Entries {
		storage, _, _ := strings.Cut(e.Base, fittedMark)
		if _, err := baseStorage(storage); err != nil {
			return nil, fmt.Errorf("%s: layer %q: %w", path, e.Module, err)
		}
		a.Layers = append(a.Layers, &Layer{by[e.Module], *e.Part})
	}
	return a, nil
}

// InitOptions say which adapter to make.
type InitOptions struct {
	Kind    passes.AdapterKind // DoRA by default; a depthwise convolution always gets Magnitude, or nothing under LoRA
	Rank    int                // greatest rank; 16 by default. A grouped convolution gets a multiple of its groups
	Alpha   float64            // 1 by default
	RS      bool
	Targets []string
	// MaxSize bounds the adapter's file, as a share of the bytes of the base's weights; 0: no bound. Ranks are dealt out one by
	// one where Sensitivity says that they do most.
	MaxSize     float64
	Sensitivity map[string]float64 // by module; nil: the norm of the weights
	Seed        uint64
	FullNorm    bool
	Labels      map[string]string
}

// bytesOfHeader is what the file's header takes for a layer of three tensors, generously.
const bytesOfHeader = 512

// Init makes an adapter that changes nothing yet: B is zero, A uniform within ±1/√Row (Kaiming with a = √5, as PyTorch's
// linear layers), M the norms of the base's rows.
func Init(m *Model, opt InitOptions) (*Adapter, error) {
	if opt.Kind == "" {
		opt.Kind = DoRA
	}
	if opt.Rank == 0 {
		opt.Rank = 16
	}
	if opt.Alpha == 0 {
		opt.Alpha = 1
	}
	if opt.Rank < 0 {
		return nil, fmt.Errorf("rank %d, want at least 1", opt.Rank)
	}
	weights, err := m.Targets(opt.Targets)
	if err != nil {
		return nil, err
	}
	a := &Adapter{Base: m.Base, FullNorm: opt.FullNorm, Labels: opt.Labels}
	ranks := deal(m, weights, opt)
	for _, w := range weights {
		rank, taken := ranks[w]
		if !taken {
			continue
		}
		l := &Layer{w, adapterfile.Part{Kind: opt.Kind, Rank: rank, Alpha: opt.Alpha, RS: opt.RS}}
		if rank == 0 {
			l.Kind = Magnitude
		}
		l.fill(opt.Seed)
		a.Layers = append(a.Layers, l)
	}
	if len(a.Layers) == 0 {
		return nil, fmt.Errorf("%s: no adapter fits into %.3g %% of the %d bytes of the model's weights: allow more with --max-size, or choose smaller layers with --targets", m.File.Path, 100*opt.MaxSize, m.Bytes)
	}
	return a, nil
}

// Reset gives every layer the numbers that it starts from: the adapter changes nothing again.
func (a *Adapter) Reset(seed uint64) {
	for _, l := range a.Layers {
		l.fill(seed)
	}
}

// fill gives a layer the numbers that it starts from.
func (l *Layer) fill(seed uint64) {
	if l.Kind != Magnitude {
		h := fnv.New64a()
		h.Write([]byte(l.Module))
		rng := rand.New(rand.NewPCG(seed, h.Sum64()))
		bound := 1 / math.Sqrt(float64(l.Row))
		l.A, l.B = make([]float32, l.Rank*l.Row), make([]float32, l.Out*l.Rank/l.Group)
		for i := range l.A {
			u := float64(rng.Float64())
			l.A[i] = float32((u + u - 1) * bound)
		}
	}
	if l.Kind == LoRA {
		return
	}
	l.M = make([]float32, l.Out)
	rows := l.Rows()
	for o := range l.M {
		l.M[o] = float32(norm(rows[o*l.Row : (o+1)*l.Row]))
	}
}

func norm(x []float64) float64 {
	sum := 0.0
	for _, v := range x {
		sum += float64(v * v)
	}
	return math.Sqrt(sum)
}

// deal gives every weight its rank: 0 for magnitudes alone, no entry where it gets nothing. Under MaxSize ranks go one by one to
// the weight where the next one does most for its bytes, if the k-th does a k²-th of the first: spectra of gradients fall
// about so.
func deal(m *Model, weights []*Weight, opt InitOptions) map[*Weight]int {
	ranks := map[*Weight]int{}
	magnitudes := func(w *Weight) int {
		if opt.Kind == LoRA {
			return 0
		}
		return w.Out
	}
	low := func(w *Weight) bool { return opt.Kind != Magnitude && !w.Depthwise() && w.MaxRank() >= w.Group }
	step := func(w *Weight) int { return 4 * (w.Row*w.Group + w.Out) } // bytes of Group more ranks
	if opt.MaxSize <= 0 {
		for _, w := range weights {
			switch {
			case low(w):
				ranks[w] = max(min(opt.Rank, w.MaxRank())/w.Group, 1) * w.Group
			case opt.Kind != LoRA:
				ranks[w] = 0
			}
		}
		return ranks
	}
	left := int(opt.MaxSize*float64(m.Bytes)) - bytesOfHeader
	worth := func(w *Weight) float64 {
		if opt.Sensitivity != nil {
			return opt.Sensitivity[w.Module]
		}
		return norm(w.Rows())
	}
	worths := map[*Weight]float64{}
	for _, w := range weights {
		x := worth(w)
		worths[w] = x * x
	}
	for {
		var best *Weight
		var gain float64
		cost := 0
		for _, w := range weights {
			have, taken := ranks[w]
			c, k := 0, 1.0
			switch {
			case !taken && low(w):
				c = step(w) + 4*magnitudes(w) + bytesOfHeader
			case !taken && opt.Kind != LoRA:
				c = 4*magnitudes(w) + bytesOfHeader
			case taken && low(w) && have+w.Group <= min(opt.Rank, w.MaxRank()):
				c, k = step(w), float64(have/w.Group+1)
			default:
				continue
			}
			if g := worths[w] / (k * k) / float64(c); c <= left && (best == nil || g > gain) {
				best, gain, cost = w, g, c
			}
		}
		if best == nil {
			return ranks
		}
		left -= cost
		if low(best) {
			ranks[best] += best.Group
		} else {
			ranks[best] = 0
		}
	}
}

// MergedRows are the rows of W′ = m ⊙ V/‖V‖, V = W + s·B·A, in float64 [Out, Row] (Liu and others 2024, equation
// 5). W is what the adapter was trained with: the file's weights, or those rounded as Base says.
func (l *Layer) MergedRows() ([]float64, error) {
	rows, err := l.Stored(l.Base)
	if err != nil {
		return nil, err
	}
	s, r := l.Scale(), l.Rank/max(l.Group, 1)
	perGroup := l.Out / l.Group
	for o := range l.Out {
		row := rows[o*l.Row : (o+1)*l.Row]
		for k := range r {
			if len(l.B) == 0 {
				break
			}
			f := s * float64(l.B[o*r+k])
			for i, x := range l.A[(o/perGroup*r+k)*l.Row : (o/perGroup*r+k+1)*l.Row] {
				row[i] += float64(f * float64(x))
			}
		}
		if l.Kind == LoRA {
			continue
		}
		n := norm(row)
		if n == 0 {
			continue
		}
		for i := range row {
			row[i] = float64(row[i] * (float64(l.M[o]) / n))
		}
	}
	return rows, nil
}
