package scenario

import (
	"slices"

	"github.com/spark-compile/spark-compile/dora/camera"
	"github.com/spark-compile/spark-compile/internal/openpilot"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/runtime/modeld"
)

// sights are what cameras see besides seen: remembered like it, so that pictures are as late and as often dropped.
var sights = []string{"station", "car0_gap", "car0_side", "car1_gap", "car1_side"}

// bonnet is the distance from a car's camera to its front, in metres.
const bonnet = 1.52

// planes are those of the pictures that driving models have of two cameras: luma in four, U and V.
const (
	cameras   = 2
	planes    = 6
	lumaPlane = 4
)

// view maps the models' pixels to those of a camera's picture. The cameras are mounted straight, so it is the same
// for all loops, and rows map to rows and columns to columns.
type view struct {
	height, width int // of a plane
	lens          [cameras]openpilot.Camera
	film          *film // what the cameras recorded; nil: pictures are drawn
	x             []int // [cameras, planes, width], columns of luma; of chroma the even ones
	y             []int // [cameras, planes, height], likewise
}

// viewOf looks through the warp of openpilot's modeld, nearest pixel, at the cameras of a comma 3X.
func viewOf(height, width int) (*view, error) {
	road, wide := openpilot.Cameras(1)
	v := &view{height: height / 2, width: width / 2, lens: [cameras]openpilot.Camera{road, wide}}
	c := modeld.Calibration{Road: modeld.Intrinsics(road), WideCamera: modeld.Intrinsics(wide)}
	first, second, err := c.Warps(width)
	if err != nil {
		return nil, err
	}
	for i, matrix := range [cameras][9]float32{first, second} {
		x, y := pixelsOf(camera.Driving(width, height, false), v.lens[i], matrix)
		for plane := range planes {
			from, step := plane*v.height*v.width, 1+chroma(plane)
			for column := range v.width {
				v.x = append(v.x, step*x[from+column])
			}
			for row := range v.height {
				v.y = append(v.y, step*y[from+row*v.width])
			}
		}
	}
	return v, nil
}

// chroma is 1 for planes of chroma.
func chroma(plane int) int {
	if plane < lumaPlane {
		return 0
	}
	return 1
}

// pixelsOf are the columns and rows of the pixels that a look takes of a camera's picture, found by looking at pictures
// whose bytes are those of columns and rows.
func pixelsOf(look camera.Look, c openpilot.Camera, matrix [9]float32) (x, y []int) {
	p := modeld.Picture{Width: c.Width, Height: c.Height, Data: make([]byte, c.Width*c.Height*3/2)}
	show := func(value func(x, y int) int) []byte {
		for row := range c.Height {
			for column := range c.Width {
				p.Data[row*c.Width+column] = byte(value(column, row))
				p.Data[(c.Height+row/2)*c.Width+column] = byte(value(column/2, row/2)) // U and V alike
			}
		}
		out := make([]byte, look.Bytes())
		look.Warp(out, p, matrix)
		return out
	}
	whole := func(value func(x, y int) int) []int {
		out := make([]int, look.Bytes())
		for i, low := range show(value) {
			out[i] = int(low)
		}
		for i, high := range show(func(x, y int) int { return value(x, y) >> 8 }) {
			out[i] += int(high) << 8
		}
		return out
	}
	return whole(func(x, _ int) int { return x }), whole(func(_, y int) int { return y })
}

// rowTable is a constant for each row that a view has: [cameras, planes, height, 1].
func (b *builder) rowTable(v *view, f func(lens openpilot.Camera, plane, y int) float64) num {
	out := make([]float64, len(v.y))
	for i, y := range v.y {
		plane := i / v.height
		out[i] = f(v.lens[plane/planes], plane%planes, y)
	}
	return num{b.x.Constant(ir.FromFloats(ir.T(b.float, cameras, planes, v.height, 1), out))}
}

// columns are the columns of a view: [cameras, planes, 1, width].
func (b *builder) columns(v *view) num {
	out := make([]float64, len(v.x))
	for i, x := range v.x {
		out[i] = float64(x)
	}
	return num{b.x.Constant(ir.FromFloats(ir.T(b.float, cameras, planes, 1, v.width), out))}
}

// colour is a constant [planes, 1, 1].
func (b *builder) colour(c openpilot.Colour) num {
	out := slices.Repeat([]float64{float64(c[0])}, lumaPlane)
	out = append(out, float64(c[1]), float64(c[2]))
	return num{b.x.Constant(ir.FromFloats(ir.T(b.float, planes, 1, 1), out))}
}

