package ir

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// PrintOptions control how a graph is printed.
type PrintOptions struct {
	// Full prints large constants in full (base64), so that Parse gives back the same graph. Otherwise they are named
	// by a hash of their content.
	Full bool
}

// inlineElements is the size up to which a constant's elements are printed one by one.
const inlineElements = 16

// String prints the graph with large constants as hashes.
func (g *Graph) String() string {
	var b bytes.Buffer
	_ = g.Print(&b, PrintOptions{})
	return b.String()
}

// Print writes the text form:
//
//	graph "name" {
//	  meta "key" = "value"
//	  input %x: f16[1,64,32,64]
//	  const %w~1: f16[64,1,3,3] = sha256:0123456789abcdef
//	  %y~2: f16[1,64,32,64] = Conv(%x, %w~1, _) {dilations=[1,1], group=64, …} "node name"
//	  output %y~2
//	}
//
// One line a node; "_" stands for an absent input; a Region is followed by its body as a nested graph, which states how
// operands and results are stored if they differ from what the body reads and yields:
//
//	operand 1: e2m1 channels 0 blocks 16 along 1 stacked
//	result 0: e4m3 scale 0.02
//
// Constants stand
// before their first reader, as [elements], "splat element", "base64 …" or a hash. Names with other characters than
// letters, digits and ._/~$- are quoted.
func (g *Graph) Print(w io.Writer, opt PrintOptions) error {
	p := printer{full: opt.Full}
	p.graph(g, nil, "")
	_, err := w.Write(p.b.Bytes())
	return err
}

type printer struct {
	b    bytes.Buffer
	full bool
}

// graph prints g, the body of region r unless that is nil.
func (p *printer) graph(g *Graph, r *Region, indent string) {
	inner := indent + "  "
	fmt.Fprintf(&p.b, "graph %s {\n", strconv.Quote(g.Name))
	for _, k := range slices.Sorted(maps.Keys(g.Meta)) {
		fmt.Fprintf(&p.b, "%smeta %s = %s\n", inner, strconv.Quote(k), strconv.Quote(g.Meta[k]))
	}
	for _, v := range g.Inputs {
		fmt.Fprintf(&p.b, "%sinput %s: %v", inner, quoteValue(v.Name), v.Type)
		if v.Delay > 0 {
			fmt.Fprintf(&p.b, " delay %d", v.Delay)
		}
		if len(v.Sample) > 0 {
			p.b.WriteString(" sample " + attrText(v.Sample))
		}
		p.b.WriteByte('\n')
	}
	if r != nil {
		p.operands(r, inner)
	}
	seen := map[*Value]bool{}
	constant := func(v *Value) {
		if v != nil && v.IsConst() && !seen[v] {
			seen[v] = true
			fmt.Fprintf(&p.b, "%sconst %s: %v = ", inner, quoteValue(v.Name), v.Type)
			p.tensor(v.Const)
			p.b.WriteByte('\n')
		}
	}
	for _, n := range g.Nodes {
		for _, v := range n.Inputs {
			constant(v)
		}
		p.node(n, inner)
	}
	for _, v := range g.Outputs {
		constant(v)
	}
	if len(g.Outputs) > 0 {
		fmt.Fprintf(&p.b, "%soutput %s\n", inner, valueNames(g.Outputs))
	}
	if r != nil {
		for i, s := range r.Results {
			if !s.plain(r.Body.Outputs[i].Type.DType) {
				fmt.Fprintf(&p.b, "%sresult %d: %v\n", inner, i, s)
			}
		}
	}
	fmt.Fprintf(&p.b, "%s}\n", indent)
}

func (p *printer) node(n *Node, indent string) {
	p.b.WriteString(indent)
	for i, v := range n.Outputs {
		if i > 0 {
			p.b.WriteString(", ")
		}
		fmt.Fprintf(&p.b, "%s: %v", quoteValue(v.Name), v.Type)
	}
	fmt.Fprintf(&p.b, " = %s(%s)", n.Op.Name, valueNames(n.Inputs))
	switch {
	case n.Region != nil && n.Region.Members > 0:
		fmt.Fprintf(&p.b, " {family=%q, members=%d}", n.Region.Family, n.Region.Members)
	case n.Region != nil:
		fmt.Fprintf(&p.b, " {family=%q}", n.Region.Family)
	case len(n.Attrs) > 0:
		fmt.Fprintf(&p.b, " %v", n.Attrs.Text())
	}
	if n.Name != "" {
		fmt.Fprintf(&p.b, " %s", strconv.Quote(n.Name))
	}
	if n.Region == nil {
		p.b.WriteByte('\n')
		return
	}
	p.b.WriteByte(' ')
	p.graph(n.Region.Body, n.Region, indent)
}

