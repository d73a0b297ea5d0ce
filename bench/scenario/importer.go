package scenario

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spark-compile/spark-compile/dora/route"
	"github.com/spark-compile/spark-compile/internal/console"
	"github.com/spark-compile/spark-compile/internal/memory"
)

// importer gathers scenarios. Recorded drives that cannot be used are left out.
type importer struct {
	list   []Family
	drives int     // how many of them were recorded
	left   []error // why others are left out
}

// add takes a recorded drive, or leaves it out for an error. One that is not the drive's fault is returned.
func (m *importer) add(ctx context.Context, f *Family, err error) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, memory.ErrBudget):
		return err
	case err != nil:
		m.left = append(m.left, err)
		return nil
	}
	m.list = append(m.list, *f)
	m.drives++
	return nil
}

// directory takes the segments of openpilot's routes and of comma2k19 below a directory, by their routes and numbers.
func (m *importer) directory(ctx context.Context, dir string) error {
	found, err := route.Find(ctx, dir)
	if err != nil {
		return err
	}
	if n := len(found.Segments); n > maxFamilies {
		return fmt.Errorf("%s: there are %d segments, and %d are allowed; name some of them", dir, n, maxFamilies)
	}
	for _, p := range found.Problems {
		if slices.Contains([]route.Role{"", route.RLog, route.QLog}, p.Role) { // no others are read
			m.left = append(m.left, fmt.Errorf("%s: %w", p.Path, p.Err))
		}
	}
	for i := range found.Segments {
		f, damage, err := importSegment(ctx, &found.Segments[i])
		if err := m.add(ctx, f, err); err != nil {
			return err
		}
		if damage != nil && err == nil {
			m.left = append(m.left, &Cut{damage})
		}
	}
	return nil
}

// Cut is the error of a recorded drive that counts as far as its log is readable.
type Cut struct{ err error }

func (c *Cut) Error() string { return c.err.Error() }

// Unwrap is what the reader of the log said.
func (c *Cut) Unwrap() error { return c.err }

// Left is a line that says what Load has not taken.
func Left(err error) string {
	if errors.As(err, new(*Cut)) {
		return fmt.Sprintf("of a recorded drive only the beginning counts: %v", err)
	}
	return fmt.Sprintf("recorded drive left out: %v", err)
}

// importSegment takes the poses of comma2k19, or else the log, of which damage says where it stops being readable.
func importSegment(ctx context.Context, s *route.Segment) (f *Family, damage, err error) {
	if dir := s.Files[route.GlobalPose]; dir != "" {
		f, err = importPoses(ctx, dir, fmt.Sprintf("%s/%d", s.Route, s.Number))
		return f, nil, err
	}
	path := cmp.Or(s.Files[route.RLog], s.Files[route.QLog])
	if path == "" {
		return nil, nil, fmt.Errorf("segment %s: it has no rlog or qlog of openpilot, and no %s of comma2k19", s.Name(), poseDir)
	}
	if f, damage, err = importLog(ctx, path, s.Name()); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	return f, damage, nil
}

// failed is an error with the first reasons if drives were named and none can be used.
func (m *importer) failed() error {
	n := len(m.left)
	if n == 0 || m.drives > 0 {
		return nil
	}
	err := m.left[0]
	if n == 1 {
		return err
	}
	const named = 3
	for _, x := range m.left[1:min(named, n)] {
		err = fmt.Errorf("%w; %w", err, x)
	}
	if n > named {
		err = fmt.Errorf("%w; and %s", err, console.Count(n-named, "other"))
	}
	return fmt.Errorf("none of %s can be used: %w", console.Count(n, "recorded drive"), err)
}
