package route

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spark-compile/spark-compile/internal/memory"
)

// Role is what a file of a segment is for; it is also its name without suffix.
type Role string

// The roles. The last four are comma2k19's, the last two directories.
const (
	RLog         Role = "rlog"
	QLog         Role = "qlog" // fewer messages, no ModelV2
	RoadCamera   Role = "fcamera"
	WideCamera   Role = "ecamera"
	DriverCamera Role = "dcamera"
	SmallCamera  Role = "qcamera" // the road camera's, 526×330
	Video        Role = "video"   // the road camera's
	RawLog       Role = "raw_log" // of 2018, without ModelV2
	ProcessedLog Role = "processed_log"
	GlobalPose   Role = "global_pose"
)

// Log reports whether files of the role are logs.
func (r Role) Log() bool { return r == RLog || r == QLog || r == RawLog }

// roleOf is what a file is for by its name, and the rest of it.
func roleOf(base string) (role Role, suffix string) {
	suffix = filepath.Ext(base)
	return Role(strings.TrimSuffix(base, suffix)), suffix
}

// aDirectory stands for the suffix of a directory.
const aDirectory = "/"

// suffixes are those that files of a role may have, the better one first. Frames may be in an .npz or as PNGs in a directory.
var suffixes = map[Role][]string{
	RLog: {".zst", ".bz2", ""}, QLog: {".zst", ".bz2", ""}, RawLog: {".zst", ".bz2", ""},
	RoadCamera: {".hevc", ".npz", aDirectory}, WideCamera: {".hevc", ".npz", aDirectory}, DriverCamera: {".hevc", ".npz", aDirectory},
	SmallCamera: {".ts"}, Video: {".hevc"}, ProcessedLog: {aDirectory}, GlobalPose: {aDirectory},
}

// Segment is a minute of a route, and its files.
type Segment struct {
	Route     string // "DONGLE|LOG", "LOG" where no dongle is named, or what the directory is called
	Number    int
	Files     map[Role]string
	Recording bool // its rlog.lock is there: it is still being recorded, or the power went

	ranks map[Role]int // of the files' suffixes
	logs  []logFile    // in the order in which they were found
}

// logFile is a log that a segment may use.
type logFile struct {
	role         Role
	suffix, path string
}

// Name returns the segment's name: ROUTE--NUMBER.
func (s *Segment) Name() string { return fmt.Sprintf("%s--%d", s.Route, s.Number) }

// Found is what is below a directory.
type Found struct {
	Segments []Segment // by route and number
	Problems []Problem // by path
}

// Problem is a file or directory that was left out.
type Problem struct {
	Path string
	Err  error
	Role Role // of a file with such a name; "": none, as of directories
}

// Find finds the segments below a directory, which may itself be a segment. It knows the layouts of devices,
// connect, openpilot's CI, commaCarSegments and comma2k19, and flat files; any other directory with a log or a
// video is a segment 0 with its name. Links are followed, unless they lead to what is found without them. Files
// that cannot be used are Problems: empty ones, those that Git LFS has not fetched (ErrLFS), all but the best of
// several with the same role, and logs without a readable message where another log has some. Finding nothing is
// an error.
func Find(ctx context.Context, dir string) (*Found, error) {
	root, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("looking for routes in %s: %w", dir, err)
	}
	real, err := filepath.EvalSymlinks(root)
	if err != nil {
		return nil, fmt.Errorf("looking for routes: %w", err)
	}
	s := &search{root: root, real: real, segments: map[segmentID]*Segment{}, links: map[string]bool{}}
	if info, err := os.Stat(dir); err != nil {
		return nil, fmt.Errorf("looking for routes: %w", err)
	} else if !info.IsDir() {
		return nil, fmt.Errorf("looking for routes: %s is a file: name the directory that it is in", dir)
	}
	if err := s.scan(ctx, dir, root); err != nil {
		return nil, fmt.Errorf("looking for routes in %s: %w", dir, err)
	}
	found, err := s.found(ctx)
	if err != nil {
		return nil, fmt.Errorf("looking for routes in %s: %w", dir, err)
	}
	if len(found.Segments) > 0 {
		return found, nil
	}
	errs := []error{fmt.Errorf("%s has no logs or videos of openpilot: expected files such as rlog.zst and fcamera.hevc in directories such as LOG--0",
		dir)}
	for _, p := range found.Problems[:min(3, len(found.Problems))] {
		errs = append(errs, fmt.Errorf("%s: %w", p.Path, p.Err))
	}
	return nil, errors.Join(errs...)
}

// search is a Find in progress.
type search struct {
	root     string // absolute
	real     string // the root, without links
	segments map[segmentID]*Segment
	problems []Problem
	links    map[string]bool // directories that links led to
}

// found sorts what was found.
func (s *search) found(ctx context.Context) (*Found, error) {
	found := &Found{}
	for id, segment := range s.segments {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		s.choose(id, segment.logs)
		if len(segment.Files) > 0 {
			found.Segments = append(found.Segments, *segment)
		}
	}
	found.Problems = s.problems
	slices.SortFunc(found.Segments, func(a, b Segment) int {
		return cmp.Or(strings.Compare(a.Route, b.Route), a.Number-b.Number)
	})
	slices.SortStableFunc(found.Problems, func(a, b Problem) int { return strings.Compare(a.Path, b.Path) })
	return found, nil
}