// lens is a constant [cameras, 1, 1, 1].
func (b *builder) lens(v *view, f func(openpilot.Camera) float64) num {
	var out []float64
	for _, c := range v.lens {
		out = append(out, f(c))
	}
	return num{b.x.Constant(ir.FromFloats(ir.T(b.float, cameras, 1, 1, 1), out))}
}

// each makes a number of every loop one that pixels share: [loops, 1, 1, 1, 1].
func (b *builder) each(x num) num { return num{b.shape(x.v, b.loops, 1, 1, 1, 1)} }

// bend is how far the road is left of its direction at a station, after a distance: the double integral of its
// curvature. Lengths along the road are approximated by those along the axis.
func (w *world) bend(station, depth num, each func(num) num) num {
	slope := w.p("curve_slope")
	ramp := w.p("curve_ramp")
	knots := []num{w.p("curve_start"), w.sum(w.p("curve_start"), ramp), w.p("curve_end"), w.sum(w.p("curve_end"), ramp)}
	var sum num
	for i, at := range knots {
		d := w.sub(at, station)
		u := w.max(w.sub(depth, each(w.max(d, w.c(0)))), w.c(0))
		backward := each(w.max(w.mul(w.c(-1), d), w.c(0)))
		part := w.mul(u, u, w.sum(w.mul(w.c(1./6), u), w.mul(w.c(0.5), backward)))
		switch i {
		case 0:
			sum = part
		case 3:
			sum = w.sum(sum, part)
		default:
			sum = w.sub(sum, part)
		}
	}
	return w.mul(each(w.mul(w.p("curvature"), slope)), sum)
}

// canvas is a picture that is being painted: a number for each pixel [loops, cameras, planes, height, width].
type canvas struct {
	*world
	*view
	colours num
	column  num // of each pixel; of chroma the even one
	row     num // likewise
	pair    num // 1 for chroma, whose pixels are of two columns
	focal   num
	axis    num // column and
	horizon num // row of the horizon
}

// span says which pixels are in columns from one to another: those whose number is at least the first, rounded, and
// less than the second. Of chroma it is enough that one of the pair is. Where there is nothing, there are none.
func (c *canvas) span(from, to num, there cond) cond {
	round := func(x num) num { return c.one("Floor", c.sum(c.max(x, c.c(0)), c.c(0.5))) }
	a, b := round(from), round(to)
	b = c.where(c.and(there, c.less(a, b)), b, c.c(-1))
	return c.and(c.less(c.sub(c.sub(a, c.pair), c.c(1)), c.column), c.less(c.column, b))
}

func (c *canvas) paint(where cond, colour num) { c.colours = c.where(where, colour, c.colours) }

