package openpilot

import (
	"fmt"
	"image"
	"image/color"
	"image/png"
	"math"
	"os"
	"path/filepath"

	"github.com/spark-compile/spark-compile/internal/npy"
	"github.com/spark-compile/spark-compile/ir"
)

// Rate is frames a second.
const Rate = 20

// Camera without distortion: focal length and size in pixels. Width and height are even.
type Camera struct {
	Focal         float64
	Width, Height int
}

// Cameras of a comma 3X, and the same as small as divided by a number that leaves an even width and height.
func Cameras(divisor int) (road, wide Camera) {
	w, h := 1928/divisor&^1, 1208/divisor&^1
	return Camera{2648 / float64(divisor), w, h}, Camera{567 / float64(divisor), w, h}
}

// Picture is NV12: Height rows of luma with a pitch of Stride bytes, and from UV on Height/2 rows of interleaved U
// and V.
type Picture struct {
	Data                      []byte
	Width, Height, Stride, UV int
}

func (c Camera) picture() Picture {
	stride := (c.Width + 127) / 128 * 128
	rows := (c.Height + 31) / 32 * 32
	return Picture{make([]byte, stride*rows*3/2), c.Width, c.Height, stride, stride * rows}
}

// Colour is Y, U and V.
type Colour [3]byte

// Colours of what is drawn. Those of the ground are lighter by a wave along the road.
var (
	Grass  = Colour{96, 108, 116}
	Tar    = Colour{70, 128, 128}
	White  = Colour{220, 128, 128}
	Yellow = Colour{180, 60, 146}
	Red    = Colour{80, 100, 210}
	Light  = Colour{140, 90, 230}
	Dark   = Colour{30, 128, 128}
	skin   = Colour{150, 110, 155}
)

// Wave makes luma of the ground lighter by up to Most, with a period of 2π·Length metres.
type Wave struct{ Most, Length float64 }

// Waves of grass and tarmac.
var (
	GrassWave = Wave{24, 3}
	TarWave   = Wave{12, 7}
)

func (w Wave) at(along float64) byte { return byte(w.Most * (1 + ir.Sin(along/w.Length)) / 2) }

// Sky is the colour at an elevation: rows above the horizon, in heights of the picture.
func Sky(elevation float64) Colour {
	x := min(max(elevation, 0), 1)
	return Colour{byte(210 - float64(90*x)), byte(135 + float64(25*x)), byte(124 - float64(14*x))}
}

// fill paints columns from up to to of a row; a chroma sample has the colour of the even row and of the pair's columns.
func (p Picture) fill(y int, from, to float64, c Colour) {
	a, b := int(math.Round(min(max(from, 0), float64(p.Width)))), int(math.Round(min(max(to, 0), float64(p.Width))))
	if y < 0 || y >= p.Height || a >= b {
		return
	}
	row := p.Data[y*p.Stride+a : y*p.Stride+b]
	for i := range row {
		row[i] = c[0]
	}
	if y%2 == 1 {
		return
	}
	row = p.Data[p.UV+y/2*p.Stride:]
	for x := a / 2; x < (b+1)/2; x++ {
		row[2*x], row[2*x+1] = c[1], c[2]
	}
}

// ellipse around (x, y).
func (p Picture) ellipse(x, y, rx, ry float64, c Colour) {
	for row := int(y - ry); row <= int(y+ry); row++ {
		if d := (float64(row) - y) / ry; float64(d*d) < 1 {
			half := float64(rx * math.Sqrt(1-float64(d*d)))
			p.fill(row, x-half, x+half, c)
		}
	}
}

// The road, in metres.
const (
	CameraHeight = 1.22
	LineWidth    = .15
	Dash, Period = 4., 12. // of the own lane's lines
	RoadHalf     = 2.      // lanes from the centre of the own one to the edge of the tarmac
	SolidLine    = 1.5     // lanes from there to the lines that are not dashed: left yellow, right white
	lane         = 3.7
)

// Scene is what cameras see at a moment. Lengths are in metres.
type Scene struct {
	Travelled float64                        // along the road
	Lane      float64                        // how wide one is
	Middle    func(distance float64) float64 // where the middle of the own lane is there, right of the camera's axis
	Cars      []Car                          // the farthest first
}

// Car is a leading car.
type Car struct {
	Distance float64 // of the camera, its rear
	Right    float64 // of the camera's axis, its middle
}

// Box is a part of a car's rear: from left to right of its middle, and from bottom to top above the ground.
type Box struct {
	Left, Right, Bottom, Top float64
	Colour                   Colour
}

