package dataset

import (
	"archive/zip"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spark-compile/spark-compile/internal/memory"
	"github.com/spark-compile/spark-compile/internal/npy"
	"github.com/spark-compile/spark-compile/runtime"
)

// truthPrefix is that of arrays that were measured.
const truthPrefix = "truth:"

// arrays is a set of .npz files.
type arrays struct {
	dir         string
	opt         Options
	files       []string   // relative to dir, with slashes
	measured    [][]string // names of their arrays that were measured
	fingerprint string
}

// openArrays reads which arrays the files have; checksums distinguish the sets.
func openArrays(ctx context.Context, dir string, opt Options) (Set, error) {
	paths, err := find(dir, ".npz")
	if err != nil {
		return nil, err
	}
	if len(paths) == 0 {
		return nil, fmt.Errorf("%s holds neither segments of routes (directories with an rlog) nor .npz files", dir)
	}
	s, h := &arrays{dir: dir, opt: opt}, sha256.New()
	var first error
	for _, path := range paths {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		relative, err := filepath.Rel(dir, path)
		if err != nil {
			return nil, err
		}
		text, measured, err := s.describe(path)
		if err != nil {
			first = cmp.Or(first, fmt.Errorf("%s: %w", path, err))
			opt.Warn(fmt.Sprintf("%s is left out: %v", path, err))
			continue
		}
		s.files, s.measured = append(s.files, filepath.ToSlash(relative)), append(s.measured, measured)
		fmt.Fprintf(h, "%s\n%s", filepath.ToSlash(relative), text)
	}
	if len(s.files) == 0 {
		return nil, fmt.Errorf("%s: none of its %d .npz files has the model's inputs %s: %w", dir, len(paths), strings.Join(s.names(), ", "), first)
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

// describe lists a file's arrays with their checksums, and the names of those that were measured. A file that lacks an
// input, or has it in another type or shape, is an error.
func (s *arrays) describe(path string) (text string, measured []string, err error) {
	file, err := memory.OpenRegular(path)
	if err != nil {
		return "", nil, err
	}
	defer file.Close()
	z, err := zip.NewReader(file, file.Size())
	if err != nil {
		return "", nil, err
	}
	var lines []string
	has := map[string]*zip.File{}
	for _, f := range z.File {
		name := strings.TrimSuffix(f.Name, ".npy")
		lines = append(lines, fmt.Sprintf("%s %d %08x\n", name, f.UncompressedSize64, f.CRC32))
		has[name] = f
	}
	for _, in := range s.opt.Inputs {
		if has[in.Name] == nil {
			names := strings.Join(slices.Sorted(maps.Keys(has)), ", ")
			return "", nil, fmt.Errorf("it has no array %q, which is an input of the model; it has %s", in.Name, names)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(has)) {
		if err := s.fits(name, has[name]); err != nil {
			return "", nil, fmt.Errorf("array %q: %w", name, err)
		}
		if strings.HasPrefix(name, truthPrefix) {
			measured = append(measured, name)
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, ""), measured, nil
}

// fits reports an array that is no input's, or no numbers that were measured. It reads the array's header alone.
func (s *arrays) fits(name string, f *zip.File) error {
	at := slices.IndexFunc(s.opt.Inputs, func(in Input) bool { return in.Name == name })
	measured := strings.HasPrefix(name, truthPrefix)
	if at < 0 && !measured {
		return nil
	}
	r, err := f.Open()
	if err != nil {
		return err
	}
	defer r.Close()
	a, err := npy.Describe(r)
	if err != nil {
		return err
	}
	dtype, shape := "f32", a.Shape
	if at >= 0 {
		dtype, shape = s.opt.Inputs[at].Type.DType.String(), s.opt.Inputs[at].Type.Shape
	}
	_, err = a.As(dtype, shape)
	return err
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
	all, err := npy.ReadNamed(path, uint64(memory.Default()), append(s.names(), s.measured[i]...)...)
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
