// Replay runs a compiled package over a directory of frames, at 20 frames a second as the cameras do:
//
//	go run ./replay driving frames
//
// It reads the package when it runs, so it is built without one.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"

	"github.com/spark-compile/spark-compile/hal/detect"
	"github.com/spark-compile/spark-compile/runtime"
	"github.com/spark-compile/spark-compile/runtime/modeld"
	"github.com/spark-compile/spark-compile/runtime/modeld/replay"
)

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: replay PACKAGE FRAMES")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1], os.Args[2]); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, pkg, dir string) error {
	program, err := runtime.Read(os.DirFS(pkg))
	if err != nil {
		return err
	}
	device, notice, err := detect.Open(ctx, detect.Options{})
	if err != nil {
		return err
	}
	defer device.Close()
	fmt.Println(device.Info().Name, notice)
	loop, err := modeld.NewDriving(ctx, program, device, modeld.Options{})
	if err != nil {
		return err
	}
	defer loop.Close()
	frames, err := replay.Open(dir)
	if err != nil {
		return err
	}
	var pacer modeld.Pacer
	for frame, err := range frames.Frames() {
		if err != nil {
			return err
		}
		if err := pacer.Wait(ctx); err != nil {
			return err
		}
		cameras, _ := replay.Cameras(frame.Road.Width, frame.Road.Height)
		out, err := loop.Step(ctx, frame, modeld.Inputs{VEgo: 25, Calibration: &modeld.Calibration{
			RPY: [3]float64{0, .02, -.01}, Road: cameras.Road, WideCamera: cameras.Wide}})
		if err != nil {
			return err
		}
		if !out.Ran {
			fmt.Printf("frame %d: %d missed before it, so no model runs\n", out.FrameID, out.Missed)
			continue
		}
		end := out.Plan.Position[modeld.Points-1]
		fmt.Printf("frame %d: in 10 s at %.1f m, %.1f m to the right; car ahead %.0f %%, at %.1f m\n", out.FrameID, end[0], end[1],
			100*out.Leads[0].Probability, out.Leads[0].X[0])
	}
	return nil
}
