// Package library is what the C library does, without C: it opens a compiled package or an ONNX file on a device, runs it on memory
// of the caller's, and steps openpilot's loops. Package main of cmd/libsparkcompile gives its functions C names.
//
//	library.go  opening, describing, closing
//	run.go      a run on the caller's arrays; states
//	loop.go     steps of modeld and of driver monitoring
//	sim.go      closed loops by the batch
//	errors.go   errors that callers distinguish
//	flat.go     structs as one vector of float64 and a text that says what is where
//	program.go  programs from packages, ONNX files and the cache
package library

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/hal/config"
	"github.com/spark-compile/spark-compile/hal/detect"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/runtime"
	"github.com/spark-compile/spark-compile/runtime/modeld"
)

// Kind says what a model is opened as.
type Kind int

// Kinds of open models.
const (
	Plain      Kind = iota // inputs and outputs as the program has them
	Driving                // the step of modeld
	Monitoring             // the step of driver monitoring
)

// Options say what to open, and where.
type Options struct {
	// Paths are a directory that spark-compile wrote, an ONNX file, or openpilot's vision model and its policy.
	Paths  []string
	Kind   Kind
	Device string   // auto, cuda, cuda:N, emu or cpu, which is emu; "": auto
	Target string   // variant of the program; "": the device's own
	Flags  []string // of spark-compile, for ONNX files
	Cache  string   // directory for compiled ONNX files; "": that of the settings (SPARK_CACHE); off: none
	Build  string   // what tells this compiler from others; "": nothing is kept in the cache
	Check  bool     // on the CPU device: check memory, races, initialisation and synchronisation
}

// Model is an open program. Calls at the same time are refused with ErrBusy.
type Model struct {
	program *runtime.Program
	device  hal.Device
	notices []string
	session *runtime.Session
	loop    interface{ Close() error } // nil of a Plain model
	driving *modeld.Driving
	watch   *modeld.Monitoring
	inputs  []port
	outputs []port
	result  flat
	busy    atomic.Bool
	closed  bool
	lent    []string // inputs that the run reads in the caller's memory
	lost    error    // why that memory could not be given back
}

// port is an input or an output.
type port struct {
	runtime.Port
	bytes int
	state bool   // an input that stays on the device, or what becomes its next value
	here  []byte // the session's memory; nil of states, and where the host sees none
}

