package calibrate

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spark-compile/spark-compile/internal/memory"
	"github.com/spark-compile/spark-compile/internal/npy"
	"github.com/spark-compile/spark-compile/ir"
)

// Load reads inputs for a graph from .npz files, or from directories of them in name order. A file holds one array for each
// input of the graph; besides these only recorded outputs are allowed. Load also returns the files' paths.
func Load(paths []string, g *ir.Graph) (inputs []map[string]*ir.Array, files []string, err error) {
	for _, p := range paths {
		info, err := os.Stat(p)
		if err != nil {
			return nil, nil, err
		}
		if !info.IsDir() {
			files = append(files, p)
			continue
		}
		found, err := filepath.Glob(filepath.Join(p, "*.npz"))
		if err != nil {
			return nil, nil, err
		}
		if len(found) == 0 {
			return nil, nil, fmt.Errorf("%s contains no .npz files: give a directory of numpy.savez files", p)
		}
		slices.Sort(found)
		files = append(files, found...)
	}
	taken := int64(0)
	for _, f := range files {
		in, err := readInput(f, g)
		for _, x := range in {
			taken += 8 * int64(len(x.F)+len(x.I))
		}
		if err == nil {
			err = memory.Default().Check(taken, fmt.Sprintf("with those before it, calibration input %d", len(inputs)+1))
		}
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", f, err)
		}
		inputs = append(inputs, in)
	}
	return inputs, files, nil
}

func readInput(path string, g *ir.Graph) (map[string]*ir.Array, error) {
	if filepath.Ext(path) != ".npz" {
		return nil, fmt.Errorf("not a .npz file: numpy.savez(%q, %s=…) writes one",
			strings.TrimSuffix(path, filepath.Ext(path))+".npz", append(inputNames(g), "input")[0])
	}
	z, err := npy.Open(path)
	if err != nil {
		return nil, err
	}
	in, err := inputsOf(z, g)
	if err = errors.Join(err, z.Close()); err != nil {
		return nil, err
	}
	return in, nil
}

// inputsOf reads the graph's inputs alone, and each only if it has the graph's shape.
func inputsOf(z *npy.Zip, g *ir.Graph) (map[string]*ir.Array, error) {
	in := map[string]*ir.Array{}
	for _, v := range g.Inputs {
		header, err := z.Describe(v.Name)
		switch {
		case err != nil:
			return nil, err
		case header == nil:
			return nil, fmt.Errorf("no array for input %s %v; the file contains %s", v.Name, v.Type, strings.Join(z.Names(), ", "))
		case !slices.Equal(header.Shape, v.Type.Shape):
			return nil, fmt.Errorf("array %s has shape %v, but the input is %v", v.Name, header.Shape, v.Type)
		}
		a, err := z.Read(v.Name)
		if err != nil {
			return nil, err
		}
		data, err := a.As(v.Type.DType.String(), v.Type.Shape)
		if err != nil {
			return nil, fmt.Errorf("array %s: %w", v.Name, err)
		}
		t, err := ir.NewTensor(v.Type, data)
		if err != nil {
			return nil, fmt.Errorf("array %s: %w", v.Name, err)
		}
		in[v.Name] = t.Array()
		if x, ok := finite(t); !ok {
			return nil, fmt.Errorf("array %s holds %v: inputs must be finite", v.Name, x)
		}
	}
	for _, name := range z.Names() {
		if in[name] == nil && !slices.ContainsFunc(g.Outputs, func(v *ir.Value) bool { return v.Name == name }) {
			return nil, fmt.Errorf("array %s is neither an input of the model (%s) nor an output: remove it",
				name, strings.Join(inputNames(g), ", "))
		}
	}
	return in, nil
}

// Bytes are inputs as sessions take them, by name.
func Bytes(inputs []map[string]*ir.Array) []map[string][]byte {
	var out []map[string][]byte
	for _, arrays := range inputs {
		in := map[string][]byte{}
		for name, x := range arrays {
			in[name] = x.Tensor().Dense()
		}
		out = append(out, in)
	}
	return out
}

func inputNames(g *ir.Graph) []string {
	var out []string
	for _, v := range g.Inputs {
		out = append(out, v.Name)
	}
	return out
}
