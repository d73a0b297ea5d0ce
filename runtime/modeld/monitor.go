package modeld

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/internal/openpilot/generation"
	"github.com/spark-compile/spark-compile/runtime"
)

// Monitoring is the loop around a program of a driver-monitoring model. It is for one goroutine at a time.
type Monitoring struct{ loop }

// NewMonitoring loads a program, which spark-compile made of a driver-monitoring model, onto a device. The device must outlive the loop.
func NewMonitoring(ctx context.Context, p *runtime.Program, d hal.Device, opt Options) (*Monitoring, error) {
	if _, err := loopOf(p, generation.Monitoring); err != nil {
		return nil, err
	}
	s, err := runtime.Open(ctx, p, d, runtime.ModelOptions{Target: opt.Target})
	if err != nil {
		return nil, err
	}
	m, err := Monitor(s)
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	m.owned, m.copies = true, opt.CopyFrames
	return m, nil
}

// Monitor is the loop around an open session of a program of a driver-monitoring model. Who opened the session closes it.
func Monitor(s *runtime.Session) (*Monitoring, error) {
	p := s.Model().Program
	row, err := loopOf(p, generation.Monitoring)
	if err != nil {
		return nil, err
	}
	m := &Monitoring{loop{session: s, program: p, row: row}}
	if err := m.begin(map[string]int{generation.Calibration: 3}); err != nil {
		return nil, err
	}
	return m, s.Prepare(context.Background(), "run") // or the first step would try whether pictures are read in place
}

// Step runs the model on a picture of the driver, which it reads as Driving.Step does. Outputs are the caller's to keep.
func (m *Monitoring) Step(ctx context.Context, f DriverFrame, in MonitoringInputs) (*MonitoringOutputs, error) {
	if err := m.enter(); err != nil {
		return nil, err
	}
	defer m.leave()
	begin := time.Now()
	l := m.program.Loop
	transform, err := MonitoringCrop(f.Picture, in.RightHandDrive), error(nil)
	if !m.row.Face.OneSeat {
		if transform, err = MonitoringWarp(in.Camera, l.Width); err != nil {
			return nil, err
		}
	}
	inPlace, err := m.see(ctx, transform[:], []string{"driver"}, []Picture{f.Picture})
	if err != nil {
		return nil, err
	}
	if err := m.set(generation.Calibration, in.RPY[:]...); err != nil {
		return nil, err
	}
	stats := Stats{Prepare: time.Since(begin), InPlace: inPlace}
	begin = time.Now()
	if err := m.session.Run(ctx); err != nil {
		return nil, err
	}
	stats.Run = time.Since(begin)
	begin = time.Now()
	raw, named, err := m.outputs()
	if err != nil {
		return nil, err
	}
	out, err := parseMonitoring(raw[0], m.row, in.RightHandDrive)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", m.program.Model, err)
	}
	stats.Parse = time.Since(begin)
	out.FrameID, out.Captured, out.Raw, out.Stats = f.ID, f.Captured, named, stats
	return out, nil
}
