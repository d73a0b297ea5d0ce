package dataset

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/spark-compile/spark-compile/dora/route"
)

// cars is a set of logs without cameras, as commaCarSegments has them: CAN and the car's parameters. No model of openpilot can be shown any of it, so it has no
// samples; but it can be counted and checked.
type cars struct {
	counts      Counts
	fingerprint string
}

// openCars reads all logs below a directory.
func openCars(ctx context.Context, dir string, opt Options) (Set, error) {
	found, err := route.Find(ctx, dir)
	if err != nil {
		return nil, err
	}
	for _, p := range found.Problems {
		opt.Warn(fmt.Sprintf("%s is left out: %v", p.Path, p.Err))
	}
	c, h := &cars{counts: Counts{Events: map[string]int{}, Cars: map[string]int{}}}, sha256.New()
	var reasons []string
	kept := digestsIn(opt.Cache)
	for i := range found.Segments {
		s := &found.Segments[i]
		path := knowledge(s)
		if path == "" {
			continue
		}
		err := c.read(ctx, path, opt.Warn)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		text, other := kept.of(ctx, path, true)
		if err = errors.Join(err, other); err != nil {
			reasons = append(reasons, fmt.Sprintf("%s: %v", s.Name(), err))
			opt.Warn(fmt.Sprintf("segment %s is left out: %v", s.Name(), err))
			continue
		}
		fmt.Fprintln(h, s.Name(), text)
		opt.Progress(i+1, len(found.Segments))
	}
	if c.counts.Segments == 0 {
		return nil, fmt.Errorf("%s: none of its logs can be read: %s", dir, strings.Join(append(reasons, "there are none")[:min(3, max(1, len(reasons)))], "; "))
	}
	c.fingerprint = hex.EncodeToString(h.Sum(nil))
	return c, nil
}

// read counts what is in a log. A damaged end keeps what came before.
func (c *cars) read(ctx context.Context, path string, warn func(string)) error {
	first, last := uint64(math.MaxUint64), uint64(0)
	name, kinds := "unknown", map[string]int{}
	damage, err := events(ctx, path, func(e *route.Event) error {
		kinds[e.Kind.String()]++
		first, last = min(first, e.Time), max(last, e.Time)
		var p route.CarParams
		if e.Kind == route.KindCarParams && e.Decode(&p) == nil && p.CarFingerprint != "" {
			name = p.CarFingerprint
		}
		return nil
	})
	if err != nil {
		return err
	}
	if damage != "" {
		warn(damage)
	}
	if len(kinds) == 0 {
		return fmt.Errorf("%s has no event that is known", path)
	}
	for kind, n := range kinds {
		c.counts.Events[kind] += n
	}
	c.counts.Cars[name]++
	c.counts.Segments++
	c.counts.Hours += float64(last-first) / 3600e9
	return nil
}

func (c *cars) Len() int { return 0 }

func (c *cars) Route(int) string { return "" }

func (c *cars) Sample(context.Context, int) (*Sample, error) {
	return nil, errors.New("logs of cars have no samples")
}

func (c *cars) Fingerprint() string { return c.fingerprint }

func (c *cars) Close() error { return nil }

// Count is what was read.
func (c *cars) Count() Counts { return c.counts }
