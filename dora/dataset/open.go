package dataset

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Open opens samples for a model: a directory of .npz files, each of which is a sample, with arrays by the names of the model's inputs and truth:NAME for
// what was measured. Files of one directory are of one route. What is damaged is left out and named by Options.Warn; a set without samples is an error.
func Open(ctx context.Context, spec string, opt Options) (Set, error) {
	if opt.Warn == nil {
		opt.Warn = func(string) {}
	}
	st, err := os.Stat(spec)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%s: there is no such directory", spec)
	case err != nil:
		return nil, err
	case !st.IsDir():
		return nil, fmt.Errorf("%s is no directory: name one of .npz files", spec)
	}
	return openArrays(ctx, spec, opt)
}

// find lists the files of a directory and those below it whose names end so, by path.
func find(dir, suffix string) (paths []string, err error) {
	err = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() && strings.HasSuffix(path, suffix) {
			paths = append(paths, path)
		}
		return err
	})
	return paths, err
}
