package ir

import (
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
)

// Parse reads the text form that Print writes and verifies the graph. Constants printed as hashes cannot be read back:
// print with Full. Comments run from // to the end of the line.
func Parse(text string) (*Graph, error) {
	p := &parser{text: text, line: 1}
	p.advance()
	g := p.graph(nil)
	if p.tok != "" {
		p.unexpected("the end")
	}
	if p.err != nil {
		return nil, p.err
	}
	if err := g.Verify(); err != nil {
		return nil, err
	}
	return g, nil
}

// body is a graph while it is read, with its values by name.
type body struct {
	*Graph
	values map[string]*Value
	region *Region // whose body it is, or nil
}

func (p *parser) define(b *body, v *Value) {
	if b.values[v.Name] != nil {
		p.failf("%%%s is defined twice", v.Name)
	}
	b.values[v.Name] = v
	if i := strings.LastIndexByte(v.Name, '~'); i >= 0 {
		if k, err := strconv.Atoi(v.Name[i+1:]); err == nil && k > b.next {
			b.next = k
		}
	}
}

// deepest bounds the nesting of graphs; a fused region nests three.
const deepest = 16

func (p *parser) graph(r *Region) *Graph {
	if p.depth++; p.depth > deepest {
		p.failf("more than %d graphs in each other", deepest)
	}
	defer func() { p.depth-- }()
	p.expect("graph")
	b := &body{NewGraph(p.quoted()), map[string]*Value{}, r}
	p.expect("{")
	for p.until("}") {
		outer := p.statementLine
		p.statementLine = p.tokLine
		p.statement(b)
		p.statementLine = outer
	}
	return b.Graph
}

// statement reads one line of a graph.
func (p *parser) statement(b *body) {
	switch {
	case p.accept("meta"):
		k := p.quoted()
		p.expect("=")
		b.Meta[k] = p.quoted()
	case p.accept("input"):
		v := p.declaration()
		if p.accept("delay") {
			if v.Delay = p.number(); v.Delay < 0 || v.Delay > MostDelay {
				p.failf("a delay of %d runs: want 0 to %d", v.Delay, MostDelay)
			}
		}
		if p.accept("sample") {
			v.Sample = words(p, parseFloat)
		}
		b.Inputs = append(b.Inputs, v)
		if b.region != nil {
			b.region.Operands = append(b.region.Operands, Operand{Storage: Storage{DType: v.Type.DType}})
		}
		p.define(b, v)
	case b.region != nil && p.accept("operand"):
		p.operand(b.region)
	case b.region != nil && p.accept("result"):
		if i := p.position(len(b.region.Results)); p.err == nil {
			b.region.Results[i] = p.storage()
		}
	case p.accept("const"):
		v := p.declaration()
		p.expect("=")
		if v.Const = p.tensor(v); p.err == nil {
			p.define(b, v)
		}
	case p.accept("output"):
		for first := true; first || p.accept(","); first = false {
			v := p.read(b)
			b.Outputs = append(b.Outputs, v)
			if b.region != nil {
				b.region.Results = append(b.region.Results, Storage{DType: v.Type.DType})
			}
		}
	case strings.HasPrefix(p.tok, "%"):
		p.node(b)
	default:
		p.unexpected("meta, input, const, output, a value or }")
	}
}

// declaration reads %name: type.
func (p *parser) declaration() *Value {
	name := p.valueName()
	p.expect(":")
	return &Value{Name: name, Type: p.typ()}
}

func (p *parser) typ() Type {
	t := Type{p.dtype(), []int{}}
	p.expect("[")
	p.list("]", func() {
		n, err := strconv.Atoi(p.tok)
		if err != nil {
			p.unexpected("a dimension")
		}
		p.advance()
		t.Shape = append(t.Shape, n)
	})
	p.fail(CheckShape(t.Shape))
	return t
}

func (p *parser) dtype() DType { return word(p, ParseDType) }

// list reads items separated by commas, up to the token end.
func (p *parser) list(end string, item func()) {
	for first := true; p.until(end); first = false {
		if !first {
			p.expect(",")
		}
		item()
	}
}

// read reads a value that is defined already.
func (p *parser) read(b *body) *Value {
	name := p.valueName()
	if v := b.values[name]; v != nil {
		return v
	}
	p.failf("%%%s is not defined", name)
	return &Value{}
}

