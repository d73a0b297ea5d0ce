package modeld

import (
	"fmt"
	"math"
	"strings"

	"github.com/spark-compile/spark-compile/internal/openpilot/generation"
)

// parseMonitoring reads what the vector of a driver-monitoring model says: by its named parts if it has them, else by its length.
// rightHandDrive says who was in the picture of a model that sees one seat. NaN stays NaN.
func parseMonitoring(v vector, row *generation.Row, rightHandDrive bool) (*MonitoringOutputs, error) {
	out := &MonitoringOutputs{WheelOnRight: math.NaN()}
	if len(v.slices) > 0 {
		p, err := newParser([]vector{v}, row)
		if err != nil {
			return nil, err
		}
		out.Left, out.Right = p.driver("lhd"), p.driver("rhd")
		if x := p.take("wheel_on_right"); x != nil {
			out.WheelOnRight = p.sigmoid(x[0])
		}
		if p.err == nil && out.Left == nil && out.Right == nil {
			return nil, fmt.Errorf("the output has no slice face_descs_lhd or face_descs_rhd: this is no driver-monitoring model of openpilot's")
		}
		return out, p.err
	}
	layout := generation.SeatOf(len(v.values))
	if layout == nil {
		totals := strings.Trim(strings.ReplaceAll(fmt.Sprint(generation.SeatTotals()), " ", " or "), "[]")
		return nil, fmt.Errorf("an output of %d values without named slices: a driver-monitoring model of openpilot's has %s", len(v.values), totals)
	}
	out.Left = seat(v.values, layout)
	switch {
	case layout.Seats > 1:
		out.Right = seat(v.values[layout.Len:], layout)
	case rightHandDrive:
		out.Left, out.Right = nil, out.Left
	}
	if layout.Wheel > 0 {
		out.WheelOnRight = sigmoid(v.values[layout.Wheel])
	}
	return out, nil
}

// driver reads the named parts of a seat (dmonitoringmodeld.py since 2025), nil if there are none.
func (p *parser) driver(side string) *Driver {
	face := p.take("face_descs_" + side)
	if face == nil {
		return nil
	}
	d := newDriver(face, p.exps(face[generation.FaceLen:]))
	for _, to := range []struct {
		name  string
		value *float64
	}{
		{"face", &d.Face}, {"left_eye", &d.LeftEye}, {"right_eye", &d.RightEye}, {"left_blink", &d.LeftBlink},
		{"right_blink", &d.RightBlink}, {"sunglasses", &d.Sunglasses}, {"using_phone", &d.Phone},
	} {
		*to.value = math.NaN()
		if x := p.take(to.name + "_prob_" + side); x != nil {
			*to.value = p.sigmoid(x[0])
		}
	}
	return d
}

// seat reads a seat of models whose output has no named parts (dmonitoring.cc, and dmonitoringmodeld.py to 2025).
func seat(x []float64, layout *generation.Seat) *Driver {
	std, probability := math.Exp, sigmoid
	if layout.Softplus {
		std = softplus
	}
	if layout.Probabilities {
		probability = func(x float64) float64 { return x }
	}
	deviations := make([]float64, generation.FaceLen)
	for i := range deviations {
		deviations[i] = std(x[generation.FaceLen+i])
	}
	d, at := newDriver(x, deviations), layout.Offsets
	for _, to := range []struct {
		value *float64
		from  int
	}{
		{&d.Face, at.Face}, {&d.LeftEye, at.LeftEye}, {&d.RightEye, at.RightEye}, {&d.LeftBlink, at.LeftBlink},
		{&d.RightBlink, at.RightBlink}, {&d.Sunglasses, at.Sunglasses}, {&d.Occluded, at.Occluded},
	} {
		if to.from > 0 {
			*to.value = probability(x[to.from])
		}
	}
	for _, v := range x[at.Ready[0]:at.Ready[1]] {
		d.Ready = append(d.Ready, probability(v))
	}
	for _, v := range x[at.NotReady[0]:at.NotReady[1]] {
		d.NotReady = append(d.NotReady, probability(v))
	}
	return d
}

// newDriver has a face, and NaN for what models may not say.
func newDriver(face, std []float64) *Driver {
	return &Driver{
		Orientation: [3]float64(face), Position: [2]float64(face[3:]), Size: face[5],
		OrientationStd: [3]float64(std), PositionStd: [2]float64(std[3:]), SizeStd: std[5],
		Phone: math.NaN(), Occluded: math.NaN(),
	}
}

func sigmoid(x float64) float64 { return 1 / (1 + math.Exp(-x)) }

// softplus is log(1+e^x), which does not overflow.
func softplus(x float64) float64 { return max(x, 0) + math.Log1p(math.Exp(-math.Abs(x))) }