// operands prints how the operands lie in memory that are not plain values which all members share.
func (p *printer) operands(r *Region, indent string) {
	for i, o := range r.Operands {
		t := r.Body.Inputs[i].Type
		if o == (Operand{Storage: Storage{DType: t.DType}}) {
			continue
		}
		fmt.Fprintf(&p.b, "%soperand %d: %v", indent, i, o.Storage)
		if o.Batched {
			p.b.WriteString(" stacked")
		}
		if o.Read.DType != Invalid {
			fmt.Fprintf(&p.b, " read %v", o.Read)
		}
		p.b.WriteByte('\n')
	}
}

// String prints storage as it stands in the text form: e2m1 scale 0.5 channels 0 blocks 16 along 1.
func (s Storage) String() string {
	t := s.DType.String()
	if s.Scale != 0 {
		t += " scale " + floatText(s.Scale)
	}
	if s.SplitTerms != 0 {
		t += fmt.Sprintf(" terms %d", s.SplitTerms)
	}
	if s.PerChannel {
		t += fmt.Sprintf(" channels %d", s.ChannelAxis)
	}
	if s.Block > 0 {
		t += fmt.Sprintf(" blocks %d along %d", s.Block, s.BlockAxis)
	}
	return t
}

func valueNames(vs []*Value) string {
	names := make([]string, len(vs))
	for i, v := range vs {
		names[i] = "_"
		if v != nil {
			names[i] = quoteValue(v.Name)
		}
	}
	return strings.Join(names, ", ")
}

func quoteValue(name string) string {
	for i := range len(name) {
		if !isNameByte(name[i]) {
			return "%" + strconv.Quote(name)
		}
	}
	if name == "" {
		return `%""`
	}
	return "%" + name
}

func isNameByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("._/~$-", c) >= 0
}

// Text prints the attributes as {name=value, …}, sorted by name.
func (a Attrs) Text() string {
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(a)) {
		parts = append(parts, k+"="+attrText(a[k]))
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

func attrText(v any) string {
	switch v := v.(type) {
	case float64:
		return floatText(v)
	case string:
		return strconv.Quote(v)
	case []int:
		return listText(v, strconv.Itoa)
	case []float64:
		return listText(v, floatText)
	case []string:
		return listText(v, strconv.Quote)
	}
	return fmt.Sprint(v)
}

func listText[T any](v []T, text func(T) string) string {
	parts := make([]string, len(v))
	for i, x := range v {
		parts[i] = text(x)
	}
	return "[" + strings.Join(parts, ",") + "]"
}

// floatText prints a float64 exactly, and so that it does not look like an integer.
func floatText(x float64) string {
	switch {
	case math.IsNaN(x):
		return fmt.Sprintf("bits:0x%x", math.Float64bits(x))
	case math.IsInf(x, 0):
		return elementText(Float64, math.Float64bits(x))
	}
	s := strconv.FormatFloat(x, 'g', -1, 64)
	if !strings.ContainsAny(s, ".e") {
		s += ".0"
	}
	return s
}

func (p *printer) tensor(t *Tensor) {
	switch n := t.Numel(); {
	case t.Splat:
		p.b.WriteString("splat " + elementText(t.DType, t.BitsAt(0)))
	case n <= inlineElements:
		parts := make([]string, n)
		for i := range parts {
			parts[i] = elementText(t.DType, t.BitsAt(i))
		}
		p.b.WriteString("[" + strings.Join(parts, ", ") + "]")
	case p.full:
		p.b.WriteString("base64 " + strconv.Quote(base64.StdEncoding.EncodeToString(t.Data)))
	default:
		sum := sha256.Sum256(t.Data)
		p.b.WriteString("sha256:" + hex.EncodeToString(sum[:8]))
	}
}

// elementText prints one element so that it parses back to the same bits: decimal, the shortest that does, or bits: and
// the code where none does (NaN).
func elementText(d DType, bits uint64) string {
	switch {
	case d == Bool && bits < 2:
		return strconv.FormatBool(bits == 1)
	case d == Bool:
		return fmt.Sprintf("bits:0x%x", bits)
	case d == Uint64:
		return strconv.FormatUint(bits, 10)
	case d.IsInt():
		return strconv.FormatInt(WrapInt(d, int64(bits)), 10)
	}
	x := DecodeFloat(d, bits)
	switch {
	case math.IsNaN(x):
		return fmt.Sprintf("bits:0x%x", bits)
	case math.IsInf(x, 1):
		return "inf"
	case math.IsInf(x, -1):
		return "-inf"
	}
	if x == math.Trunc(x) && math.Abs(x) < 1e6 && x != 0 {
		return strconv.FormatFloat(x, 'f', -1, 64)
	}
	for prec := 1; prec <= 17; prec++ {
		s := strconv.FormatFloat(x, 'g', prec, 64)
		if y, err := strconv.ParseFloat(s, 64); err == nil && EncodeFloat(d, y) == bits {
			return s
		}
	}
	return fmt.Sprintf("bits:0x%x", bits)
}
