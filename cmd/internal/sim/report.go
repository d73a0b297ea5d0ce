package sim

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/spark-compile/spark-compile/bench/scenario"
	"github.com/spark-compile/spark-compile/dora/dataset"
	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/hal/config"
	"github.com/spark-compile/spark-compile/internal/atomicfile"
	"github.com/spark-compile/spark-compile/internal/console"
	"github.com/spark-compile/spark-compile/internal/memory"
	"github.com/spark-compile/spark-compile/internal/npy"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/runtime"
)

// reportVersion is that of the reports that this program writes, and the only one that it reads.
const reportVersion = 2

// report is what run --json writes: all that a loop of it needs to be run again, and the metrics of those that ended.
type report struct {
	Version   int               `json:"version"`
	Program   string            `json:"program"` // version of spark-sim that ran it
	Tier      string            `json:"tier"`
	Algorithm string            `json:"algorithm"`
	Digest    string            `json:"digest,omitzero"`      // SHA-256 of an algorithm's files, with external data
	MinCosine *float64          `json:"min_cosine,omitempty"` // --min-cosine; nil: the default
	Layers    map[string]int    `json:"layers,omitempty"`     // of a network in a precision that is calibrated: how many are in which
	Device    string            `json:"device"`
	Seed      uint64            `json:"seed"`
	N         int               `json:"n"`
	Partial   bool              `json:"partial,omitzero"`      // the run was stopped: the last loops are not there
	State     string            `json:"state,omitzero"`        // SHA-256 of the file with loops that were on their way
	Times     *times            `json:"times,omitempty"`       // with --times alone: no two runs have the same
	Route     string            `json:"route,omitzero"`        // directory of a recorded route that models see
	Pictures  string            `json:"route_digest,omitzero"` // SHA-256 of the route's files, where models see it
	Scenarios []scenario.Family `json:"scenarios"`
	Columns   []string          `json:"columns"` // of metrics
	Metrics   [][]float64       `json:"metrics"` // a row for each loop, grouped by scenario
}

// columns are the names of a tier's metrics.
func columns(t scenario.Tier) (names []string) {
	for _, m := range t.Metrics() {
		names = append(names, m.Name)
	}
	return names
}

// tier is the report's, whose name is known.
func (r *report) tier() scenario.Tier {
	t, _ := scenario.TierNamed(r.Tier) //nolint:errcheck // readReport and plan saw to it
	return t
}

// runner is one for the report's loops; tier model is the algorithm's own.
func (r *report) runner(ctx context.Context, d hal.Device) (*scenario.Runner, error) {
	run := &scenario.Runner{Device: d, MinCosine: r.MinCosine}
	if r.Route != "" && r.tier() == scenario.Pictures {
		var err error
		if _, run.Recording, err = scenario.OpenRoute(ctx, r.Route); err != nil {
			return nil, err
		}
	}
	if t := r.tier(); t != scenario.Pictures {
		run.Tier = t
	}
	return run, nil
}

// outside says how many loops left the corridor of a recorded route; "" where there is none.
func (r *report) outside() string {
	k := slices.Index(r.Columns, "left_corridor")
	if r.Route == "" || r.tier() != scenario.Pictures || k < 0 {
		return ""
	}
	left := 0
	for _, row := range r.Metrics {
		if row[k] > 0 {
			left++
		}
	}
	return fmt.Sprintf("%d of %s left the reprojected corridor of %s, and ended there: %s\n", left,
		console.Count(len(r.Metrics), "loop"), r.Route, scenario.Corridor)
}

// take puts the report's scenarios on a recorded route; where there are none, the route's own one is.
func (r *report) take(ctx context.Context, route string, warn func(string)) error {
	open := scenario.RoadOf
	if r.tier() == scenario.Pictures {
		open = func(ctx context.Context, dir string) (*scenario.Family, []string, error) {
			own, film, err := scenario.OpenRoute(ctx, dir)
			if err != nil {
				return nil, nil, err
			}
			return own, film.Damage, nil
		}
	}
	own, damage, err := open(ctx, route)
	if err != nil {
		return fmt.Errorf("--route: %w", err)
	}
	for _, text := range damage {
		warn("--route: " + text)
	}
	if r.Route = route; len(r.Scenarios) == 0 {
		r.Scenarios = []scenario.Family{*own}
	}
	for i, f := range r.Scenarios {
		if len(r.Scenarios) == 1 && f.Road == own.Road {
			break
		}
		if r.Scenarios[i], err = f.On(own); err != nil {
			return fmt.Errorf("--route: %w", err)
		}
	}
	return nil
}

