package openpilot

import (
	"github.com/spark-compile/spark-compile/ir"
)

// Road is a road that bends by the place, without other cars.
type Road struct {
	Lane      float64                     // how wide one is, in metres
	Curvature func(along float64) float64 // 1/m, left positive, so many metres along the road
}

// farthest is the distance in metres up to which a road bends; beyond it goes straight on.
const farthest = 600

// Scene is what is seen of the road from a place along it, so far left of the middle of the own lane and turned to the
// left, in radians. Lengths along the road are taken for those along the axis of the camera.
func (r Road) Scene(along, offset, heading float64) Scene {
	sin, cos := ir.Sin(heading), ir.Cos(heading)
	var side, angle, curvature [farthest + 1]float64 // of the road, every metre
	for i := range farthest {
		k := r.Curvature(along + float64(i) + .5)
		curvature[i] = k
		angle[i+1] = angle[i] + k
		side[i+1] = side[i] + angle[i] + float64(k/2)
	}
	left := func(z float64) float64 {
		i := min(int(max(z, 0)), farthest)
		u := z - float64(i)
		return side[i] + float64(u*(angle[i]+float64(curvature[i]*u/2)))
	}
	return Scene{Travelled: along, Lane: r.Lane, Middle: func(distance float64) float64 {
		return (offset + float64(distance*sin) - left(distance)) / cos
	}}
}

// Winding is the road of a drive in the middle of the lane.
var Winding = Road{Lane: lane, Curvature: func(along float64) float64 { return wave(.002, 1./80, along) }}

// MiddleAt is where the car is in a frame of the drive on the winding road, in metres along it, and how it moves: its
// speed in m/s, and the curvature of its path in 1/m, positive to the right.
func MiddleAt(frame int) (along, speed, curvature float64) {
	t := float64(frame) / Rate
	along = travelled(t)
	return along, speedAt(t), -Winding.Curvature(along)
}

// DrawMiddle is what a camera sees of that drive.
func (c Camera) DrawMiddle(frame int) Picture {
	along, _, _ := MiddleAt(frame)
	return c.See(Winding.Scene(along, 0, 0), At(frame).RPY)
}
