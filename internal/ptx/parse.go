package ptx

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/spark-compile/spark-compile/internal/target"
)

// ParseError says where and why a text is not PTX of this package's dialect.
type ParseError struct {
	Line   int    // 1-based
	Text   string // the line
	Reason string
}

func (e *ParseError) Error() string {
	return fmt.Sprintf("ptx: line %d: %s: %s", e.Line, Shortened(strings.TrimSpace(e.Text)), Shortened(e.Reason))
}

// Shortened is a text as messages quote it: its first 200 bytes, where it is longer, without the rest of a character.
func Shortened(text string) string {
	const most = 200
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + " …"
}

// Parse is the inverse of Module.String. It takes the directives that String prints and the instructions of the table;
// anything else is a *ParseError, as is an instruction that the module's target or version lacks.
func Parse(text string) (*Module, error) {
	p := &parser{lines: strings.Split(text, "\n")}
	m, err := p.run(text)
	if err != nil {
		return nil, err
	}
	return m, nil
}

type parser struct {
	toks    []token
	pos     int
	lines   []string
	m       *Module
	version Version
	k       *Kernel
	names   map[string]bool // parameters of the kernel
	refs    map[string]int  // label → line of its first use
}

// bail carries a ParseError out of the recursive descent.
type bail struct{ err *ParseError }

func (p *parser) fail(line int, format string, args ...any) {
	e := &ParseError{Line: line, Reason: fmt.Sprintf(format, args...)}
	if line >= 1 && line <= len(p.lines) {
		e.Text = p.lines[line-1]
	}
	panic(bail{e})
}

func (p *parser) run(text string) (m *Module, err error) {
	defer func() {
		if r := recover(); r != nil {
			b, ok := r.(bail)
			if !ok {
				panic(r)
			}
			err = b.err
		}
	}()
	var bad string
	if p.toks, bad = scan(text); bad != "" {
		p.fail(p.toks[len(p.toks)-1].line, "%s", bad)
	}
	p.m = &Module{}
	p.module()
	return p.m, nil
}

func (p *parser) peek() token { return p.toks[p.pos] }

func (p *parser) next() token {
	t := p.toks[p.pos]
	if t.kind != tokEOF {
		p.pos++
	}
	return t
}

// skipComments drops comments inside of directives and instructions.
func (p *parser) skipComments() {
	for p.peek().kind == tokComment {
		p.pos++
	}
}

func (p *parser) expect(text string) token {
	p.skipComments()
	t := p.next()
	if t.text != text || t.kind == tokComment || t.kind == tokString {
		p.fail(t.line, "found %s, want %q", t, text)
	}
	return t
}

func (p *parser) word(what string) token {
	p.skipComments()
	t := p.next()
	if t.kind != tokWord {
		p.fail(t.line, "found %s, want %s", t, what)
	}
	return t
}

func (p *parser) accept(text string) bool {
	p.skipComments()
	if t := p.peek(); t.text == text && t.kind != tokComment && t.kind != tokString {
		p.pos++
		return true
	}
	return false
}

func (p *parser) int(what string) int {
	p.skipComments()
	t := p.next()
	v, err := strconv.ParseInt(t.text, 0, 32)
	if t.kind != tokNumber || err != nil {
		p.fail(t.line, "found %s, want %s", t, what)
	}
	return int(v)
}

func (p *parser) module() {
	for {
		var doc []string
		for p.peek().kind == tokComment {
			doc = append(doc, p.next().text)
		}
		t := p.next()
		switch {
		case t.kind == tokEOF:
			if p.m.Target == "" {
				p.fail(t.line, "no .target: the text ends without the directive")
			}
			return
		case t.text == ".version":
			n := p.next()
			if _, err := fmt.Sscanf(n.text, "%d.%d", &p.version.Major, &p.version.Minor); err != nil {
				p.fail(n.line, "found %s, want a version", n)
			}
		case t.text == ".target":
			n := p.word("a target")
			if _, _, err := target.Parse(n.text); err != nil {
				p.fail(n.line, "%v", err)
			}
			p.m.Target = n.text
			if min := minVersion(n.text); p.version.Less(min) {
				p.fail(n.line, "target %s needs PTX %d.%d, the module is %d.%d", n.text, min.Major, min.Minor,
					p.version.Major, p.version.Minor)
			}
		case t.text == ".address_size":
			if p.int("64") != 64 {
				p.fail(t.line, "only 64-bit addresses are supported")
			}
		case t.text == ".extern":
			for _, w := range []string{".shared", ".align"} {
				p.expect(w)
			}
			p.int("an alignment")
			p.expect(".b8")
			if n := p.word("a name"); n.text != SharedName {
				p.fail(n.line, "shared variable %q; the only one is %s", n.text, SharedName)
			}
			p.expect("[")
			p.expect("]")
			p.expect(";")
		case t.text == ".visible":
			p.expect(".entry")
			p.kernel(doc)
		case t.text == ".entry":
			p.kernel(doc)
		default:
			p.fail(t.line, "unexpected %s", t)
		}
	}
}