func (s *search) problem(path string, err error) {
	s.problems = append(s.problems, Problem{path, err, fileRole(path)})
}

// scan looks through a directory, whose absolute path says what it is.
func (s *search) scan(ctx context.Context, dir, abs string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		s.problem(dir, err)
	}
	for _, entry := range entries {
		path, abs := filepath.Join(dir, entry.Name()), filepath.Join(abs, entry.Name())
		if strings.HasPrefix(entry.Name(), ".") {
			continue
		}
		info, err := os.Stat(path)
		switch {
		case err != nil:
			s.problem(path, err)
		case !info.IsDir():
			s.file(path, abs, info)
		case slices.Contains(suffixes[Role(entry.Name())], aDirectory):
			id, _ := s.identify(abs)
			s.add(id, Role(entry.Name()), aDirectory, path)
		case entry.Type()&fs.ModeSymlink != 0 && s.seen(path):
		case filepath.Ext(path) != "" && fileRole(path).Log():
			s.problem(path, errors.New("it is a directory"))
		default:
			if err := s.scan(ctx, path, abs); err != nil {
				return err
			}
		}
	}
	return nil
}

// fileRole is the role of a file by its name, alone or in a flat layout; "": none.
func fileRole(path string) Role {
	base := filepath.Base(path)
	if m := flatFile.FindStringSubmatch(base); m != nil {
		base = m[3]
	}
	role, suffix := roleOf(base)
	if !slices.Contains(suffixes[role], suffix) {
		return ""
	}
	return role
}

// seen reports whether a link leads to where one led before, to a directory that it is in, or to one that is found
// without it.
func (s *search) seen(link string) bool {
	target, err := filepath.EvalSymlinks(link)
	if err != nil {
		s.problem(link, err)
		return true
	}
	before := s.links[target]
	s.links[target] = true
	return before || within(s.real, target) || within(target, s.real) && !hidden(s.real, target)
}

// within reports whether a path is a directory or lies in it.
func within(path, dir string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(rel)
}

// hidden reports whether a path lies in a hidden directory below one.
func hidden(dir, path string) bool {
	return strings.Contains(strings.TrimPrefix(path, dir), string(filepath.Separator)+".")
}

// file takes a file into its segment, if it has a role.
func (s *search) file(path, abs string, info fs.FileInfo) {
	id, base := s.identify(abs)
	role, suffix := roleOf(base)
	if suffix == ".lock" && role == RLog {
		s.segment(id).Recording = true
		return
	}
	if !slices.Contains(suffixes[role], suffix) {
		return
	}
	if err := plausible(info); err != nil {
		s.problem(path, err)
		return
	}
	switch isPointer, err := isPointer(path, info); {
	case err != nil:
		s.problem(path, err)
	case info.Size() == 0:
		s.problem(path, errors.New("the file is empty"))
	case isPointer:
		s.problem(path, ErrLFS)
	case role.Log():
		segment := s.segment(id)
		segment.logs = append(segment.logs, logFile{role, suffix, path})
	default:
		s.add(id, role, suffix, path)
	}
}

// plausible is an error for what cannot be a file of a segment.
func plausible(info fs.FileInfo) error {
	switch {
	case !info.Mode().IsRegular():
		return errors.New("not a regular file")
	case info.Size() > maxSize:
		return fmt.Errorf("%v, and a segment's file has %v at most", memory.Budget(info.Size()), memory.Budget(maxSize))
	}
	return nil
}

// choose takes a segment's logs for their roles. Of several, those without a readable message are left out, unless none
// has one.
func (s *search) choose(id segmentID, logs []logFile) {
	errs := make([]error, len(logs))
	readable := false
	for i, l := range logs {
		if len(logs) > 1 {
			errs[i] = firstMessage(l.path)
		}
		readable = readable || errs[i] == nil
	}
	for i, l := range logs {
		if readable && errs[i] != nil {
			s.problem(l.path, errs[i])
			continue
		}
		s.add(id, l.role, l.suffix, l.path)
	}
}

// firstMessage says why not even the first message of a log can be read.
func firstMessage(path string) error {
	r, err := Open(path)
	if err != nil {
		return err
	}
	defer r.Close()
	_, err = r.frame()
	if err == io.EOF {
		return errors.New("the log has no message")
	}
	return err
}

// add takes a file for a role. Of two, the one with the better suffix is used, and of equals the one that was found first.
func (s *search) add(id segmentID, role Role, suffix, path string) {
	segment, rank := s.segment(id), slices.Index(suffixes[role], suffix)
	if used, twice := segment.Files[role]; twice {
		if rank >= segment.ranks[role] {
			used, path = path, used
			rank = segment.ranks[role]
		}
		s.problem(used, fmt.Errorf("not used: %s is the %s of %s too", path, role, segment.Name()))
	}
	segment.Files[role], segment.ranks[role] = path, rank
}

func (s *search) segment(id segmentID) *Segment {
	if s.segments[id] == nil {
		s.segments[id] = &Segment{Route: id.route, Number: id.number, Files: map[Role]string{}, ranks: map[Role]int{}}
	}
	return s.segments[id]
}
