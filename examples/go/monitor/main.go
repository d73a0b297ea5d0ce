// Monitor runs a driver-monitoring model over a directory of frames of the driver camera:
//
//	go run ./monitor frames
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"example.com/drive/monitoring"
	"github.com/spark-compile/spark-compile/runtime/modeld"
	"github.com/spark-compile/spark-compile/runtime/modeld/replay"
)

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: monitor FRAMES")
	}
	if err := run(context.Background(), os.Args[1]); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, dir string) error {
	m, err := monitoring.Load(ctx)
	if err != nil {
		return err
	}
	defer m.Close()
	loop, err := m.Monitoring()
	if err != nil {
		return err
	}
	frames, err := replay.Open(dir)
	if err != nil {
		return err
	}
	for frame, err := range frames.DriverFrames() {
		if err != nil {
			return err
		}
		cameras, _ := replay.Cameras(frame.Picture.Width, frame.Picture.Height)
		out, err := loop.Step(ctx, frame, modeld.MonitoringInputs{Camera: cameras.Driver})
		if err != nil {
			return err
		}
		d := out.Left // who sits there
		if d == nil {
			d = out.Right
		}
		fmt.Printf("frame %d: face %.0f %%, eyes %.0f %% and %.0f %%, pitch %.2f, yaw %.2f rad\n", out.FrameID, 100*d.Face, 100*d.LeftEye, 100*d.RightEye,
			d.Orientation[0], d.Orientation[1])
	}
	return nil
}
