// Drive runs a vision model and its policy, compiled to one package, over 100 frames.
package main

import (
	"context"
	"fmt"
	"log"

	"example.com/drive/driving"
	"github.com/spark-compile/spark-compile/runtime/modeld"
)

func main() {
	ctx := context.Background()
	m, err := driving.Load(ctx) // onto the GPU if there is one, else the CPU device
	check(err)
	loop, err := m.Driving()
	check(err)
	cameras, err := modeld.CamerasOf("tici", "ar0231")
	check(err)
	in := modeld.Inputs{VEgo: 20, Calibration: &modeld.Calibration{Road: cameras.Road, WideCamera: cameras.Wide}}
	w, h := cameras.Road.Width, cameras.Road.Height
	picture := modeld.Picture{Data: make([]byte, w*h*3/2), Width: w, Height: h} // NV12
	for id := range uint32(100) {
		for i := range picture.Data { // stripes that move stand in for a camera
			picture.Data[i] = byte(i/w/4) + byte(id)
		}
		out, err := loop.Step(ctx, modeld.Frame{Road: picture, Wide: picture, ID: id}, in)
		check(err)
		fmt.Printf("frame %2d: curvature %9.6f 1/m, acceleration %6.3f m/s², %.2f ms\n", id, out.CurvatureCommand, out.AccelerationCommand, out.Stats.Run.Seconds()*1e3)
	}
	check(m.Close())
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