// Open opens a model. Errors say what is wrong and what helps.
func Open(ctx context.Context, opt Options) (*Model, error) {
	if opt.Device == "cpu" {
		opt.Device = config.Emu
	}
	if opt.Kind < Plain || opt.Kind > Monitoring {
		return nil, fmt.Errorf("kind %d: want %d (a model), %d (driving) or %d (monitoring)", opt.Kind, Plain, Driving, Monitoring)
	}
	m := &Model{}
	p, err := program(ctx, opt, func(text string) { m.notices = append(m.notices, text) })
	if err != nil {
		return nil, err
	}
	var notices []string
	m.program = p
	m.device, notices, err = detect.Use(ctx, detect.Options{Name: opt.Device, Called: "device", Check: opt.Check}, func(d hal.Device) error { return m.open(ctx, d, opt) })
	if err != nil {
		return nil, err
	}
	m.notices = append(m.notices, notices...)
	if m.inputs, err = m.ports(p.Inputs, false); err == nil {
		m.outputs, err = m.ports(p.Outputs, true)
	}
	if err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

// open loads the program onto a device.
func (m *Model) open(ctx context.Context, d hal.Device, opt Options) (err error) {
	switch opt.Kind {
	case Plain:
		m.session, err = runtime.Open(ctx, m.program, d, runtime.ModelOptions{Target: opt.Target})
	case Driving:
		if m.driving, err = modeld.NewDriving(ctx, m.program, d, modeld.Options{Target: opt.Target}); err == nil {
			m.loop, m.session = m.driving, m.driving.Session()
		}
	case Monitoring:
		if m.watch, err = modeld.NewMonitoring(ctx, m.program, d, modeld.Options{Target: opt.Target}); err == nil {
			m.loop, m.session = m.watch, m.watch.Session()
		}
	}
	return err
}

func (m *Model) ports(list []runtime.Port, outputs bool) (out []port, err error) {
	for _, q := range list {
		d, err := ir.ParseDType(q.DType)
		if err != nil {
			return nil, fmt.Errorf("%s: %q: %w", m.program.Model, q.Name, err)
		}
		p := port{Port: q, bytes: ir.Type{DType: d, Shape: q.Shape}.Bytes()}
		for _, s := range m.program.States {
			mine := !outputs && s.Input == q.Name || outputs && s.Output == q.Name
			p.state = p.state || mine
		}
		switch {
		case outputs && !p.state:
			p.here = m.session.Output(q.Name)
		case !outputs && !p.state:
			p.here = m.session.Input(q.Name)
		}
		out = append(out, p)
	}
	return out, nil
}

// begin keeps others out until leave.
func (m *Model) begin() error {
	if !m.busy.CompareAndSwap(false, true) {
		return ErrBusy
	}
	if m.closed {
		m.leave()
		return ErrClosed
	}
	return nil
}

// enter is begin of all but closing.
func (m *Model) enter() error {
	if err := m.begin(); err != nil {
		return err
	}
	if m.lost != nil {
		defer m.leave()
		return fmt.Errorf("the model can only be closed, since the device holds on to an array of an earlier run: %w", m.lost)
	}
	return nil
}

func (m *Model) leave() { m.busy.Store(false) }

// Closed reports whether the model was closed: Close may have, and still say what the device said.
func (m *Model) Closed() bool { return m.closed }

// Close frees the model, and what the device holds of it.
func (m *Model) Close() error {
	if err := m.begin(); err != nil {
		return err
	}
	defer m.leave()
	var err error
	if m.loop != nil {
		err = m.loop.Close()
	} else {
		err = m.session.Close()
	}
	if err != nil {
		return err
	}
	m.closed = true
	return m.device.Close()
}

// Description is what a model is, for callers.
type Description struct {
	Model     string        `json:"model"` // the ONNX file
	Precision string        `json:"precision"`
	Target    string        `json:"target"`
	Device    string        `json:"device"`  // its name
	Backend   string        `json:"backend"` // cuda or emu
	Notices   []string      `json:"notices"` // why not a better device, and warnings
	Inputs    []Port        `json:"inputs"`  // in the order of a run's arrays
	Outputs   []Port        `json:"outputs"`
	Loop      *runtime.Loop `json:"loop,omitempty"`
	Compiler  string        `json:"compiler"`
	SHA256    string        `json:"sha256"` // of the ONNX file
}

// Port describes an input or an output.
type Port struct {
	Name   string          `json:"name"`
	DType  string          `json:"dtype"`
	Shape  []int           `json:"shape"`
	Bytes  int             `json:"bytes"`
	State  bool            `json:"state,omitempty"` // an input that stays on the device from run to run, or its next value
	Delay  int             `json:"delay,omitempty"` // of a state, in runs, if more than one
	Slices []runtime.Slice `json:"slices,omitempty"`
}

// Describe describes the model.
func (m *Model) Describe() (*Description, error) {
	if err := m.enter(); err != nil {
		return nil, err
	}
	defer m.leave()
	info, p := m.device.Info(), m.program
	d := &Description{Model: p.Model, Precision: p.Precision, Target: m.session.Model().Variant.Target, Device: info.Name, Backend: info.Backend,
		Notices: append([]string{}, m.notices...), Loop: p.Loop, Compiler: p.Provenance.Compiler, SHA256: p.Provenance.SHA256}
	describe := func(list []port) (out []Port) {
		out = []Port{}
		for _, q := range list {
			port := Port{Name: q.Name, DType: q.DType, Shape: append([]int{}, q.Shape...), Bytes: q.bytes, State: q.state, Slices: q.Slices}
			for _, s := range p.States {
				if (s.Input == q.Name || s.Output == q.Name) && s.Delay > 1 {
					port.Delay = s.Delay
				}
			}
			out = append(out, port)
		}
		return out
	}
	d.Inputs, d.Outputs = describe(m.inputs), describe(m.outputs)
	return d, nil
}
