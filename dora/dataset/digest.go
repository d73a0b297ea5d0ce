package dataset

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/gofrs/flock"

	"github.com/spark-compile/spark-compile/dora/route"
	"github.com/spark-compile/spark-compile/internal/atomicfile"
	"github.com/spark-compile/spark-compile/internal/memory"
)

// digests computes SHA-256 digests of files and directories. Results are cached by path and stamp.
type digests struct {
	dir string // of the cache; "": no cache
}

// digestDir is the directory of a cache that digests of files are in.
const digestDir = "digests"

// digestsIn keeps digests in a cache; "": nowhere.
func digestsIn(cache string) digests {
	if cache == "" {
		return digests{}
	}
	return digests{filepath.Join(cache, digestDir)}
}

// RouteDigest is the digest of a recorded route below a directory: of its segments' logs, poses and videos, wherever the
// directory is. Digests of files are kept in a cache; "", or one that cannot be written: they are not.
func RouteDigest(ctx context.Context, dir, cache string) (string, error) {
	found, err := route.Find(ctx, dir)
	if err != nil {
		return "", err
	}
	h := sha256.New()
	for i := range found.Segments {
		s := &found.Segments[i]
		fmt.Fprintf(h, "%q\n", s.Name())
		for _, path := range (&contract{}).files(s, knowledge(s)) {
			if path == "" {
				continue
			}
			text, err := digestsIn(cache).of(ctx, path, true)
			if errors.As(err, new(*unkept)) {
				text, err = digests{}.of(ctx, path, true)
			}
			if err != nil {
				return "", fmt.Errorf("%s: %w", s.Name(), err)
			}
			fmt.Fprintln(h, text)
		}
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// digestFormat changes with the layout of listing.
const digestFormat = 1

// listing is the cache entry of a path.
type listing struct {
	Format int
	Path   string
	Files  map[string]fileDigest // by path relative to Path; "." for a file
}

type fileDigest struct {
	Stamp  stamp
	SHA256 string
}

// stamp changes when a file is written or replaced. Changed and Inode are 0 where the system does not report them.
type stamp struct {
	Size     int64
	Modified int64 // ns since 1970
	Changed  int64 // ctime, which touch cannot set back
	Inode    uint64
}

func stampOf(st os.FileInfo) stamp {
	s := stamp{Size: st.Size(), Modified: st.ModTime().UnixNano()}
	s.Changed, s.Inode = changeOf(st)
	return s
}

// racy is the coarsest resolution of file times (FAT). A file modified within it may change again without a new stamp,
// so its digest is not cached.
const racy = 2 * time.Second

// of returns the digest of a file, or of all files below a directory with their names. If another process is reading
// the path, it waits for that or returns errElsewhere.
func (d digests) of(ctx context.Context, path string, wait bool) (string, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	found, err := files(abs)
	if err != nil {
		return "", err
	}
	if d.dir == "" {
		return d.read(ctx, abs, found, nil)
	}
	if err := os.MkdirAll(d.dir, 0o755); err != nil {
		return "", &unkept{err}
	}
	name := sha256.Sum256([]byte(abs))
	entry := filepath.Join(d.dir, hex.EncodeToString(name[:16])+".json")
	if known := load(entry, abs); known.covers(found) {
		return known.digest(), nil
	}
	release, err := exclusive(ctx, entry, wait)
	if err != nil {
		return "", err
	}
	defer release()
	return d.read(ctx, abs, found, &entry)
}

// read digests the files that the cache entry lacks, and updates the entry.
func (d digests) read(ctx context.Context, path string, found map[string]stamp, entry *string) (string, error) {
	known := listing{}
	if entry != nil {
		known = load(*entry, path)
	}
	all := listing{Format: digestFormat, Path: path, Files: map[string]fileDigest{}}
	for name, s := range found {
		f := fileDigest{Stamp: s}
		if old := known.Files[name]; old.Stamp == s {
			f = old
		} else if err := f.read(ctx, filepath.Join(path, name)); err != nil {
			return "", err
		}
		all.Files[name] = f
	}
	if entry != nil {
		stored := all
		stored.Files = maps.Clone(all.Files)
		maps.DeleteFunc(stored.Files, func(_ string, f fileDigest) bool {
			return time.Since(time.Unix(0, f.Stamp.Modified)).Abs() < racy
		})
		if len(stored.Files) > 0 {
			_ = atomicfile.WriteJSON(*entry, stored) // without an entry the path is read again
		}
	}
	return all.digest(), nil
}

// read digests a file, which must keep its stamp meanwhile.
func (f *fileDigest) read(ctx context.Context, path string) error {
	file, err := memory.OpenRegular(path)
	if err != nil {
		return err
	}
	defer file.Close()
	h := sha256.New()
	buf := make([]byte, 1<<20)
	for {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		n, err := file.Read(buf)
		h.Write(buf[:n])
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
	}
	st, err := os.Stat(path)
	if err != nil {
		return err
	}
	if stampOf(st) != f.Stamp {
		return changedError(path)
	}
	f.SHA256 = hex.EncodeToString(h.Sum(nil))
	return nil
}

func changedError(path string) error {
	return fmt.Errorf("%s changed while it was read: open the data again when nothing writes to it", path)
}

// load reads a cache entry. A missing or damaged one is empty.
func load(entry, path string) (l listing) {
	data, err := memory.ReadFile(entry)
	if err != nil || memory.Unmarshal(data, &l) != nil || l.Format != digestFormat || l.Path != path {
		return listing{}
	}
	return l
}

// covers reports whether the entry has every file with its present stamp, and no others.
func (l *listing) covers(found map[string]stamp) bool {
	same := func(f fileDigest, s stamp) bool { return f.Stamp == s }
	return l.Format == digestFormat && maps.EqualFunc(l.Files, found, same)
}

func (l *listing) digest() string {
	h := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(l.Files)) {
		fmt.Fprintf(h, "%q %s\n", filepath.ToSlash(name), l.Files[name].SHA256)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Limits of what belongs to a segment.
const (
	maxFile  = 4 << 30 // bytes
	maxFiles = 1 << 16 // of a directory, and directories: more are there where links lead back
)

// files lists a file, or the files below a directory, by relative path. Links are followed.
func files(path string) (map[string]stamp, error) {
	out := map[string]stamp{}
	count := 0
	var visit func(name string) error
	visit = func(name string) error {
		count++
		full := filepath.Join(path, name)
		st, err := os.Stat(full)
		switch {
		case err != nil:
			return err
		case count > maxFiles:
			return fmt.Errorf("%s: more than %d files and directories: remove links that lead back", path, maxFiles)
		case st.IsDir():
		case st.Size() > maxFile:
			const text = "%s: %v, and a segment's file has %v at most"
			return fmt.Errorf(text, full, memory.Budget(st.Size()), memory.Budget(maxFile))
		default:
			out[name] = stampOf(st)
			return nil
		}
		entries, err := os.ReadDir(full)
		for _, e := range entries {
			if err == nil {
				err = visit(filepath.Join(name, e.Name()))
			}
		}
		return err
	}
	return out, visit(".")
}

// exclusive locks path+".lock". If another process holds the lock, it waits for it or returns errElsewhere. Where the
// file system has no locks or no room, it returns without one.
func exclusive(ctx context.Context, path string, wait bool) (release func(), err error) {
	lock := flock.New(path + ".lock")
	locked, err := lock.TryLock()
	if err == nil && !locked && wait {
		locked, err = lock.TryLockContext(ctx, lockDelay)
	}
	switch {
	case locked: // whoever waits for the removed file finds the work done
		return func() { _ = errors.Join(os.Remove(lock.Path()), lock.Close()) }, nil
	case ctx.Err() != nil:
		return nil, errors.Join(ctx.Err(), lock.Close())
	case err == nil:
		return nil, errors.Join(errElsewhere, lock.Close())
	}
	_ = lock.Close()
	return func() {}, nil
}

// lockDelay is the time from one look at a lock to the next.
const lockDelay = 50 * time.Millisecond
