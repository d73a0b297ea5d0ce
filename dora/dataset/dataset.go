package dataset

import (
	"context"
	"slices"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/internal/openpilot/generation"
	"github.com/spark-compile/spark-compile/ir"
)

// Sample is what a model is shown, and what is known of what came after.
type Sample struct {
	Key    string               // "route--segment/frame", or a file's name: one of its set, and the same on every machine
	Inputs map[string][]byte    // by name of the model's input, the bytes of its type and shape for a batch of one
	Truth  map[string][]float32 // what was measured: "plan" is [33, 15], the plan's columns at T_IDXS, NaN where unknown
	View   *View                // the road picture, to draw on; nil if there is none
}

// View is the road picture as a model sees it.
type View struct {
	Planes        []byte // six of half the size: Y at (0,0), (1,0), (0,1), (1,1), then U and V
	Width, Height int    // of the picture, in pixels
}

// Set is a collection of samples. Its methods may be called from several goroutines.
type Set interface {
	Len() int
	Route(i int) string // that sample i is of: training and validation share none
	Sample(ctx context.Context, i int) (*Sample, error)
	Fingerprint() string // of the samples and of how they are made
	Close() error
}

// Input is an input of a model, for a batch of one.
type Input struct {
	Name string
	Type ir.Type
}

// InputsOf are a file's inputs, for one sample.
func InputsOf(file *onnx.Model) (inputs []Input, err error) {
	g, err := onnx.Import(file, onnx.ImportOptions{Batch: 1})
	if err != nil {
		return nil, err
	}
	for _, v := range g.Inputs {
		inputs = append(inputs, Input{Name: v.Name, Type: v.Type})
	}
	return inputs, nil
}

// Shows reports whether it takes a picture of a camera of openpilot's.
func (in Input) Shows() bool {
	return in.Name == generation.DriverPicture || slices.Contains(slices.Concat(generation.RoadInputs(), generation.WideInputs()), in.Name)
}

// Features computes what a vision model says of frames, which a policy reads. Keys name the frames, the same on every machine; inputs are
// the vision model's.
type Features func(ctx context.Context, keys []string, inputs []map[string][]byte) ([][]float32, error)

// Options say how samples are made.
type Options struct {
	Inputs   []Input  // of the model
	Vision   []Input  // of the model that computes Features
	Features Features // nil: features are in the data, or the model reads none
	Cache    string   // directory of what is kept between runs; "": nothing is
	Warn     func(string)
	Progress func(done, of int) // segments that were read; it is not called by two at once
}
