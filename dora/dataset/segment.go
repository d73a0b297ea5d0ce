package dataset

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/spark-compile/spark-compile/dora/route"
	"github.com/spark-compile/spark-compile/internal/atomicfile"
	"github.com/spark-compile/spark-compile/internal/memory"
	"github.com/spark-compile/spark-compile/internal/openpilot/generation"
)

// index is what is kept of a segment, so that neither its log nor its videos are read again: a file in the cache, called by the digest of what it was made of.
type index struct {
	Format   int
	Timeline timeline
	Wanted   []int // moments whose pictures are kept
	Kept     int   // of them, in their order
	Damage   []string
}

// indexFormat changes with the meaning of what is kept.
const indexFormat = 3

// segment is one that samples are made of.
type segment struct {
	name, route    string
	key            string // of the cache: content and the code that made what is kept
	content        string // digest of the files, and of what the model takes of them
	number         int
	index          index
	pictures       *pictures
	previous, next *segment // that it goes on from without a gap; nil: none
}

// every is the number of frames from one sample to the next: 5 a second, as models take their histories.
const every = generation.Group

// errElsewhere is that another process, such as another rank, is reading the segment into the same cache.
var errElsewhere = errors.New("another process reads it")

// open reads a segment's log and pictures, or what is kept of them. Its error says why there are none. Where another process is about to keep them, it waits for that, or returns
// errElsewhere.
func openSegment(ctx context.Context, s *route.Segment, c *contract, k kind, cache string, wait bool) (*segment, error) {
	log := knowledge(s)
	if k == posedRoutes {
		log = s.Files[route.GlobalPose]
	}
	switch {
	case log == "" && k == posedRoutes:
		return nil, errors.New("it has no global_pose, as comma2k19's segments do: name the directory without comma2k19:")
	case log == "":
		return nil, errors.New("it has no log")
	case c.rule != "" && log == s.Files[route.GlobalPose]:
		return nil, errors.New("comma2k19 has no driver camera")
	}
	out := &segment{name: s.Name(), route: s.Route, number: s.Number}
	files := c.files(s, log)
	content, err := c.content(ctx, files, cache, wait)
	if err != nil {
		return nil, err
	}
	out.content = content
	key := sha256.Sum256([]byte(codeVersion() + content))
	out.key = hex.EncodeToString(key[:])[:32]
	path := filepath.Join(cache, out.key+".json")
	out.pictures = &pictures{path: filepath.Join(cache, out.key+".planes"), size: c.frameBytes()}
	if !out.load(path, c) {
		make := func() error {
			if err := out.make(ctx, s, log, c); err != nil {
				return err
			}
			switch again, err := c.content(ctx, files, cache, true); {
			case err != nil:
				return err
			case again != content:
				return changedError(s.Name())
			}
			return nil
		}
		if err := out.keep(ctx, c, path, wait, make); err != nil {
			return nil, err
		}
	}
	out.pictures.places = map[int]int{}
	for at, k := range out.index.Wanted[:out.index.Kept] {
		out.pictures.places[k] = at
	}
	return out, nil
}