// picture is what models see through a view of what has been seen, late as it is: u8 [loops·cameras, planes, height,
// width]. It is what drive.See draws, taken by the warp, in f32.
func (w *world) picture(v *view, see map[string]num) *ir.Value {
	c := &canvas{world: w, view: v}
	one := func(f func(plane int) int) num {
		var out []float64
		for plane := range planes {
			out = append(out, float64(f(plane)))
		}
		return num{w.x.Constant(ir.FromFloats(ir.T(w.float, planes, 1, 1), out))}
	}
	c.pair = one(chroma)
	luma := one(func(plane int) int { return 1 - chroma(plane) })
	c.focal = w.lens(v, func(l openpilot.Camera) float64 { return l.Focal })
	middle := func(which func(x, y float64) float64) num {
		return w.lens(v, func(l openpilot.Camera) float64 { return which(l.VanishingPoint([3]float64{})) })
	}
	c.axis, c.horizon = middle(func(x, _ float64) float64 { return x }), middle(func(_, y float64) float64 { return y })
	c.column, c.row = w.columns(v), w.rowTable(v, func(_ openpilot.Camera, _, y int) float64 { return float64(y) })
	down := func(l openpilot.Camera, y int) float64 {
		_, horizon := l.VanishingPoint([3]float64{})
		return float64(y) + .5 - horizon
	}
	sky := w.rowTable(v, func(l openpilot.Camera, plane, y int) float64 {
		return float64(openpilot.Sky(-down(l, y) / float64(l.Height))[max(0, plane-lumaPlane+1)])
	})
	// Pixels a metre on the road, and how far away it is; 1 km where there is the sky.
	scale := w.rowTable(v, func(l openpilot.Camera, _, y int) float64 { return max(0, down(l, y)) / openpilot.CameraHeight })
	away := w.rowTable(v, func(l openpilot.Camera, _, y int) float64 {
		if down(l, y) <= 0 {
			return far
		}
		return openpilot.CameraHeight * l.Focal / down(l, y)
	})
	ground := w.less(w.c(0), scale)
	wave := func(of openpilot.Wave, along num) num {
		sine := w.one("Sin", w.mul(along, w.c(1/of.Length)))
		return w.mul(luma, w.one("Floor", w.mul(w.c(of.Most/2), w.sum(w.c(1), sine))))
	}
	station, offset, heading := see["station"], see["offset"], see["heading"]
	lane := w.p("lane_width")
	laneMiddle := func(depth num, each func(num) num) num { // right of the axis
		return w.sub(w.sum(each(offset), w.mul(each(heading), depth)), w.bend(station, depth, each))
	}
	along := w.sum(away, w.each(station))
	mid := w.sum(c.axis, w.mul(scale, laneMiddle(away, w.each)))
	c.colours = w.where(ground, w.sum(w.colour(openpilot.Grass), wave(openpilot.GrassWave, along)), sky)
	strip := func(lanes float64, half num, colour num, there cond) {
		at := mid
		if lanes != 0 {
			at = w.sum(mid, w.mul(scale, w.each(w.mul(w.c(lanes), lane))))
		}
		c.paint(c.span(w.sub(at, half), w.sum(at, half), there), colour)
	}
	strip(0, w.mul(scale, w.each(w.mul(w.c(openpilot.RoadHalf), lane))), w.sum(w.colour(openpilot.Tar), wave(openpilot.TarWave, along)), ground)
	line := w.max(w.mul(w.c(openpilot.LineWidth/2), scale), w.c(0.5))
	strip(-openpilot.SolidLine, line, w.colour(openpilot.Yellow), ground)
	strip(openpilot.SolidLine, line, w.colour(openpilot.White), ground)
	periods := w.one("Floor", w.mul(along, w.c(1/openpilot.Period)))
	dash := w.and(ground, w.less(w.sub(along, w.mul(w.c(openpilot.Period), periods)), w.c(openpilot.Dash)))
	strip(-.5, line, w.colour(openpilot.White), dash)
	strip(.5, line, w.colour(openpilot.White), dash)
	// Cars, the farther one first.
	var depth, side [Cars]num
	for i := range Cars {
		there := w.less(w.c(0.5), w.p(car(i, "present")))
		depth[i], side[i] = w.where(there, w.sum(see["car"+digit(i)+"_gap"], w.c(bonnet)), w.all(-1)), see["car"+digit(i)+"_side"]
	}
	swap := w.less(depth[0], depth[1])
	c.car(laneMiddle, w.where(swap, depth[1], depth[0]), w.where(swap, side[1], side[0]))
	c.car(laneMiddle, w.where(swap, depth[0], depth[1]), w.where(swap, side[0], side[1]))
	bytes := w.add("Cast", ir.Attrs{"to": ir.Uint8}, c.colours.v)
	return w.shape(bytes, w.loops*cameras, planes, v.height, v.width)
}

// car paints a car's rear: its distance from the camera, and how far it is left of the middle of the lane.
func (c *canvas) car(laneMiddle func(num, func(num) num) num, depth, left num) {
	near := c.max(depth, c.c(0.1))
	plain := func(x num) num { return x }
	right := c.sub(laneMiddle(near, plain), left)
	there := c.less(c.c(0), c.each(depth))
	scale := c.div(c.focal, c.each(near))
	x := c.sum(c.axis, c.mul(scale, c.each(right)))
	bottom := c.sum(c.horizon, c.mul(c.c(openpilot.CameraHeight), scale))
	row := func(above float64) num {
		return c.one("Floor", c.max(c.sub(bottom, c.mul(c.c(above), scale)), c.c(0)))
	}
	for _, b := range openpilot.Rear {
		rows := c.and(c.not(c.less(c.row, row(b.Top))), c.less(c.row, row(b.Bottom)))
		columns := c.span(c.sum(x, c.mul(c.c(b.Left), scale)), c.sum(x, c.mul(c.c(b.Right), scale)), there)
		c.paint(c.and(rows, columns), c.colour(b.Colour))
	}
}