// tierFlag is the flag of the tiers without pictures.
type tierFlag struct {
	Tier string `help:"planner: road, other cars and sensors; controls: the vehicle alone, of which scenarios ask for curvatures and accelerations. Default: planner; models see pictures by themselves." placeholder:"T"`
}

// tier is what the flag says.
func (f *tierFlag) tier() (scenario.Tier, error) {
	if f.Tier == "" {
		return scenario.Planner, nil
	}
	t, err := scenario.TierNamed(f.Tier)
	if err == nil && t == scenario.Pictures {
		err = errors.New("driving models run in it by themselves; leave it out")
	}
	if err != nil {
		return t, fmt.Errorf("--tier %s: %w", f.Tier, err)
	}
	return t, nil
}

// total is how many loops there are to run.
func (r *report) total() int { return r.N * len(r.Scenarios) }

// loop names loop i of the report.
func (r *report) loop(i int) (family *scenario.Family, k int) { return &r.Scenarios[i/r.N], i % r.N }

// draw is the scenario of loop i.
func (r *report) draw(i int) (scenario.Scenario, error) {
	f, k := r.loop(i)
	return f.Draw(r.Seed, k)
}

// digest is that of the files of an algorithm's networks, with their external data; "" without one.
func digest(a scenario.Algorithm) (string, error) {
	var files []*onnx.Model
	switch a := a.(type) {
	case *scenario.Policy:
		files = []*onnx.Model{a.ONNX}
	case *scenario.Models:
		files = a.ONNX
	}
	var all []string
	for _, m := range files {
		sum, err := m.Digest()
		if err != nil {
			return "", err
		}
		all = append(all, sum)
	}
	return strings.Join(all, "+"), nil
}

// cleanPath is a path without what says nothing, such as ./ or a slash at its end; "" stays.
func cleanPath(path string) string {
	if path == "" {
		return ""
	}
	return filepath.Clean(path)
}

// cleanAlgorithm is an algorithm whose files have clean paths.
func cleanAlgorithm(name string) string {
	paths, precision := scenario.FilesOf(name)
	if len(paths) == 0 {
		return name
	}
	for i, path := range paths {
		paths[i] = filepath.Clean(path)
	}
	name = strings.Join(paths, "+")
	if precision != "" {
		name += ":" + precision
	}
	return name
}

// pictures is the digest of the recorded route that the report's loops see; "" if they see none.
func (r *report) pictures(ctx context.Context) (string, error) {
	if r.Route == "" || r.tier() != scenario.Pictures {
		return "", nil
	}
	s, err := config.Read(config.Flags{}, nil)
	if err != nil {
		return "", err
	}
	return dataset.RouteDigest(ctx, r.Route, s.CacheDir("routes"))
}

// changed names what the report's loops were run with and is another now; "": nothing is.
func (r *report) changed(ctx context.Context, a scenario.Algorithm) (string, error) {
	sum, err := digest(a)
	if err != nil {
		return "", err
	}
	if sum != r.Digest {
		return "the file of algorithm " + r.Algorithm + ", or its external data,", nil
	}
	if sum, err = r.pictures(ctx); err == nil && sum != r.Pictures {
		return "the recorded route " + r.Route, nil
	}
	return "", err
}

// tierOf is the tier that an algorithm drives in where the flag says another one or none.
func tierOf(a scenario.Algorithm, t scenario.Tier) string {
	if _, ok := a.(*scenario.Models); ok && t == scenario.Planner {
		t = scenario.Pictures
	}
	return t.String()
}

