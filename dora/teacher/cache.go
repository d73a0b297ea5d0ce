package teacher

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/gofrs/flock"

	"github.com/spark-compile/spark-compile/internal/memory"
	"github.com/spark-compile/spark-compile/internal/parallel"
)

// entryID is what an entry is found by: a digest of the program and the kind of device, the sample's key and its inputs.
type entryID [sha256.Size]byte

// entry is what is kept of a sample: all its numbers.
type entry struct {
	id      entryID
	numbers []float32
}

// cache keeps entries in a directory: in segments, files numbered from 1 that grow at their end (segment.go). Whoever writes holds a
// lock of the directory, so that processes share segments and the bound; readers need none, since every entry says what it is. What
// does not fit makes the oldest segment go. A nil cache keeps nothing.
type cache struct {
	dir     string
	bound   int64
	program string
	warn    func(string)

	mu       sync.Mutex
	segments map[int]*segment
	at       map[entryID]place
	off      bool // it gave up
}

// place is where an entry lies.
type place struct {
	segment int
	offset  int64
	bytes   int // of its numbers
}

const (
	lockName       = "lock"
	segmentPattern = "%08d.values"
	segmentParts   = 8 // into which the bound is divided: what goes at a time
)

// openCache opens a directory, which is made. Where that fails it warns, and keeps nothing.
func openCache(dir string, bound int64, program string, warn func(string)) *cache {
	c := &cache{dir: dir, bound: bound, program: program, warn: warn, segments: map[int]*segment{}, at: map[entryID]place{}}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		c.giveUp(err)
		return c
	}
	c.refresh()
	return c
}

func (c *cache) close() error {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var errs []error
	for _, s := range c.segments {
		errs = append(errs, s.file.Close())
	}
	c.segments, c.off = nil, true
	return errors.Join(errs...)
}

// giveUp is what an error of the disk comes to: one warning, and nothing is kept any more.
func (c *cache) giveUp(err error) {
	if !c.off {
		c.warn(fmt.Sprintf("the cache of the teacher's values in %s is off: %v; values are computed again each time: make room there or give another directory", c.dir, err))
	}
	c.off = true
}

// ids are what samples' entries are found by, several at a time: pictures take longer to digest than to look at.
func (c *cache) ids(keys []string, inputs []map[string][]byte) []entryID {
	out := make([]entryID, len(keys))
	if c == nil {
		return out
	}
	parallel.For(len(keys), func(i int) { out[i] = c.id(keys[i], inputs[i]) })
	return out
}

// id is what a sample's entry is found by.
func (c *cache) id(key string, inputs map[string][]byte) (id entryID) {
	h := sha256.New()
	add := func(b []byte) {
		h.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(b))))
		h.Write(b)
	}
	add([]byte(c.program))
	add([]byte(key))
	for _, name := range slices.Sorted(maps.Keys(inputs)) {
		add([]byte(name))
		add(inputs[name])
	}
	copy(id[:], h.Sum(nil))
	return id
}

// refresh takes notice of what others have written since.
func (c *cache) refresh() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.off {
		return
	}
	if err := c.scan(); err != nil {
		c.giveUp(err)
	}
}

// scan opens new segments, forgets those that are gone, and indexes what segments have grown by.
func (c *cache) scan() error {
	numbers, err := c.numbers()
	if err != nil {
		return err
	}
	for k, s := range c.segments {
		if slices.Contains(numbers, k) {
			continue
		}
		if err := s.file.Close(); err != nil {
			return err
		}
		delete(c.segments, k)
		maps.DeleteFunc(c.at, func(_ entryID, p place) bool { return p.segment == k })
	}
	for _, k := range numbers {
		s := c.segments[k]
		if s == nil {
			file, err := memory.OpenRegularFor(c.path(k), os.O_RDWR, 0)
			if errors.Is(err, os.ErrNotExist) {
				continue // it has just gone
			}
			if err != nil {
				return err
			}
			s = &segment{file: file.File}
			c.segments[k] = s
		}
		if err := s.scan(func(id entryID, offset int64, bytes int) { c.at[id] = place{k, offset, bytes} }); err != nil {
			return err
		}
	}
	return nil
}

