package foreign

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spark-compile/spark-compile/internal/ptx"
)

// instruction is one being rewritten: what it becomes has the same line and guard.
type instruction struct {
	w     *rewriter
	line  int
	guard string
	name  string   // mad
	mods  []string // lo, s32
	ops   []string // registers and shared variables renamed
}

// typ is the last of the modifiers.
func (in *instruction) typ() string { return in.mods[len(in.mods)-1] }

func (in *instruction) opcode() string {
	return strings.Join(append([]string{in.name}, in.mods...), ".")
}

func (in *instruction) has(mod string) bool { return slices.Contains(in.mods, mod) }

func (in *instruction) fail(format string, args ...any) { in.w.fail(in.line, format, args...) }

// temp is a fresh register of a class.
func (in *instruction) temp(c ptx.Class) string { return in.w.fresh(c).String() }

// emit writes an instruction of the table.
func (in *instruction) emit(op string, ops ...string) {
	d := ptx.Lookup(op)
	if d == nil {
		in.fail("the CPU device has no instruction %s (from %s)", op, in.opcode())
	}
	for i, o := range ops {
		if i >= len(d.Args) {
			break
		}
		switch v := elements(o); {
		case len(v) == 1 && d.Args[i].Count == 0:
			ops[i] = v[0]
		case v == nil && d.Args[i].Count == 1:
			ops[i] = "{" + o + "}"
		}
		if d.Args[i].Space == "shared" { // addresses of shared memory have 32 bits in the dialect
			if base, off := address(ops[i]); classOfReg(base) == ptx.B64 && strings.HasPrefix(base, "%rd") {
				t := in.temp(ptx.B32)
				in.emit("cvt.u32.u64", t, base)
				ops[i] = fmt.Sprintf("[%s+%d]", t, off)
			}
		}
	}
	in.w.write(in.line, in.guard+op+" "+strings.Join(ops, ", ")+";")
}

var guarded = regexp.MustCompile(`^@\s*(!?)\s*([\w$%]+)\s+`)

// statement rewrites an instruction or a label.
func (w *rewriter) statement(s statement) {
	text := strings.TrimSpace(s.text)
	if s.label {
		name := strings.TrimRight(text, ": \t\r\n")
		w.write(s.line, labelName(name, s.scope)+":")
		return
	}
	in := &instruction{w: w, line: s.line}
	if m := guarded.FindStringSubmatch(text); m != nil {
		text = text[len(m[0]):]
		in.guard = "@" + m[1] + w.operand(s, m[2]) + " "
	}
	op, rest := text, ""
	if i := strings.IndexAny(text, " \t\r\n{["); i > 0 {
		op, rest = text[:i], text[i:]
	}
	parts := strings.Split(op, ".")
	in.name, in.mods = parts[0], parts[1:]
	for _, o := range split(rest) {
		in.ops = append(in.ops, w.operand(s, o))
	}
	in.rewrite()
}

// labelName qualifies labels by scope.
func labelName(name string, s *scope) string {
	if s.up == nil {
		return name
	}
	return fmt.Sprintf("%s_in_%d", name, s.id)
}

var token = regexp.MustCompile(`[%A-Za-z_$][\w$]*(?:\.[xyz])?|0[fFdDxXbB][0-9A-Fa-f]+U?|\d+U?`)

// operand renames what an operand names.
func (w *rewriter) operand(s statement, o string) string {
	o = strings.Join(strings.Fields(o), " ")
	return token.ReplaceAllStringFunc(o, func(t string) string {
		if t[0] >= '0' && t[0] <= '9' {
			if len(t) > 1 && strings.ContainsAny(t[1:2], "FD") {
				return "0" + strings.ToLower(t[1:2]) + t[2:]
			}
			if !strings.HasPrefix(t, "0f") && !strings.HasPrefix(t, "0d") {
				t = strings.TrimSuffix(t, "U")
			}
			return t
		}
		beyond := ""
		for at := s.scope; at != nil; at = at.up {
			if r, ok := at.regs[t]; ok {
				return r.String()
			}
			if at.labels[t] {
				return labelName(t, at)
			}
			stem := strings.TrimRight(t, "0123456789")
			if f, ok := at.family[stem]; ok && stem != t {
				if n, err := strconv.Atoi(t[len(stem):]); err == nil && n < f.n {
					return w.declare(at, t, f.class)
				}
				beyond = fmt.Sprintf(": it is beyond %s<%d>", stem, f.n)
			}
		}
		if isRegister(t) || beyond != "" { // %r0 would be one of those that stand for others
			w.fail(s.line, "register %s is not declared%s", t, beyond)
		}
		return t
	})
}

// split splits operands at the commas outside of brackets.
func split(s string) []string {
	var out []string
	depth, start := 0, 0
	for i := range s {
		switch s[i] {
		case '{', '[', '(':
			depth++
		case '}', ']', ')':
			depth--
		case ',':
			if depth == 0 {
				out = append(out, strings.TrimSpace(s[start:i]))
				start = i + 1
			}
		}
	}
	if last := strings.TrimSpace(s[start:]); last != "" || len(out) > 0 {
		out = append(out, last)
	}
	return out
}

// elements are those of a vector operand; nil for any other.
func elements(o string) []string {
	if !strings.HasPrefix(o, "{") {
		return nil
	}
	return split(strings.Trim(o, "{} "))
}

// classOfReg is the class of a renamed register; NumClasses for what is none.
func classOfReg(o string) ptx.Class {
	best := ptx.NumClasses
	for c := range ptx.NumClasses {
		if n, ok := strings.CutPrefix(o, c.Prefix()); ok {
			if _, err := strconv.Atoi(n); err == nil {
				best = c
			}
		}
	}
	return best
}

func isRegister(o string) bool { return classOfReg(o) != ptx.NumClasses }

// address parses [base+offset].
func address(o string) (base string, off int) {
	base = strings.Trim(o, "[] ")
	if i := strings.IndexByte(base, '+'); i > 0 {
		off, _ = strconv.Atoi(strings.ReplaceAll(base[i+1:], " ", ""))
		base = strings.TrimSpace(base[:i])
	} else if i := strings.LastIndexByte(base, '-'); i > 0 {
		off, _ = strconv.Atoi(strings.ReplaceAll(base[i:], " ", ""))
		base = strings.TrimSpace(base[:i])
	}
	return base, off
}
