package passes

import (
	"slices"

	"github.com/spark-compile/spark-compile/internal/precision"
)

// stage is a part of the pipelines.
type stage struct {
	name  string
	steps []step
}

// step is a pass in some of the pipelines.
type step struct {
	pass string
	in   pipelines
}

// stages are the default pipelines: each stage's passes, in this order, filtered by the precision's pipeline. Why a
// pass follows another is in its row (Pass.After), which tests check against this list.
var stages = []stage{
	{"types", cleaned(every, // values get the types in which they are computed
		step{"promote-f32", computed})},
	{"training", []step{ // insert adapters and the gradients of losses
		{"insert-dora", computed},
		{"quantise-base", computed},
		{"differentiate", computed},
		{"sink-padding", computed}}},
	{"ops", cleaned(computed, // expand ops of files that no kernel computes
		step{"recognise-quantised", computed},
		step{"expand", computed})},
	{"patterns", []step{ // chains of ops become the op that they mean
		{"recognise-gelu", computed},
		{"recognise-silu", computed},
		{"recognise-softmax", computed},
		{"recognise-layernorm", computed},
		{"recognise-attention", computed}}},
	{"weights", cleaned(every, // constants become weights, and channels the last dimension
		step{"expand", asInFile},
		step{"fold-batchnorm", computed},
		step{"merge-branches", computed},
		step{"fold-scale", computed},
		step{"decompose-conv-transpose", every},
		step{"layout", every})},
	{"channels", cleaned(computed, // what now meets along the channels: constants of attention blocks and their weights, norms
		step{"recognise-layernorm", computed},
		step{"merge-branches", computed},
		step{"fold-scale", computed},
		step{"gemm", computed},
		step{"fold-channel-scale", computed},
		step{"split-image", eighths})},
	{"regions", []step{ // nodes become regions of f32, each of what a layer became
		{"group-gemv", computed},
		{"fuse", every},
		{"batch-isomorphic", computed},
		{"views", every}}},
	{MeansStage, []step{ // what data say of values is subtracted
		{"subtract-mean", eighths}}},
	{StorageStage, []step{ // regions get their storage
		{"assign-storage", narrowed}}},
	{"launches", []step{ // regions become launches, in their order
		{"reorder-for-locality", every},
		{"fuse-producers", every},
		{"rematerialise", every}}},
}

// The compiler looks at the graph before these stages: to subtract measured means, and to choose formats.
const MeansStage, StorageStage = "means", "storage"

// Cut splits a list of passes before the first one that belongs to a stage or a later one.
func Cut(names []string, at string) (before, rest []string) {
	from := slices.IndexFunc(stages, func(s stage) bool { return s.name == at })
	cut := slices.IndexFunc(names, func(name string) bool {
		in := slices.IndexFunc(stages, func(s stage) bool {
			return slices.ContainsFunc(s.steps, func(x step) bool { return x.pass == name })
		})
		return in >= from
	})
	if cut < 0 {
		cut = len(names)
	}
	return names[:cut], names[cut:]
}

// cleaned appends the passes that clean up after steps.
func cleaned(in pipelines, steps ...step) []step {
	return append(steps, step{"fold", in}, step{"simplify", in}, step{"cse", in}, step{"dce", in})
}

// pipelines is a set of pipelines, by what precisions store between regions.
type pipelines uint8

const (
	asInFile pipelines = 1 << iota // the file's types: passes leave every rounding in its place
	wide                           // f32
	halves                         // 16 bits or blocks of fewer
	eighths                        // 16 or 8 bits
	narrowed = halves | eighths
	computed = wide | narrowed
	every    = asInFile | computed
)

// pipelineOf is the pipeline that a precision runs.
func pipelineOf(p *precision.Precision) pipelines {
	switch p.Between {
	case "":
		return asInFile
	case "f32":
		return wide
	}
	if len(p.Candidates) > 0 && p.Candidates[0].Activations.Bits() == 8 {
		return eighths
	}
	return halves
}

// Pipeline names the passes that run by default at a precision, in order. A pass that cleans up after others is named
// more than once.
func Pipeline(name string) ([]string, error) {
	p, err := precision.Lookup(name)
	if err != nil {
		return nil, err
	}
	return pipeline(pipelineOf(p), stages), nil
}

// pipeline names the passes of some stages that pipelines have.
func pipeline(in pipelines, of []stage) (names []string) {
	for _, s := range of {
		for _, x := range s.steps {
			if x.in&in != 0 {
				names = append(names, x.pass)
			}
		}
	}
	return names
}

// Table returns every pass in the order in which pipelines first reach it.
func Table() []*Pass {
	var rows []*Pass
	for _, name := range pipeline(every, stages) {
		if p := table[name]; !slices.Contains(rows, p) {
			rows = append(rows, p)
		}
	}
	return rows
}
