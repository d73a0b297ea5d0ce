package scenario

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spark-compile/spark-compile/codegen"
	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/internal/compile"
	"github.com/spark-compile/spark-compile/internal/openpilot"
	"github.com/spark-compile/spark-compile/internal/precision"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/runtime"
)

// Policy is a learned algorithm of the second tier: an ONNX file from observations to commands, compiled into the step,
// which has no host step. It computes for N loops:
//
//	observation   f32 [N, len(Observations)], in their order and units
//	action        f32 [N, 2]: curvature in 1/m, left positive, and acceleration in m/s²
//	state_X       [N, …], with output next_state_X of the same type: what it keeps of each loop, zero at the start
//
// A file whose N is 1 computes a loop at a time; it is made to compute a batch. Scaling is the file's own. Other
// outputs are not computed.
type Policy struct {
	Name      string
	ONNX      *onnx.Model
	Precision string // fp32 (also "") or another one; the loop around is f32 in each
}

func (p *Policy) algorithm() string { return p.Name }

// Named is the algorithm of a name: a built-in controller, a policy's file, policy.onnx, or those of openpilot's driving
// models, supercombo.onnx or vision.onnx+policy.onnx; in a precision other than fp32 policy.onnx:fp16.
func Named(name string) (Algorithm, error) {
	paths, in := FilesOf(name)
	if len(paths) > 0 {
		var files []*onnx.Model
		sees := false
		for _, path := range paths {
			m, err := onnx.Load(path)
			if err != nil {
				return nil, err
			}
			files, sees = append(files, m), sees || openpilot.Sees(m)
		}
		// What is wrong with them is said at once.
		if sees || len(files) > 1 {
			m := &Models{Name: name, ONNX: files, Precision: in}
			_, err := m.load(1)
			return m, err
		}
		p := &Policy{Name: name, ONNX: files[0], Precision: in}
		_, err := p.load(1)
		return p, err
	}
	if _, err := os.Stat(filepath.Join(name, runtime.ProgramFile)); err == nil {
		return nil, fmt.Errorf("algorithm %q is a compiled package, whose kernels cannot become a part of a step for "+
			"another number of loops: give the ONNX file that it was compiled from, and its precision", name)
	}
	c, err := BuiltIn(name)
	if err != nil {
		return nil, fmt.Errorf("%w; the file of a policy or driving model ends in .onnx, or .onnx:fp16 for that precision", err)
	}
	return c, nil
}

// FilesOf are the files that an algorithm's name lists, none of a built-in controller's, and their precision; "" if the
// name says none.
func FilesOf(name string) (paths []string, in string) {
	const end = ".onnx"
	if path, after, ok := strings.Cut(name, end+":"); ok {
		name, in = path+end, after
	}
	if !strings.HasSuffix(name, end) {
		return nil, ""
	}
	for part := range strings.SplitSeq(strings.TrimSuffix(name, end), end+"+") {
		paths = append(paths, part+end)
	}
	return paths, in
}

// policyLoops is how many loops run at once with a policy. It is always the same number, since kernels of networks for
// another one add up in another order: a loop has the same bits however many others there are.
const policyLoops = 256

// Names of a policy's inputs and outputs.
const (
	policySeen   = "observation"
	policyAction = "action"
	policyState  = "state_"
	policyNext   = "next_"
)

// networkSeen is policySeen inside a step, where the observations of other algorithms have that name.
const networkSeen = "policy_observation"

// network is a policy for a batch of loops.
type network struct {
	graph     *ir.Graph
	precision string
}

// networkPrecision is that of an algorithm's networks; "" is fp32.
func networkPrecision(algorithm, name string) (string, error) {
	if name == "" {
		return precision.FP32, nil
	}
	if _, err := precision.Lookup(name); err != nil {
		return "", fmt.Errorf("algorithm %q: %w", algorithm, err)
	}
	return name, nil
}

