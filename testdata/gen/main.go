// Command gen writes models of openpilot's structure with random weights, and inputs and outputs for them:
//
//	go run ./testdata/gen -o DIR [-model NAME|all] [-size tiny|small|full] [-inputs N] [-plausible] [-damage STRENGTH]
//	go run ./testdata/gen -o DIR -frames N [-format npz|png] [-divisor N]
//
// makes the model of a NAME that driving.Names lists; all is vision, policy, dmonitoring and supercombo. It
// writes DIR/MODEL.onnx, and N files DIR/MODEL.npz, DIR/MODEL_1.npz … with inputs by name and the outputs that the reference
// evaluator computes for them in float64, also by name. -plausible gives models whose outputs look like a drive. -damage writes
// DIR/MODEL_damaged.onnx too, which an adapter of rank 2 brings back. -frames writes
// no model but what the cameras see on a drive, in pictures that are smaller than a comma 3X's by the divisor.
//
//	go run ./testdata/gen -o DIR -keeper [-damage SHARE]
//
// writes DIR/keeper.onnx, a small driving model that keeps its lane by the pictures that spark-sim draws. -damage writes
// DIR/keeper_damaged.onnx too, whose features have noise of that share of their norm.
//
//	go run ./testdata/gen -o DIR -clone [-damage SHARE]
//
// writes DIR/clone.onnx, a policy for spark-sim that imitates the controller pid, and what it saw while it learnt, an
// observation a file, in DIR/clone. -damage writes DIR/clone_damaged.onnx too, whose second layer has noise of that share of
// its norm.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spark-compile/spark-compile/dora"
	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/internal/npy"
	"github.com/spark-compile/spark-compile/internal/openpilot"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/testdata/gen/clone"
	"github.com/spark-compile/spark-compile/testdata/gen/damage"
	"github.com/spark-compile/spark-compile/testdata/gen/driving"
	"github.com/spark-compile/spark-compile/testdata/gen/keeper"
)

func main() {
	dir := flag.String("o", ".", "directory to write to")
	model := flag.String("model", "all", strings.Join(driving.Names(), ", ")+", or all: the first four")
	size := flag.String("size", "small", "tiny, small or full")
	inputs := flag.Int("inputs", 1, "number of .npz files per model")
	plausible := flag.Bool("plausible", false, "outputs that look like a drive")
	damage := flag.Float64("damage", 0, "write damaged models too, whose weights are off by that share")
	frames := flag.Int("frames", 0, "number of frames of a drive to write instead of models")
	format := flag.String("format", string(openpilot.NPZ), "of frames: npz or png")
	keeps := flag.Bool("keeper", false, "write a driving model for spark-sim that keeps its lane instead of models")
	cloned := flag.Bool("clone", false, "write a policy for spark-sim instead of models")
	divisor := flag.Int("divisor", 4, "of the size of frames")
	flag.Parse()
	if *frames > 0 {
		if err := writeFrames(*dir, *frames, openpilot.Format(*format), *divisor); err != nil {
			fmt.Fprintln(os.Stderr, "gen:", err)
			os.Exit(2)
		}
		return
	}
	if *keeps {
		if err := writeKeeper(*dir, *damage); err != nil {
			fmt.Fprintln(os.Stderr, "gen:", err)
			os.Exit(2)
		}
		return
	}
	if *cloned {
		if err := writeClone(*dir, *damage); err != nil {
			fmt.Fprintln(os.Stderr, "gen:", err)
			os.Exit(2)
		}
		return
	}
	names := []string{*model}
	if *model == "all" {
		names = []string{"vision", "policy", "dmonitoring", "supercombo"}
	}
	for _, name := range names {
		err := write(*dir, name, driving.Size(*size), *inputs, *plausible)
		if err == nil && *damage > 0 {
			err = writeDamaged(filepath.Join(*dir, name), *damage)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "gen:", err)
			os.Exit(2)
		}
	}
}

// writeKeeper writes the model that keeps its lane, and a damaged one.
func writeKeeper(dir string, damage float64) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	m, err := keeper.Fitted()
	if err != nil {
		return err
	}
	save := func(name string) error {
		file, err := m.ONNX()
		if err != nil {
			return err
		}
		return file.Save(filepath.Join(dir, name))
	}
	if err := save("keeper.onnx"); err != nil || damage == 0 {
		return err
	}
	m.Damage(damage, 1)
	return save("keeper_damaged.onnx")
}

// writeFrames writes a drive.
func writeFrames(dir string, frames int, format openpilot.Format, divisor int) error {
	if divisor < 1 || divisor > 100 {
		return fmt.Errorf("-divisor %d: want 1 to 100", divisor)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	road, wide := openpilot.Cameras(divisor)
	return openpilot.WriteDirectory(dir, format, road, wide, frames)
}

// writeClone writes a policy that imitates a controller, what it saw, and the policy damaged.
func writeClone(dir string, damage float64) error {
	d, err := emu.Open(emu.Options{})
	if err != nil {
		return err
	}
	defer d.Close()
	return clone.Write(context.Background(), dir, d, clone.Options{Seed: 1}, damage)
}

// write makes one model and its files.
func write(dir, name string, size driving.Size, inputs int, plausible bool) error {
	m, err := driving.Make(name, size)
	if err == nil && plausible {
		m, err = m.Plausible()
	}
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	path := filepath.Join(dir, name+".onnx")
	if err := os.WriteFile(path, m.ONNX, 0o644); err != nil {
		return err
	}
	decoded, err := onnx.Decode(path, m.ONNX)
	if err != nil {
		return err
	}
	g, err := onnx.Import(decoded, onnx.ImportOptions{})
	if err != nil {
		return err
	}
	for i := range inputs {
		file := name
		if i > 0 {
			file = fmt.Sprintf("%s_%d", name, i)
		}
		if err := writeGolden(filepath.Join(dir, file+".npz"), m, g, uint64(i)); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	return nil
}

// writeDamaged changes a third of the layers of a model's file by what an adapter can undo, and writes that beside it.
func writeDamaged(path string, strength float64) error {
	file, err := onnx.Load(path + ".onnx")
	if err != nil {
		return err
	}
	m, err := dora.Open(file, onnx.ImportOptions{})
	if err != nil {
		return err
	}
	chosen, err := damage.Undone(m, 1, 1)
	if err != nil {
		return err
	}
	damaged, err := m.WithRows(damage.Mendable.Rows(m, chosen, strength, 1))
	if err != nil {
		return err
	}
	return damaged.Save(path + "_damaged.onnx")
}

// writeGolden draws inputs from a seed, evaluates the graph on them and writes both.
func writeGolden(path string, m *driving.Model, g *ir.Graph, seed uint64) error {
	in, all := map[string]*ir.Array{}, map[string]*npy.Array{}
	for _, i := range m.Inputs {
		t := i.Draw(seed)
		in[i.Name] = t.Array()
		all[i.Name] = &npy.Array{DType: t.DType.String(), Shape: t.Shape, Data: t.Dense()}
	}
	out, err := ir.Evaluate(context.Background(), g, in, ir.EvalOptions{})
	if err != nil {
		return err
	}
	for name, a := range out {
		t := ir.FromFloats(ir.T(ir.Float64, a.Shape...), a.Floats())
		all[name] = &npy.Array{DType: t.DType.String(), Shape: t.Shape, Data: t.Dense()}
	}
	return npy.WriteZip(path, all)
}
