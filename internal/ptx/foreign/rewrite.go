package foreign

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spark-compile/spark-compile/internal/ptx"
)

// Module is what Rewrite makes of a text.
type Module struct {
	Text    string // for ptx.Parse
	Kernels []Kernel
}

// Kernel is what a launch must know of a kernel that its rewritten text does not say.
type Kernel struct {
	Name    string
	Params  []ptx.Param
	Static  int    // bytes of its own shared variables, which precede those that the launch adds
	Threads [3]int // that a block must have (.reqntid); 0 for any
	// Registers are the text's own names of the rewritten text's registers.
	Registers map[string]string
}

// Error says which line of the text cannot be rewritten, and why.
type Error struct {
	Line   int // 1-based; 0: the text as a whole
	Text   string
	Reason string
}

func (e *Error) Error() string {
	if e.Line == 0 {
		return e.Reason
	}
	return fmt.Sprintf("line %d: %s: %s", e.Line, ptx.Shortened(strings.Join(strings.Fields(e.Text), " ")), ptx.Shortened(e.Reason))
}

// Rewrite rewrites the kernels of a text that have one of the names, all without names. A kernel that is left out may hold anything.
func Rewrite(text string, names ...string) (m *Module, err error) {
	defer func() {
		if r := recover(); r != nil {
			e, ok := r.(*Error)
			if !ok {
				panic(r)
			}
			m, err = nil, e
		}
	}()
	w := &rewriter{text: blankComments(text), line: 1, names: names, out: make([]strings.Builder, strings.Count(text, "\n")+1),
		lines: strings.Split(text, "\n"), global: map[string]int{}}
	w.module()
	for _, n := range names {
		if !slices.ContainsFunc(w.kernels, func(k Kernel) bool { return k.Name == n }) {
			return nil, &Error{Reason: fmt.Sprintf("no kernel %s; the text has %s", n, strings.Join(w.seen, ", "))}
		}
	}
	if len(w.kernels) == 0 {
		return nil, &Error{Reason: "no kernel: the text has no .entry"}
	}
	all := make([]string, len(w.out))
	for i := range w.out {
		all[i] = w.out[i].String()
	}
	return &Module{Text: strings.Join(all, "\n"), Kernels: w.kernels}, nil
}

// rewriter goes through a text once.
type rewriter struct {
	text    string // what is left, without comments
	line    int    // of its first character
	lines   []string
	names   []string
	seen    []string // all kernels
	out     []strings.Builder
	kernels []Kernel
	global  map[string]int // shared variables of the module: bytes; 0: the launch's
	k       *kernel
}

// kernel is the one being rewritten.
type kernel struct {
	Kernel
	body   []statement
	scopes []*scope
	n      [ptx.NumClasses]int
	shared map[string]int // offset of a shared variable
}

// scope is a pair of braces.
type scope struct {
	up     *scope
	id     int
	regs   map[string]ptx.Reg
	family map[string]family // names that a number follows
	labels map[string]bool
}

// family is a class of registers whose names end in a number below n.
type family struct {
	class ptx.Class
	n     int
}

// statement is an instruction or a label in a scope.
type statement struct {
	text  string
	line  int
	scope *scope
	label bool
}

func (w *rewriter) fail(line int, format string, args ...any) {
	e := &Error{Line: line, Reason: fmt.Sprintf(format, args...)}
	if line <= len(w.lines) {
		e.Text = w.lines[line-1]
	}
	panic(e)
}

var comment = regexp.MustCompile(`(?s)//[^\n]*|/\*.*?\*/`)

// blankComments keeps the lines of comments.
func blankComments(text string) string {
	return comment.ReplaceAllStringFunc(text, func(c string) string { return strings.Repeat("\n", strings.Count(c, "\n")) })
}

// skip drops n characters.
func (w *rewriter) skip(n int) string {
	s := w.text[:n]
	w.line += strings.Count(s, "\n")
	w.text = w.text[n:]
	return s
}

func (w *rewriter) space() { w.skip(len(w.text) - len(strings.TrimLeft(w.text, " \t\r\n"))) }

// until returns what comes before one of the characters, which it drops.
func (w *rewriter) until(chars, what string) string {
	i := strings.IndexAny(w.text, chars)
	if i < 0 {
		w.fail(w.line, "the text ends before %s", what)
	}
	s := w.skip(i)
	w.skip(1)
	return s
}

