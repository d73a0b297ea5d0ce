package dora

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image"
	"image/png"
	"io"
	"maps"
	"os"
	"slices"
	"text/tabwriter"

	"github.com/spark-compile/spark-compile/dora/camera"
	"github.com/spark-compile/spark-compile/dora/dataset"
	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/internal/atomicfile"
	"github.com/spark-compile/spark-compile/internal/cli"
	"github.com/spark-compile/spark-compile/internal/console"
	"github.com/spark-compile/spark-compile/internal/report"
)

type dataFlags struct {
	command `kong:"-"`

	Check string `help:"Data to read and count: DIR, KIND:DIR or synthetic, as --data of train." placeholder:"KIND|DIR"`
	Model string `help:"ONNX model whose pictures are made, such as one of driver monitoring; default: a driving model of openpilot's." placeholder:"FILE.onnx"`
	Sheet string `help:"PNG to write: what the model would see of samples that are spread over the data." placeholder:"FILE.png" writes:""`
	Cache string `help:"Directory of what is kept between runs; default: nothing is." placeholder:"DIR"`

	Synthesise string `help:"Directory to write routes of a drawn drive to." placeholder:"DIR"`
	Routes     int    `help:"Routes to write; default 2." placeholder:"N"`
	Seconds    int    `help:"Length of each; default 20." placeholder:"N"`
	Seed       uint64 `help:"Where they begin." placeholder:"S"`
	Width      int    `help:"Of the cameras' pictures, in pixels; default 240." placeholder:"N"`
	Height     int    `help:"Likewise; default 150." placeholder:"N"`
	Driver     bool   `help:"Write a driver camera too."`
	Middle     bool   `help:"Keep to the middle of the lane of a winding road, without other cars."`
	Video      bool   `help:"Write the cameras as HEVC, by ffmpeg, instead of directories of arrays."`
	Quiet      bool   `short:"q" help:"Print nothing of what was written, and no progress."`
}

func (f *dataFlags) run(ctx context.Context, stdout, stderr io.Writer) error {
	switch {
	case f.Check != "" && f.Synthesise != "":
		return errors.New("--check and --synthesise: give one of them")
	case f.Check != "":
		return f.check(ctx, stdout, stderr)
	case f.Synthesise == "":
		return errors.New("--check DIR reads data, --synthesise DIR writes some: give one of them")
	}
	s := dataset.Synthesis{Routes: f.Routes, Seconds: f.Seconds, Seed: f.Seed, Width: f.Width, Height: f.Height,
		Driver: f.Driver, Middle: f.Middle, Video: f.Video}
	if entries, err := os.ReadDir(f.Synthesise); err == nil && len(entries) > 0 {
		return fmt.Errorf("--synthesise %s: it is not empty: choose another directory", f.Synthesise)
	}
	if err := dataset.Synthesise(ctx, f.Synthesise, s); err != nil || f.Quiet {
		return err
	}
	_, err := fmt.Fprintf(stdout, "%s: written\n", f.Synthesise)
	return err
}

