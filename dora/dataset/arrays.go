package dataset

import (
	"archive/zip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spark-compile/spark-compile/internal/npy"
	"github.com/spark-compile/spark-compile/runtime"
)

// truthPrefix is that of arrays that were measured.
const truthPrefix = "truth:"

// arrays is a set of .npz files.
type arrays struct {
	dir         string
	opt         Options
	files       []string // relative to dir, with slashes
	fingerprint string
}

// openArrays reads the directories of the files alone; their checksums tell the sets apart.
func openArrays(ctx context.Context, dir string, opt Options) (Set, error) {
	paths, err := find(dir, ".npz")
	if err != nil {
		return nil, err
	}
	if len(paths) == 0 {
		return nil, fmt.Errorf("%s: it holds no .npz file", dir)
	}
	s, h := &arrays{dir: dir, opt: opt}, sha256.New()
	for _, path := range paths {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		relative, err := filepath.Rel(dir, path)
		if err != nil {
			return nil, err
		}
		text, err := s.describe(path)
		if err != nil {
			opt.Warn(fmt.Sprintf("%s is left out: %v", path, err))
			continue
		}
		s.files = append(s.files, filepath.ToSlash(relative))
		fmt.Fprintf(h, "%s\n%s", filepath.ToSlash(relative), text)
	}
	if len(s.files) == 0 {
		return nil, fmt.Errorf("%s: none of its %d .npz files has the model's inputs %s", dir, len(paths), strings.Join(s.names(), ", "))
	}
	s.fingerprint = hex.EncodeToString(h.Sum(nil))
	return s, nil
}

func (s *arrays) names() (out []string) {
	for _, in := range s.opt.Inputs {
		out = append(out, in.Name)
	}
	return out
}

// describe lists a file's arrays with their checksums. One that lacks an input is an error.
func (s *arrays) describe(path string) (string, error) {
	z, err := zip.OpenReader(path)
	if err != nil {
		return "", err
	}
	defer z.Close()
	var lines, names []string
	for _, f := range z.File {
		name := strings.TrimSuffix(f.Name, ".npy")
		lines, names = append(lines, fmt.Sprintf("%s %d %08x\n", name, f.UncompressedSize64, f.CRC32)), append(names, name)
	}
	for _, name := range s.names() {
		if !slices.Contains(names, name) {
			return "", fmt.Errorf("it has no array %q, which is an input of the model; it has %s", name, strings.Join(names, ", "))
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, ""), nil
}

func (s *arrays) Len() int { return len(s.files) }

func (s *arrays) Route(i int) string {
	if at := strings.LastIndex(s.files[i], "/"); at >= 0 {
		return s.files[i][:at]
	}
	return "."
}

func (s *arrays) Sample(_ context.Context, i int) (*Sample, error) {
	path := filepath.Join(s.dir, filepath.FromSlash(s.files[i]))
	all, err := npy.ReadZip(path)
	if err != nil {
		return nil, err
	}
	out := &Sample{Key: strings.TrimSuffix(s.files[i], ".npz"), Inputs: map[string][]byte{}, Truth: map[string][]float32{}}
	for _, in := range s.opt.Inputs {
		a := all[in.Name]
		if a == nil {
			return nil, fmt.Errorf("%s: it has no array %q", path, in.Name)
		}
		if out.Inputs[in.Name], err = a.As(in.Type.DType.String(), in.Type.Shape); err != nil {
			return nil, fmt.Errorf("%s: array %q: %w", path, in.Name, err)
		}
	}
	for name, a := range all {
		if name, ok := strings.CutPrefix(name, truthPrefix); ok {
			data, err := a.As("f32", a.Shape)
			if err != nil {
				return nil, fmt.Errorf("%s: array %q: %w", path, truthPrefix+name, err)
			}
			out.Truth[name] = runtime.View[float32](data)
		}
	}
	return out, nil
}

func (s *arrays) Fingerprint() string { return s.fingerprint }

func (s *arrays) Close() error { return nil }