// tensor reads the data of constant v.
func (p *parser) tensor(v *Value) *Tensor {
	t := v.Type
	p.context = "constant %" + v.Name + ": "
	defer func() { p.context = "" }()
	element := func() uint64 {
		bits, err := elementBits(t.DType, p.tok)
		if err != nil {
			p.failf("%q is no %v", p.tok, t.DType)
		}
		p.advance()
		return bits
	}
	switch {
	case p.err != nil:
		return nil
	case p.accept("splat"):
		return splatBits(t, element())
	case p.accept("base64"):
		data, err := base64.StdEncoding.DecodeString(p.quoted())
		p.fail(err)
		c, err := NewTensor(t, data)
		p.fail(err)
		return c
	case strings.HasPrefix(p.tok, "sha256:"):
		p.failf("its data was printed as a hash: print the graph with full constants (spark opt --full)")
		return nil
	case t.Numel() > 1<<24:
		p.failf("%v is too large for a list", t)
		return nil
	}
	out, i := &Tensor{Type: t, Data: make([]byte, t.Bytes())}, 0
	p.expect("[")
	p.list("]", func() {
		if bits := element(); i < t.Numel() && p.err == nil {
			storeBits(out.Data, t.DType.Bits(), i, bits)
		}
		i++
	})
	if i != t.Numel() {
		p.failf("%d elements for %v", i, t)
	}
	return out
}

func elementBits(d DType, tok string) (uint64, error) {
	if code, ok := strings.CutPrefix(tok, "bits:"); ok {
		return strconv.ParseUint(code, 0, d.Bits())
	}
	switch {
	case d == Bool:
		v, err := strconv.ParseBool(tok)
		if v {
			return 1, err
		}
		return 0, err
	case d.IsFloat():
		x, err := strconv.ParseFloat(tok, 64)
		return EncodeFloat(d, x), err
	case d.IsSigned():
		v, err := strconv.ParseInt(tok, 10, d.Bits())
		return uint64(v) & (1<<(d.Bits()-1)<<1 - 1), err
	}
	return strconv.ParseUint(tok, 10, d.Bits())
}

func (p *parser) node(b *body) {
	n := &Node{Attrs: Attrs{}}
	for first := true; first || p.accept(","); first = false {
		v := p.declaration()
		v.Def, v.Index = n, len(n.Outputs)
		n.Outputs = append(n.Outputs, v)
	}
	p.expect("=")
	if n.Op = LookupOp(p.tok); n.Op == nil {
		p.failf("no op %q", p.tok)
		return
	}
	p.advance()
	p.expect("(")
	p.list(")", func() {
		if p.accept("_") {
			n.Inputs = append(n.Inputs, nil)
		} else {
			n.Inputs = append(n.Inputs, p.read(b))
		}
	})
	if n.Op.Kind == KindRegion {
		n.Region = &Region{}
		p.expect("{")
	}
	if n.Region != nil || p.accept("{") {
		p.list("}", func() { p.attr(n) })
	}
	if strings.HasPrefix(p.tok, `"`) {
		n.Name = p.quoted()
	}
	if n.Region != nil && p.tok == "graph" {
		n.Region.Body = p.graph(n.Region)
	}
	if p.err != nil {
		return
	}
	types, err := n.Op.infer(n)
	if err != nil {
		p.failf("%s: %w", n.Op.Name, err)
	}
	for i, v := range n.Outputs {
		if i >= len(types) || !types[i].Equal(v.Type) {
			p.failf("%%%s is declared %v, %s yields %v", v.Name, v.Type, n.Op.Name, types)
		}
		p.define(b, v)
	}
	b.Nodes = append(b.Nodes, n)
}

// attr reads name=value; the row says what kind each value has.
func (p *parser) attr(n *Node) {
	name := p.tok
	p.advance()
	p.expect("=")
	if n.Region != nil {
		p.regionAttr(n.Region, name)
		return
	}
	kind := n.Op.attr(name)
	if kind == nil {
		p.failf("%s has no attribute %q", n.Op.Name, name)
		return
	}
	p.context = fmt.Sprintf("attribute %q: ", name)
	defer func() { p.context = "" }()
	switch kind.Default.(type) {
	case string:
		n.Attrs[name] = p.quoted()
	case []int:
		n.Attrs[name] = words(p, strconv.Atoi)
	case []float64:
		n.Attrs[name] = words(p, parseFloat)
	case []string:
		n.Attrs[name] = words(p, strconv.Unquote)
	case bool:
		n.Attrs[name] = word(p, strconv.ParseBool)
	case int:
		n.Attrs[name] = word(p, strconv.Atoi)
	case float64:
		n.Attrs[name] = word(p, parseFloat)
	case DType:
		n.Attrs[name] = p.dtype()
	default:
		p.failf("attributes of kind %T have no text form", kind.Default)
	}
}

func parseFloat(tok string) (float64, error) {
	bits, err := elementBits(Float64, tok)
	return DecodeFloat(Float64, bits), err
}

// word reads one token.
func word[T any](p *parser, read func(string) (T, error)) T {
	v, err := read(p.tok)
	p.fail(err)
	p.advance()
	return v
}

// words reads [token, …].
func words[T any](p *parser, read func(string) (T, error)) []T {
	var out []T
	p.expect("[")
	p.list("]", func() { out = append(out, word(p, read)) })
	return out
}