func (p *parser) kernel(doc []string) {
	name := p.word("a kernel name")
	if p.m.Target == "" {
		p.fail(name.line, "kernel before .target")
	}
	for _, k := range p.m.Kernels {
		if k.Name == name.text {
			p.fail(name.line, "kernel %s declared twice", name.text)
		}
	}
	p.k = p.m.NewKernel(name.text, 0)
	p.k.Doc = doc
	p.names, p.refs = map[string]bool{}, map[string]int{}
	p.expect("(")
	for !p.accept(")") {
		if len(p.k.Params) > 0 {
			p.expect(",")
		}
		p.expect(".param")
		typ := p.word("a parameter type")
		n := p.word("a parameter name")
		if Bytes(strings.TrimPrefix(typ.text, ".")) < 4 {
			p.fail(typ.line, "parameters of type %s are not supported; use one of 4 or 8 bytes", typ.text)
		}
		if p.names[n.text] {
			p.fail(n.line, "parameter %s declared twice", n.text)
		}
		p.names[n.text] = true
		p.k.AddParam(n.text, strings.TrimPrefix(typ.text, "."))
	}
	if p.accept(".maxntid") {
		p.k.Threads = p.int("a number of threads")
		for p.accept(",") {
			p.k.Threads *= p.int("a number of threads")
		}
	}
	if p.accept(".minnctapersm") { // a hint for ptxas, which does not affect results
		p.int("a number of blocks")
	}
	p.expect("{")
	labels := map[string]bool{}
	for {
		t := p.next()
		switch {
		case t.text == "}" && t.kind == tokPunct:
			for l, line := range p.refs {
				if !labels[l] {
					p.fail(line, "label %s is not defined", l)
				}
			}
			return
		case t.kind == tokComment:
			p.k.Body = append(p.k.Body, Stmt{Comment: t.text, Line: t.line})
		case t.text == ".reg":
			p.regs()
		case t.text == ".pragma":
			s := p.next()
			if s.kind != tokString || s.text == "" {
				p.fail(s.line, "found %s, want a string", s)
			}
			p.expect(";")
			p.k.Body = append(p.k.Body, Stmt{Pragma: s.text, Line: t.line})
		case t.kind == tokWord && p.peek().text == ":":
			p.next()
			if labels[t.text] {
				p.fail(t.line, "label %s defined twice", t.text)
			}
			labels[t.text] = true
			p.k.Body = append(p.k.Body, Stmt{Label: t.text, Line: t.line})
		case t.kind == tokWord || t.text == "@":
			p.pos--
			p.instr()
		default:
			p.fail(t.line, "unexpected %s", t)
		}
	}
}

// regs parses .reg .b32 %r<64>;
func (p *parser) regs() {
	typ := p.word("a register type")
	stem := p.word("a register name")
	p.expect("<")
	n := p.int("a count")
	p.expect(">")
	p.expect(";")
	for c := Class(0); c < NumClasses; c++ {
		if c.Prefix() == stem.text && c.Decl() == typ.text {
			if p.k.Regs[c] != 0 || n < 0 || n > 1<<20 {
				p.fail(stem.line, "registers %s declared twice, or %d of them", stem.text, n)
			}
			p.k.Regs[c] = n
			return
		}
	}
	p.fail(stem.line, "registers %s of type %s; registers are %%p .pred, %%b .b8, %%h .b16, %%r .b32, %%rd .b64, %%f .f32, %%fd .f64",
		stem.text, typ.text)
}

func (p *parser) instr() {
	var in Instr
	line := p.peek().line
	if p.accept("@") {
		in.Guarded = true
		in.Negate = p.accept("!")
		g := p.word("a predicate register")
		r, ok := p.register(g)
		if !ok || r.Class != Pred {
			p.fail(g.line, "guard %s is not a predicate register", g.text)
		}
		in.Guard = r
		line = g.line
	}
	op := p.word("an instruction")
	if in.Def = Lookup(op.text); in.Def == nil {
		p.fail(op.line, "no instruction %q: only those of the instruction table are supported", op.text)
	}
	if err := in.Def.Available(p.m.Target, p.version); err != nil {
		p.fail(op.line, "%v", err)
	}
	for !p.accept(";") {
		if len(in.Operands) > 0 {
			p.expect(",")
		}
		o := p.operand()
		if i := len(in.Operands); i < len(in.Def.Args) && in.Def.Args[i].Kind == ArgLabel {
			if s, ok := o.(Sym); ok {
				o = Ref(s)
				if p.refs[string(s)] == 0 {
					p.refs[string(s)] = op.line
				}
			}
		}
		in.Operands = append(in.Operands, o)
	}
	if err := in.Def.Check(in.Operands); err != nil {
		p.fail(op.line, "%v", err)
	}
	for i, o := range in.Operands {
		p.symbols(op.line, in.Def.Args[i], o)
	}
	p.k.Body = append(p.k.Body, Stmt{Instr: &in, Line: line})
}

