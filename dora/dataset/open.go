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

// kind is of what data is.
type kind int

const (
	anyData     kind = iota // routes or arrays
	anyRoutes               // logs or poses
	posedRoutes             // poses
	carLogs                 // logs without cameras
)

// prefixes of data say its kind.
var prefixes = map[string]kind{"ci": anyRoutes, "comma2k19": posedRoutes, "comma_car_segments": carLogs}

// Open opens samples for a model. Spec names them:
//
//	DIR      segments of openpilot's routes, with logs and videos, in any layout; or .npz files, of which each is a sample, with
//	         arrays by the names of the model's inputs and truth:NAME for what was measured. Files of one directory are of one route.
//	ci:DIR   segments as openpilot's CI keeps them
//	comma2k19:DIR
//	         segments of comma2k19, whose measured poses stand for the log
//	comma_car_segments:DIR
//	         logs of cars without cameras: they are counted, and have no samples
//	synthetic, synthetic:routes=2,seconds=20,seed=1,width=240,height=150
//	         routes of a drawn drive, written to the cache
//
// What is damaged is left out and named by Options.Warn; a set without samples is an error, but for comma_car_segments.
func Open(ctx context.Context, spec string, opt Options) (Set, error) {
	if opt.Warn == nil {
		opt.Warn = func(string) {}
	}
	if opt.Progress == nil {
		opt.Progress = func(int, int) {}
	}
	if settings, ok := strings.CutPrefix(spec, synthetic); ok && (settings == "" || settings[0] == ':') {
		return openSynthetic(ctx, strings.TrimPrefix(settings, ":"), opt)
	}
	dir, k := spec, anyData
	if prefix, rest, ok := strings.Cut(spec, ":"); ok && prefixes[prefix] != anyData {
		dir, k = rest, prefixes[prefix]
	}
	st, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%s: there is no such directory", dir)
	case err != nil:
		return nil, err
	case !st.IsDir():
		return nil, fmt.Errorf("%s is no directory: name one of routes or of .npz files", dir)
	}
	if k == anyData {
		found, err := route.Find(ctx, dir)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err == nil && (slices.ContainsFunc(found.Segments, func(s route.Segment) bool { return knowledge(&s) != "" }) ||
			slices.ContainsFunc(found.Problems, func(p route.Problem) bool { return p.Role.Log() })) {
			k = anyRoutes
		}
	}
	switch k {
	case anyData:
		return openArrays(ctx, dir, opt)
	case carLogs:
		return openCars(ctx, dir, opt)
	}
	return openRoutes(ctx, dir, opt, k)
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
