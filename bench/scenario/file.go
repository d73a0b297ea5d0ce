package scenario

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"go.yaml.in/yaml/v3"

	"github.com/spark-compile/spark-compile/internal/memory"
)

// Limits of scenario files.
const (
	maxFamilies = 10000   // of a file, each value of a sweep counted
	maxBytes    = 1 << 20 // of a file: as YAML it takes a hundred times as much memory
)

// fileKeys are the fields of an entry of a scenario file.
var fileKeys = []string{"name", "family", "set", "vary", "sweep", "road"}

// ReadFile reads the families of a scenario file, which is YAML:
//
//	scenarios:
//	  - name: sharp                # left out: the family's name
//	    family: curve              # left out: an empty straight road
//	    set: {friction: 0.6}       # parameters with one value
//	    vary:                      # parameters that each seed draws
//	      curvature: {uniform: [0.004, 0.008]}
//	      offset: {normal: [0, 0.2]}
//	      speed: {choice: [10, 20]}
//	    sweep: {latency: [0, 0.1]} # one family for each value, named sharp/latency=0 …
//	    road: bends.csv            # or its knots: {distance: [0, 200, 300], curvature: [0, 0, 0.004]}
//
// An error names file, line, what is wrong there and, of an unknown name, the nearest one.
//
// A file of a Replay is a scenario file too: run as one, its loops have noise of their own.
func ReadFile(path string) ([]Family, error) { return Planner.ReadFile(path) }

// ReadFile reads a scenario file whose entries are based on families of the tier.
func (t Tier) ReadFile(path string) ([]Family, error) {
	raw, err := readSmall(path)
	if err != nil {
		return nil, err
	}
	list, _, err := t.parse(raw, filepath.Dir(path))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return list, nil
}

// Load is Tier.Load of tier planner.
func Load(ctx context.Context, names ...string) (list []Family, left []error, err error) {
	return Planner.Load(ctx, names...)
}

// Load is the families of the tier that names stand for: those that are built in, those of files that end in .yaml or
// .yml, and recorded drives: files of comma's controls challenge, which end in .csv, and directories with segments of
// comma2k19 or of openpilot's routes, a family each. A directory called as a family is ./NAME. Two of one name are an
// error.
//
// Recorded drives that cannot be used are left out, and left says why; of one that is cut short it has a *Cut. If none can
// be used, that is an error.
func (t Tier) Load(ctx context.Context, names ...string) (list []Family, left []error, err error) {
	m := &importer{}
	for _, name := range names {
		if err := t.load(ctx, name, m); err != nil {
			return nil, nil, err
		}
	}
	if err := m.failed(); err != nil {
		return nil, nil, err
	}
	there := map[string]bool{}
	for _, f := range m.list {
		if there[f.Name] {
			return nil, nil, fmt.Errorf("scenario %q is there twice: its loops would have the same draws; leave one out", f.Name)
		}
		there[f.Name] = true
	}
	return m.list, m.left, nil
}

// load gives an importer what a name stands for.
func (t Tier) load(ctx context.Context, name string, m *importer) error {
	switch ext := filepath.Ext(name); {
	case ext == ".yaml" || ext == ".yml":
		list, err := t.ReadFile(name)
		m.list = append(m.list, list...)
		return err
	case ext == ".csv":
		f, err := importCSV(name)
		if errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return m.add(ctx, f, err)
	}
	f, err := t.FamilyOf(name)
	if err == nil {
		m.list = append(m.list, *f)
		return nil
	}
	if info, err := os.Stat(name); err == nil && info.IsDir() {
		return m.directory(ctx, name)
	}
	return fmt.Errorf("%w; a scenario file ends in .yaml, a recorded drive in .csv or is a directory", err)
}

// readSmall reads a file of the size that scenario files and roads may have.
func readSmall(path string) ([]byte, error) {
	raw, err := memory.ReadRegular(path)
	if err == nil && len(raw) > maxBytes {
		err = fmt.Errorf("%s: it has %d bytes, and %d are allowed; split it", path, len(raw), maxBytes)
	}
	return raw, err
}

// fileTier, of parse, is the tier that a file of a Replay says.
const fileTier Tier = -1