// symbols checks names: in the address of a parameter it must be a parameter, elsewhere the shared memory.
func (p *parser) symbols(line int, a Arg, o Operand) {
	ad, isAddr := o.(Addr)
	if isAddr {
		o = ad.Base
	}
	s, ok := o.(Sym)
	if !ok {
		if isAddr && a.Space == "param" {
			p.fail(line, "the address of a parameter begins with its name")
		}
		return
	}
	switch want := string(s); {
	case isAddr && a.Space == "param" && !p.names[want]:
		p.fail(line, "no parameter %q", want)
	case isAddr && a.Space == "global", isAddr && a.Space == "shared" && want != SharedName, !isAddr && want != SharedName:
		p.fail(line, "unknown name %q", want)
	}
}

func (p *parser) operand() Operand {
	p.skipComments()
	t := p.next()
	switch {
	case t.text == "{":
		var v Vec
		for !p.accept("}") {
			if len(v) > 0 {
				p.expect(",")
			}
			v = append(v, p.operand())
		}
		return v
	case t.text == "[":
		ad := Addr{Base: p.operand()}
		switch b := ad.Base.(type) {
		case Reg, Sym:
		default:
			p.fail(t.line, "the base of an address is a register or a name, not %s", textOf(b))
		}
		if p.accept("+") {
			ad.Off = p.int("an offset")
		} else if n := p.peek(); n.kind == tokNumber && n.text[0] == '-' {
			ad.Off = p.int("an offset")
		}
		p.expect("]")
		return ad
	case t.kind == tokNumber:
		return p.number(t)
	case t.kind == tokWord && t.text[0] == '%':
		r, ok := p.register(t)
		if !ok {
			if !specials[t.text] {
				p.fail(t.line, "unknown register %s", t.text)
			}
			return Special(t.text)
		}
		if !p.accept("|") {
			return r
		}
		q := p.word("a predicate register")
		s, ok := p.register(q)
		if !ok || s.Class != Pred {
			p.fail(q.line, "%s is not a predicate register", q.text)
		}
		return Pair{r, s}
	case t.kind == tokWord:
		return Sym(t.text)
	}
	p.fail(t.line, "unexpected %s", t)
	return nil
}

func (p *parser) number(t token) Operand {
	if len(t.text) > 2 && t.text[0] == '0' {
		bits, err := strconv.ParseUint(t.text[2:], 16, 64)
		switch {
		case t.text[1] == 'f' && len(t.text) == 10 && err == nil:
			return FImm(math.Float32frombits(uint32(bits)))
		case t.text[1] == 'd' && len(t.text) == 18 && err == nil:
			return DImm(math.Float64frombits(bits))
		}
	}
	if v, err := strconv.ParseInt(t.text, 0, 64); err == nil {
		return Imm(v)
	}
	v, err := strconv.ParseUint(t.text, 0, 64)
	if err != nil {
		p.fail(t.line, "bad number %q", t.text)
	}
	return Imm(int64(v))
}

// register reads %r12 and checks that it is declared.
func (p *parser) register(t token) (Reg, bool) {
	i := strings.IndexAny(t.text, "0123456789")
	if i < 0 {
		return Reg{}, false
	}
	id, err := strconv.Atoi(t.text[i:])
	if err != nil {
		return Reg{}, false
	}
	for c := Class(0); c < NumClasses; c++ {
		if c.Prefix() == t.text[:i] {
			if id >= p.k.Regs[c] {
				p.fail(t.line, "register %s is not declared", t.text)
			}
			return Reg{c, id}, true
		}
	}
	return Reg{}, false
}

// specials are the special registers that kernels may read (PTX ISA 10).
var specials = map[string]bool{
	"%tid.x": true, "%tid.y": true, "%tid.z": true, "%ntid.x": true, "%ntid.y": true, "%ntid.z": true,
	"%ctaid.x": true, "%ctaid.y": true, "%ctaid.z": true, "%nctaid.x": true, "%nctaid.y": true, "%nctaid.z": true,
	"%laneid": true, "%warpid": true, string(Clock): true, string(Cycles): true, string(SM): true,
}

// Size is the parameter's size in bytes.
func (p Param) Size() int { return Bytes(p.Type) }
