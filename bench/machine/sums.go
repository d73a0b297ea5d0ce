package machine

import (
	"fmt"

	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/internal/ptx"
	"github.com/spark-compile/spark-compile/internal/ptx/mmaprobe"
	"github.com/spark-compile/spark-compile/internal/target"
)

// rounding is how the mma of each type that kernels multiply rounds its sums. Where it keeps fewer bits than f32 has, the file says so, and kernels made
// for it add partial sums in f32.
func rounding(r *rig) error {
	return r.scoped(func() error {
		on, err := target.Lookup(r.on.Name)
		if err != nil {
			return err
		}
		code, err := r.device.Load(r.ctx, hal.Image{Name: "sums", Target: on.Name, PTX: sumKernels(on).String()})
		if err != nil {
			return err
		}
		r.held = append(r.held, code.Close)
		r.file.Sums = map[string]mmaprobe.Accumulator{}
		for _, p := range products {
			if !on.Multiplies(p.dtype) {
				continue
			}
			probe, out := mmaprobe.For(ptx.Lookup(p.op)), [2][]byte{}
			for i, k := range []mmaprobe.Kernel{probe.Kept, probe.Added} {
				if out[i], err = r.outputOf(code, sumNames(p)[i], k); err != nil {
					return err
				}
			}
			r.foundSums(p.dtype, probe.Read(out[0], out[1]))
		}
		return nil
	})
}

// foundSums keeps how an mma adds, or says why that is not known.
func (r *rig) foundSums(dtype string, a mmaprobe.Accumulator) {
	if a.Kept < 1 {
		r.file.Left["sum_bits of "+dtype] = "half of a sum was not added to it: the mma computes something else"
		return
	}
	r.file.Sums[dtype] = a
	if a.Kept >= mmaprobe.Bits {
		return
	}
	if r.file.SumBits == nil {
		r.file.SumBits = map[string]int{}
	}
	r.file.SumBits[dtype] = a.Kept
}

// outputOf is what a kernel of the probe writes.
func (r *rig) outputOf(code hal.Module, name string, k mmaprobe.Kernel) (out []byte, err error) {
	out = make([]byte, k.Output)
	err = r.scoped(func() error {
		m, err := r.alloc(k.Output, hal.DeviceMemory)
		if err != nil {
			return err
		}
		more := []any{m}
		for _, in := range k.Inputs {
			from, err := r.alloc(len(in), hal.DeviceMemory)
			if err != nil {
				return err
			}
			if err := from.Write(in, 0); err != nil {
				return err
			}
			more = append(more, from)
		}
		op := r.op(name, k.Blocks, 32, 1, more...)
		op.Module = code
		g, err := r.graph(op)
		if err != nil {
			return err
		}
		if err := g.Run(r.ctx); err != nil {
			return err
		}
		return m.Read(out, 0)
	})
	return out, err
}

func sumNames(p product) []string { return []string{"kept_" + p.dtype, "added_" + p.dtype} }

// sumKernels are those of the probes, of each product that a target has.
func sumKernels(t *target.Target) *ptx.Module {
	m := ptx.NewModule(t.Name)
	for _, p := range products {
		if !t.Multiplies(p.dtype) {
			continue
		}
		probe := mmaprobe.For(ptx.Lookup(p.op))
		for i, k := range []mmaprobe.Kernel{probe.Kept, probe.Added} {
			b := newKernel(m, sumNames(p)[i], 32)
			out, in := b.address("to"), make([]ptx.Reg, len(k.Inputs))
			for j := range in {
				in[j] = b.address(fmt.Sprintf("in%d", j))
			}
			lane := b.Reg(ptx.B32)
			b.I("mad.lo.s32", lane, b.block, ptx.Imm(32), b.tid)
			k.Emit(b.Kernel, in, out, lane)
			b.I("ret")
		}
	}
	return m
}