// readReport reads what run --json wrote. Errors name the file.
func readReport(path string) (*report, error) {
	raw, err := memory.ReadRegular(path)
	if err != nil {
		return nil, err
	}
	var head struct {
		Version int `json:"version"`
	}
	if json.Unmarshal(raw, &head) == nil && head.Version != 0 && head.Version != reportVersion {
		return nil, fmt.Errorf("%s: another version of spark-sim wrote it; run it again", path)
	}
	r := &report{}
	if err := memory.UnmarshalStrict(raw, r); err != nil {
		return nil, fmt.Errorf("%s: %w; want a file that spark-sim run --json wrote", path, err)
	}
	r.Route, r.Algorithm = cleanPath(r.Route), cleanAlgorithm(r.Algorithm)
	rows := len(r.Metrics)
	tier, err := scenario.TierNamed(r.Tier)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", path, err)
	case r.Version != reportVersion || !slices.Equal(r.Columns, columns(tier)):
		return nil, fmt.Errorf("%s: another version of spark-sim wrote it; run it again", path)
	case r.N < 1 || len(r.Scenarios) == 0 || r.N > maxLoops/len(r.Scenarios):
		return nil, fmt.Errorf("%s: n is %d and there are %s; it is damaged", path, r.N,
			console.Count(len(r.Scenarios), "scenario"))
	case rows > r.total() || rows < r.total() && !r.Partial:
		return nil, fmt.Errorf("%s: it has %s for %s of %s; it is damaged", path, console.Count(rows, "row"),
			console.Count(len(r.Scenarios), "scenario"), console.Count(r.N, "loop"))
	}
	for i, row := range r.Metrics {
		if len(row) != len(r.Columns) {
			return nil, fmt.Errorf("%s: row %d has %s, want %d; it is damaged", path, i,
				console.Count(len(row), "number"), len(r.Columns))
		}
	}
	names := map[string]bool{}
	for i := range r.Scenarios {
		name := r.Scenarios[i].Name
		if names[name] {
			return nil, fmt.Errorf("%s: scenario %q is there twice; it is damaged", path, name)
		}
		names[name] = true
		if _, err := r.Scenarios[i].Draw(r.Seed, 0); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	return r, nil
}

// differences names what two reports do not share, of what loops with the same draws and noise share, and with alike
// also of what decides their metrics.
func differences(a, b *report, alike bool) string {
	var list []string
	say := func(what string, x, y any) {
		if !reflect.DeepEqual(x, y) {
			list = append(list, fmt.Sprintf("%s is %v and %v", what, x, y))
		}
	}
	say("seed", a.Seed, b.Seed)
	say("n", a.N, b.N)
	say("tier", a.Tier, b.Tier)
	if alike {
		say("algorithm", a.Algorithm, b.Algorithm)
		say("min-cosine", budget(a.Algorithm, a.MinCosine), budget(b.Algorithm, b.MinCosine))
		say("route", a.Route, b.Route)
		if a.Algorithm == b.Algorithm && a.Digest != b.Digest {
			list = append(list, "the file of the algorithm, or its external data, has changed")
		}
		say("device", a.Device, b.Device)
		say("version of spark-sim", a.Program, b.Program)
	}
	if a.Tier == b.Tier && a.Pictures != b.Pictures {
		text := fmt.Sprintf("recorded routes %s and %s differ", a.Route, b.Route)
		if a.Route == b.Route {
			text = fmt.Sprintf("the recorded route %s has changed", a.Route)
		}
		list = append(list, text)
	}
	var names [2][]string
	by := [2]map[string]string{{}, {}}
	for i, r := range []*report{a, b} {
		for _, f := range r.Scenarios {
			names[i] = append(names[i], f.Name)
			f.Doc = ""
			text, _ := json.Marshal(f) //nolint:errcheck // numbers were read from JSON or YAML, so all are finite
			by[i][f.Name] = string(text)
		}
	}
	switch x, y := strings.Join(names[0], " "), strings.Join(names[1], " "); {
	case x != y:
		say("list of scenarios", x, y)
	default:
		for _, name := range names[0] {
			if by[0][name] != by[1][name] {
				list = append(list, fmt.Sprintf("scenario %q has other parameters", name))
			}
		}
	}
	return strings.Join(list, "; ")
}

