package scenario

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/spark-compile/spark-compile/dora/camera"
	"github.com/spark-compile/spark-compile/internal/memory"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/runtime/modeld"
)

// film is a recording as models see it: of each frame the pixels that the warp of modeld takes of both cameras, and a
// margin around them for what else comes into view in the corridor. So it holds a tenth of the cameras' pixels, and a
// loop in the pose of a frame sees what modeld would have shown of it, bit for bit.
type film struct {
	height    float64 // of the camera
	part      [cameras]part
	frameSize int         // bytes
	poses     [][]float64 // stations, offsets, headings of the frames
	data      []byte      // [frames, frameSize]: road and wide, planes as in pictures
}

// part is what a film has of a camera, in pixels of the models' picture, which begins at (0, 0). All are even.
type part struct {
	left, top, width, height int
	focal, x, y              float64 // of the models' picture
}

func (p *part) bytes() int { return p.width * p.height * 3 / 2 }

// look is how the part is seen.
func (p *part) look() camera.Look { return camera.Driving(p.width, p.height, false) }

// from is the pixel of the recorded picture that shows what a model's pixel (u, v) must show, for a car that is
// displaced forward and right of the recording one, and turned to the left.
func (p *part) from(u, v, height, forward, right, turn float64) (x, y float64) {
	sin, cos := ir.Sin(turn), ir.Cos(turn)
	across, down := (u-p.x)/p.focal, (v-p.y)/p.focal
	ground := max(down, 0) / height
	deep := cos + float64(across*sin) + float64(forward*ground)
	return p.x + float64(p.focal*(float64(across*cos)-sin+float64(right*ground))/deep), p.y + float64(p.focal*down/deep)
}

// filmCameras are the two cameras of a film: how models see them, and their lenses.
var filmCameras = [cameras]struct {
	name   string
	optics func(width int) (focal, x, y float64)
	lens   func(modeld.Calibration) modeld.Intrinsics
}{
	{"road", modeld.RoadOptics, func(c modeld.Calibration) modeld.Intrinsics { return c.Road }},
	{"wide", modeld.WideOptics, func(c modeld.Calibration) modeld.Intrinsics { return c.WideCamera }},
}

// warps are the matrices of all calibrations of a recording (modeld.Calibration.Warps).
type warps map[modeld.Calibration][cameras][9]float32

// partOf is what a film has of camera k for models of that size.
func partOf(width, height, k int, cameraHeight float64, warps warps) part {
	p := part{width: width, height: height}
	p.focal, p.x, p.y = filmCameras[k].optics(width)
	left, right, top, bottom := 0., float64(width-1), 0., float64(height-1)
	for _, turn := range []float64{-corridorTurn, 0, corridorTurn} {
		for _, side := range []float64{-corridorSide, 0, corridorSide} {
			for _, forward := range []float64{0, corridorReach} {
				for _, v := range []float64{0, p.y, float64(height - 1)} {
					for _, u := range []float64{0, float64(width - 1)} {
						x, y := p.from(u, v, cameraHeight, forward, side, turn)
						left, right, top, bottom = min(left, x), max(right, x), min(top, y), max(bottom, y)
					}
				}
			}
		}
	}
	even := func(x float64) int { return 2 * int(math.Ceil((x+1)/2)) }
	p.left, p.top = -even(-left), -even(-top)
	end := even(right)
	p.height = even(bottom) - p.top
	// Columns that no camera saw are as good as the outermost one that did.
	seen := func(column int, inside func(x float64, width int) bool) bool {
		for c, m := range warps {
			for v := p.top; v < p.top+p.height; v += 4 {
				u, v := float64(column), float64(v)
				row := func(i int) float64 {
					return float64(float64(m[k][i])*u) + float64(float64(m[k][i+1])*v) + float64(m[k][i+2])
				}
				if inside(row(0)/row(6), filmCameras[k].lens(c).Width) {
					return true
				}
			}
		}
		return false
	}
	for p.left < 0 && !seen(p.left+2, func(x float64, _ int) bool { return x >= 0 }) {
		p.left += 2
	}
	for end > width && !seen(end-3, func(x float64, width int) bool { return x <= float64(width-1) }) {
		end -= 2
	}
	p.width = end - p.left
	return p
}

