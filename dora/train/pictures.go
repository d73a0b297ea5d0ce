package train

import (
	"bytes"
	"context"
	"encoding/base64"
	"html/template"
	"image"
	"image/color"
	"image/png"
	"path/filepath"
	"slices"

	"github.com/spark-compile/spark-compile/dora"
	"github.com/spark-compile/spark-compile/dora/camera"
	"github.com/spark-compile/spark-compile/dora/dataset"
	"github.com/spark-compile/spark-compile/internal/npy"
	"github.com/spark-compile/spark-compile/runtime"
	"github.com/spark-compile/spark-compile/runtime/modeld"
)

// shown is a validation sample that the report shows, with what the models make of it: by name, whole outputs.
type shown struct {
	lesson              lesson
	teacher, base, best map[string][]float64
}

// mostShown samples are spread over those that are kept from training.
const mostShown = 4

// Colours of paths: Okabe and Ito's green, vermilion and blue.
var (
	teacherColour = color.RGBA{0x00, 0x9e, 0x73, 255}
	baseColour    = color.RGBA{0xd5, 0x5e, 0x00, 255}
	bestColour    = color.RGBA{0x00, 0x72, 0xb2, 255}
)

// show takes the samples that the report shows, and what teacher and base make of them. It leaves the step as it is.
func (r *run) show(ctx context.Context) error {
	if r.held == nil || !r.first() {
		return nil
	}
	n := min(mostShown, r.held.Len())
	var order []int
	for k := range n {
		order = append(order, k*(r.held.Len()-1)/max(n-1, 1))
	}
	lessons, stop := r.lessons(ctx, r.held, order, 1)
	defer stop()
	for l := range lessons {
		if l.err != nil {
			return l.err
		}
		x := &shown{lesson: l}
		if l.values != nil {
			x.teacher = map[string][]float64{}
			for name, y := range l.values[0] {
				for _, v := range y {
					x.teacher[name] = append(x.teacher[name], float64(v))
				}
			}
		}
		r.shown = append(r.shown, x)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return r.asBase(ctx, func() error {
		return r.eachShown(ctx, func(x *shown, y map[string][]float64) { x.base = y })
	})
}

// eachShown runs the adapted model on each sample that is shown.
func (r *run) eachShown(ctx context.Context, give func(x *shown, y map[string][]float64)) error {
	for _, x := range r.shown {
		l := lesson{}
		for range r.opt.MicroBatch {
			l.samples = append(l.samples, x.lesson.samples[0])
			if x.lesson.values != nil {
				l.values = append(l.values, x.lesson.values[0])
			}
		}
		if err := r.set(l); err != nil {
			return err
		}
		if err := r.trainer.Session().RunEntry(ctx, dora.EntryRun); err != nil {
			return err
		}
		all, err := r.trainer.Session().Float64s()
		if err != nil {
			return err
		}
		y := map[string][]float64{}
		for _, name := range r.model.Outputs() {
			y[name] = slices.Clone(all[name][:len(all[name])/r.opt.MicroBatch])
		}
		give(x, y)
	}
	return nil
}

// draw makes the report's pictures with the adapter as it is, which is the best so far.
func (r *run) draw(ctx context.Context) error {
	if len(r.shown) == 0 {
		return nil
	}
	r.pictures = nil
	if err := r.eachShown(ctx, func(x *shown, y map[string][]float64) { x.best = y }); err != nil {
		return err
	}
	for _, x := range r.shown {
		s := x.lesson.samples[0]
		if s.View == nil {
			continue
		}
		img := larger(camera.Image(s.View.Planes, s.View.Width, s.View.Height))
		for _, m := range []struct {
			outputs map[string][]float64
			colour  color.RGBA
		}{{x.base, baseColour}, {x.teacher, teacherColour}, {x.best, bestColour}} {
			for _, path := range r.paths(m.outputs) {
				camera.Line(img, path, m.colour)
			}
		}
		var out bytes.Buffer
		if err := png.Encode(&out, img); err != nil {
			return err
		}
		r.pictures = append(r.pictures, picture{s.Key, template.URL("data:image/png;base64," + base64.StdEncoding.EncodeToString(out.Bytes()))})
	}
	return nil
}

// larger is a picture at least 512 pixels wide.
func larger(img *image.RGBA) *image.RGBA {
	size := img.Bounds().Size()
	by := (511 + size.X) / size.X
	out := image.NewRGBA(image.Rect(0, 0, by*size.X, by*size.Y))
	for y := range by * size.Y {
		for x := range by * size.X {
			out.SetRGBA(x, y, img.RGBAAt(x/by, y/by))
		}
	}
	return out
}

// Lengths of the parts that paths are drawn of.
const (
	planMeans = modeld.Points * modeld.PlanColumns
	planOne   = 2 * planMeans     // means and log scales
	planMany  = 2*planMeans + 1   // and a weight, of each hypothesis
	lineMeans = modeld.Points * 2 // y and z
)

// paths are the plan and the lane lines among a model's outputs.
func (r *run) paths(outputs map[string][]float64) (out [][]camera.Point) {
	for _, name := range r.model.Outputs() {
		y := outputs[name]
		parts, err := r.model.File.OutputSlices(len(y))
		if err != nil {
			continue
		}
		for _, p := range parts {
			switch x := y[p.Start:p.End]; {
			case p.Name == "plan":
				out = append(out, planned(x))
			case p.Name == "lane_lines" && len(x) == 8*lineMeans:
				for k := range 4 {
					out = append(out, lane(x[k*lineMeans:(k+1)*lineMeans]))
				}
			}
		}
	}
	return out
}

// planned is the likeliest path. Its points are as high as the camera: they are drawn on the road.
func planned(x []float64) (path []camera.Point) {
	best := 0
	if len(x)%planMany == 0 {
		for k := planMany; k < len(x); k += planMany {
			if x[k+planMany-1] > x[best+planMany-1] {
				best = k
			}
		}
	} else if len(x) != planOne {
		return nil
	}
	for i := range modeld.Points {
		p := x[best+i*modeld.PlanColumns:]
		path = append(path, camera.Point{X: p[0], Y: p[1], Z: p[2] + modeld.CameraHeight})
	}
	return path
}

func lane(x []float64) (path []camera.Point) {
	for i, distance := range modeld.XIndex() {
		path = append(path, camera.Point{X: distance, Y: x[2*i], Z: x[2*i+1]})
	}
	return path
}

// sampleFile is a sample that was kept from training, with the teacher's outputs: spark-run --input and --expect compare a merged model with it.
const sampleFile = "validation.npz"

// saveSample writes it.
func (r *run) saveSample() error {
	if len(r.shown) == 0 || r.shown[0].teacher == nil {
		return nil
	}
	x := r.shown[len(r.shown)/2]
	all := map[string]*npy.Array{}
	inputs, err := dataset.InputsOf(r.model.File)
	if err != nil {
		return err
	}
	for _, in := range inputs {
		all[in.Name] = &npy.Array{DType: in.Type.DType.String(), Shape: in.Type.Shape, Data: x.lesson.samples[0].Inputs[in.Name]}
	}
	for name, y := range x.lesson.values[0] {
		if slices.Contains(r.model.Outputs(), name) {
			all[name] = &npy.Array{DType: "f32", Shape: []int{1, len(y)}, Data: runtime.Bytes(y)}
		}
	}
	return npy.WriteZip(filepath.Join(r.opt.Output, sampleFile), all)
}
