package compile

import (
	"context"
	"path/filepath"
	"strings"
	"time"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/internal/calibrate"
	"github.com/spark-compile/spark-compile/internal/console"
	"github.com/spark-compile/spark-compile/internal/openpilot"
	"github.com/spark-compile/spark-compile/runtime"
)

// Loop compiles the whole step of openpilot's modeld around one or two models.
func Loop(ctx context.Context, models []*onnx.Model, loop openpilot.Options, opt Options) (*Result, error) {
	begin := time.Now()
	opt.meter = console.New(opt.Progress)
	opt.meter.Begin(0, "importing")
	loop.Import = opt.Import
	s, err := openpilot.Compose(models, loop)
	if err != nil {
		return nil, err
	}
	var names, digests []string
	for _, m := range s.Models {
		names = append(names, m.Path)
		d, err := m.Digest()
		if err != nil {
			return nil, err
		}
		digests = append(digests, d)
	}
	opt.Skip, opt.loop = s.Skip, true
	opt.Slices = []calibrate.Slice{}
	for _, out := range s.Run.Outputs {
		for _, p := range s.Slices[out.Name] {
			opt.Slices = append(opt.Slices, calibrate.Slice{Output: out.Name, Slice: runtime.Slice{Name: p.Name, Start: p.Start, Stop: p.End}})
		}
	}
	for i := range names[1:] {
		names[i+1] = filepath.Base(names[i+1])
	}
	r, err := Graph(ctx, strings.Join(names, " + "), s.Run, opt)
	if err != nil {
		return nil, err
	}
	r.Program.Loop, r.digest = &s.Loop, strings.Join(digests, "+")
	r.Compile = time.Since(begin) - r.Ptxas
	return r, nil
}