// Rear is what is seen of a car: body, window, lights and wheels, farthest first.
var Rear = []Box{
	{-.9, .9, .3, 1.45, Red},
	{-.7, .7, .9, 1.35, Dark},
	{-.85, -.6, .6, .8, Light},
	{.6, .85, .6, .8, Light},
	{-.85, -.55, 0, .3, Dark},
	{.55, .85, 0, .3, Dark},
}

// motion is where things are at a time of the drive.
type motion struct{ travelled, curvature, offset, lead, leadOffset float64 }

func motionAt(frame int) motion {
	t := float64(frame) / Rate
	return motion{travelled: travelled(t), curvature: wave(.002, .25, t), offset: wave(.3, .4, t), lead: 30 + wave(12, .3, t), leadOffset: wave(.4, .7, t)}
}

// SceneAt is the scene in a frame of the drive.
func SceneAt(frame int) Scene {
	m := motionAt(frame)
	middle := func(z float64) float64 { return m.offset + float64(m.curvature*z*z/2) }
	return Scene{Travelled: m.travelled, Lane: lane, Middle: middle, Cars: []Car{{m.lead, middle(m.lead) + m.leadOffset}}}
}

// travelled is the integral of the speed.
func travelled(t float64) float64 { return float64(25*t) - float64(3/.2*(ir.Cos(float64(.2*t))-1)) }

// wave swings by so much to either side, the same on every machine.
func wave(amplitude, rate, t float64) float64 { return float64(amplitude * ir.Sin(float64(rate*t))) }

func speedAt(t float64) float64 { return 25 + wave(3, .2, t) }

// Motion is how the car moves in a frame: its speed in m/s, and the curvature of its path in 1/m, positive to the right.
func Motion(frame int) (speed, curvature float64) {
	t := float64(frame) / Rate
	return speedAt(t), motionAt(frame).curvature
}

// VanishingPoint is the pixel at which a camera with this mounting sees the horizon straight in the direction of
// travel. Roll is not drawn.
func (c Camera) VanishingPoint(rpy [3]float64) (x, y float64) {
	tan := func(a float64) float64 { return ir.Sin(a) / ir.Cos(a) }
	return float64(float64(c.Width)/2) + float64(c.Focal*tan(rpy[2])), float64(float64(c.Height)/2) - float64(c.Focal*tan(rpy[1]))
}

// Draw is what a camera sees of the road in a frame of the drive.
func (c Camera) Draw(frame int) Picture { return c.See(SceneAt(frame), At(frame).RPY) }

// See is what a camera sees of a scene that is mounted so: roll, pitch and yaw in radians.
func (c Camera) See(s Scene, rpy [3]float64) Picture {
	p := c.picture()
	right, horizon := c.VanishingPoint(rpy)
	for y := range c.Height {
		down := float64(y) + .5 - horizon
		if down <= 0 {
			p.fill(y, 0, float64(c.Width), Sky(-down/float64(c.Height)))
			continue
		}
		z := CameraHeight * c.Focal / down
		scale := c.Focal / z // pixels a metre
		mid := right + float64(scale*s.Middle(z))
		along := z + s.Travelled
		field := Grass
		field[0] += GrassWave.at(along)
		p.fill(y, 0, float64(c.Width), field)
		tarmac := Tar
		tarmac[0] += TarWave.at(along)
		p.fill(y, mid-float64(RoadHalf*s.Lane*scale), mid+float64(RoadHalf*s.Lane*scale), tarmac)
		line := func(lanes float64, c Colour) {
			half, at := max(float64(LineWidth*scale/2), .5), mid+float64(lanes*s.Lane*scale)
			p.fill(y, at-half, at+half, c)
		}
		line(-SolidLine, Yellow)
		line(SolidLine, White)
		if math.Mod(along, Period) < Dash {
			line(-.5, White)
			line(.5, White)
		}
	}
	for _, car := range s.Cars {
		car.draw(p, c, right, horizon)
	}
	return p
}

// draw paints a car, unless the camera has passed it.
func (car Car) draw(p Picture, c Camera, right, horizon float64) {
	if car.Distance <= 0 {
		return
	}
	scale := c.Focal / car.Distance
	x, ground := right+float64(scale*car.Right), horizon+float64(CameraHeight*scale)
	for _, b := range Rear {
		for y := int(ground - float64(b.Top*scale)); y < int(ground-float64(b.Bottom*scale)); y++ {
			p.fill(y, x+float64(b.Left*scale), x+float64(b.Right*scale), b.Colour)
		}
	}
}

