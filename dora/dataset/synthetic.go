package dataset

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// synthetic is the kind of data that is drawn.
const synthetic = "synthetic"

// parseSynthesis reads settings such as routes=2,seconds=20.
func parseSynthesis(text string) (s Synthesis, err error) {
	for _, part := range strings.Split(text, ",") {
		if part == "" {
			continue
		}
		name, value, _ := strings.Cut(part, "=")
		n, err := strconv.ParseUint(value, 10, 31)
		if err != nil {
			return s, fmt.Errorf("%s:%s: %s: want a number, as in routes=2", synthetic, text, part)
		}
		switch name {
		case "routes":
			s.Routes = int(n)
		case "seconds":
			s.Seconds = int(n)
		case "seed":
			s.Seed = n
		case "width":
			s.Width = int(n)
		case "height":
			s.Height = int(n)
		default:
			return s, fmt.Errorf("%s:%s: there is no setting %q: there are routes, seconds, seed, width and height", synthetic, text, name)
		}
	}
	return s, s.defaults()
}

// openSynthetic writes routes to the cache, unless they are there, or to a directory that goes with the set.
func openSynthetic(ctx context.Context, settings string, opt Options) (Set, error) {
	s, err := parseSynthesis(settings)
	if err != nil {
		return nil, err
	}
	s.Driver = watchesDriver(opt.Inputs)
	parent, temporary := opt.Cache, ""
	if parent == "" {
		if temporary, err = os.MkdirTemp("", "spark-routes"); err != nil {
			return nil, err
		}
		parent = temporary
	}
	set, err := s.open(ctx, parent, opt)
	if temporary == "" {
		return set, err
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(temporary))
	}
	r := set.(*routes)
	r.remove = append(r.remove, temporary)
	return r, nil
}

// open writes the routes under a name that says their settings.
func (s Synthesis) open(ctx context.Context, parent string, opt Options) (Set, error) {
	name := fmt.Sprintf("%x", sha256.Sum256(fmt.Append(nil, indexFormat, s)))[:16]
	dir := filepath.Join(parent, synthetic+"-"+name)
	if _, err := os.Stat(dir); err != nil {
		if err := os.MkdirAll(parent, 0o755); err != nil {
			return nil, err
		}
		unfinished, err := os.MkdirTemp(parent, synthetic+partial)
		if err != nil {
			return nil, err
		}
		err = Synthesise(ctx, unfinished, s)
		if err == nil {
			if err = os.Rename(unfinished, dir); errors.Is(err, os.ErrExist) { // another rank was faster
				err = os.RemoveAll(unfinished)
			}
		}
		if err != nil {
			return nil, errors.Join(err, os.RemoveAll(unfinished))
		}
	}
	return openRoutes(ctx, dir, opt, anyRoutes)
}
