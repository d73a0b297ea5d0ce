package scenario

import (
	"fmt"
	"math"
	"path/filepath"
	"strings"

	"github.com/spark-compile/spark-compile/internal/memory"
)

// importColumns are those of a file of comma's controls challenge that are read.
var importColumns = []string{"t", "vEgo", "roll", "targetLateralAcceleration"}

// slowest is the speed below which a lateral acceleration says nothing of a curve: m/s.
const slowest = 3.0

// importCSV makes a scenario of a drive, a file of comma's controls challenge: t in s, vEgo in m/s, roll in rad,
// targetLateralAcceleration in m/s². It is a road of knots, curvatures and banks as they were driven, with the recorded
// speed, which the driver has set.
//
// The challenge counts to the right: its simulator negates the logged steerCommand, which is left positive, and takes
// targetLateralAcceleration as it is (commaai/controls_challenge, tinyphysics.py). Where the car was slower than 3 m/s the
// curvature is that of the last sample before. Lost is what the driver steered. Errors name file, line and column.
func importCSV(path string) (*Family, error) {
	raw, err := memory.ReadRegular(path)
	if err != nil {
		return nil, err
	}
	columns, err := readTable(raw, tableWants{names: importColumns, needed: len(importColumns), most: maxSamples})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	r := &recording{time: columns[0], speed: columns[1]}
	for i, v := range r.speed {
		r.curvature = append(r.curvature, -columns[3][i]/float64(v*v))
		r.speed[i] = max(v, 0)
	}
	r.curvature = holdBelow(r.curvature, r.speed, slowest)
	r.bank = columns[2]
	name := strings.TrimSuffix(filepath.Base(path), filepath.Ext(path))
	f, err := r.family(name, "a recorded drive of comma's controls challenge")
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return f, nil
}

// finite says whether all of some numbers are.
func finite(list ...float64) bool {
	for _, x := range list {
		if math.IsNaN(x) || math.IsInf(x, 0) {
			return false
		}
	}
	return true
}
