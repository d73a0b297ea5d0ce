package library

import (
	"context"
	"errors"
	"fmt"

	"github.com/spark-compile/spark-compile/hal/detect"
	"github.com/spark-compile/spark-compile/runtime/modeld"
)

// Drive steps openpilot's modeld. What it says is then in Result.
func (m *Model) Drive(ctx context.Context, f modeld.Frame, in modeld.Inputs) error {
	if m.driving == nil {
		return fmt.Errorf("%s is not open as a driving loop", m.program.Model)
	}
	return m.step(func() (any, error) { return m.driving.Step(ctx, f, in) })
}

// Watch steps openpilot's driver monitoring. What it says is then in Result.
func (m *Model) Watch(ctx context.Context, f modeld.DriverFrame, in modeld.MonitoringInputs) error {
	if m.watch == nil {
		return fmt.Errorf("%s is not open as a loop of driver monitoring", m.program.Model)
	}
	return m.step(func() (any, error) { return m.watch.Step(ctx, f, in) })
}

func (m *Model) step(run func() (any, error)) error {
	if err := m.enter(); err != nil {
		return err
	}
	defer m.leave()
	m.lent = append(m.lent, m.program.Loop.Frames...)
	defer m.giveBack()
	out, err := run()
	if err != nil {
		return detect.Explain(err)
	}
	return m.result.fill(out)
}

// Result is what the last step said: a vector, valid until the next one, and a text that says what is where in it (see flat.go). The text
// is the same string as before where nothing has moved.
func (m *Model) Result() (values []float64, layout string) { return m.result.values, m.result.layout }

// Value is a part of what the last step said: plan.position, lane_lines.1.y.
func (m *Model) Value(path string) (offset, count int, err error) {
	if err := m.enter(); err != nil {
		return 0, 0, err
	}
	defer m.leave()
	if m.result.layout == "" {
		return 0, 0, errors.New("no step has run yet")
	}
	return m.result.find(path)
}
