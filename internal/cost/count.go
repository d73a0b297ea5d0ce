package cost

import (
	"fmt"
	"slices"

	"github.com/spark-compile/spark-compile/internal/ptx"
)

// Count adds an instruction that warps issue this often in all blocks together. It serves schedules that count their emitted
// kernel as well as profiles of a run. Bytes and wavefronts do not follow from the instruction alone.
func (w *Work) Count(in *ptx.Instr, warps float64) {
	d := in.Def
	of := warps / float64(w.Blocks*w.Warps) // of a warp
	w.Issued += warps
	switch d.Kind {
	case ptx.KindFloat:
		if slices.Contains(d.Types, "f64") {
			w.F64 += warps
		} else {
			w.Float += warps
		}
	case ptx.KindInt, ptx.KindConvert:
		w.Integer += warps
	case ptx.KindSpecial:
		w.Special += warps
	case ptx.KindLoad, ptx.KindStore, ptx.KindMatrix, ptx.KindWarp, ptx.KindAtomic:
		w.Memory += warps
	}
	switch d.Does {
	case ptx.Multiply:
		macs, operands := Product(d)
		w.multiply(operands, float64(warps*float64(macs)))
	case ptx.Load:
		if d.Args[1].Space == "global" && d.Order == ptx.Plain { // one that acquires is an atomic's last step
			w.Loads += of
		}
	case ptx.Atomic:
		w.Atomics += of
	case ptx.CopyAsync:
		w.Memory += warps
	case ptx.WaitCopies:
		var early ptx.Imm
		if len(d.Args) > 0 {
			early, _ = in.Operands[0].(ptx.Imm)
		}
		if early > 0 { // copies that started before these stay under way
			w.Streamed += of / float64(early+1)
		} else {
			w.Trips += of
		}
	case ptx.Barrier, ptx.WarpBarrier:
		w.Barriers += of
	}
}

// multiply adds to the products of a type.
func (w *Work) multiply(operands string, macs float64) {
	i := slices.IndexFunc(w.Products, func(p Products) bool { return p.Type == operands })
	if i < 0 {
		i, w.Products = len(w.Products), append(w.Products, Products{Type: operands})
	}
	w.Products[i].MACs += macs
}

// Product is the size of a mma's shape, and the type of what it multiplies, which follows that of the result.
func Product(d *ptx.Def) (macs int64, operands string) {
	var m, n, k int64
	for i, mod := range d.Mods {
		if got, _ := fmt.Sscanf(mod, "m%dn%dk%d", &m, &n, &k); got == 3 {
			macs = m * n * k
		}
		if mod == "f32" && operands == "" {
			operands = d.Mods[i+1]
		}
	}
	return macs, operands
}

// Code counts the instructions of a kernel. Loops end with a branch back where a counter is less than a constant, and begin
// at 0; all other branches are taken to fall through. A load or store at statement i of the body asks for
// sectors[i] sectors of 32 bytes, and accesses to shared memory are taken to be free of conflicts. It returns the sectors that all
// warps ask for, and those that they write.
func (w *Work) Code(k *ptx.Kernel, sectors map[int]float64) (asked, written float64) {
	times := float64(w.Blocks * w.Warps)
	end := map[int]float64{} // statement → trips of the loop that ends there
	begin := map[int]float64{}
	at := map[string]int{}
	for i, s := range k.Body {
		if s.Label != "" {
			at[s.Label] = i
		}
		if s.Instr == nil || s.Instr.Def.Does != ptx.Branch {
			continue
		}
		label, _ := s.Instr.Operands[0].(ptx.Ref)
		from, ok := at[string(label)]
		if n, known := trips(k.Body[i-1].Instr); ok && known {
			begin[from], end[i] = n, n
		}
	}
	for i, s := range k.Body {
		if n, ok := begin[i]; ok {
			times = float64(times * n)
		}
		if s.Instr != nil {
			w.Count(s.Instr, times)
			if slices.ContainsFunc(s.Instr.Def.Args, func(a ptx.Arg) bool { return a.Space == "shared" }) {
				w.Wavefronts += times
			}
			if n := float64(times * sectors[i]); s.Instr.Def.Does == ptx.Store {
				written += n
			} else {
				w.Wavefronts += float64(n / 4)
				asked += n
			}
		}
		if n, ok := end[i]; ok {
			times /= n
		}
	}
	return asked, written
}

// trips is the bound that a comparison holds a loop's counter to.
func trips(compare *ptx.Instr) (float64, bool) {
	if compare == nil || compare.Def.Op != "setp.lt.s32" {
		return 0, false
	}
	n, ok := compare.Operands[2].(ptx.Imm)
	return float64(n), ok
}