// parse is the families of a file in a directory, and what it says under replay, nil if nothing.
func (t Tier) parse(raw []byte, dir string) (list []Family, replay *yaml.Node, err error) {
	var doc yaml.Node
	d := yaml.NewDecoder(bytes.NewReader(raw))
	if err := d.Decode(&doc); errors.Is(err, io.EOF) {
		return nil, nil, errors.New("it is empty; want scenarios: and a list")
	} else if err != nil {
		return nil, nil, err
	}
	if err := d.Decode(&yaml.Node{}); !errors.Is(err, io.EOF) {
		return nil, nil, errors.New("there is something behind the first document; want one")
	}
	top, err := fields(doc.Content[0], "the file", []string{"scenarios", "replay"})
	if err != nil {
		return nil, nil, err
	}
	entries := top["scenarios"]
	if entries == nil || entries.Kind != yaml.SequenceNode || len(entries.Content) == 0 {
		return nil, nil, fmt.Errorf("line %d: want scenarios: and a list with one at least", doc.Content[0].Line)
	}
	if t == fileTier {
		if t, err = replayTier(top["replay"]); err != nil {
			return nil, nil, err
		}
	}
	names := map[string]int{}
	for _, n := range entries.Content {
		more, err := t.family(n, dir)
		if err != nil {
			return nil, nil, err
		}
		if list = append(list, more...); len(list) > maxFamilies {
			return nil, nil, fmt.Errorf("line %d: there are more than %d scenarios, each value of a sweep counted", n.Line, maxFamilies)
		}
		for _, f := range more {
			if line, ok := names[f.Name]; ok {
				return nil, nil, fmt.Errorf("line %d: %q is the name of the scenario at line %d too; give it another name", n.Line, f.Name, line)
			}
			names[f.Name] = n.Line
		}
	}
	return list, top["replay"], nil
}

// family reads an entry, and makes one family of each value that it sweeps.
func (t Tier) family(n *yaml.Node, dir string) ([]Family, error) {
	at, err := fields(n, "a scenario", fileKeys)
	if err != nil {
		return nil, err
	}
	f, err := t.based(at)
	if err != nil {
		return nil, err
	}
	if at["road"] != nil {
		if f.Road, err = readRoad(at["road"], dir); err != nil {
			return nil, onLine(at["road"], err)
		}
	}
	given, nodes := map[string]string{}, map[string]*yaml.Node{}
	each := func(key string, do func(p *Param, x *yaml.Node) error) error {
		if at[key] == nil {
			return nil
		}
		list, err := fields(at[key], key, paramNames)
		if err != nil {
			return err
		}
		for _, name := range slices.Sorted(maps.Keys(list)) {
			if other, ok := given[name]; ok {
				return fmt.Errorf("line %d: %s is under %s and under %s; want one", list[name].Line, name, other, key)
			}
			given[name], nodes[name] = key, list[name]
			delete(f.Values, name)
			delete(f.Vary, name)
			p := &Params[paramIndex[name]]
			if err := t.checkUse(p); err != nil {
				return onLine(list[name], err)
			}
			if err := do(p, list[name]); err != nil {
				return onLine(list[name], err)
			}
		}
		return nil
	}
	if err := each("set", func(p *Param, x *yaml.Node) (err error) {
		if f.Values[p.Name], err = number(p, x); err != nil {
			return err
		}
		return p.check(f.Values[p.Name])
	}); err != nil {
		return nil, err
	}
	if err := each("vary", func(p *Param, x *yaml.Node) (err error) {
		f.Vary[p.Name], err = distribution(p, x)
		return err
	}); err != nil {
		return nil, err
	}
	out := []Family{f}
	if err := each("sweep", func(p *Param, x *yaml.Node) (err error) {
		out, err = swept(out, p, x)
		return err
	}); err != nil {
		return nil, err
	}
	if err := out[0].checkRoad(); err != nil { // all name the same parameters
		return nil, onLine(n, err)
	}
	for i := range out {
		if param, err := out[i].checkProfiles(); err != nil {
			return nil, onLine(cmp.Or(nodes[param], n), err)
		}
	}
	return out, nil
}

