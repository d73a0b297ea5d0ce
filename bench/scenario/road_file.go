package scenario

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// distance is where knots are, in a file; a Road has its spacing instead.
var distance = Param{Name: "distance", Unit: "m", Low: 0, High: never, Doc: "of each knot along the road, from 0 on"}

// roadKeys are the fields of a road in a scenario file.
var roadKeys = func() []string {
	keys := []string{"distance", "spacing", "interval"}
	for _, c := range roadColumns {
		keys = append(keys, c.Name)
	}
	return keys
}()

// readRoad reads the field road of a scenario: the name of a CSV file in the scenario file's directory, or the
// road itself.
func readRoad(n *yaml.Node, dir string) (*Road, error) {
	if n.Kind == yaml.ScalarNode {
		if n.Value == "" {
			return nil, errors.New("road: it names no file; want a .csv file, or distance: and curvature:")
		}
		path := n.Value
		if !filepath.IsAbs(path) {
			path = filepath.Join(dir, path)
		}
		r, err := ReadRoad(path)
		if err != nil {
			return nil, fmt.Errorf("road: %w", err)
		}
		return r, nil
	}
	at, err := fields(n, "road", roadKeys)
	if err != nil {
		return nil, err
	}
	r := &Road{}
	for _, c := range roadColumns {
		if at[c.Name] != nil {
			if *c.of(r), err = numbers(&c.Param, at[c.Name]); err != nil {
				return nil, fmt.Errorf("road: %w", err)
			}
		}
	}
	for _, x := range []struct {
		name string
		to   *float64
	}{{"spacing", &r.Spacing}, {"interval", &r.Interval}} {
		if at[x.name] != nil {
			if *x.to, err = number(&Param{Name: x.name}, at[x.name]); err != nil {
				return nil, fmt.Errorf("road: %w", err)
			}
		}
	}
	switch {
	case (at["distance"] == nil) == (at["spacing"] == nil):
		return nil, errors.New("road: want one of distance, a list, and spacing, a number")
	case at["distance"] != nil:
		knots, err := numbers(&distance, at["distance"])
		if err != nil {
			return nil, fmt.Errorf("road: %w", err)
		}
		if err := r.place(knots); err != nil {
			return nil, fmt.Errorf("road: %w", err)
		}
	}
	if err := r.check(); err != nil {
		return nil, fmt.Errorf("road: %w", err)
	}
	return r, nil
}

// ReadRoad reads a road from a CSV file with the columns distance (m, from 0 on, growing) and curvature (1/m, left
// positive), and, if they are there, grade, bank (rad) and speed (m/s). Knots that are not evenly spaced are spread over
// MaxKnots even ones. Errors name file, line and column.
func ReadRoad(path string) (*Road, error) {
	raw, err := readSmall(path)
	if err != nil {
		return nil, err
	}
	r := &Road{}
	names, knots := []string{distance.Name}, []float64{}
	lists := []*[]float64{&knots}
	for _, c := range roadColumns[:columnLead] {
		names, lists = append(names, c.Name), append(lists, c.of(r))
	}
	t, err := readTable(raw, tableWants{names: names, needed: 2, closed: true, most: MaxKnots})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	for i := range lists {
		*lists[i] = t[i]
	}
	if err := r.place(knots); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if err := r.check(); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}

// place makes the knots of a road, which are at distances, evenly spaced.
func (r *Road) place(distances []float64) error {
	switch {
	case len(distances) < 2 || len(distances) > MaxKnots:
		return fmt.Errorf("the road has %d knots, want 2 to %d; spread them, or cut it", len(distances), MaxKnots)
	case distances[0] != 0:
		return fmt.Errorf("distance begins with %v, want 0: cars start there", distances[0])
	}
	for i, x := range distances[1:] {
		if !(x > distances[i]) || math.IsInf(x, 0) {
			return fmt.Errorf("knot %d: distance is %v behind %v: distances must grow", i+1, x, distances[i])
		}
	}
	spacing, knots, even := evenly(distances)
	for _, c := range roadColumns {
		list := c.of(r)
		if *list == nil || c.Recorded && r.Interval != 0 {
			continue
		}
		if len(*list) != len(distances) {
			return fmt.Errorf("%s has %d values, want one for each of %d distances", c.Name, len(*list), len(distances))
		}
		for i, x := range *list {
			if err := c.check(x); err != nil {
				return fmt.Errorf("knot %d: %w", i, err)
			}
		}
		if !even {
			*list = spread(distances, *list, spacing, knots)
			continue
		}
		out, at := make([]float64, knots), 0
		for k := range out {
			x := float64(float64(k) * spacing)
			for at < len(distances)-2 && distances[at+1] <= x {
				at++
			}
			share := min(max((x-distances[at])/(distances[at+1]-distances[at]), 0), 1)
			out[k] = (*list)[at] + float64(share*((*list)[at+1]-(*list)[at]))
		}
		*list = out
	}
	r.Spacing = spacing
	return nil
}