// restOfLine returns what is left of the line.
func (w *rewriter) restOfLine() string {
	i := strings.IndexByte(w.text+"\n", '\n')
	return w.skip(i)
}

// braces drops a balanced pair of braces, the first of which is next.
func (w *rewriter) braces() {
	w.until("{", "{")
	for depth := 1; depth > 0; {
		i := strings.IndexAny(w.text, "{}")
		if i < 0 {
			w.fail(w.line, "braces are not closed")
		}
		depth += map[byte]int{'{': 1, '}': -1}[w.text[i]]
		w.skip(i + 1)
	}
}

// word is the directive that is next.
func (w *rewriter) word() string {
	i := strings.IndexAny(w.text+" ", " \t\r\n;({")
	return w.text[:i]
}

var entry = regexp.MustCompile(`^(?:\.(?:visible|weak|extern)\s+)?\.(entry|func)\b`)

func (w *rewriter) module() {
	for w.space(); w.text != ""; w.space() {
		line := w.line
		switch word := w.word(); {
		case word == ".version" || word == ".address_size":
			w.write(line, strings.TrimSpace(w.restOfLine()))
		case word == ".target":
			w.write(line, strings.TrimSpace(strings.Split(w.restOfLine(), ",")[0]))
		case word == ".file" || word == ".loc":
			w.restOfLine()
		case word == ".section":
			w.braces()
		case entry.MatchString(w.text):
			w.entry()
		case strings.Contains(" .extern .visible .weak .shared .global .const .common .alias .pragma ", " "+word+" "):
			// Variables of the other spaces are refused where they are used.
			if d := w.until(";", "the ; of a declaration"); strings.Contains(d, ".shared") {
				name, bytes, _ := w.variable(line, d)
				w.global[name] = bytes
			}
		default:
			w.fail(line, "the directive %s is not supported", word)
		}
	}
}

var variable = regexp.MustCompile(`^(?:\.(?:extern|visible|weak)\s+)?\.shared\s+(?:\.align\s+(\d+)\s+)?\.(\w+)\s+([\w$%]+)\s*((?:\[\s*\d*\s*\])*)$`)

// variable parses the declaration of a shared variable; 0 bytes are the launch's to choose.
func (w *rewriter) variable(line int, d string) (name string, bytes, align int) {
	m := variable.FindStringSubmatch(strings.TrimSpace(d))
	if m == nil {
		w.fail(line, "the shared variable's declaration is not supported; write .shared .align N .TYPE NAME[COUNT]")
	}
	class, ok := classOf(m[2])
	if !ok {
		w.fail(line, "the shared variable has type .%s, which is not supported", m[2])
	}
	bytes = bytesOf(class)
	if align = bytes; m[1] != "" {
		align, _ = strconv.Atoi(m[1])
	}
	for _, n := range regexp.MustCompile(`\[\s*(\d*)\s*\]`).FindAllStringSubmatch(m[4], -1) {
		count, _ := strconv.Atoi(n[1])
		if bytes *= count; bytes > 1<<20 || bytes < 0 {
			break
		}
	}
	if bytes > 1<<20 || bytes < 0 || align <= 0 || align > 1024 || align&(align-1) != 0 {
		w.fail(line, "a shared variable of %d bytes, aligned to %d, is more than a block has", bytes, align)
	}
	return m[3], bytes, align
}

// write puts text on a line.
func (w *rewriter) write(line int, text string) {
	o := &w.out[line-1]
	if o.Len() > 0 {
		o.WriteByte(' ')
	}
	o.WriteString(text)
}

var parameter = regexp.MustCompile(`^\.param\s+\.(\w+)\s+(?:\.ptr\s*(?:\.\w+\s+)?(?:\.align\s+\d+\s+)?)?(?:\.align\s+\d+\s+\.\w+\s+)?([\w$%]+)\s*(\[[^]]*\])?$`)

