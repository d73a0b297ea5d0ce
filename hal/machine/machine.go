// Package machine describes the machine a program runs on: whether it is a DGX Spark or another GB10 machine, which
// GPUs it has, what they can do and what state they are in.
//
//	identity.go   firmware and GPU names
//	machine.go    the survey of driver, management layer and /proc/meminfo
package machine

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	goruntime "runtime"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/spark-compile/spark-compile/hal/cuda"
	"github.com/spark-compile/spark-compile/hal/nvml"
	"github.com/spark-compile/spark-compile/internal/precision"
)

// Machine is the result of a survey.
type Machine struct {
	Identity
	Platform        string   `json:"platform"` // linux/arm64
	CPUs            int      `json:"cpus"`
	MemoryTotal     int64    `json:"memory_total"` // bytes; 0 unknown
	MemoryAvailable int64    `json:"memory_available"`
	Driver          string   `json:"driver,omitempty"`
	CUDA            string   `json:"cuda,omitempty"`
	Management      string   `json:"management,omitempty"` // NVML or nvidia-smi
	GPUs            []GPU    `json:"gpus"`
	Best            int      `json:"best_gpu"`          // index of the default GPU, or -1
	Missing         []string `json:"missing,omitempty"` // what could not be queried, and why
}

// GPU combines what driver and management layer report about one GPU.
type GPU struct {
	nvml.GPU
	Ordinal      int      `json:"ordinal"`       // the driver's number, or -1 if only the management layer sees it
	SMs          int      `json:"sms,omitempty"` // 0 unknown
	L2Bytes      int      `json:"l2_bytes,omitempty"`
	SharedBlock  int      `json:"shared_block,omitempty"`
	Target       string   `json:"target,omitempty"`
	Unified      bool     `json:"unified"`
	MemorySource string   `json:"memory_source,omitempty"` // where the memory figures come from
	Precisions   []string `json:"precisions"`              // supported by its tensor cores
	Recommended  string   `json:"recommended_precision"`
}

// Prober holds the sources of a survey. The zero value surveys this machine.
type Prober struct {
	Root       fs.FS                        // nil means /
	Driver     func() (*cuda.System, error) // nil means libcuda.so.1
	Management func() (nvml.Source, error)  // nil means NVML, or nvidia-smi without it
}

var current = sync.OnceValue(func() *Machine { return Prober{}.Survey(context.Background()) })

// Current returns the survey of this machine, made on the first call; GPUs do not come and go while a program runs.
// Callers must not change it. Clocks and other figures that change need a new survey or hal/nvml.
func Current() *Machine { return current() }

// orDefault fills in the sources of this machine.
func (p Prober) orDefault() Prober {
	if p.Root == nil {
		p.Root = os.DirFS("/")
	}
	if p.Driver == nil {
		p.Driver = func() (*cuda.System, error) { return cuda.List(cuda.Options{}) }
	}
	if p.Management == nil {
		p.Management = func() (nvml.Source, error) { return nvml.Open(nvml.Options{}) }
	}
	return p
}

// held is a source that stays open between surveys.
type held struct{ nvml.Source }

func (held) Close() error { return nil }

// Keep opens the management layer and queries the driver once, for surveys in quick succession. The caller calls done
// after the last one.
func (p Prober) Keep() (kept Prober, done func() error, err error) {
	p = p.orDefault()
	source, err := p.Management()
	if err != nil {
		return p, nil, err
	}
	sys, failure := p.Driver()
	p.Management = func() (nvml.Source, error) { return held{source}, nil }
	p.Driver = func() (*cuda.System, error) { return sys, failure }
	return p, source.Close, nil
}

