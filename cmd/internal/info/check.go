package info

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spark-compile/spark-compile/bench/machine"
	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/hal/placement"
	"github.com/spark-compile/spark-compile/internal/dlopen"
	"github.com/spark-compile/spark-compile/internal/ptx"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/internal/toolchain"
)

// Results of a check. Missing parts are optional.
const (
	passed  = "passed"
	missing = "missing"
	failed  = "failed"
)

// check is the result of one check.
type check struct {
	Name   string `json:"name"`
	Status string `json:"status"`
	Detail string `json:"detail"`
	Remedy string `json:"remedy,omitempty"`
}

func printChecks(w io.Writer, checks []check) error {
	if len(checks) == 0 {
		return nil
	}
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, c := range checks {
		text := strings.ReplaceAll(c.Detail, "\n", " ")
		if c.Remedy != "" {
			text += " → " + c.Remedy
		}
		fmt.Fprintf(t, "%s\t%s\t%s\n", c.Status, c.Name, text)
	}
	return t.Flush()
}

// check runs every check, even after one fails.
func (t *tool) check(ctx context.Context, s *status, d hal.Device) []check {
	out := []check{t.checkDriver(s), checkManagement(s), checkDevice(s), checkClocks(s)}
	if d != nil {
		out = append(out, checkLoad(ctx, d), checkKernel(ctx, d))
		out = append(out, checkShared(ctx, d)...)
		out = append(out, checkHome(ctx, d)...)
	}
	if d == nil || d.Info().Backend != "emu" {
		cpu, err := emu.Open(emu.Options{Check: true})
		if err != nil {
			return append(out, verdict("kernel on the CPU device", err, "", ""))
		}
		defer cpu.Close()
		out = append(out, checkKernel(ctx, cpu))
	}
	return append(out, checkPtxas(ctx, s), checkRuntime(ctx))
}

// checkDriver tells a driver that is not installed (missing) from one that does not work (failed).
func (t *tool) checkDriver(s *status) check {
	m := s.Machine
	if m.CUDA != "" && m.BestGPU() != nil {
		return check{"driver", passed, driver(m), ""}
	}
	why := "the driver sees no GPU"
	if len(m.Missing) > 0 {
		why = m.Missing[0]
	}
	if len(m.GPUs) == 0 && strings.HasPrefix(why, hal.ErrNoDriver.Error()) {
		remedy := "the CPU device works without it"
		if dlopen.Supported {
			remedy = "install the NVIDIA driver; " + remedy
		}
		return check{"driver", missing, why, remedy}
	}
	return check{"driver", failed, why, "check that the kernel module is loaded and the GPU visible (nvidia-smi, CUDA_VISIBLE_DEVICES, the container's --gpus)"}
}

func checkManagement(s *status) check {
	m := s.Machine
	if m.Management != "" {
		return check{"management", passed, m.Management + ": clocks, power, temperature", ""}
	}
	return check{"management", missing, m.Missing[len(m.Missing)-1], "install nvidia-utils to record clocks and power"}
}

func checkDevice(s *status) check {
	if s.Device.Error != "" {
		return check{"device", failed, s.Device.Error, ""}
	}
	return check{"device", passed, fmt.Sprintf("%s (%s)", s.Device.Name, s.Device.Backend), ""}
}

func checkClocks(s *status) check {
	g := s.Machine.BestGPU()
	if g == nil || !g.ClockMHz.OK {
		return check{"clocks", missing, "no figures", ""}
	}
	if slow := throttling(&g.GPU); len(slow) > 0 {
		return check{"clocks", failed, "throttled: " + strings.Join(slow, ", "), "check cooling and power supply"}
	}
	return check{"clocks", passed, fmt.Sprintf("%.0f MHz, not throttled", g.ClockMHz.Value), ""}
}

// verdict is passed with a detail, or failed with the error and its remedy.
func verdict(name string, err error, remedy, detail string) check {
	if err != nil {
		return check{name, failed, err.Error(), remedy}
	}
	return check{name, passed, detail, ""}
}