// evenly is the coarsest even spacing at which all distances are knots, to a micrometre a knot; if there is none, that of
// MaxKnots knots.
func evenly(distances []float64) (spacing float64, knots int, even bool) {
	length := distances[len(distances)-1]
	for n := len(distances) - 1; n < MaxKnots; n++ {
		spacing := length / float64(n)
		if !slices.ContainsFunc(distances, func(x float64) bool {
			return math.Abs(x-float64(math.Round(x/spacing)*spacing)) > 1e-6
		}) {
			return spacing, n + 1, true
		}
	}
	return length / (MaxKnots - 1), MaxKnots, false
}

// tableWants says what a CSV file must be.
type tableWants struct {
	names  []string // of columns that are read; numbers of the first must grow
	needed int      // how many of them, from the first on, must be there
	closed bool     // others are errors
	most   int      // rows; 0: any number
}

// readTable reads columns of a CSV file: a list for each name, nil where a column that is not needed is not there.
func readTable(raw []byte, want tableWants) ([][]float64, error) {
	r := csv.NewReader(bytes.NewReader(bytes.TrimPrefix(raw, []byte("\ufeff"))))
	r.ReuseRecord = true
	head, err := r.Read()
	if err != nil {
		return nil, fmt.Errorf("its first line: %w; want names of columns", err)
	}
	places := slices.Repeat([]int{-1}, len(want.names))
	for i, h := range head {
		h = strings.TrimSpace(h)
		k := slices.Index(want.names, h)
		switch {
		case k >= 0 && places[k] >= 0:
			return nil, fmt.Errorf("line 1: column %s is there twice", h)
		case k >= 0:
			places[k] = i
		case want.closed:
			h = shortened(h)
			return nil, fmt.Errorf("line 1: there is no column %q; %s", h, hint(h, want.names))
		}
	}
	for k, name := range want.names[:want.needed] {
		if places[k] < 0 {
			return nil, fmt.Errorf("there is no column %s: want %s", name, strings.Join(want.names[:want.needed], ", "))
		}
	}
	out := make([][]float64, len(places))
	for rows := 0; ; rows++ {
		row, err := r.Read()
		var parse *csv.ParseError
		switch {
		case errors.Is(err, io.EOF) && rows > 0:
			return out, nil
		case errors.Is(err, io.EOF):
			return nil, errors.New("there is no row behind the names of columns: want one or more")
		case errors.As(err, &parse):
			return nil, fmt.Errorf("line %d: %w", parse.Line, parse.Err)
		case err != nil:
			return nil, err
		}
		line, _ := r.FieldPos(0)
		if want.most > 0 && rows >= want.most {
			return nil, fmt.Errorf("line %d: there are more than %d rows; spread them, or cut the file", line, want.most)
		}
		for k, i := range places {
			if i < 0 {
				continue
			}
			x, err := strconv.ParseFloat(strings.TrimSpace(row[i]), 64)
			if err != nil || math.IsNaN(x) || math.IsInf(x, 0) {
				return nil, fmt.Errorf("line %d: %s is %q, want a number", line, want.names[k], shortened(row[i]))
			}
			if n := len(out[k]); k == 0 && n > 0 && x <= out[0][n-1] {
				return nil, fmt.Errorf("line %d: %s is %v behind %v: it must grow", line, want.names[0], x, out[0][n-1])
			}
			out[k] = append(out[k], x)
		}
	}
}

// checkRoad says which parameter of a family would be ignored, since its road has something instead.
func (f *Family) checkRoad() error {
	if param, has := f.instead(); param != "" {
		return fmt.Errorf("%s is a parameter of %q, and its road of knots has %s: leave one out", param, f.Name, has)
	}
	return nil
}

// instead is a parameter of a family in place of which its road has something; "": there is none.
func (f *Family) instead() (param, has string) {
	for _, p := range Params {
		if f.Road == nil || !f.Names(p.Name) {
			continue
		}
		if has := f.Road.instead(p.Name); has != "" {
			return p.Name, has
		}
	}
	return "", ""
}

// instead is what a road has instead of a parameter; "": the parameter counts.
func (r *Road) instead(param string) string {
	switch {
	case param == "curvature" || strings.HasPrefix(param, "curve_") || param == "grade" || param == "bank":
		return "its own"
	case param == "cruise" && r.Speed != nil:
		return "recorded speeds"
	case r.Lead != nil && slices.Contains(leadParams, param):
		return "a recorded lead"
	}
	return ""
}

// leadParams say where car 0 is along the road.
var leadParams = func() []string {
	names := []string{"gap", "idm", "headway", "spacing", "accel", "brake"}
	for k := range knots {
		names = append(names, "time"+digit(k), "speed"+digit(k))
	}
	for i := range names {
		names[i] = car(0, names[i])
	}
	return names
}()

// record gives a scenario what its road has a record of, where the family does not say otherwise.
func (f *Family) record(s *Scenario) {
	r := f.Road
	if r == nil || r.Speed == nil {
		return
	}
	set := func(name string, value float64) {
		if p := Params[paramIndex[name]]; !f.Names(name) {
			s.Values[paramIndex[name]] = min(max(value, p.Low), p.High)
		}
	}
	set("speed", r.Speed[0])
	if r.Interval != 0 {
		set("duration", float64(r.Interval*float64(len(r.Speed)-1)))
	}
	if r.Lead != nil {
		set("car0_present", 1)
	}
}
