package emu

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/internal/ptx"
)

// sample appends one instance of an instruction with registers wherever they may stand.
func sample(k *ptx.Kernel, d *ptx.Def) {
	var args []ptx.Operand
	for _, a := range d.Args {
		switch a.Kind {
		case ptx.ArgAddr:
			switch a.Space {
			case "global":
				args = append(args, ptx.At(k.Reg(ptx.B64), 0))
			case "shared":
				args = append(args, ptx.At(k.Reg(ptx.B32), 0))
			default:
				args = append(args, ptx.At(k.AddParam("a", d.Types[0]), 0))
			}
		case ptx.ArgImm:
			args = append(args, ptx.Imm(map[bool]int{false: 1, true: 16}[d.Does == ptx.CopyAsync]))
		case ptx.ArgLabel:
			l := k.NewLabel("l")
			k.Place(l)
			args = append(args, l)
		case ptx.ArgPair:
			args = append(args, ptx.Pair{D: k.Reg(ptx.ClassOf(a.Type)), P: k.Reg(ptx.Pred)})
		default:
			if a.Count > 0 {
				args = append(args, ptx.V(k.RegVec(ptx.ClassOf(a.Type), a.Count)...))
			} else {
				args = append(args, k.Reg(ptx.ClassOf(a.Type)))
			}
		}
	}
	k.I(d.Op, args...)
}

func TestEveryInstructionOfTheTableHasAMeaning(t *testing.T) {
	for _, op := range ptx.Opcodes() {
		m := ptx.NewModule("sm_121a")
		k := m.NewKernel("k", 32)
		sample(k, ptx.Lookup(op))
		p, err := decode(k)
		require.NoError(t, err, op)
		require.Equal(t, ptx.Lookup(op), p.code[0].def)
	}
}
