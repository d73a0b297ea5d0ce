package recovery

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spark-compile/spark-compile/dora"
	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/internal/calibrate"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/runtime"
)

// Network is an original, as the teacher, with inputs to train on and a bench of inputs that training never sees.
type Network struct {
	Original *dora.Model
	Teacher  *Teacher
	Lessons  *Lessons
	Plain    int    // the first lessons, whose inputs are not perturbed
	Seen     *Bench // of these
	Unseen   *Bench

	Device hal.Device

	plain []map[string]*ir.Array // the inputs of the first lessons
}

// Name of the trained network, and of its folders, among the shared models.
const Name = "dmonitoring_model"

// firstDraw is the first draw of perturbed inputs that nothing else is fitted to or judged on.
const firstDraw = 16

// Largest is the size, in numbers, of the largest inner value that is compared. Where one is left out, the loss
// blames the layers before it for errors of later layers: with 1 << 17 it chose six layers that were not damaged,
// and missed two that were.
const Largest = 1 << 21

// held is the number of calibration inputs that judge while training is developed, and golden those that judge at the end.
const (
	held        = 6
	firstGolden = 3
	lastGolden  = 10
)

// Trained is the trained driver-monitoring network of the shared models. It trains on calibration inputs and perturbed ones,
// draws of each, and compares inner values up to a size. Golden inputs judge, or where training is developed calibration inputs that it does not train on.
func Trained(ctx context.Context, models string, draws, largest int, develop bool, d hal.Device) (*Network, error) {
	file, err := onnx.Load(filepath.Join(models, Name+".onnx"))
	if err != nil {
		return nil, err
	}
	g, err := onnx.Import(file, onnx.ImportOptions{})
	if err != nil {
		return nil, err
	}
	inputs, _, err := calibrate.Load([]string{filepath.Join(models, "calibration", Name)}, g)
	if err != nil {
		return nil, err
	}
	var unseen []map[string]*ir.Array
	if develop {
		inputs, unseen = inputs[:len(inputs)-held], inputs[len(inputs)-held:]
	} else {
		var files []string
		for k := firstGolden; k <= lastGolden; k++ {
			files = append(files, filepath.Join(models, "golden", fmt.Sprintf("%s_%d.npz", Name, k)))
		}
		if unseen, _, err = calibrate.Load(files, g); err != nil {
			return nil, err
		}
	}
	more := inputs
	for k := range draws {
		drawn, _ := calibrate.Perturb(g, inputs, firstDraw+k)
		more = append(more[:len(more):len(more)], drawn...)
	}
	return New(ctx, file, largest, len(inputs), more, unseen, d)
}

// New makes a network of a model. The first lessons are plain: the spread of values is measured on them.
func New(ctx context.Context, file *onnx.Model, largest, plain int, lessons, unseen []map[string]*ir.Array, d hal.Device) (n *Network, err error) {
	n = &Network{Lessons: &Lessons{Inputs: calibrate.Bytes(lessons)}, Plain: plain, Device: d, plain: lessons[:plain]}
	if n.Original, err = dora.Open(file, onnx.ImportOptions{}); err != nil {
		return nil, err
	}
	inner, err := n.Original.Inner(largest)
	if err != nil {
		return nil, err
	}
	if n.Teacher, err = NewTeacher(ctx, file, inner, d, n.Lessons.Inputs[:plain]); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.Teacher.Close())
		}
	}()
	n.Lessons.Teacher = n.Teacher
	if n.Seen, err = NewBench(ctx, d, n.Teacher, n.Lessons.Inputs[:plain]); err != nil {
		return nil, err
	}
	n.Unseen, err = NewBench(ctx, d, n.Teacher, calibrate.Bytes(unseen))
	return n, err
}

// Choices of layers and ranks.
const (
	ByNorms   = "norms"   // of the weights
	ByOutputs = "outputs" // how strongly the damaged model's outputs depend on them
	ByLoss    = "loss"    // how strongly the loss of the forced stage pulls at them
)

// Sensitivity is what layers and ranks are chosen by; nil: the norms of the weights.
func (n *Network) Sensitivity(ctx context.Context, damaged *dora.Model, in Arithmetic, by string) (map[string]float64, error) {
	switch by {
	case ByNorms:
		return nil, nil
	case ByOutputs:
		return damaged.OutputSensitivity(ctx, n.Device, n.Lessons.Inputs[:n.Plain])
	case ByLoss:
		opt := in.options(n, n.Teacher.Inner, Stages[0].Inner, true)
		return dora.Sensitivity(ctx, damaged, opt, n.Device, n.Plain, func(k int, s *runtime.Session) error {
			return n.Lessons.Give(ctx, s, k, true)
		})
	}
	return nil, fmt.Errorf("layers are chosen by %s, %s or %s, not by %q", ByNorms, ByOutputs, ByLoss, by)
}

// Fitted marks a base of an Arithmetic whose numbers are fitted to the plain inputs, instead of the nearest: fp8:.
const Fitted = ":"

// RoundBase rounds a model's weights where the base is marked so, and yields the arithmetic that steps compute in.
func (n *Network) RoundBase(ctx context.Context, m *dora.Model, in Arithmetic) (Arithmetic, error) {
	storage, fitted := strings.CutSuffix(in.Base, Fitted)
	if !fitted {
		return in, nil
	}
	var err error
	in.Base, err = m.RoundBase(ctx, storage, n.plain)
	return in, err
}
