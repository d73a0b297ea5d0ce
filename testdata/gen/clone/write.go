package clone

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/internal/npy"
	"github.com/spark-compile/spark-compile/ir"
)

// files is how many there are of observations:
// what an adapter of so small a policy needs.
const files = 512

// Write fits a policy and writes dir/clone.onnx, observations of it in dir/clone, one a file, and unless damage is 0
// dir/clone_damaged.onnx, whose second layer has noise of that share of its norm.
func Write(ctx context.Context, dir string, d hal.Device, opt Options, damage float64) error {
	p, err := Fit(ctx, d, opt)
	if err != nil {
		return err
	}
	return p.Write(dir, damage)
}

// Write writes the files of a policy, as the function Write says.
func (p *Policy) Write(dir string, damage float64) error {
	if err := p.writeSeen(filepath.Join(dir, "clone")); err != nil {
		return err
	}
	path := filepath.Join(dir, "clone.onnx")
	m, err := p.ONNX(path)
	if err != nil {
		return err
	}
	if err := m.Save(path); err != nil || damage == 0 {
		return err
	}
	if m, err = Damage(m, Layers[1], damage, 1); err != nil {
		return err
	}
	return m.Save(filepath.Join(dir, "clone_damaged.onnx"))
}

// writeSeen writes observations as samples that spark-dora train reads.
func (p *Policy) writeSeen(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for i := range files {
		x := p.Seen[i*len(p.Seen)/files]
		t := ir.FromFloats(ir.T(ir.Float32, 1, len(x)), x)
		all := map[string]*npy.Array{"observation": {DType: t.DType.String(), Shape: t.Shape, Data: t.Dense()}}
		if err := npy.WriteZip(filepath.Join(dir, fmt.Sprintf("%04d.npz", i)), all); err != nil {
			return err
		}
	}
	return nil
}