// based is the family that a scenario names, by its own name if it has one.
func (t Tier) based(at map[string]*yaml.Node) (Family, error) {
	f := Family{Name: "plain", Values: map[string]float64{}, Vary: map[string]Distribution{}}
	for _, key := range []string{"family", "name"} {
		x := at[key]
		switch {
		case x == nil:
		case x.Kind != yaml.ScalarNode || x.Value == "" || len(x.Value) > 200:
			return f, fmt.Errorf("line %d: %s is no name of 1 to 200 bytes", x.Line, key)
		case key == "name":
			f.Name = x.Value
		default:
			base, err := t.FamilyOf(x.Value)
			if err != nil {
				return f, onLine(x, err)
			}
			f.Name, f.Doc = base.Name, base.Doc
			maps.Copy(f.Values, base.Values)
			maps.Copy(f.Vary, base.Vary)
		}
	}
	return f, nil
}

// distribution reads how a parameter varies.
func distribution(p *Param, x *yaml.Node) (d Distribution, err error) {
	kinds, err := fields(x, p.Name, []string{"uniform", "normal", "choice"})
	if err != nil {
		return d, err
	}
	for _, k := range []struct {
		name string
		to   *[]float64
	}{{"uniform", &d.Uniform}, {"normal", &d.Normal}, {"choice", &d.Choice}} {
		if kinds[k.name] != nil {
			if *k.to, err = numbers(p, kinds[k.name]); err != nil {
				return d, err
			}
		}
	}
	return d, d.check(p)
}

// swept are families with each of several values of a parameter.
func swept(list []Family, p *Param, x *yaml.Node) (all []Family, err error) {
	values, err := numbers(p, x)
	if err != nil {
		return nil, err
	}
	if len(values) == 0 || len(values)*len(list) > maxFamilies {
		return nil, fmt.Errorf("%s is swept over %d values of %d scenarios; want 1 to %d of both", p.Name, len(values), len(list), maxFamilies)
	}
	for _, was := range list {
		for _, v := range values {
			if err := p.check(v); err != nil {
				return nil, err
			}
			one := was
			one.Name = fmt.Sprintf("%s/%s=%v", was.Name, p.Name, v)
			one.Values = maps.Clone(was.Values)
			one.Values[p.Name] = v
			one.Vary = maps.Clone(was.Vary)
			delete(one.Vary, p.Name)
			all = append(all, one)
		}
	}
	return all, nil
}

// fields are those of a mapping, each of which must be known and there once.
func fields(n *yaml.Node, what string, known []string) (map[string]*yaml.Node, error) {
	if n.Kind != yaml.MappingNode {
		return nil, onLine(n, fmt.Errorf("%s is no mapping of names to values", what))
	}
	out := map[string]*yaml.Node{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		switch {
		case key.Kind != yaml.ScalarNode || !slices.Contains(known, key.Value):
			name := shortened(key.Value)
			return nil, onLine(key, fmt.Errorf("%s has no field %q; %s", what, name, hint(name, known)))
		case out[key.Value] != nil:
			return nil, onLine(key, fmt.Errorf("%s is there twice", key.Value))
		}
		out[key.Value] = n.Content[i+1]
	}
	return out, nil
}

// lineError is an error that names the line of a file.
type lineError struct {
	line int
	err  error
}

func (e *lineError) Error() string { return fmt.Sprintf("line %d: %v", e.line, e.err) }
func (e *lineError) Unwrap() error { return e.err }

// onLine is an error with the line of a node, unless it names a line of the same file already.
func onLine(n *yaml.Node, err error) error {
	if errors.As(err, new(*lineError)) {
		return err
	}
	return &lineError{n.Line, err}
}

func shortened(s string) string { return s[:min(len(s), 60)] }

func number(p *Param, n *yaml.Node) (float64, error) {
	x, err := strconv.ParseFloat(n.Value, 64)
	if n.Kind != yaml.ScalarNode || err != nil || math.IsInf(x, 0) || math.IsNaN(x) {
		return 0, fmt.Errorf("%s is %q, want a number", p.Name, shortened(n.Value))
	}
	return x, nil
}

func numbers(p *Param, n *yaml.Node) ([]float64, error) {
	if n.Kind != yaml.SequenceNode {
		return nil, fmt.Errorf("%s: want a list of numbers", p.Name)
	}
	out := []float64{}
	for _, x := range n.Content {
		v, err := number(p, x)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, nil
}