// DrawDriver is what a driver camera sees: a face that moves, with eyes that blink.
func (c Camera) DrawDriver(frame int) Picture {
	p, t := c.picture(), float64(frame)/Rate
	w, h := float64(c.Width), float64(c.Height)
	for y := range c.Height {
		p.fill(y, 0, w, Colour{byte(40 + 30*y/c.Height), 126, 130})
	}
	x, y, r := float64(w*(.35+wave(.05, .9, t))), float64(h*(.45+wave(.03, 1.3, t))), float64(h*.18)
	p.ellipse(x, y, float64(r*.8), r, skin)
	open := max(.02, math.Abs(wave(.1, 2, t)))
	for _, side := range []float64{-.3, .3} {
		p.ellipse(x+float64((side+wave(.1, .5, t))*r), y-float64(.2*r), float64(.12*r), float64(open*r), Dark)
	}
	p.ellipse(x, y+float64(.5*r), float64(.3*r), float64(.06*r), Red)
	return p
}

// Inputs are what else a driving model is told in a frame.
type Inputs struct {
	Desire         int        // as openpilot counts them, 0 to 6
	RightHandDrive bool       // changes once, for the sake of the change
	RPY            [3]float64 // of the camera against the car, radians
	VEgo           float64    // m/s
}

// At is what the model is told in a frame. A desire lasts 1.1 s, and begins every 2.25 s: at all places in groups of four frames.
func At(frame int) Inputs {
	t := float64(frame) / Rate
	in := Inputs{RightHandDrive: frame >= 120, VEgo: speedAt(t),
		RPY: [3]float64{wave(.004, .1, t), .02 + wave(.004, .23, t), -.01 + wave(.004, .17, t)}}
	if n := frame / 45; frame%45 >= 23 {
		in.Desire = n%6 + 1
	}
	return in
}

// RGB is the picture in colour.
func (p Picture) RGB() *image.RGBA {
	img := image.NewRGBA(image.Rect(0, 0, p.Width, p.Height))
	for y := range p.Height {
		for x := range p.Width {
			uv := p.Data[p.UV+y/2*p.Stride+x&^1:]
			r, g, b := color.YCbCrToRGB(p.Data[y*p.Stride+x], uv[0], uv[1])
			img.SetRGBA(x, y, color.RGBA{r, g, b, 255})
		}
	}
	return img
}

// Array is the picture without padding: [height*3/2, width], luma above chroma.
func (p Picture) Array() *npy.Array {
	out := make([]byte, 0, p.Width*p.Height*3/2)
	for y := range p.Height {
		out = append(out, p.Data[y*p.Stride:][:p.Width]...)
	}
	for y := range p.Height / 2 {
		out = append(out, p.Data[p.UV+y*p.Stride:][:p.Width]...)
	}
	return &npy.Array{DType: "u8", Shape: []int{p.Height * 3 / 2, p.Width}, Data: out}
}

// Format of a directory of frames.
type Format string

// Formats.
const (
	NPZ Format = "npz" // 000000.npz …: road and wide, uint8 [height*3/2, width], NV12 without padding
	PNG Format = "png" // 000000_road.png and 000000_wide.png …, in colour
)

// WriteDirectory writes the first frames of the drive to a directory that exists.
func WriteDirectory(dir string, format Format, road, wide Camera, frames int) error {
	if err := format.check(); err != nil {
		return err
	}
	for i := range frames {
		pictures := map[string]Picture{"road": road.Draw(i), "wide": wide.Draw(i)}
		arrays := map[string]*npy.Array{}
		for name, p := range pictures {
			if format == NPZ {
				arrays[name] = p.Array()
			} else if err := writePNG(filepath.Join(dir, fmt.Sprintf("%06d_%s.png", i, name)), p); err != nil {
				return err
			}
		}
		if format == NPZ {
			if err := npy.WriteZip(filepath.Join(dir, fmt.Sprintf("%06d.npz", i)), arrays); err != nil {
				return err
			}
		}
	}
	return nil
}

// WriteDriver writes what a driver camera sees in the first frames of the drive: array driver, or 000000_driver.png.
func WriteDriver(dir string, format Format, c Camera, frames int) error {
	if err := format.check(); err != nil {
		return err
	}
	for i := range frames {
		p := c.DrawDriver(i)
		err := error(nil)
		if format == NPZ {
			err = npy.WriteZip(filepath.Join(dir, fmt.Sprintf("%06d.npz", i)), map[string]*npy.Array{"driver": p.Array()})
		} else {
			err = writePNG(filepath.Join(dir, fmt.Sprintf("%06d_driver.png", i)), p)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (f Format) check() error {
	if f != NPZ && f != PNG {
		return fmt.Errorf("there is no format %q of frames; the formats are npz and png", f)
	}
	return nil
}

func writePNG(path string, p Picture) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := png.Encode(f, p.RGB()); err != nil {
		_ = f.Close() // the error before is the one to report
		return fmt.Errorf("%s: %w", path, err)
	}
	return f.Close()
}