// entry rewrites a kernel, or drops a function or a kernel that is not wanted.
func (w *rewriter) entry() {
	line := w.line
	if entry.FindStringSubmatch(w.text)[1] == "func" {
		if i := strings.IndexAny(w.text, ";{"); i >= 0 && w.text[i] == '{' {
			w.braces()
		} else {
			w.until(";", "the ; of a declaration")
		}
		return
	}
	w.skip(len(entry.FindString(w.text)))
	w.space()
	i := strings.IndexAny(w.text, "( \t\r\n{;")
	if i < 0 {
		w.fail(w.line, "the text ends after .entry")
	}
	w.k = &kernel{Kernel: Kernel{Name: w.skip(i), Registers: map[string]string{}}, shared: map[string]int{}}
	w.seen = append(w.seen, w.k.Name)
	if len(w.names) > 0 && !slices.Contains(w.names, w.k.Name) {
		w.braces()
		return
	}
	w.write(line, ".visible .entry "+w.k.Name+"(")
	w.space()
	if strings.HasPrefix(w.text, "(") {
		w.params()
	}
	w.write(w.line, ")")
	w.directives()
	w.body()
	w.rewrite()
	w.kernels = append(w.kernels, w.k.Kernel)
}

func (w *rewriter) params() {
	w.skip(1)
	for first := true; ; first = false {
		w.space()
		line := w.line
		i := strings.IndexAny(w.text, ",)")
		if i < 0 {
			w.fail(line, "the parameters do not end")
		}
		end := w.text[i]
		p := strings.Join(strings.Fields(w.skip(i)), " ")
		w.skip(1)
		if p != "" {
			m := parameter.FindStringSubmatch(p)
			if m == nil || m[3] != "" {
				w.fail(line, "parameters that are structures or arrays are not supported: pass their fields one by one")
			}
			class, ok := classOf(m[1])
			if !ok || bytesOf(class) < 4 {
				w.fail(line, "a parameter of type .%s is not supported; use one of 4 or 8 bytes", m[1])
			}
			typ := "u" + strconv.Itoa(8*bytesOf(class))
			if strings.HasPrefix(m[1], "f") {
				typ = m[1]
			}
			w.k.Params = append(w.k.Params, ptx.Param{Name: m[2], Type: typ})
			if !first {
				w.write(line, ",")
			}
			w.write(line, ".param ."+typ+" "+m[2])
		}
		if end == ')' {
			return
		}
	}
}

// directives are those between a kernel's parameters and its body.
func (w *rewriter) directives() {
	for w.space(); !strings.HasPrefix(w.text, "{"); w.space() {
		line, word := w.line, w.word()
		if !strings.Contains(" .maxntid .reqntid .minnctapersm .maxnreg .maxclusterrank .noreturn .reqnctapercluster .explicitcluster .pragma ", " "+word+" ") || word == "" {
			w.fail(line, "the directive %s is not supported", word)
		}
		if word == ".reqnctapercluster" || word == ".explicitcluster" {
			w.fail(line, "clusters of blocks are not supported")
		}
		rest := strings.TrimPrefix(w.restOfLine(), word)
		if word != ".reqntid" {
			continue
		}
		w.k.Threads = [3]int{1, 1, 1}
		for i, s := range strings.Split(rest, ",") {
			n, err := strconv.Atoi(strings.TrimSpace(s))
			if err != nil || i > 2 || n < 1 {
				w.fail(line, "want up to three numbers of threads")
			}
			w.k.Threads[i] = n
		}
	}
}

// body splits a kernel's body into statements.
func (w *rewriter) body() {
	first := w.line
	w.skip(1)
	current := w.open(nil)
	for {
		w.space()
		line := w.line
		switch {
		case w.text == "":
			w.fail(first, "the kernel's body does not end")
		case w.text[0] == '{':
			w.skip(1)
			current = w.open(current)
			continue
		case w.text[0] == '}':
			w.skip(1)
			if current = current.up; current == nil {
				w.place(first, line)
				return
			}
			continue
		case w.text[0] == ';':
			w.skip(1)
			continue
		}
		switch word := w.word(); word {
		case ".loc", ".file":
			w.restOfLine()
		case ".reg":
			w.registers(line, current, w.until(";", "the ; of a declaration"))
		case ".shared":
			d := w.until(";", "the ; of a declaration")
			name, bytes, align := w.variable(line, d)
			w.reserve(name, bytes, align)
		case ".pragma", ".callprototype":
			w.until(";", "the ; of a directive")
		default:
			if word != "" && word[0] == '.' {
				w.fail(line, "the directive %s is not supported in a kernel", word)
			}
			if m := label.FindString(w.text); m != "" {
				w.skip(len(m))
				name := strings.TrimRight(m, ": \t\r\n")
				current.labels[name] = true
				w.k.body = append(w.k.body, statement{name, line, current, true})
				continue
			}
			w.k.body = append(w.k.body, statement{w.until(";", "the ; of an instruction"), line, current, false})
		}
	}
}

