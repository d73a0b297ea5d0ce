// Package info is spark-info, which describes this machine, what spark-compile uses of it and why, whether it is set up
// correctly, and its state.
//
//	spark-info
//	spark-info DIR
//	spark-info --check
//	spark-info --monitor --interval 0.5
package info

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/hal/config"
	"github.com/spark-compile/spark-compile/hal/detect"
	"github.com/spark-compile/spark-compile/hal/machine"
	"github.com/spark-compile/spark-compile/internal/atomicfile"
	"github.com/spark-compile/spark-compile/internal/cli"
)

// flags is the command line.
type flags struct {
	Package   string   `arg:"" optional:"" name:"dir" help:"Compiled package to describe instead of the machine: model, provenance, inputs and outputs."`
	JSON      string   `name:"json" help:"Write JSON to this file; - is standard output. With --monitor, one line per interval." placeholder:"FILE" writes:""`
	Check     bool     `help:"Check driver, device, PTX, a kernel, ptxas and ONNX Runtime; exit with 1 if one fails."`
	Fabric    bool     `help:"Show what connects this machine to others that train with it, and what is known to go wrong; exit with 1 if something does."`
	Monitor   bool     `help:"Show utilisation, clocks, power, temperature and memory until interrupted."`
	Interval  *float64 `help:"Seconds between lines of --monitor (default 1)." placeholder:"S"`
	Duration  *float64 `help:"Seconds after which --monitor ends." placeholder:"S"`
	Device    string   `help:"auto, cuda, cuda:N or emu; default: SPARK_DEVICE, else auto." placeholder:"NAME"`
	Precision string   `help:"As for spark-compile; default: OPENPILOT_DGX_PRECISION, else ${precision}." placeholder:"P"`
}

// errCheck reports that a check failed.
const errCheck = cli.Failure("a check failed")

// Summary is what the command does, in a sentence.
const Summary = "Describe this machine and what spark-compile uses of it, or a compiled package."

// Main runs the command, under the name that was typed, and returns its exit code.
func Main(name string, args []string, stdout, stderr io.Writer) int {
	t := &tool{out: stdout, open: detect.Open}
	return cli.Main(&t.flags, name, Summary, args, stdout, stderr, func(ctx context.Context) error { return t.run(ctx) })
}

// tool is one run of the command and its view of the machine.
type tool struct {
	flags
	out    io.Writer
	prober machine.Prober
	open   func(context.Context, detect.Options) (hal.Device, string, error)
}

func (t *tool) run(ctx context.Context) error {
	if !t.Monitor && (t.Interval != nil || t.Duration != nil) {
		return errors.New("--interval and --duration need --monitor")
	}
	if t.Fabric {
		if t.Package != "" || t.Monitor || t.Check {
			return errors.New("--fabric stands alone: leave the directory, --monitor and --check out")
		}
		return t.connected()
	}
	if t.Package != "" {
		if t.Monitor || t.Check {
			return errors.New("--monitor and --check are about the machine: leave the directory out")
		}
		return t.describe()
	}
	if t.Monitor && t.Check {
		return errors.New("--monitor and --check cannot be combined")
	}
	settings, err := config.Read(config.Flags{Device: t.Device, Precision: t.Precision}, nil)
	if err != nil {
		return err
	}
	if t.Monitor {
		interval, err := seconds("--interval", t.Interval, 1)
		if err != nil {
			return err
		}
		duration, err := seconds("--duration", t.Duration, 0)
		if err != nil {
			return err
		}
		return t.monitor(ctx, interval, duration)
	}
	s := &status{Version: 1, Machine: t.prober.Survey(ctx), Settings: settings.All()}
	device := t.chosen(ctx, s)
	if device != nil {
		defer device.Close()
	}
	if t.Check {
		s.Checks = t.check(ctx, s, device)
	}
	if ctx.Err() != nil { // what was not looked at would be said to fail
		return ctx.Err()
	}
	if t.JSON != "" {
		err = t.write(s)
	} else {
		err = s.print(t.out)
	}
	if err == nil && s.failed() {
		err = errCheck
	}
	return err
}

// write writes what --json asks for.
func (t *tool) write(v any) error {
	if t.JSON == "-" {
		return cli.JSON(t.out, v)
	}
	return atomicfile.WriteJSON(t.JSON, v)
}

// seconds converts a positive number of seconds; otherwise is the default.
func seconds(flag string, given *float64, otherwise float64) (time.Duration, error) {
	v := otherwise
	if given != nil {
		v = *given
		if !(v > 0 && v < 1e9) {
			return 0, fmt.Errorf("%s %v: want a positive number of seconds", flag, v)
		}
	}
	return time.Duration(v * float64(time.Second)), nil
}

// chosen opens the device that a program would get and records it in the status, or the error.
func (t *tool) chosen(ctx context.Context, s *status) hal.Device {
	d, notice, err := t.open(ctx, detect.Options{Name: t.Device, Called: "--device"})
	s.Device.Notice = notice
	if err != nil {
		s.Device.Error = err.Error()
		return nil
	}
	info := d.Info()
	s.Device.Name, s.Device.Backend, s.Device.Target, s.Device.Unified = info.Name, info.Backend, info.Target, info.Unified
	return d
}
