package kerneltest

import (
	"strings"

	"github.com/spark-compile/spark-compile/codegen/kernel"
	"github.com/spark-compile/spark-compile/internal/ptx"
	"github.com/spark-compile/spark-compile/internal/target"
)

// MainLoop counts the instructions of a contraction kernel's loop over K, per thread and pass: how well it keeps the
// machine busy.
type MainLoop struct {
	MMA         int // mma.sync
	FMA         int // fma.rn.f32
	SharedLoads int // ld.shared and ldmatrix
	GlobalBytes int // that a thread asks of global memory, by cp.async and ld.global
	WideBytes   int // of them in accesses of 16 bytes
	Stages      int // chunks of K in shared memory: one computed on, the others on their way
	Blocks      int // of the launch
}

// PerSharedLoad is the number of mma (or, without any, fma) a shared-memory load instruction.
func (l MainLoop) PerSharedLoad() float64 {
	if l.SharedLoads == 0 {
		return 0
	}
	return float64(max(l.MMA, l.FMA)) / float64(l.SharedLoads)
}

// AllPerSharedLoad counts mma and fma together, as in the loop of a contraction fused with a window.
func (l MainLoop) AllPerSharedLoad() float64 {
	if l.SharedLoads == 0 {
		return 0
	}
	return float64(l.MMA+l.FMA) / float64(l.SharedLoads)
}

// Wide is the share of global bytes that move in 16-byte accesses; 1 for a loop that moves none.
func (l MainLoop) Wide() float64 {
	if l.GlobalBytes == 0 {
		return 1
	}
	return float64(l.WideBytes) / float64(l.GlobalBytes)
}

// mainLoop begins the label of that loop.
const mainLoop = "$mainloop"

// Inspect reads the main loop of a contraction from its PTX.
func Inspect(spec *kernel.Spec) MainLoop {
	return InspectKernel(spec.EmitInto(ptx.NewModule(target.Default().Name), "k"), spec.Grid)
}

// InspectKernel reads the main loop of such a kernel as printed; of one without the loop all counts are 0.
func InspectKernel(k *ptx.Kernel, grid [3]int) MainLoop {
	l := MainLoop{Blocks: grid[0] * grid[1] * grid[2]}
	label := ""
	for _, s := range k.Body {
		if strings.HasPrefix(s.Label, mainLoop) {
			label = s.Label
			continue
		}
		if label == "" || s.Instr == nil {
			continue
		}
		l.count(s.Instr)
		if target, ok := branch(s.Instr); ok && target == label {
			break
		}
	}
	return l
}

func branch(in *ptx.Instr) (string, bool) {
	if in.Def.Name != "bra" {
		return "", false
	}
	r, ok := in.Operands[0].(ptx.Ref)
	return string(r), ok
}

func (l *MainLoop) count(in *ptx.Instr) {
	op := in.Def.Op
	global := func(bytes int) {
		l.GlobalBytes += bytes
		if bytes == 16 {
			l.WideBytes += bytes
		}
	}
	switch {
	case strings.HasPrefix(op, "mma.sync"):
		l.MMA++
	case op == "fma.rn.f32":
		l.FMA++
	case strings.HasPrefix(op, "ld.shared"), strings.HasPrefix(op, "ldmatrix"):
		l.SharedLoads++
	case in.Def.Does == ptx.CopyAsync:
		global(int(in.Operands[2].(ptx.Imm)))
	case op == "cp.async.wait_group":
		l.Stages = int(in.Operands[0].(ptx.Imm)) + 2
	case strings.HasPrefix(op, "ld.global"):
		a := in.Def.Args[0]
		global(max(a.Count, 1) * bytesOf(a.Type))
	}
}

func bytesOf(t string) int {
	switch t[1:] {
	case "8":
		return 1
	case "16":
		return 2
	case "64":
		return 8
	}
	return 4
}
