package mutants

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spark-compile/spark-compile/internal/ptx"
)

// part is a stretch of a kernel around its main loop.
type part int

const (
	anywhere part = iota
	before        // the main loop
	inside
	after
)

// find is the position of the n-th instruction (from 0; from the end if n < 0) in a part whose text, guard included,
// contains all the words.
func find(k *ptx.Kernel, p part, n int, words ...string) (int, error) {
	where, label := before, ""
	var at []int
	for i, s := range k.Body {
		if strings.HasPrefix(s.Label, "$mainloop") && where == before {
			where, label = inside, s.Label
		}
		if s.Instr == nil {
			continue
		}
		text := s.Instr.String()
		if (p == anywhere || p == where) && !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(text, w) }) {
			at = append(at, i)
		}
		if where == inside && s.Instr.Def.Name == "bra" && strings.Contains(text, label+";") {
			where = after
		}
	}
	if n < 0 {
		n += len(at)
	}
	if n < 0 || n >= len(at) {
		return 0, fmt.Errorf("%d instructions with %q, want number %d", len(at), words, n)
	}
	return at[n], nil
}

// change applies f to an instruction.
func change(p part, n int, f func(in *ptx.Instr) error, words ...string) func(*ptx.Kernel) error {
	return func(k *ptx.Kernel) error {
		i, err := find(k, p, n, words...)
		if err != nil {
			return err
		}
		in := *k.Body[i].Instr
		in.Operands = append([]ptx.Operand{}, in.Operands...)
		k.Body[i].Instr = &in
		return f(&in)
	}
}

// drop removes an instruction.
func drop(p part, n int, words ...string) func(*ptx.Kernel) error {
	return func(k *ptx.Kernel) error {
		i, err := find(k, p, n, words...)
		if err != nil {
			return err
		}
		k.Body = slices.Delete(k.Body, i, i+1)
		return nil
	}
}

// all applies several changes.
func all(fs ...func(*ptx.Kernel) error) func(*ptx.Kernel) error {
	return func(k *ptx.Kernel) error {
		for _, f := range fs {
			if err := f(k); err != nil {
				return err
			}
		}
		return nil
	}
}

// move moves an instruction to after another one.
func move(p part, n int, words []string, q part, m int, following ...string) func(*ptx.Kernel) error {
	return func(k *ptx.Kernel) error {
		i, err := find(k, p, n, words...)
		if err != nil {
			return err
		}
		s := k.Body[i]
		k.Body = slices.Delete(k.Body, i, i+1)
		j, err := find(k, q, m, following...)
		if err != nil {
			return err
		}
		k.Body = slices.Insert(k.Body, j+1, s)
		return nil
	}
}

// operand replaces operand i by what f makes of it.
func operand[T ptx.Operand](i int, f func(T) T) func(*ptx.Instr) error {
	return func(in *ptx.Instr) error {
		o, ok := in.Operands[i].(T)
		if !ok {
			return fmt.Errorf("operand %d of %s is a %T", i, in, in.Operands[i])
		}
		in.Operands[i] = f(o)
		return nil
	}
}

// imm sets operand i, an integer, to n.
func imm(i int, n int) func(*ptx.Instr) error {
	return func(in *ptx.Instr) error { in.Operands[i] = ptx.Imm(n); return nil }
}

// plus adds n to operand i, an integer.
func plus(i, n int) func(*ptx.Instr) error {
	return operand(i, func(v ptx.Imm) ptx.Imm { return v + ptx.Imm(n) })
}

// shift adds n bytes to the address that is operand i.
func shift(i, n int) func(*ptx.Instr) error {
	return operand(i, func(a ptx.Addr) ptx.Addr { a.Off += n; return a })
}

// swap exchanges two elements of the vector that is operand i.
func swap(i, a, b int) func(*ptx.Instr) error {
	return operand(i, func(v ptx.Vec) ptx.Vec {
		w := slices.Clone(v)
		w[a], w[b] = w[b], w[a]
		return w
	})
}

// exchange exchanges operands i and j.
func exchange(i, j int) func(*ptx.Instr) error {
	return func(in *ptx.Instr) error {
		in.Operands[i], in.Operands[j] = in.Operands[j], in.Operands[i]
		return nil
	}
}

// taken gives the n-th of some instructions an operand of the m-th.
func taken(p part, n, m, operand int, words ...string) func(*ptx.Kernel) error {
	return func(k *ptx.Kernel) error {
		from, err := find(k, p, m, words...)
		if err != nil {
			return err
		}
		return change(p, n, func(in *ptx.Instr) error {
			in.Operands[operand] = k.Body[from].Instr.Operands[operand]
			return nil
		}, words...)(k)
	}
}

// opcode exchanges the instruction for another with the same operands.
func opcode(op string) func(*ptx.Instr) error {
	return func(in *ptx.Instr) error {
		if in.Def = ptx.Lookup(op); in.Def == nil {
			return fmt.Errorf("no instruction %s", op)
		}
		return in.Def.Check(in.Operands)
	}
}

// unguarded lets an instruction execute in all lanes.
func unguarded(in *ptx.Instr) error {
	if !in.Guarded {
		return fmt.Errorf("%s has no guard", in)
	}
	in.Guarded = false
	return nil
}

// inverted executes an instruction where it did not.
func inverted(in *ptx.Instr) error {
	if !in.Guarded {
		return fmt.Errorf("%s has no guard", in)
	}
	in.Negate = !in.Negate
	return nil
}

// below guards an instruction, so that only threads whose %tid.x is below n execute it.
func below(n int, p part, m int, words ...string) func(*ptx.Kernel) error {
	return func(k *ptx.Kernel) error {
		i, err := find(k, p, m, words...)
		if err != nil {
			return err
		}
		tid, pr := k.Reg(ptx.B32), k.Reg(ptx.Pred)
		in := *k.Body[i].Instr
		in.Guarded, in.Guard, in.Negate = true, pr, false
		k.Body[i].Instr = &in
		k.Body = slices.Insert(k.Body, i,
			ptx.Stmt{Instr: &ptx.Instr{Def: ptx.Lookup("mov.u32"), Operands: []ptx.Operand{tid, ptx.Special("%tid.x")}}},
			ptx.Stmt{Instr: &ptx.Instr{Def: ptx.Lookup("setp.lt.u32"), Operands: []ptx.Operand{pr, tid, ptx.Imm(n)}}})
		return nil
	}
}

// plainAdd makes an atomic addition a load, an addition and a store.
func plainAdd(k *ptx.Kernel) error {
	i, err := find(k, anywhere, 0, "atom.")
	if err != nil {
		return err
	}
	at := k.Body[i].Instr
	sum := k.Reg(ptx.B32)
	part := func(op string, ops ...ptx.Operand) ptx.Stmt {
		return ptx.Stmt{Instr: &ptx.Instr{Guarded: at.Guarded, Guard: at.Guard, Negate: at.Negate, Def: ptx.Lookup(op), Operands: ops}}
	}
	k.Body = slices.Replace(k.Body, i, i+1, part("ld.global.u32", at.Operands[0], at.Operands[1]),
		part("add.u32", sum, at.Operands[0], at.Operands[2]), part("st.global.u32", at.Operands[1], sum))
	return nil
}
