package foreign

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/spark-compile/spark-compile/internal/ptx"
)

// hints change no result: where data are kept, and where a pointer points to.
var hints = regexp.MustCompile(`^(L1::\w+|L2::\w+|ftz|evict_\w+|wb|wt|cs|lu)$`)

// order of the modifiers of instructions that other compilers write in other orders.
var (
	kindFirst  = regexp.MustCompile(`^mma\.sync\.aligned\.(kind::\w+(?:\.block_scale\.scale_vec::\w+)?)\.(m\d+n\d+k\d+)\.row\.col\.(.*)$`)
	countFirst = regexp.MustCompile(`^(ldmatrix|stmatrix)\.sync\.aligned\.(x\d)\.(trans\.)?(m8n8)\.(.*)$`)
)

// rewrite writes the instruction as the dialect has it.
func (in *instruction) rewrite() {
	in.spelling()
	if least := operands[in.name]; len(in.ops) < least || least > 0 && (len(in.mods) == 0 || in.typ() == "") {
		in.fail("%s has no type or fewer than %d operands", in.opcode(), least)
	}
	if s := sequence(in.name); s != nil && s(in) {
		return
	}
	in.plain()
}

// operands are the minimum operand counts of the instructions that sequence parses.
var operands = map[string]int{"mov": 2, "ld": 2, "st": 2, "shfl": 4, "atom": 3, "red": 2, "cvt": 2, "bfi": 5, "max": 3, "min": 3, "setp": 3, "rsqrt": 2, "fma": 4, "selp": 4,
	"add": 3, "sub": 3, "mul": 3, "mad": 4, "and": 3, "or": 3, "xor": 3, "not": 2, "neg": 2, "shl": 3, "shr": 3, "abs": 2}

// spelling drops hints, and gives modifiers the table's names and order.
func (in *instruction) spelling() {
	var mods []string
	policy := false
	for _, m := range in.mods {
		policy = policy || m == "L2::cache_hint"
		switch {
		case hints.MatchString(m), (in.name == "ld" || in.name == "st") && (m == "ca" || m == "cg"):
		case m == "shared::cta":
			mods = append(mods, "shared")
		case m == "volatile", m == "mmio":
			in.fail("%s accesses are not supported", m)
		case strings.HasPrefix(m, "shared::cluster"):
			in.fail("shared memory of clusters is not supported")
		default:
			mods = append(mods, m)
		}
	}
	in.mods = mods
	if policy && len(in.ops) > 0 {
		in.ops = in.ops[:len(in.ops)-1]
	}
	op := in.opcode()
	if m := kindFirst.FindStringSubmatch(op); m != nil {
		op = "mma.sync.aligned." + m[2] + ".row.col." + m[1] + "." + m[3]
	}
	if m := countFirst.FindStringSubmatch(op); m != nil {
		op = m[1] + ".sync.aligned." + m[4] + "." + m[2] + "." + m[3] + m[5]
	}
	if other := synonyms[op]; other != "" {
		op = other
	}
	parts := strings.Split(op, ".")
	in.name, in.mods = parts[0], parts[1:]
	for i, o := range in.ops {
		if !strings.HasPrefix(o, "[") {
			continue
		}
		base, off := address(o)
		if at, ok := in.w.k.shared[base]; ok {
			base, off = ptx.SharedName, off+at
		}
		in.ops[i] = fmt.Sprintf("[%s+%d]", base, off)
	}
}