var label = regexp.MustCompile(`^[A-Za-z_$%][\w$]*\s*:`)

func (w *rewriter) open(up *scope) *scope {
	s := &scope{up: up, id: len(w.k.scopes), regs: map[string]ptx.Reg{}, family: map[string]family{}, labels: map[string]bool{}}
	w.k.scopes = append(w.k.scopes, s)
	return s
}

// reserve places a shared variable after the others.
func (w *rewriter) reserve(name string, bytes, align int) {
	w.k.Static = (w.k.Static + align - 1) &^ (align - 1)
	w.k.shared[name] = w.k.Static
	w.k.Static += bytes
}

// place puts the module's shared variables that the kernel names after its own, and the launch's at the end.
func (w *rewriter) place(first, last int) {
	text := strings.Join(w.lines[first-1:last], "\n")
	var names []string
	for n := range w.global {
		if strings.Contains(text, n) {
			names = append(names, n)
		}
	}
	slices.Sort(names)
	for _, n := range names {
		if bytes := w.global[n]; bytes > 0 {
			w.reserve(n, bytes, 128)
		}
	}
	if w.k.Static > 0 {
		w.k.Static = (w.k.Static + 127) &^ 127
	}
	for _, n := range names {
		if w.global[n] == 0 {
			w.k.shared[n] = w.k.Static
		}
	}
}

var registers = regexp.MustCompile(`^\.reg\s+\.(\w+)\s+([\s\S]*)$`)

// registers declares names, or families of names.
func (w *rewriter) registers(line int, s *scope, d string) {
	m := registers.FindStringSubmatch(d)
	if m == nil {
		w.fail(line, "the declaration of registers is not supported; write .reg .TYPE NAME, or NAME<COUNT>")
	}
	class, ok := classOf(m[1])
	if !ok {
		w.fail(line, "registers of type .%s are not supported", m[1])
	}
	for _, n := range strings.Split(m[2], ",") {
		n = strings.TrimSpace(n)
		i := strings.IndexByte(n, '<')
		if i <= 0 {
			w.declare(s, n, class)
			continue
		}
		count, err := strconv.Atoi(strings.TrimSpace(strings.TrimSuffix(n[i+1:], ">")))
		if err != nil || count < 0 {
			w.fail(line, "%s: want NAME<COUNT>", n)
		}
		s.family[strings.TrimSpace(n[:i])] = family{class, count}
	}
}

// rewrite writes the kernel's statements, then declares its registers before them, since they are known only at
// the end.
func (w *rewriter) rewrite() {
	first := w.line
	if len(w.k.body) > 0 {
		first = w.k.body[0].line
	}
	head := &w.out[first-1]
	before := head.String()
	head.Reset()
	for _, s := range w.k.body {
		w.statement(s)
	}
	after := head.String()
	head.Reset()
	head.WriteString(before + " {")
	for c, n := range w.k.n {
		if n > 0 {
			fmt.Fprintf(head, " .reg %s %s<%d>;", ptx.Class(c).Decl(), ptx.Class(c).Prefix(), n)
		}
	}
	head.WriteString(" " + after)
	w.write(w.line, "}")
}

// declare gives a name in a scope a register.
func (w *rewriter) declare(s *scope, name string, c ptx.Class) string {
	s.regs[name] = w.fresh(c)
	r := s.regs[name].String()
	w.k.Registers[r] = name
	return r
}

func (w *rewriter) fresh(c ptx.Class) ptx.Reg {
	w.k.n[c]++
	return ptx.Reg{Class: c, ID: w.k.n[c] - 1}
}

// classOf is the class of registers that hold a type: of its size alone.
func classOf(typ string) (ptx.Class, bool) {
	switch typ {
	case "pred":
		return ptx.Pred, true
	case "b8", "u8", "s8":
		return ptx.B8, true
	case "b16", "u16", "s16", "f16", "bf16":
		return ptx.B16, true
	case "b32", "u32", "s32", "f32", "f16x2", "bf16x2":
		return ptx.B32, true
	case "b64", "u64", "s64", "f64":
		return ptx.B64, true
	}
	return 0, false
}

func bytesOf(c ptx.Class) int {
	return map[ptx.Class]int{ptx.B8: 1, ptx.B16: 2, ptx.B32: 4, ptx.B64: 8}[c]
}