// load makes a policy ready for so many loops. Errors name the file, and what of the contract it lacks.
func (p *Policy) load(loops int) (*network, error) {
	if p.ONNX == nil {
		return nil, fmt.Errorf("algorithm %q: there is no policy", p.Name)
	}
	chosen, err := networkPrecision(p.Name, p.Precision)
	if err != nil {
		return nil, err
	}
	n := &network{precision: chosen}
	if err := p.ONNX.Validate(); err != nil {
		return nil, err
	}
	if err := p.names(); err != nil {
		return nil, err
	}
	g, err := onnx.Import(p.ONNX, onnx.ImportOptions{Batch: loops})
	if err != nil {
		return nil, err
	}
	if err := p.types(g, loops); err != nil {
		return nil, err
	}
	g.Outputs = slices.DeleteFunc(g.Outputs, func(v *ir.Value) bool {
		return v.Name != policyAction && !strings.HasPrefix(v.Name, policyNext+policyState)
	})
	for _, v := range g.Inputs {
		if v.Name == policySeen {
			v.Name = networkSeen
		}
	}
	g.RemoveDead()
	n.graph = g
	return n, g.Verify()
}

// names is an error unless the file's inputs and outputs are those of a policy, each state with its next.
func (p *Policy) names() error {
	inputs, outputs := p.ONNX.Ports()
	var missing, extra []string
	if !slices.Contains(inputs, policySeen) {
		missing = append(missing, "input "+policySeen)
	}
	if !slices.Contains(outputs, policyAction) {
		missing = append(missing, "output "+policyAction)
	}
	for _, in := range inputs {
		switch {
		case in == policySeen:
		case !strings.HasPrefix(in, policyState):
			extra = append(extra, "input "+in)
		case !slices.Contains(outputs, policyNext+in):
			missing = append(missing, "output "+policyNext+in)
		}
	}
	for _, out := range outputs {
		if state, ok := strings.CutPrefix(out, policyNext); ok && strings.HasPrefix(state, policyState) &&
			!slices.Contains(inputs, state) {
			missing = append(missing, "input "+state)
		}
	}
	var wrong []string
	if len(missing) > 0 {
		wrong = append(wrong, strings.Join(missing, ", ")+" missing")
	}
	if len(extra) > 0 {
		wrong = append(wrong, "nothing in a loop feeds "+strings.Join(extra, ", "))
	}
	if len(wrong) == 0 {
		return nil
	}
	return p.mismatch("%s; its inputs are %s, its outputs %s", strings.Join(wrong, "; "), strings.Join(inputs, ", "),
		strings.Join(outputs, ", "))
}

// types is an error unless inputs and outputs have a row for each loop, and observation and action their columns.
func (p *Policy) types(g *ir.Graph, loops int) error {
	by := map[string]ir.Type{}
	for _, v := range slices.Concat(g.Inputs, g.Outputs) {
		by[v.Name] = v.Type
	}
	for _, x := range []struct {
		name    string
		columns int
	}{{policySeen, len(Observations)}, {policyAction, 2}} {
		t, want := by[x.name], ir.T(ir.Float32, loops, x.columns)
		if !t.Equal(want) {
			return p.mismatch("%s is %v for %d loops, which must be %v", x.name, t, loops, want)
		}
	}
	for _, v := range g.Inputs {
		if !strings.HasPrefix(v.Name, policyState) {
			continue
		}
		next := by[policyNext+v.Name]
		if len(v.Type.Shape) == 0 || v.Type.Shape[0] != loops || !next.Equal(v.Type) {
			return p.mismatch("%s is %v and %s%s %v for %d loops: both must have the same type, and a row for each loop", v.Name,
				v.Type, policyNext, v.Name, next, loops)
		}
	}
	return nil
}

func (p *Policy) mismatch(format string, args ...any) error {
	var names []string
	for _, o := range Observations {
		names = append(names, o.Name)
	}
	return &onnx.Error{
		File: p.ONNX.Path, Reason: "it is no policy of a simulated loop: " + fmt.Sprintf(format, args...),
		Remedy: fmt.Sprintf("give a file with input observation, f32 [N, %d]: %s; output action, f32 [N, 2]: curvature and "+
			"acceleration; and each state_X with a next_state_X", len(names), strings.Join(names, " ")),
	}
}

// kept is what a policy keeps from step to step.
func (n *network) kept() []codegen.StateBinding { return compile.States(n.graph) }

// states adds the sizes of what a policy keeps.
func (n *network) states(sizes map[string]int) {
	for _, k := range n.kept() {
		i := slices.IndexFunc(n.graph.Inputs, func(v *ir.Value) bool { return v.Name == k.Input })
		sizes[k.Input] = max(1, k.Delay) * n.graph.Inputs[i].Type.Bytes()
	}
}
