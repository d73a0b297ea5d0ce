package route

import (
	"bytes"
	"io/fs"
	"path/filepath"
	"regexp"
	"strconv"

	"github.com/spark-compile/spark-compile/internal/memory"
)

// segmentID is what a path says of its file: which segment it is of.
type segmentID struct {
	route  string
	number int
}

// The parts of names. Dongles are 16 hex digits, but those of openpilot's CI may be regenAA0FC4ED71E or fakedata; logs are named by
// time, or since 2024 by a count and a random number.
const (
	logName    = `\d{4}-\d\d-\d\d--\d\d-\d\d-\d\d|[0-9a-f]{8}--[0-9a-f]{10}`
	dongleName = `[0-9A-Za-z]+`
)

var (
	routeName  = regexp.MustCompile(`^(?:(` + dongleName + `)[|_])?(` + logName + `)$`)
	realDongle = regexp.MustCompile(`^(?:[0-9a-f]{16}|regen[0-9A-Za-z]+|fakedata)$`)
	numbered   = regexp.MustCompile(`(?s)^(.+)--(\d{1,5})$`)
	onlyNumber = regexp.MustCompile(`^\d{1,5}$`)
	flatFile   = regexp.MustCompile(`(?s)^(.+)--(\d{1,5})--([a-z_]+(?:\.[a-z0-9]+)?)$`)
)

// identify reads a file's absolute path: which segment it is of, and what its name is without those of a flat layout.
func (s *search) identify(abs string) (id segmentID, base string) {
	dir, base := filepath.Split(abs)
	dir = filepath.Clean(dir)
	if m := flatFile.FindStringSubmatch(base); m != nil {
		return segmentID{s.route(filepath.Join(dir, m[1])), atoi(m[2])}, m[3]
	}
	above, last := filepath.Split(dir)
	if m := numbered.FindStringSubmatch(last); m != nil {
		return segmentID{s.route(above + m[1]), atoi(m[2])}, base
	}
	if onlyNumber.MatchString(last) {
		return segmentID{s.route(filepath.Clean(above)), atoi(last)}, base
	}
	return segmentID{s.route(dir), 0}, base
}

// route names a route by the path of its directory, or what its directory would be. The dongle is in its own name, or else it is the
// directory above. A name that is not a log's is kept with what is above it in the tree that is searched, since several routes may
// have it.
func (s *search) route(dir string) string {
	m, above := routeName.FindStringSubmatch(filepath.Base(dir)), filepath.Base(filepath.Dir(dir))
	switch {
	case m == nil:
		if rel, err := filepath.Rel(s.root, dir); err == nil && rel != "." && filepath.IsLocal(rel) {
			return filepath.ToSlash(rel)
		}
		return filepath.Base(dir)
	case m[1] != "":
		return m[1] + "|" + m[2]
	case realDongle.MatchString(above):
		return above + "|" + m[2]
	}
	return m[2]
}

// atoi reads digits that were matched.
func atoi(digits string) int {
	n, err := strconv.Atoi(digits)
	if err != nil {
		panic(err)
	}
	return n
}

// isPointer reports whether a file is what Git LFS leaves in place of one that it has not fetched.
func isPointer(path string, info fs.FileInfo) (bool, error) {
	if info.Size() < int64(len(lfsMagic)) || info.Size() > 1024 {
		return false, nil
	}
	head, err := memory.ReadFile(path)
	return bytes.HasPrefix(head, []byte(lfsMagic)), err
}
