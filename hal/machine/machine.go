// Package machine says what machine a program runs on: whether it is a DGX Spark or another GB10 machine, which GPUs it
// has, what they can do, and how they are.
//
//	identity.go   firmware and GPU names
//	machine.go    the survey: driver, management layer, /proc/meminfo
//	precision.go  what is recommended for a compute capability
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

// Machine is everything that the survey found.
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
	Best            int      `json:"best_gpu"`          // index of the GPU that is used where none is asked for, or -1
	Missing         []string `json:"missing,omitempty"` // what could not be asked, and why
}

// GPU joins what driver and management layer say of one GPU.
type GPU struct {
	nvml.GPU
	Ordinal      int      `json:"ordinal"`       // the driver's number, or -1 where only the management layer sees it
	SMs          int      `json:"sms,omitempty"` // 0 unknown
	L2Bytes      int      `json:"l2_bytes,omitempty"`
	SharedBlock  int      `json:"shared_block,omitempty"`
	Target       string   `json:"target,omitempty"`
	Unified      bool     `json:"unified"`
	MemorySource string   `json:"memory_source,omitempty"` // who knows the memory figures
	Precisions   []string `json:"precisions"`              // that its tensor cores have
	Recommended  string   `json:"recommended_precision"`
}

// Prober is where the survey looks. The zero value looks at this machine.
type Prober struct {
	Root       fs.FS                        // nil for /
	Driver     func() (*cuda.System, error) // nil for libcuda.so.1
	Management func() (nvml.Source, error)  // nil for NVML, else nvidia-smi
}

// current is the survey of this process's machine: GPUs do not come and go while it runs.
var current = sync.OnceValue(func() *Machine { return Prober{}.Survey(context.Background()) })

// Current is the survey of this machine, made once a process. Callers must not change it; for figures that move, such as
// clocks, make a new survey or ask hal/nvml.
func Current() *Machine { return current() }

// Survey looks at everything. What cannot be asked is named in Missing and is no error.
func (p Prober) Survey(ctx context.Context) *Machine {
	if p.Root == nil {
		p.Root = os.DirFS("/")
	}
	if p.Driver == nil {
		p.Driver = func() (*cuda.System, error) { return cuda.List(cuda.Options{}) }
	}
	if p.Management == nil {
		p.Management = func() (nvml.Source, error) { return nvml.Open(nvml.Options{}) }
	}
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
	if err != nil {
		m.Missing = append(m.Missing, err.Error())
		return nvml.Snapshot{}
	}
	defer source.Close()
	snapshot, err := source.Read(ctx)
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

// join pairs GPUs by their PCI address, since driver and management layer number them differently.
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
		if g.MemoryTotal.OK {
			g.MemorySource = "NVML"
		} else if !g.Unified {
			g.MemoryTotal, g.MemorySource = nvml.Known(float64(d.Memory)), "driver"
		}
		out = append(out, g)
	}
	for i, n := range managed {
		if !used[i] {
			g := GPU{GPU: n, Ordinal: -1}
			if n.MemoryTotal.OK {
				g.MemorySource = "NVML"
			}
			out = append(out, g)
		}
	}
	return out
}

// memory takes the figures of /proc/meminfo where host and GPU have one memory and the management layer knows none.
func (m *Machine) memory(g *GPU) {
	if g.MemoryTotal.OK || !g.Unified || m.MemoryTotal == 0 {
		return
	}
	g.MemoryTotal = nvml.Known(float64(m.MemoryTotal))
	g.MemoryUsed = nvml.Known(float64(m.MemoryTotal - m.MemoryAvailable))
	g.MemorySource = "/" + meminfoFile
}

const meminfoFile = "proc/meminfo"

// meminfo reads the machine's memory in bytes.
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

// BestGPU is the GPU that is used where none is asked for, or nil where the driver sees none.
func (m *Machine) BestGPU() *GPU {
	if m.Best < 0 {
		return nil
	}
	return &m.GPUs[m.Best]
}
