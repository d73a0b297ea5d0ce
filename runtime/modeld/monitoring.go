package modeld

import (
	"fmt"
	"math"
)

// Lengths of the outputs of driver-monitoring models, and of parts of them.
const (
	seatLength    = 41                     // of what 2022's networks say of a seat
	seatsLength   = 2*seatLength + 2 + 512 // of two seats, poor vision, the wheel's side and features
	oneSeatLength = 39                     // of the 2021 network
	faceLength    = 6                      // orientation 3, position 2, size
)

// parseMonitoring reads what the vector of a driver-monitoring model says: by its named parts if it has them, else by its length.
// rightHandDrive says who was in the picture of a model that sees one seat. NaN stays NaN.
func parseMonitoring(v vector, rightHandDrive bool) (*MonitoringOutputs, error) {
	out := &MonitoringOutputs{WheelOnRight: math.NaN()}
	if len(v.slices) > 0 {
		p, err := newParser([]vector{v}, false)
		if err != nil {
			return nil, err
		}
		out.Left, out.Right = p.driver("lhd"), p.driver("rhd")
		if x := p.take("wheel_on_right", 1); x != nil {
			out.WheelOnRight = p.sigmoid(x[0])
		}
		if p.err == nil && out.Left == nil && out.Right == nil {
			return nil, fmt.Errorf("the output has no slice face_descs_lhd or face_descs_rhd: this is no driver-monitoring model of openpilot's")
		}
		return out, p.err
	}
	switch len(v.values) {
	case seatsLength:
		out.Left, out.Right = seat(v.values, math.Exp, sigmoid), seat(v.values[seatLength:], math.Exp, sigmoid)
		out.WheelOnRight = sigmoid(v.values[2*seatLength+1])
	case oneSeatLength:
		// The network computes the probabilities itself.
		d := seat(v.values, softplus, func(x float64) float64 { return x })
		d.Occluded = math.NaN() // what is there differs between releases
		if out.Left = d; rightHandDrive {
			out.Left, out.Right = nil, d
		}
	default:
		return nil, fmt.Errorf("an output of %d values without named slices: a driver-monitoring model of openpilot's has %d or %d",
			len(v.values), seatsLength, oneSeatLength)
	}
	return out, nil
}

// driver reads the named parts of a seat (dmonitoringmodeld.py since 2025), nil if there are none.
func (p *parser) driver(side string) *Driver {
	face := p.take("face_descs_"+side, 2*faceLength)
	if face == nil {
		return nil
	}
	d := newDriver(face, p.exps(face[faceLength:]))
	for _, to := range []struct {
		name  string
		value *float64
	}{
		{"face", &d.Face}, {"left_eye", &d.LeftEye}, {"right_eye", &d.RightEye}, {"left_blink", &d.LeftBlink},
		{"right_blink", &d.RightBlink}, {"sunglasses", &d.Sunglasses}, {"using_phone", &d.Phone},
	} {
		*to.value = math.NaN()
		if x := p.take(to.name+"_prob_"+side, 1); x != nil {
			*to.value = p.sigmoid(x[0])
		}
	}
	return d
}

// seat reads a seat of models whose output has no named parts (dmonitoring.cc, and dmonitoringmodeld.py to 2025). std and
// probability are of what the network says.
func seat(x []float64, std, probability func(float64) float64) *Driver {
	deviations := make([]float64, faceLength)
	for i := range deviations {
		deviations[i] = std(x[faceLength+i])
	}
	d := newDriver(x, deviations)
	for _, to := range []struct {
		value *float64
		from  int
	}{
		{&d.Face, 12}, {&d.LeftEye, 21}, {&d.RightEye, 30}, {&d.LeftBlink, 31}, {&d.RightBlink, 32}, {&d.Sunglasses, 33}, {&d.Occluded, 34},
	} {
		*to.value = probability(x[to.from])
	}
	if len(x) >= seatLength {
		for _, v := range x[35:39] {
			d.Ready = append(d.Ready, probability(v))
		}
		for _, v := range x[39:41] {
			d.NotReady = append(d.NotReady, probability(v))
		}
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