// content is a digest of a segment's files and of what the contract takes of them.
func (c *contract) content(ctx context.Context, files []string, cache string, wait bool) (string, error) {
	h := sha256.New()
	fmt.Fprintln(h, indexFormat, c.look, c.rule, c.sees, c.step, c.dense)
	for _, path := range files {
		text := "none"
		if path != "" {
			var err error
			if text, err = digestsIn(cache).of(ctx, path, wait); err != nil {
				return "", err
			}
		}
		fmt.Fprintln(h, text)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// files are those that samples are made of; "" where one is not there.
func (c *contract) files(s *route.Segment, log string) []string {
	if c.rule != "" {
		return []string{log, s.Files[route.DriverCamera]}
	}
	return []string{log, s.Files[route.ProcessedLog], s.Files[route.RoadCamera], s.Files[route.Video], s.Files[route.WideCamera]}
}

// eyes is the camera whose frames are the moments, and its file.
func (c *contract) eyes() string {
	if c.rule != "" {
		return "driver camera (dcamera.hevc)"
	}
	return "road camera (fcamera.hevc)"
}

// frameBytes is the size of what the model sees at a moment.
func (c *contract) frameBytes() int64 {
	if c.rule != "" {
		return int64(c.look.Bytes())
	}
	return 2 * int64(c.look.Bytes())
}

// knowledge is the file that says what was known at each frame: a log, or measured poses; "": there is none.
func knowledge(s *route.Segment) string {
	for _, role := range []route.Role{route.RLog, route.QLog, route.GlobalPose, route.RawLog} {
		if path := s.Files[role]; path != "" {
			return path
		}
	}
	return ""
}

// load takes what is kept, if it is whole.
func (g *segment) load(path string, c *contract) bool {
	data, err := memory.ReadFile(path)
	if err != nil || memory.Unmarshal(data, &g.index) != nil || !g.index.whole() {
		g.index = index{}
		return false
	}
	if !c.sees {
		return true
	}
	st, err := os.Stat(g.pictures.path)
	if err != nil || st.Size() != int64(g.index.Kept)*g.pictures.size {
		g.index = index{}
		return false
	}
	return true
}

// whole reports whether what was kept is of this format and agrees with itself.
func (x *index) whole() bool {
	outside := func(k int) bool { return k < 0 || k >= len(x.Timeline.Moments) }
	return x.Format == indexFormat && x.Kept >= 0 && x.Kept <= len(x.Wanted) && !slices.ContainsFunc(x.Wanted, outside)
}

// keep makes the index and stores it in the cache, unless another process has done so in the meantime.
func (g *segment) keep(ctx context.Context, c *contract, path string, wait bool, make func() error) error {
	release, err := exclusive(ctx, path, wait)
	if err != nil {
		return err
	}
	defer release()
	if err := ctx.Err(); err != nil {
		return err
	}
	if g.load(path, c) {
		return nil
	}
	if err := make(); err != nil {
		return err
	}
	if err := atomicfile.WriteJSON(path, g.index); err != nil {
		return &unkept{err}
	}
	return nil
}

// make reads the log, and decodes what models see of the videos.
func (g *segment) make(ctx context.Context, s *route.Segment, log string, c *contract) error {
	read := func() (*timeline, error) { return readTimeline(ctx, log, c.rule != "") }
	if log == s.Files[route.GlobalPose] {
		if c.sees && eye(s, false) == "" {
			return errors.New("it has no video of the camera (video.hevc)")
		}
		read = func() (*timeline, error) { return posedTimeline(s) }
	}
	t, err := read()
	if err != nil {
		return err
	}
	g.index = index{Format: indexFormat, Timeline: *t}
	if t.Damage != "" {
		g.index.Damage = append(g.index.Damage, t.Damage)
	}
	if len(t.Moments) == 0 {
		why := ""
		if t.Damage != "" {
			why = ": " + t.Damage
		}
		return fmt.Errorf("its log knows no frame of the %s%s", c.eyes(), why)
	}
	for k, m := range t.Moments {
		if m.Known && (c.dense || m.Road%every == 0 || m.Road%every == every-c.step) {
			g.index.Wanted = append(g.index.Wanted, k)
		}
	}
	if len(g.index.Wanted) == 0 {
		return errors.New("it has no valid calibration")
	}
	if !c.sees {
		g.index.Kept = len(g.index.Wanted)
		return nil
	}
	if eye(s, c.rule != "") == "" {
		return fmt.Errorf("it has no video of the %s", c.eyes())
	}
	count, damage, err := g.pictures.decode(ctx, s, t, c, g.index.Wanted)
	if err != nil {
		return err
	}
	if g.index.Kept = count; damage != "" {
		g.index.Damage = append(g.index.Damage, damage)
	}
	return nil
}

// samples are the moments whose pictures, and those before them that the model sees too, are kept.
func (g *segment) samples(c *contract) (out []int) {
	for _, k := range slices.Sorted(slices.Values(g.index.Wanted[:g.index.Kept])) {
		p := place{g, k}
		if _, ok := p.before(c.step); ok && p.moment().Road%every == 0 {
			out = append(out, k)
		}
	}
	return out
}
