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
	g, err := p.graph(nil)
	if err == nil && p.tok != "" {
		err = p.unexpected("the end")
	}
	if err != nil {
		return nil, atLine(p.tokLine, err)
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

func (b *body) define(v *Value) error {
	if b.values[v.Name] != nil {
		return fmt.Errorf("%%%s is defined twice", v.Name)
	}
	b.values[v.Name] = v
	if i := strings.LastIndexByte(v.Name, '~'); i >= 0 {
		if k, err := strconv.Atoi(v.Name[i+1:]); err == nil && k > b.next {
			b.next = k
		}
	}
	return nil
}

func (p *parser) graph(r *Region) (*Graph, error) {
	if err := p.expect("graph"); err != nil {
		return nil, err
	}
	name, err := p.quoted()
	if err != nil {
		return nil, err
	}
	b := &body{NewGraph(name), map[string]*Value{}, r}
	if err := p.expect("{"); err != nil {
		return nil, err
	}
	for !p.accept("}") {
		line := p.tokLine
		if err := p.statement(b); err != nil {
			return nil, atLine(line, err)
		}
	}
	return b.Graph, nil
}

// statement reads one line of a graph.
func (p *parser) statement(b *body) error {
	switch {
	case p.accept("meta"):
		k, err := p.quoted()
		if err != nil {
			return err
		}
		if err := p.expect("="); err != nil {
			return err
		}
		b.Meta[k], err = p.quoted()
		return err
	case p.accept("input"):
		v, err := p.declaration()
		if err != nil {
			return err
		}
		b.Inputs = append(b.Inputs, v)
		if b.region != nil {
			b.region.Operands = append(b.region.Operands, Operand{Storage: Storage{DType: v.Type.DType}})
		}
		return b.define(v)
	case b.region != nil && p.accept("operand"):
		return p.operand(b.region)
	case b.region != nil && p.accept("result"):
		i, err := p.position(len(b.region.Results))
		if err != nil {
			return err
		}
		b.region.Results[i], err = p.storage()
		return err
	case p.accept("const"):
		return p.constant(b)
	case p.accept("output"):
		vs, err := p.reads(b, "")
		b.Outputs = append(b.Outputs, vs...)
		if b.region != nil {
			for _, v := range vs {
				b.region.Results = append(b.region.Results, Storage{DType: v.Type.DType})
			}
		}
		return err
	case strings.HasPrefix(p.tok, "%"):
		return p.node(b)
	}
	return p.unexpected("meta, input, const, output, a value or }")
}

// declaration reads %name: type.
func (p *parser) declaration() (*Value, error) {
	name, err := p.valueName()
	if err != nil {
		return nil, err
	}
	if err := p.expect(":"); err != nil {
		return nil, err
	}
	t, err := p.typ()
	return &Value{Name: name, Type: t}, err
}

func (p *parser) typ() (Type, error) {
	d, err := ParseDType(p.tok)
	if err != nil {
		return Type{}, err
	}
	p.advance()
	shape := []int{}
	err = p.list(func() error {
		n, err := strconv.Atoi(p.tok)
		if err != nil {
			return p.unexpected("a dimension")
		}
		p.advance()
		shape = append(shape, n)
		return nil
	})
	if err == nil {
		err = CheckShape(shape)
	}
	return Type{d, shape}, err
}

// list reads [item, …].
func (p *parser) list(item func() error) error {
	if err := p.expect("["); err != nil {
		return err
	}
	for first := true; !p.accept("]"); first = false {
		if !first {
			if err := p.expect(","); err != nil {
				return err
			}
		}
		if err := item(); err != nil {
			return err
		}
	}
	return nil
}

// reads reads values separated by commas, up to the token end or, if that is empty, to the last comma.
func (p *parser) reads(b *body, end string) ([]*Value, error) {
	var out []*Value
	if end != "" && p.accept(end) {
		return nil, nil
	}
	for {
		if end != "" && p.accept("_") {
			out = append(out, nil)
		} else {
			name, err := p.valueName()
			if err != nil {
				return nil, err
			}
			if b.values[name] == nil {
				return nil, fmt.Errorf("%%%s is not defined", name)
			}
			out = append(out, b.values[name])
		}
		if !p.accept(",") {
			break
		}
	}
	if end == "" {
		return out, nil
	}
	return out, p.expect(end)
}

func (p *parser) constant(b *body) error {
	v, err := p.declaration()
	if err != nil {
		return err
	}
	if err := p.expect("="); err != nil {
		return err
	}
	if v.Const, err = p.tensor(v.Type); err != nil {
		return fmt.Errorf("constant %%%s: %w", v.Name, err)
	}
	return b.define(v)
}

func (p *parser) tensor(t Type) (*Tensor, error) {
	switch {
	case p.accept("splat"):
		bits, err := p.element(t.DType)
		return splatBits(t, bits), err
	case p.accept("base64"):
		s, err := p.quoted()
		if err != nil {
			return nil, err
		}
		data, err := base64.StdEncoding.DecodeString(s)
		if err != nil {
			return nil, err
		}
		return NewTensor(t, data)
	case strings.HasPrefix(p.tok, "sha256:"):
		return nil, fmt.Errorf("its data is only named by a hash: print the graph in full")
	case t.Numel() > 1<<24:
		return nil, fmt.Errorf("%v is too large for a list", t)
	}
	out, i := &Tensor{Type: t, Data: make([]byte, t.Bytes())}, 0
	err := p.list(func() error {
		bits, err := p.element(t.DType)
		if i < t.Numel() && err == nil {
			storeBits(out.Data, t.DType.Bits(), i, bits)
		}
		i++
		return err
	})
	if err == nil && i != t.Numel() {
		err = fmt.Errorf("%d elements for %v", i, t)
	}
	return out, err
}

// element reads one element and returns its bits.
func (p *parser) element(d DType) (uint64, error) {
	tok := p.tok
	bits, err := elementBits(d, tok)
	if err != nil {
		return 0, fmt.Errorf("%q is no %v", tok, d)
	}
	p.advance()
	return bits, nil
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

func (p *parser) node(b *body) error {
	n := &Node{Attrs: Attrs{}}
	var err error
	for {
		v, err := p.declaration()
		if err != nil {
			return err
		}
		v.Def, v.Index = n, len(n.Outputs)
		n.Outputs = append(n.Outputs, v)
		if !p.accept(",") {
			break
		}
	}
	if err := p.expect("="); err != nil {
		return err
	}
	if n.Op = LookupOp(p.tok); n.Op == nil {
		return fmt.Errorf("no op %q", p.tok)
	}
	p.advance()
	if err := p.expect("("); err != nil {
		return err
	}
	if n.Inputs, err = p.reads(b, ")"); err != nil {
		return err
	}
	if n.Op.Kind == KindRegion {
		n.Region = &Region{}
		err = p.regionAttrs(n.Region)
	} else if p.accept("{") {
		err = p.attrs(n)
	}
	if err != nil {
		return err
	}
	if strings.HasPrefix(p.tok, `"`) {
		if n.Name, err = p.quoted(); err != nil {
			return err
		}
	}
	if n.Region != nil && p.tok == "graph" {
		if n.Region.Body, err = p.graph(n.Region); err != nil {
			return err
		}
	}
	types, err := n.Op.infer(n)
	if err != nil {
		return fmt.Errorf("%s: %w", n.Op.Name, err)
	}
	for i, v := range n.Outputs {
		if i >= len(types) || !types[i].Equal(v.Type) {
			return fmt.Errorf("%%%s is declared %v, %s yields %v", v.Name, v.Type, n.Op.Name, types)
		}
		if err := b.define(v); err != nil {
			return err
		}
	}
	b.Nodes = append(b.Nodes, n)
	return nil
}

// attrs reads name=value, …}; the row says what kind each value has.
func (p *parser) attrs(n *Node) error {
	for first := true; !p.accept("}"); first = false {
		if !first {
			if err := p.expect(","); err != nil {
				return err
			}
		}
		name := p.tok
		p.advance()
		if err := p.expect("="); err != nil {
			return err
		}
		kind := n.Op.attr(name)
		if kind == nil {
			return fmt.Errorf("%s has no attribute %q", n.Op.Name, name)
		}
		v, err := p.attr(kind.Default)
		if err != nil {
			return fmt.Errorf("attribute %q: %w", name, err)
		}
		n.Attrs[name] = v
	}
	return nil
}

func (p *parser) attr(kind any) (any, error) {
	switch kind.(type) {
	case string:
		return p.quoted()
	case []int:
		return parseList(p, strconv.Atoi)
	case []float64:
		return parseList(p, parseFloat)
	case []bool:
		return parseList(p, strconv.ParseBool)
	case []string:
		return parseList(p, strconv.Unquote)
	}
	tok := p.tok
	p.advance()
	switch kind.(type) {
	case bool:
		return strconv.ParseBool(tok)
	case int:
		return strconv.Atoi(tok)
	case float64:
		return parseFloat(tok)
	case DType:
		return ParseDType(tok)
	}
	return nil, fmt.Errorf("attributes of kind %T have no text form", kind)
}

func parseFloat(tok string) (float64, error) {
	bits, err := elementBits(Float64, tok)
	return DecodeFloat(Float64, bits), err
}

func parseList[T any](p *parser, item func(string) (T, error)) ([]T, error) {
	var out []T
	err := p.list(func() error {
		v, err := item(p.tok)
		if err != nil {
			return err
		}
		p.advance()
		out = append(out, v)
		return nil
	})
	return out, err
}
