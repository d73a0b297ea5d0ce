package bench

import (
	"context"

	"github.com/spark-compile/spark-compile/internal/npy"
	"github.com/spark-compile/spark-compile/internal/onnxruntime"
	"github.com/spark-compile/spark-compile/internal/report"
	"github.com/spark-compile/spark-compile/runtime"
)

// Peer is the same model in ONNX Runtime, on the CPU.
type Peer struct {
	onnxruntime.Times
	report.Summary
	// Ratio is the peer's median divided by ours: above 1 means that ours is faster.
	Ratio   float64         `json:"ratio"`
	Outputs []report.Output `json:"outputs,omitempty"` // ours against the peer's
}

// ONNXRuntime runs an ONNX file in ONNX Runtime with a Python interpreter, on the inputs that Inputs generates for its
// program. It also returns the outputs by name.
func ONNXRuntime(ctx context.Context, python, model string, p *runtime.Program,
	opt Options) (*Peer, map[string][]float64, error) {
	data, err := Inputs(p)
	if err != nil {
		return nil, nil, err
	}
	arrays := map[string]*npy.Array{}
	for _, q := range p.Inputs {
		arrays[q.Name] = &npy.Array{DType: q.DType, Shape: q.Shape, Data: data[q.Name]}
	}
	times, theirs, err := onnxruntime.Run(ctx, python, model, arrays, opt.Runs, opt.Warmup)
	if err != nil {
		return nil, nil, err
	}
	peer := &Peer{Times: *times}
	if opt.Runs > 0 {
		peer.Summary = report.Summarise(peer.Samples)
	}
	want := map[string][]float64{}
	for name, a := range theirs {
		if want[name], err = a.Float64s(); err != nil {
			return nil, nil, err
		}
	}
	return peer, want, nil
}
