package dataset

import (
	"fmt"
	"slices"

	"github.com/spark-compile/spark-compile/dora/camera"
	"github.com/spark-compile/spark-compile/internal/openpilot"
	"github.com/spark-compile/spark-compile/internal/openpilot/generation"
	"github.com/spark-compile/spark-compile/runtime/modeld"
)

// watchesDriver reports whether a model takes pictures of the driver.
func watchesDriver(inputs []Input) bool {
	return slices.ContainsFunc(inputs, func(in Input) bool { return in.Name == generation.DriverPicture })
}

// driverContract reads the inputs of a driver-monitoring model.
func driverContract(inputs []Input) (*contract, error) {
	c := &contract{inputs: inputs, sees: true}
	for _, in := range inputs {
		switch {
		case in.Name == generation.DriverPicture:
			sight, err := openpilot.DriverSight(in.Type, "")
			if err != nil {
				return nil, err
			}
			c.face, c.rule, c.look = sight.Face, sight.Rule, camera.Look{Width: sight.Width, Height: sight.Height, Phases: sight.Phases, Linear: sight.Linear, Fill: sight.Fill}
		case in.Name != generation.Calibration || in.Type.Numel() != 3:
			return nil, fmt.Errorf("routes do not make the model's input %q %v: driver-monitoring models take %s and %s [1,3]; give .npz files with the arrays instead",
				in.Name, in.Type, generation.DriverPicture, generation.Calibration)
		}
	}
	return c, nil
}

// driverMatrix maps pixels of a driver-monitoring model's picture to the driver camera's.
func (t *timeline) driverMatrix(p modeld.Picture, c *contract, m *moment) ([9]float32, error) {
	if c.face.OneSeat {
		return modeld.MonitoringCrop(p, m.RightHand), nil
	}
	all, err := modeld.CamerasOf(t.Device, t.Sensor)
	if err != nil {
		return [9]float32{}, err
	}
	return modeld.MonitoringWarp(scaled(all.Driver, p), c.look.Width)
}

// driverInput is what a driver-monitoring model takes at a moment.
func (r *routes) driverInput(p place, in Input) ([]byte, error) {
	if in.Name == generation.Calibration {
		rpy := p.moment().RPY
		return elements(in.Type, rpy[:]), nil
	}
	levels, err := p.pictures.read(p.k)
	if err != nil || r.contract.face.Grey == 0 {
		return levels, err
	}
	x := make([]float64, len(levels))
	for i, b := range levels {
		x[i] = (float64(b) - r.contract.face.Grey) / r.contract.face.Grey
	}
	return elements(in.Type, x), nil
}

// driverView shows luma in grey. Of planes of one seat, of which two are the same, no picture is made.
func driverView(c *contract, luma []byte) *View {
	w, h := c.look.Width/2, c.look.Height/2
	if c.look.Phases != nil || c.look.Width%2 != 0 || c.look.Height%2 != 0 {
		return nil
	}
	planes := make([]byte, camera.Driving(c.look.Width, c.look.Height, false).Bytes())
	for y := range 2 * h {
		for x := range 2 * w {
			planes[(y%2+2*(x%2))*w*h+y/2*w+x/2] = luma[y*c.look.Width+x]
		}
	}
	for i := 4 * w * h; i < len(planes); i++ {
		planes[i] = 128
	}
	return &View{Planes: planes, Width: c.look.Width, Height: c.look.Height}
}
