package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/internal/calibrate"
	"github.com/spark-compile/spark-compile/internal/npy"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/testdata/gen/driving"
)

// pool is the number of inputs that a generated network is calibrated and judged on.
const pool = 32

// network is a model with a pool of inputs, a file each, and the file's outputs for them in float64.
type network struct {
	name   string
	model  *onnx.Model
	counts []int // of calibration inputs
	files  []string
	inputs []map[string]*ir.Array
	exact  map[string][][]float64 // by output, [input][element]; nil: not evaluated yet
}

// open makes the generator's networks with inputs of a seed, and loads the trained one if it is there.
func open(models, scratch string, seed uint64) ([]*network, error) {
	var out []*network
	for _, g := range []struct {
		name string
		size driving.Size
	}{{"vision", driving.Small}, {"policy", driving.Small}, {"dmonitoring", driving.Small}, {"policy", driving.Full}} {
		n, err := generated(g.name, g.size, scratch, seed)
		if err != nil {
			return nil, err
		}
		out = append(out, n)
	}
	path := filepath.Join(models, "dmonitoring_model.onnx")
	if _, err := os.Stat(path); err != nil {
		fmt.Fprintf(os.Stderr, "skipped: the trained network, since %s is missing: it is not part of the repository; name its directory with -models\n", path)
		return out, nil
	}
	m, err := onnx.Load(path)
	if err != nil {
		return nil, err
	}
	n := &network{name: "trained dmonitoring", model: m, counts: []int{4, 6, 8, 12}}
	files, err := filepath.Glob(filepath.Join(models, "calibration", "dmonitoring_model", "*.npz"))
	if err != nil {
		return nil, err
	}
	return append(out, n), n.load(files)
}

// generated makes a network of the repository's generator, and draws inputs as the generator does, from other seeds.
func generated(name string, size driving.Size, scratch string, seed uint64) (*network, error) {
	made, err := driving.Make(name, size)
	if err != nil {
		return nil, err
	}
	n := &network{name: string(size) + " " + name, counts: []int{4, 8, 12, 16}}
	if n.model, err = onnx.Decode(n.name, made.ONNX); err != nil {
		return nil, err
	}
	var files []string
	for i := range pool {
		in := map[string]*npy.Array{}
		for _, p := range made.Inputs {
			t := p.Draw(seed<<16 + uint64(i))
			in[p.Name] = &npy.Array{DType: t.DType.String(), Shape: t.Shape, Data: t.Dense()}
		}
		files = append(files, filepath.Join(scratch, fmt.Sprintf("%s-%s-%02d.npz", size, name, i)))
		if err := npy.WriteZip(files[i], in); err != nil {
			return nil, err
		}
	}
	return n, n.load(files)
}

// load reads the pool.
func (n *network) load(files []string) (err error) {
	g, err := onnx.Import(n.model, onnx.ImportOptions{})
	if err != nil {
		return err
	}
	n.inputs, n.files, err = calibrate.Load(files, g)
	if most := slices.Max(n.counts); err == nil && len(files) < most+4 {
		return fmt.Errorf("%s: %d inputs, but %d calibrate and at least 4 others judge: give %d or more", n.name, len(files), most, most+4)
	}
	return err
}

// evaluate evaluates the file on the whole pool, once.
func (n *network) evaluate(ctx context.Context, source *ir.Graph) error {
	if n.exact != nil {
		return nil
	}
	exact := map[string][][]float64{}
	for _, in := range n.inputs {
		out, err := ir.Evaluate(ctx, source, in, ir.EvalOptions{})
		if err != nil {
			return err
		}
		for name, a := range out {
			exact[name] = append(exact[name], a.Floats())
		}
	}
	n.exact = exact
	return nil
}