// where is the part of a check's name that names the device.
func where(d hal.Device) string {
	if d.Info().Backend == "emu" {
		return "on the CPU device"
	}
	return "on " + d.Info().Name
}

const probeThreads, probeBlocks = 128, 8

// probe is a kernel that computes 3·data[i] + i and reverses each block's words through shared memory.
func probe(arch string) string {
	m := ptx.NewModule(arch)
	k := m.NewKernel("probe", probeThreads)
	base, at := k.Reg(ptx.B64), k.Reg(ptx.B64)
	i, tid, mine, theirs, x := k.Reg(ptx.B32), k.Reg(ptx.B32), k.Reg(ptx.B32), k.Reg(ptx.B32), k.Reg(ptx.B32)
	k.I("ld.param.u64", base, ptx.At(k.AddParam("data", "u64"), 0))
	k.I("mov.u32", tid, ptx.Special("%tid.x"))
	k.I("mov.u32", i, ptx.Special("%ctaid.x"))
	k.I("mad.lo.s32", i, i, ptx.Imm(probeThreads), tid)
	k.I("mad.wide.u32", at, i, ptx.Imm(4), base)
	k.I("mov.u32", mine, ptx.Sym(ptx.SharedName))
	k.I("mad.lo.u32", mine, tid, ptx.Imm(4), mine)
	k.I("ld.global.u32", x, ptx.At(at, 0))
	k.I("mad.lo.u32", x, x, ptx.Imm(3), i)
	k.I("st.shared.u32", ptx.At(mine, 0), x)
	k.I("bar.sync", ptx.Imm(0))
	k.I("xor.b32", theirs, tid, ptx.Imm(probeThreads-1))
	k.I("mov.u32", mine, ptx.Sym(ptx.SharedName))
	k.I("mad.lo.u32", theirs, theirs, ptx.Imm(4), mine)
	k.I("ld.shared.u32", x, ptx.At(theirs, 0))
	k.I("st.global.u32", ptx.At(at, 0), x)
	k.I("ret")
	return m.String()
}

// architecture returns the newest target that a device supports, or the oldest target if it supports none, so that the driver
// reports the reason.
func architecture(d hal.Device) string {
	if t, err := target.For(d.Info().Target); err == nil {
		return t.Name
	}
	return target.Oldest().Name
}

func checkLoad(ctx context.Context, d hal.Device) check {
	name := "PTX load " + where(d)
	arch := architecture(d)
	m, err := d.Load(ctx, hal.Image{Name: "probe", Target: arch, PTX: probe(arch)})
	if err == nil {
		err = m.Close()
	}
	return verdict(name, err, "install a newer driver that supports "+arch, "for "+arch)
}

// checkKernel runs the probe twice as one graph and compares every word.
func checkKernel(ctx context.Context, d hal.Device) check {
	return verdict("kernel "+where(d), runProbe(ctx, d), "see dmesg; try compute-sanitizer or another driver version to tell hardware from software faults",
		fmt.Sprintf("%d words correct", probeThreads*probeBlocks))
}

// sharing is a device that may share its memory with the host.
type sharing interface {
	Copies() string
	Rereads(ctx context.Context, rounds int) error
}

// rereads is the number of times that a kernel must see what the host has rewritten, for each of several sizes.
const rereads = 10_000

func checkShared(ctx context.Context, d hal.Device) []check {
	s, ok := d.(sharing)
	if !ok || s.Copies() != "" {
		return nil
	}
	return []check{verdict("shared memory", s.Rereads(ctx, rereads), "report it, with the driver's version: inputs and outputs would be wrong now and then",
		fmt.Sprintf("kernels saw what the host rewrote, %d times in each of several sizes", rereads))}
}

// homes is a device that remembers where weights lie best.
type homes interface {
	Copies() string
	Home() (placement.Placement, bool)
	KeepHome(h placement.Placement) error
}

