package compile

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"path/filepath"

	"github.com/spark-compile/spark-compile/internal/cli"
	"github.com/spark-compile/spark-compile/internal/memory"
	"github.com/spark-compile/spark-compile/runtime"
)

// Prepared is a compilation in memory: of a library, which loads ONNX files as the command compiles them and writes no package.
type Prepared struct{ work *work }

// Prepare checks the command's arguments, models and flags, and reads the models. Flags that write or print something are refused.
func Prepare(ctx context.Context, args []string, warn func(string)) (*Prepared, error) {
	var f flags
	args, calibrate := cli.Inputs(args, "--calibrate")
	args, validate := cli.Inputs(args, "--validate")
	if err := cli.Parse(&f, "spark-compile", args); err != nil {
		return nil, err
	}
	f.Calibrate, f.Validate = append(f.Calibrate, calibrate...), append(f.Validate, validate...)
	for _, other := range []struct {
		name  string
		given bool
	}{{"--output", f.Output != ""}, {"--package", f.Package != ""}, {"--emit", f.Emit != ""}, {"--report", f.Report != ""}, {"--tune", f.Tune || f.TuneWorker},
		{"--help-passes", f.HelpPasses}} {
		if other.given {
			return nil, fmt.Errorf("%s: a model that is compiled while it is loaded has no package, report or search: compile it with spark-compile, and load the directory", other.name)
		}
	}
	w, err := f.prepare(ctx, func() error { return nil }, nil, warn)
	if err != nil {
		return nil, err
	}
	return &Prepared{w}, nil
}

// Key is a digest of all that decides the program but for the compiler itself: models, precision, flags, and files that flags name.
func (p *Prepared) Key() (string, error) {
	h := sha256.New()
	for _, m := range p.work.models {
		d, err := m.Digest()
		if err != nil {
			return "", err
		}
		fmt.Fprintln(h, "model", d, filepath.Base(m.Path)) // external data too; a merged one has no digest
	}
	f := p.work.flags
	fmt.Fprintln(h, p.work.opt.Precision, f.decisive(&p.work.opt))
	for i, list := range [][]string{f.Models, f.Calibrate, f.Validate, {f.Adapter}} {
		for _, path := range list {
			fmt.Fprintln(h, "file", i)
			if err := digest(h, path); err != nil {
				return "", err
			}
		}
	}
	return fmt.Sprintf("%x", h.Sum(nil)), nil
}

// digest adds the contents of a file, or of all files in a directory. What is not there yet adds nothing.
func digest(h hash.Hash, path string) error {
	if path == "" {
		return nil
	}
	return filepath.WalkDir(path, func(name string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil || d.IsDir():
			return err
		}
		file, err := memory.Open(name)
		if err != nil {
			return err
		}
		defer file.Close()
		n, err := io.Copy(h, file)
		fmt.Fprintln(h, n)
		return err
	})
}

// Program compiles.
func (p *Prepared) Program(ctx context.Context) (*runtime.Program, error) {
	r, err := p.work.compile(ctx)
	if err != nil {
		return nil, err
	}
	r.Program.Provenance = r.Provenance()
	r.Program.Provenance.Compiler, r.Program.Provenance.Flags = cli.Version(), p.work.flags.decisive(&p.work.opt)
	return r.Program, nil
}
