package scenario

import "github.com/spark-compile/spark-compile/ir"

// shot is the frame of a film that each loop sees, and where the loop is from the car that recorded it.
type shot struct {
	frame   num // its number
	passed  num // m along the road since it
	forward num // m
	right   num // m
	turn    num // rad to the left
}

// filmed says whether loops see a recording.
func (w *world) filmed() bool { return w.view != nil && w.view.film != nil }

// shotFrom is what a loop sees in a pose on the road. Between a frame and the loop the road is an arc.
func (w *world) shotFrom(f *film, station, offset, heading num) (s shot) {
	stations := num{w.x.Constant(ir.FromFloats(ir.T(w.float, len(f.poses[0]), 1), f.poses[0]))}
	beyond := w.less(num{w.shape(station.v, 1, w.loops)}, stations)
	passed := w.where(beyond, w.c(0), w.c(1))
	count := num{w.add("ReduceSum", ir.Attrs{"axes": []int{0}, "keepdims": false}, passed.v)}
	s.frame = w.max(w.sub(count, w.c(1)), w.c(0))
	row := w.add("Cast", ir.Attrs{"to": ir.Int32}, s.frame.v)
	pick := func(list []float64) num {
		table := w.x.Constant(ir.FromFloats(ir.T(w.float, len(list)), list))
		return num{w.add("Gather", ir.Attrs{"axis": 0}, table, row)}
	}
	at, itsOffset, its := pick(f.poses[0]), pick(f.poses[1]), pick(f.poses[2])
	s.passed = w.sub(station, at)
	bend := w.mul(w.road(w.sum(at, w.mul(w.c(0.5), s.passed))), s.passed)
	along := w.sub(s.passed, w.mul(offset, w.one("Sin", bend)))
	aside := w.sub(w.sum(w.mul(w.c(0.5), bend, s.passed), w.mul(offset, w.one("Cos", bend))), itsOffset)
	sin, cos := w.one("Sin", its), w.one("Cos", its)
	s.forward = w.sum(w.mul(along, cos), w.mul(aside, sin))
	s.right = w.sub(w.mul(along, sin), w.mul(aside, cos))
	s.turn = w.sub(w.sum(heading, bend), its)
	return s
}

// outside says whether a loop is outside the corridor.
func (w *world) outside(s shot) cond {
	side := w.less(w.c(corridorSide), w.one("Abs", s.right))
	turn := w.less(w.c(corridorTurn), w.one("Abs", s.turn))
	return w.or(w.or(side, turn), w.less(w.c(corridorReach), s.passed))
}

// reprojected is what models see through a view of the film: u8 [loops·cameras, planes, height, width]. A pixel's ray
// is turned, and below the horizon, where it meets the road, moved: what the homography R + t·nᵀ/h does of a plane in
// the distance h with the normal n (Hartley and Zisserman, Multiple View Geometry, 13.1). It shows the nearest pixel.
func (w *world) reprojected(v *view, table *ir.Value, see map[string]num) *ir.Value {
	f := v.film
	s := w.shotFrom(f, see["station"], see["offset"], see["heading"])
	sin, cos := w.each(w.one("Sin", s.turn)), w.each(w.one("Cos", s.turn))
	forward, right := w.each(s.forward), w.each(s.right)
	// Constants of planes of cameras: [cameras, planes, height or 1, width or 1].
	constant := func(rows, columns int, of func(p *part, plane, row, column int) float64) num {
		var out []float64
		for k := range f.part {
			for plane := range planes {
				for row := range rows {
					for column := range columns {
						out = append(out, of(&f.part[k], plane, row, column))
					}
				}
			}
		}
		return num{w.x.Constant(ir.FromFloats(ir.T(w.float, cameras, planes, rows, columns), out))}
	}
	plain := func(of func(p *part, plane int) float64) num {
		return constant(1, 1, func(p *part, plane, _, _ int) float64 { return of(p, plane) })
	}
	row, column := func(plane int) int { return plane % 2 }, func(plane int) int { return plane / 2 } // of luma
	across := constant(1, v.width, func(p *part, plane, _, x int) float64 {
		return (float64(2*x+(1-chroma(plane))*column(plane)) - p.x) / p.focal
	})
	below := func(p *part, plane, y int) float64 {
		return (float64(2*y+(1-chroma(plane))*row(plane)) - p.y) / p.focal
	}
	down := constant(v.height, 1, func(p *part, plane, y, _ int) float64 { return below(p, plane, y) })
	ground := constant(v.height, 1, func(p *part, plane, y, _ int) float64 {
		return max(below(p, plane, y), 0) / f.height
	})
	deep := w.sum(cos, w.mul(across, sin), w.mul(forward, ground))
	deep = w.max(deep, w.c(0.1)) // of loops that are outside, and no longer count
	unit := func(plane int) float64 { return 1 / float64(1+chroma(plane)) }
	// pixel is a column or row of a part: whole, in pixels of the plane's own size.
	pixel := func(tangent num, axis func(p *part) (at float64, from, size int)) num {
		focal := plain(func(p *part, plane int) float64 { return p.focal * unit(plane) })
		middle := plain(func(p *part, plane int) float64 { at, _, _ := axis(p); return at * unit(plane) })
		x := w.one("Round", w.sum(middle, w.mul(focal, w.div(tangent, deep))))
		from := plain(func(p *part, plane int) float64 { _, from, _ := axis(p); return float64(from) * unit(plane) })
		last := plain(func(p *part, plane int) float64 {
			_, _, size := axis(p)
			return float64(float64(size)*unit(plane)) - 1
		})
		return w.clip(w.sub(x, from), w.c(0), last)
	}
	sideways := w.sum(w.mul(across, cos), w.sub(w.mul(right, ground), sin))
	x := pixel(sideways, func(p *part) (float64, int, int) { return p.x, p.left, p.width })
	y := pixel(down, func(p *part) (float64, int, int) { return p.y, p.top, p.height })
	// Luma lies in four planes, by even and odd rows and columns.
	halves := plain(func(_ *part, plane int) float64 { return 1 / (1 + float64(1-chroma(plane))) })
	twice := plain(func(_ *part, plane int) float64 { return 1 + float64(1-chroma(plane)) })
	split := func(x num) (whole, odd num) {
		whole = w.one("Floor", w.mul(x, halves))
		return whole, w.sub(x, w.mul(whole, twice))
	}
	x, oddColumn := split(x)
	y, oddRow := split(y)
	plane := plain(func(_ *part, plane int) float64 { return float64(plane * chroma(plane)) })
	plane = w.sum(plane, oddRow, w.mul(w.c(2), oddColumn))
	area := plain(func(p *part, _ int) float64 { return float64(p.width / 2 * (p.height / 2)) })
	stride := plain(func(p *part, _ int) float64 { return float64(p.width / 2) })
	first := plain(func(p *part, _ int) float64 {
		if p == &f.part[0] {
			return 0
		}
		return float64(f.part[0].bytes())
	})
	integer := func(x num) *ir.Value { return w.add("Cast", ir.Attrs{"to": ir.Int32}, x.v) }
	inFrame := integer(w.sum(first, w.mul(plane, area), w.mul(y, stride), x))
	size := w.x.Constant(ir.FromInts(ir.T(ir.Int32), []int64{int64(f.frameSize)}))
	at := w.add("Add", nil, w.add("Mul", nil, integer(w.each(s.frame)), size), inFrame)
	return w.shape(w.add("Gather", ir.Attrs{"axis": 0}, table, at), w.loops*cameras, planes, v.height, v.width)
}