// check reads all samples that a model would be shown, and says what there is and what is damaged.
func (f *dataFlags) check(ctx context.Context, stdout, stderr io.Writer) (err error) {
	if f.Sheet != "" {
		if err := report.CheckPath(f.Sheet); err != nil {
			return fmt.Errorf("--sheet: %w", err)
		}
	}
	damaged := 0
	inputs, err := f.inputs(stderr)
	if err != nil {
		return err
	}
	tell, clear := cli.Progress(stderr, f.Quiet)
	set, err := dataset.Open(ctx, f.Check, dataset.Options{Inputs: inputs, Cache: f.Cache, Progress: reading(tell), Warn: func(text string) {
		damaged++
		clear()
		fmt.Fprintln(stderr, text)
	}})
	clear()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, set.Close()) }()
	var order []int
	for i := range set.Len() {
		order = append(order, i)
	}
	routes, truths := map[string]int{}, 0
	shown := spread(set.Len(), pictures)
	var sheet []*image.RGBA
	i := 0
	for s, err := range dataset.Load(ctx, set, order, 2, 8) {
		if err != nil {
			return err
		}
		routes[set.Route(i)]++
		if plan := s.Truth["plan"]; len(plan) > 0 && plan[len(plan)-1] == plan[len(plan)-1] {
			truths++
		}
		if f.Sheet != "" && s.View != nil && slices.Contains(shown, i) {
			sheet = append(sheet, camera.Image(s.View.Planes, s.View.Width, s.View.Height))
		}
		i++
	}
	if err := f.table(stdout, set, routes, truths); err != nil {
		return err
	}
	if f.Sheet != "" {
		if len(sheet) == 0 {
			return fmt.Errorf("--sheet: %s has no pictures", f.Check)
		}
		if err := writePNG(f.Sheet, camera.Sheet(sheet, 4)); err != nil {
			return err
		}
		fmt.Fprintf(stdout, "%s: %s\n", f.Sheet, console.Count(len(sheet), "sample"))
	}
	if damaged > 0 {
		return cli.Failure(fmt.Sprintf("%s: %s damaged or missing, which training leaves out", f.Check, console.Count(damaged, "segment or file")))
	}
	return nil
}

// inputs are those of pictures, which show what is in the data.
func (f *dataFlags) inputs(stderr io.Writer) ([]dataset.Input, error) {
	if f.Model == "" {
		return dataset.DrivingInputs(), nil
	}
	file, err := onnx.Load(f.Model)
	if err != nil {
		return nil, err
	}
	file.Warn = func(text string) { fmt.Fprintln(stderr, "warning:", text) }
	all, err := dataset.InputsOf(file)
	if err != nil {
		return nil, err
	}
	if all = slices.DeleteFunc(all, func(in dataset.Input) bool { return !in.Shows() }); len(all) == 0 {
		return nil, fmt.Errorf("--model: %s takes no pictures of openpilot's cameras: name a vision model, or one of driver monitoring", f.Model)
	}
	return all, nil
}

// reading tells how many segments have been read, if there is somebody to tell.
func reading(tell func(console.Event)) func(done, of int) {
	if tell == nil {
		return nil
	}
	return func(done, of int) {
		tell(console.Event{Phase: "reading segments", Step: done, Steps: of, Part: float64(done) / float64(of)})
	}
}

// pictures of a contact sheet.
const pictures = 16

// spread are n places of so many, from the first to the last.
func spread(of, n int) (out []int) {
	n = min(n, of)
	for k := range n {
		out = append(out, k*(of-1)/max(n-1, 1))
	}
	return out
}

// table prints what there is.
func (f *dataFlags) table(w io.Writer, set dataset.Set, routes map[string]int, truths int) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "route\tsamples")
	for _, name := range slices.Sorted(maps.Keys(routes)) {
		fmt.Fprintf(t, "%s\t%d\n", name, routes[name])
	}
	fmt.Fprintf(t, "all\t%d\n", set.Len())
	if err := t.Flush(); err != nil {
		return err
	}
	if c, ok := set.(dataset.Counted); ok {
		n := c.Count()
		fmt.Fprintf(w, "%s, %s, %.2f hours; the path of the next 10 s is known for %s\n", console.Count(n.Segments, "segment"), console.Count(n.Frames, "frame"), n.Hours, console.Count(truths, "sample"))
		if set.Len() == 0 {
			fmt.Fprintln(w, "there are no cameras, so no model can be trained on it")
		}
		for _, car := range slices.Sorted(maps.Keys(n.Cars)) {
			fmt.Fprintf(w, "  %s: %s\n", car, console.Count(n.Cars[car], "segment"))
		}
		for _, kind := range slices.Sorted(maps.Keys(n.Events)) {
			fmt.Fprintf(w, "  %s %d\n", kind, n.Events[kind])
		}
	}
	_, err := fmt.Fprintf(w, "fingerprint %.16s\n", set.Fingerprint())
	return err
}

func writePNG(path string, img image.Image) error {
	var out bytes.Buffer
	if err := png.Encode(&out, img); err != nil {
		return err
	}
	return atomicfile.Write(path, out.Bytes())
}