// numbers are those of the segments that are there, in order.
func (c *cache) numbers() ([]int, error) {
	files, err := os.ReadDir(c.dir)
	if err != nil {
		return nil, err
	}
	var out []int
	for _, f := range files {
		var k int
		if n, _ := fmt.Sscanf(f.Name(), segmentPattern, &k); n == 1 && f.Name() == fmt.Sprintf(segmentPattern, k) {
			out = append(out, k)
		}
	}
	slices.Sort(out)
	return out, nil
}

func (c *cache) path(k int) string { return filepath.Join(c.dir, fmt.Sprintf(segmentPattern, k)) }

// get is the entry of so many numbers; nil if there is none. Damaged says that there is one which cannot be believed.
func (c *cache) get(id entryID, numbers int) (x []float32, damaged bool) {
	if c == nil {
		return nil, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	p, ok := c.at[id]
	if c.off || !ok {
		return nil, false
	}
	if p.bytes != 4*numbers { // a header may name any length
		delete(c.at, id)
		return nil, true
	}
	x, err := c.segments[p.segment].read(id, p.offset, p.bytes)
	if err != nil {
		delete(c.at, id)
		return nil, true
	}
	return x, false
}

// put keeps entries.
func (c *cache) put(entries []entry) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.off {
		return
	}
	if err := c.append(entries); err != nil {
		c.giveUp(err)
	}
}

// append appends entries to the file, under the lock.
func (c *cache) append(entries []entry) (err error) {
	path := filepath.Join(c.dir, lockName)
	file, err := memory.OpenRegularFor(path, os.O_CREATE|os.O_RDONLY, 0o666) // locking a FIFO would wait for its writer
	if err != nil {
		return err
	}
	if err := file.Close(); err != nil {
		return err
	}
	lock := flock.New(path, flock.SetPermissions(0o666))
	if err := lock.Lock(); err != nil {
		return fmt.Errorf("locking %s: %w", lock.Path(), err)
	}
	defer func() { err = errors.Join(err, lock.Close()) }() // which unlocks
	if err := c.scan(); err != nil {
		return err
	}
	for _, e := range entries {
		if _, ok := c.at[e.id]; ok {
			continue // another process was faster
		}
		record := record(e.id, e.numbers)
		if int64(len(record)) > c.bound {
			continue
		}
		k, err := c.makeSpace(int64(len(record)))
		if err != nil {
			return err
		}
		s := c.segments[k]
		if _, err := s.file.WriteAt(record, s.end); err != nil {
			return errors.Join(err, s.file.Truncate(s.end))
		}
		c.at[e.id] = place{k, s.end, 4 * len(e.numbers)}
		s.end += int64(len(record))
	}
	return nil
}

// makeSpace is the number of the segment to write so many bytes to. Oldest segments go until these fit into the bound.
func (c *cache) makeSpace(bytes int64) (int, error) {
	numbers := slices.Sorted(maps.Keys(c.segments))
	last := 0
	total := bytes
	for _, k := range numbers {
		s := c.segments[k]
		size, err := s.trim()
		if err != nil {
			return 0, err
		}
		total, last = total+size, k
	}
	if last == 0 || c.segments[last].end > 0 && c.segments[last].end+bytes > max(c.bound/segmentParts, 1) {
		last++
	}
	for total > c.bound && len(numbers) > 0 {
		k := numbers[0]
		numbers = numbers[1:]
		total -= c.segments[k].end
		if err := c.drop(k); err != nil {
			return 0, err
		}
	}
	if c.segments[last] == nil {
		file, err := memory.OpenRegularFor(c.path(last), os.O_CREATE|os.O_RDWR, 0o666)
		if err != nil {
			return 0, err
		}
		c.segments[last] = &segment{file: file.File}
	}
	return last, nil
}

// drop removes a segment.
func (c *cache) drop(k int) error {
	if err := os.Remove(c.path(k)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	err := c.segments[k].file.Close()
	delete(c.segments, k)
	maps.DeleteFunc(c.at, func(_ entryID, p place) bool { return p.segment == k })
	return err
}