// checkHome measures where weights lie best, unless that is known.
func checkHome(ctx context.Context, d hal.Device) []check {
	k, ok := d.(homes)
	if !ok || k.Copies() != "" {
		return nil
	}
	h, known := k.Home()
	if !known {
		t, err := target.For(d.Info().Target)
		if err == nil {
			h, err = machine.WeightsHome(ctx, d, t)
		}
		if err == nil {
			err = k.KeepHome(h)
		}
		if err != nil {
			return []check{verdict("weights", err, "nothing depends on it: weights stay in the device's own memory", "")}
		}
	}
	return []check{verdict("weights", nil, "", h.String())}
}

func runProbe(ctx context.Context, d hal.Device) (err error) {
	arch := architecture(d)
	m, err := d.Load(ctx, hal.Image{Name: "probe", Target: arch, PTX: probe(arch)})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	const words = probeThreads * probeBlocks
	mem, err := d.Alloc(4*words, hal.HostVisible)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, mem.Free()) }()
	want := make([]uint32, words)
	for i := range want {
		want[i] = uint32(7 * i)
	}
	data, err := binary.Append(nil, binary.LittleEndian, want)
	if err = errors.Join(err, mem.Write(data, 0)); err != nil {
		return err
	}
	all := []hal.Range{{Memory: mem, Bytes: 4 * words}}
	launch := hal.Op{Module: m, Kernel: "probe", Grid: [3]int{probeBlocks, 1, 1}, Block: [3]int{probeThreads, 1, 1}, Shared: 4 * probeThreads,
		Params: []uint64{mem.Addr()}, Sizes: []int{8}, Reads: all, Writes: all}
	second := launch
	second.After = []int{0}
	g, err := d.Capture(ctx, []hal.Op{launch, second})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.Close()) }()
	if err := g.Run(ctx); err != nil {
		return err
	}
	if err := mem.Read(data, 0); err != nil {
		return err
	}
	for range 2 {
		next := make([]uint32, words)
		for i := range next {
			j := i ^ (probeThreads - 1)
			next[i] = 3*want[j] + uint32(j)
		}
		want = next
	}
	for i := range want {
		if got := binary.LittleEndian.Uint32(data[4*i:]); got != want[i] {
			return fmt.Errorf("word %d is %d, not %d", i, got, want[i])
		}
	}
	return nil
}

func checkPtxas(ctx context.Context, s *status) check {
	tool, err := toolchain.FindPtxas(ctx)
	if errors.Is(err, toolchain.ErrNoPtxas) {
		return check{"ptxas", missing, "packages contain only PTX, which the driver compiles on loading", "set PTXAS, add ptxas to the PATH, or pip install nvidia-cuda-nvcc"}
	}
	if err != nil {
		return check{"ptxas", failed, err.Error(), "set PTXAS to a ptxas that works"}
	}
	for _, name := range target.Names() {
		if _, err := tool.Assemble(ctx, probe(name), name); err != nil {
			return check{"ptxas", failed, err.Error(), "install ptxas of CUDA 12.9 or newer, which supports every target"}
		}
	}
	return check{"ptxas", passed, tool.Version + ", supports " + strings.Join(target.Names(), ", "), ""}
}

func checkRuntime(ctx context.Context) check {
	const name, remedy = "ONNX Runtime", "pip install onnxruntime for the python3 on the PATH, or set SPARK_PYTHON to one that has it"
	p, err := toolchain.FindPython()
	if errors.Is(err, toolchain.ErrNoPython) {
		return check{name, missing, "Python not found: spark-bench compares with nothing", remedy}
	}
	if err != nil {
		return check{name, failed, err.Error(), remedy}
	}
	version, err := toolchain.PythonPackageVersion(ctx, p, "onnxruntime")
	if err != nil {
		return check{name, missing, err.Error(), remedy}
	}
	return check{name, passed, version, ""}
}
