package dataset

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spark-compile/spark-compile/dora/route"
)

// Open opens samples for a model. Spec names them:
//
//	DIR      segments of openpilot's routes, with logs and videos, in any layout; or .npz files, of which each is a sample, with
//	         arrays by the names of the model's inputs and truth:NAME for what was measured. Files of one directory are of one route.
//	ci:DIR   segments as openpilot's CI keeps them
//	synthetic, synthetic:routes=2,seconds=20,seed=1,width=240,height=150
//	         routes of a drawn drive, written to the cache
//
// What is damaged is left out and named by Options.Warn; a set without samples is an error.
func Open(ctx context.Context, spec string, opt Options) (Set, error) {
	if opt.Warn == nil {
		opt.Warn = func(string) {}
	}
	if settings, ok := strings.CutPrefix(spec, synthetic); ok && (settings == "" || settings[0] == ':') {
		return openSynthetic(ctx, strings.TrimPrefix(settings, ":"), opt)
	}
	for _, kind := range []struct{ prefix, why string }{
		{"comma2k19:", "comma2k19 is not read yet: convert its segments to .npz files with the model's inputs"},
		{"comma_car_segments:", "commaCarSegments has logs without pictures or states of openpilot: no driving model can be shown them"},
	} {
		if strings.HasPrefix(spec, kind.prefix) {
			return nil, fmt.Errorf("%s: %s", spec, kind.why)
		}
	}
	dir, ofRoutes := strings.CutPrefix(spec, "ci:")
	st, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%s: there is no such directory", dir)
	case err != nil:
		return nil, err
	case !st.IsDir():
		return nil, fmt.Errorf("%s is no directory: name one of routes or of .npz files", dir)
	}
	if !ofRoutes {
		found, err := route.Find(ctx, dir)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		ofRoutes = err == nil && slices.ContainsFunc(found.Segments, func(s route.Segment) bool {
			return s.Files[route.RLog]+s.Files[route.QLog]+s.Files[route.RawLog] != ""
		})
	}
	if ofRoutes {
		return openRoutes(ctx, dir, opt)
	}
	return openArrays(ctx, dir, opt)
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
