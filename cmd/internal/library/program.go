package library

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spark-compile/spark-compile/cmd/internal/compile"
	"github.com/spark-compile/spark-compile/hal/config"
	"github.com/spark-compile/spark-compile/internal/cli"
	"github.com/spark-compile/spark-compile/runtime"
)

// program reads a package, or compiles ONNX files, unless the cache has what would come of that.
func program(ctx context.Context, opt Options, warn func(string)) (*runtime.Program, error) {
	if len(opt.Paths) == 0 || opt.Paths[0] == "" {
		return nil, errors.New("no model: give a directory that spark-compile wrote, or an ONNX file")
	}
	if len(opt.Paths) == 1 {
		p, err := packageOf(opt.Paths[0])
		switch {
		case p != nil && len(opt.Flags) > 0:
			return nil, fmt.Errorf("%s is already compiled: %s applies to ONNX files only", opt.Paths[0], strings.Join(opt.Flags, " "))
		case p != nil || err != nil:
			return p, err
		}
	}
	args := append([]string{}, opt.Flags...)
	if opt.Kind != Plain && len(opt.Paths) == 1 {
		args = append(args, "--modeld")
	}
	if opt.Target != "" {
		args = append(args, "--target", opt.Target)
	}
	work, err := compile.Prepare(ctx, append(append(args, "--"), opt.Paths...), warn)
	if err != nil {
		return nil, err
	}
	dir, err := place(opt, work)
	if err != nil {
		return nil, err
	}
	if dir != "" {
		if p, err := runtime.Read(os.DirFS(dir)); err == nil { // else it is not there, or damaged: then it is made again
			return p, nil
		}
	}
	p, err := work.Program(ctx)
	if err == nil && dir != "" {
		if err := keep(p, dir); err != nil {
			warn(fmt.Sprintf("%s was compiled, and could not be kept in the cache (%v): the next time it is compiled again; %s=DIR says where the cache is, %s=off that there is none", p.Model, err, config.CacheVariable, config.CacheVariable))
		}
	}
	return p, err
}

// packageOf is the compiled package at a path; nil if ONNX is there.
func packageOf(path string) (*runtime.Program, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil && !errors.Is(err, os.ErrNotExist):
		return nil, err
	case err != nil:
		return nil, fmt.Errorf("%s: no such file or directory: give a directory that spark-compile wrote, or an ONNX file", path)
	}
	if _, err := os.Stat(filepath.Join(path, runtime.ProgramFile)); info.IsDir() && err != nil {
		if _, err := cli.ONNX(path); err != nil {
			return nil, fmt.Errorf("%w, and no %s: it is no package that spark-compile wrote; give one, or an ONNX file", err, runtime.ProgramFile)
		}
		return nil, nil
	}
	return cli.Package(path)
}

// place is the directory of the cache for a compilation; "" if nothing is kept.
func place(opt Options, work *compile.Prepared) (string, error) {
	dir := opt.Cache
	if dir == "" {
		settings, err := config.Read(config.Flags{}, nil)
		if err != nil {
			return "", err
		}
		dir = settings.CacheDir("programs")
	}
	if opt.Build == "" || dir == "" || dir == "off" {
		return "", nil
	}
	key, err := work.Key()
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, opt.Build[:min(16, len(opt.Build))]+"-"+key[:32]), nil
}

// keep writes a program into the cache, whole or not at all.
func keep(p *runtime.Program, dir string) error {
	files, err := p.Files()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	staged, err := os.MkdirTemp(filepath.Dir(dir), ".new-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(staged)
	for name, data := range files {
		path := filepath.Join(staged, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, data, 0o644); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(dir); err != nil { // damaged
		return err
	}
	if err := os.Rename(staged, dir); err != nil && !errors.Is(err, os.ErrExist) { // another process was first
		return err
	}
	return nil
}