// filmOf develops a recording for models of that size.
func filmOf(ctx context.Context, r *Recording, height, width int) (*film, error) {
	taken, err := r.taken()
	if err != nil {
		return nil, err
	}
	f := &film{height: r.Height, poses: make([][]float64, 3)}
	if f.height == 0 {
		f.height = modeld.CameraHeight
	}
	all := warps{}
	for _, i := range taken {
		p := r.Poses[i]
		road, wide, err := p.Calibration.Warps(width)
		if err != nil {
			return nil, fmt.Errorf("recording %q: frame %d: %w", r.Name, i, err)
		}
		all[p.Calibration] = [cameras][9]float32{road, wide}
		for k, x := range []float64{p.Station, p.Offset, p.Heading} {
			f.poses[k] = append(f.poses[k], x)
		}
	}
	for k := range f.part {
		f.part[k] = partOf(width, height, k, f.height, all)
		f.frameSize += f.part[k].bytes()
	}
	size := int64(f.frameSize) * int64(len(taken))
	what := fmt.Sprintf("recording %q: %d frames of %d bytes", r.Name, len(taken), f.frameSize)
	if size > math.MaxInt32 {
		return nil, fmt.Errorf("%s: pictures may have 2 GiB, which are %d frames; take a part", what,
			math.MaxInt32/f.frameSize)
	}
	if err := memory.Default().Check(size, what); err != nil {
		return nil, err
	}
	f.data = make([]byte, 0, size)
	if err := f.develop(ctx, r, taken, all); err != nil {
		return nil, fmt.Errorf("recording %q: %w", r.Name, err)
	}
	return f, nil
}

// develop reads the frames that are taken.
func (f *film) develop(ctx context.Context, r *Recording, taken []int, warps warps) error {
	ctx, cancel := context.WithCancel(ctx) // of a decoder that is not read to its end
	defer cancel()
	i := 0
	for frame, err := range r.Frames(ctx) {
		if err != nil {
			return fmt.Errorf("frame %d: %w", i, err)
		}
		if len(taken) == 0 {
			break
		}
		if i == taken[0] {
			c := r.Poses[i].Calibration
			for k, p := range [cameras]modeld.Picture{frame.Road, frame.Wide} {
				if err := whole(p, filmCameras[k].lens(c)); err != nil {
					return fmt.Errorf("frame %d: picture of the %s camera: %w", i, filmCameras[k].name, err)
				}
				planes := make([]byte, f.part[k].bytes())
				f.part[k].look().WarpFrom(planes, p, warps[c][k], f.part[k].left, f.part[k].top)
				f.data = append(f.data, planes...)
			}
			taken = taken[1:]
		}
		i++
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if len(taken) > 0 {
		return fmt.Errorf("its pictures end behind frame %d, and its poses go on to frame %d; take the part with pictures",
			i-1, len(r.Poses)-1)
	}
	return nil
}

// whole is an error for a picture that is not there or not of its camera.
func whole(p modeld.Picture, of modeld.Intrinsics) error {
	stride := p.Stride
	if stride == 0 {
		stride = p.Width
	}
	uv := p.UV
	if uv == 0 {
		uv = stride * p.Height
	}
	switch {
	case len(p.Data) == 0:
		return errors.New("there is none, and driving models see both cameras; record both")
	case p.Width != of.Width || p.Height != of.Height:
		return fmt.Errorf("it has %d × %d pixels, and the calibration is of a camera of %d × %d; give that of this camera",
			p.Width, p.Height, of.Width, of.Height)
	case stride < p.Width || uv < stride*p.Height || len(p.Data) < uv+stride*(p.Height/2-1)+p.Width:
		return fmt.Errorf("it has %d bytes, too few for %d × %d pixels", len(p.Data), p.Width, p.Height)
	}
	return nil
}