// synonyms have the same meaning, or where they are approximate the exact one.
var synonyms = map[string]string{
	"add.f32": "add.rn.f32", "sub.f32": "sub.rn.f32", "mul.f32": "mul.rn.f32", "add.f64": "add.rn.f64", "sub.f64": "sub.rn.f64", "mul.f64": "mul.rn.f64",
	"add.f32x2": "add.rn.f32x2", "sub.f32x2": "sub.rn.f32x2", "mul.f32x2": "mul.rn.f32x2", "sub.f16x2": "sub.rn.f16x2", "mul.f16x2": "mul.rn.f16x2", "mul.bf16x2": "mul.rn.bf16x2", "mul.bf16": "mul.rn.bf16",
	"mad.rn.f32": "fma.rn.f32", "mad.rn.f64": "fma.rn.f64", "div.full.f32": "div.rn.f32", "div.approx.f32": "div.rn.f32", "sqrt.approx.f32": "sqrt.rn.f32", "rcp.approx.f32": "rcp.rn.f32",
	"ex2.approx.ftz.f32": "ex2.approx.f32", "barrier.sync": "bar.sync", "barrier.sync.aligned": "bar.sync", "bar.sync.aligned": "bar.sync",
	"membar.gl": "fence.acq_rel.gpu", "membar.sys": "fence.acq_rel.gpu", "fence.acq_rel.sys": "fence.acq_rel.gpu", "fence.sc.gpu": "fence.acq_rel.gpu", "fence.sc.sys": "fence.acq_rel.gpu",
	"cvta.shared.u64": "mov.b64", "cvta.to.shared.u64": "mov.b64", "cvta.global.u64": "mov.b64", "bra.uni": "bra.uni", "ret.uni": "ret",
}

// ignored instructions order nothing that the CPU device would reorder, or only within a block, where barriers do.
var ignored = map[string]bool{"fence.proxy.async": true, "fence.proxy.async.shared": true, "fence.acq_rel.cta": true, "fence.sc.cta": true, "membar.cta": true, "fence.mbarrier_init.release.cluster": true}

// sizes lists types that are the same to an instruction that only moves them, or whose result has the same bits.
var sizes = [][]string{{"u8", "b8", "s8"}, {"b16", "u16", "s16", "f16", "bf16"}, {"b32", "u32", "s32", "f32", "f16x2", "bf16x2"}, {"b64", "u64", "s64", "f64"}}

// alike are the instructions to which the types of a size are the same, but for what is said of loads below.
var alike = map[string]bool{"ld": true, "st": true, "mov": true, "selp": true, "and": true, "or": true, "xor": true, "not": true, "shl": true}

// signless are those to which only the sign of an integer does not matter.
func (in *instruction) signless() bool {
	switch in.name {
	case "add", "sub":
		return true
	case "mul", "mad":
		return in.mods[0] == "lo"
	case "setp":
		return in.mods[0] == "eq" || in.mods[0] == "ne"
	case "shr", "prmt":
		return strings.HasPrefix(in.typ(), "b")
	}
	return false
}

// plain is an instruction that becomes one of the table.
func (in *instruction) plain() {
	op := in.opcode()
	if ignored[op] {
		return
	}
	if ptx.Lookup(op) != nil || len(in.mods) == 0 {
		in.emit(op, in.ops...)
		return
	}
	stem := in.name + "." + strings.Join(in.mods[:len(in.mods)-1], ".")
	stem = strings.TrimSuffix(stem, ".") + "."
	for _, types := range sizes {
		for _, t := range types {
			same := in.typ() == t
			if !same {
				continue
			}
			for _, u := range types {
				floating := strings.Contains(t, "f") || strings.Contains(u, "f")
				if (alike[in.name] || in.signless() && !floating) && ptx.Lookup(stem+u) != nil {
					in.emit(stem+u, in.ops...)
					return
				}
			}
		}
	}
	if swapped := map[string]string{"gt": "lt", "ge": "le", "lt": "gt", "le": "ge"}[in.mods[0]]; in.name == "setp" && swapped != "" && len(in.ops) == 3 {
		if other := "setp." + swapped + "." + in.typ(); ptx.Lookup(other) != nil {
			in.emit(other, in.ops[0], in.ops[2], in.ops[1])
			return
		}
	}
	in.fail("the CPU device has no instruction %s", op)
}