// writeNPZ writes a row for each loop that ended: an array each for the scenario's place in the report, the number of
// the loop, every metric, and as param.NAME every parameter that a scenario sets or draws.
func (r *report) writeNPZ(path string) error {
	rows := len(r.Metrics)
	integers := func(of func(i int) int) *npy.Array {
		x := make([]int64, rows)
		for i := range x {
			x[i] = int64(of(i))
		}
		return &npy.Array{DType: ir.Int64.String(), Shape: []int{rows}, Data: runtime.Bytes(x)}
	}
	arrays := map[string]*npy.Array{
		"scenario": integers(func(i int) int { return i / r.N }),
		"loop":     integers(func(i int) int { return i % r.N }),
	}
	column := func(name string) []float64 {
		x := make([]float64, rows)
		arrays[name] = &npy.Array{DType: ir.Float64.String(), Shape: []int{rows}, Data: runtime.Bytes(x)}
		return x
	}
	metrics, params := make([][]float64, len(r.Columns)), map[int][]float64{}
	for k, name := range r.Columns {
		metrics[k] = column(name)
	}
	for k, p := range scenario.Params {
		if slices.ContainsFunc(r.Scenarios, func(f scenario.Family) bool { return f.Names(p.Name) }) {
			params[k] = column("param." + p.Name)
		}
	}
	for i, row := range r.Metrics {
		s, err := r.draw(i)
		if err != nil {
			return err
		}
		for k, x := range row {
			metrics[k][i] = x
		}
		for k := range params {
			params[k][i] = s.Values[k]
		}
	}
	return npy.WriteZip(path, arrays)
}

// line is what run --jsonl writes of loop i.
func (r *report) line(i int) ([]byte, error) {
	f, k := r.loop(i)
	var b bytes.Buffer
	text := func(s string) []byte {
		raw, _ := json.Marshal(s) //nolint:errcheck // strings have no error
		return raw
	}
	fmt.Fprintf(&b, `{"algorithm":%s,"scenario":%s,"seed":%d,"loop":%d`, text(r.Algorithm), text(f.Name), r.Seed, k)
	for c, name := range r.Columns {
		x, err := json.Marshal(r.Metrics[i][c])
		if err != nil {
			return nil, fmt.Errorf("scenario %q, loop %d: %s: %w", f.Name, k, name, err)
		}
		fmt.Fprintf(&b, `,"%s":%s`, name, x)
	}
	b.WriteString("}\n")
	return b.Bytes(), nil
}

// lines is a file that grows by a line for each loop that ends. If a line does not fit, the file ends before it.
type lines struct {
	path string
	f    *os.File
	w    io.Writer
	size int64
}

// createLines begins such a file; - is standard output.
func createLines(path string) (*lines, error) {
	if atomicfile.IsStdout(path) {
		return &lines{path: path, w: os.Stdout}, nil
	}
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	return &lines{path: path, f: f, w: f}, nil
}

// add writes those of the loops of a report from one on.
func (l *lines) add(r *report, from int) error {
	for i := from; i < len(r.Metrics); i++ {
		text, err := r.line(i)
		if err != nil {
			return err
		}
		if _, err := l.w.Write(text); err != nil {
			err = fmt.Errorf("writing %s: %w; the %s before are there", l.path, err, console.Count(i, "loop"))
			if l.f != nil {
				err = errors.Join(err, l.f.Truncate(l.size))
			}
			return err
		}
		l.size += int64(len(text))
	}
	return nil
}

func (l *lines) close() error {
	if l == nil || l.f == nil {
		return nil
	}
	return l.f.Close()
}

// worst is the largest value of a metric among loops, or the smallest where more is better.
func worst(values []float64, m scenario.Metric) float64 {
	w := math.Inf(-1)
	for _, x := range values {
		if m.Higher {
			x = -x
		}
		w = max(w, x)
	}
	if m.Higher {
		w = -w
	}
	return w
}

// failed says whether loop i ended in a failure.
func (r *report) failed(i int) bool {
	for k, m := range r.tier().Metrics() {
		if m.Failure && r.Metrics[i][k] > 0 {
			return true
		}
	}
	return false
}