// Survey queries every source. A source that cannot be queried is listed in Missing and is not an error.
func (p Prober) Survey(ctx context.Context) *Machine {
	p = p.orDefault()
	m := &Machine{Platform: goruntime.GOOS + "/" + goruntime.GOARCH, CPUs: goruntime.NumCPU()}
	m.MemoryTotal, m.MemoryAvailable = meminfo(p.Root)
	sys, err := p.Driver()
	if err != nil {
		sys = &cuda.System{}
		m.Missing = append(m.Missing, err.Error())
	}
	m.CUDA = sys.CUDA
	snapshot := m.manage(ctx, p.Management)
	m.GPUs, m.Best = join(sys.GPUs, snapshot.GPUs), -1
	if ranked := sys.Ranked(); len(ranked) > 0 {
		m.Best = slices.IndexFunc(m.GPUs, func(g GPU) bool { return g.Ordinal == ranked[0].Ordinal })
	}
	var chips []chip
	for i := range m.GPUs {
		g := &m.GPUs[i]
		chips = append(chips, chip{g.Name, g.Major, g.Minor})
		g.Unified = g.Unified || isGB10(chips[i])
		m.memory(g)
		g.Precisions = precision.On(g.Major, g.Minor)
		g.Recommended = g.Precisions[len(g.Precisions)-1]
		if g.Major > 0 {
			g.Target = fmt.Sprintf("sm_%d%d", g.Major, g.Minor)
		}
	}
	m.Identity = identify(p.Root, chips)
	return m
}

// manage reads the management layer.
func (m *Machine) manage(ctx context.Context, open func() (nvml.Source, error)) nvml.Snapshot {
	source, err := open()
	var snapshot nvml.Snapshot
	if err == nil {
		defer source.Close()
		snapshot, err = source.Read(ctx)
	}
	if err != nil {
		m.Missing = append(m.Missing, err.Error())
		return nvml.Snapshot{}
	}
	m.Management, m.Driver = source.Name(), snapshot.Driver
	if m.CUDA == "" {
		m.CUDA = snapshot.CUDA
	}
	return snapshot
}

// join matches GPUs by PCI address, since driver and management layer number them differently.
func join(driver []cuda.GPU, managed []nvml.GPU) []GPU {
	out := []GPU{}
	used := map[int]bool{}
	for _, d := range driver {
		g := GPU{Ordinal: d.Ordinal, SMs: d.SMs, L2Bytes: d.L2Bytes, SharedBlock: d.SharedBlock, Unified: d.Integrated || d.HostPageTables}
		i := slices.IndexFunc(managed, func(n nvml.GPU) bool { return n.Bus == d.Bus })
		if i < 0 && len(driver) == 1 && len(managed) == 1 {
			i = 0
		}
		if i >= 0 {
			used[i] = true
			g.GPU = managed[i]
		} else {
			g.Index, g.Bus = d.Ordinal, d.Bus
		}
		g.Name, g.Major, g.Minor = d.Name, d.Major, d.Minor
		if !g.MemoryTotal.OK && !g.Unified {
			g.MemoryTotal, g.MemorySource = nvml.Known(float64(d.Memory)), "driver"
		}
		out = append(out, g)
	}
	for i, n := range managed {
		if !used[i] {
			out = append(out, GPU{GPU: n, Ordinal: -1})
		}
	}
	return out
}

// memory takes the figures from /proc/meminfo if GPU and CPU share their memory and the management layer reports none.
func (m *Machine) memory(g *GPU) {
	switch {
	case g.MemorySource != "": // the driver's figure
	case g.MemoryTotal.OK:
		g.MemorySource = m.Management
	case g.Unified && m.MemoryTotal > 0:
		g.MemoryTotal = nvml.Known(float64(m.MemoryTotal))
		g.MemoryUsed = nvml.Known(float64(m.MemoryTotal - m.MemoryAvailable))
		g.MemorySource = "/" + meminfoFile
	}
}

const meminfoFile = "proc/meminfo"

// meminfo reads the machine's total and available memory in bytes.
func meminfo(root fs.FS) (total, available int64) {
	raw, err := fs.ReadFile(root, meminfoFile)
	if err != nil {
		return 0, 0
	}
	for line := range strings.Lines(string(raw)) {
		key, rest, _ := strings.Cut(line, ":")
		value, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
		if err != nil || value < 0 || value > 1<<50 {
			continue
		}
		switch key {
		case "MemTotal":
			total = value << 10
		case "MemAvailable":
			available = value << 10
		}
	}
	return total, min(available, total)
}

// BestGPU returns the default GPU, or nil if the driver sees none.
func (m *Machine) BestGPU() *GPU {
	if m.Best < 0 {
		return nil
	}
	return &m.GPUs[m.Best]
}
