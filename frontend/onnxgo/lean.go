package onnxgo

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

// Prefixes of placeholder names; no name of a model may contain them.
const (
	absentMark = "\x01" // an absent input or output, or a placeholder
	againMark  = "\x02" // an input that the node has read before: "\x02number\x02name"
)

const maxDepth = 64 // of graphs inside graphs

// field is one field of an encoded message.
type field struct {
	num  protowire.Number
	typ  protowire.Type
	all  []byte // with its tag
	data []byte // of a length-delimited field
}

// fields splits a message.
func fields(msg []byte) ([]field, error) {
	var out []field
	for len(msg) > 0 {
		num, typ, n := protowire.ConsumeTag(msg)
		if n < 0 {
			return nil, protowire.ParseError(n)
		}
		size := protowire.ConsumeFieldValue(num, typ, msg[n:])
		if size < 0 {
			return nil, protowire.ParseError(size)
		}
		f := field{num: num, typ: typ, all: msg[:n+size]}
		if typ == protowire.BytesType {
			f.data, _ = protowire.ConsumeBytes(msg[n:])
		}
		out = append(out, f)
		msg = msg[n+size:]
	}
	return out, nil
}

func appendField(out []byte, num protowire.Number, data []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(out, num, protowire.BytesType), data)
}

// Field numbers of the format.
const (
	modelGraph     = 7
	graphNode      = 1
	graphInput     = 11
	graphOutput    = 12
	valueName      = 1
	nodeInput      = 1
	nodeOutput     = 2
	nodeOpType     = 4
	nodeAttribute  = 5
	nodeDomain     = 7
	attributeName  = 1
	attributeI     = 3
	attributeG     = 6
	attributeMany  = 11 // graphs
	attributeType  = 20
	attributeIsInt = 2
)

// lean rewrites graphs for onnx-go.
type lean struct {
	graphs [][]byte // inner graphs, by handle
	fresh  int
}

// graph rewrites a GraphProto.
func (l *lean) graph(msg []byte) ([]byte, error) {
	list, err := fields(msg)
	if err != nil {
		return nil, err
	}
	var out []byte
	nodes := 0
	for _, f := range list {
		if f.typ != protowire.BytesType {
			continue
		}
		switch f.num {
		case graphNode:
			n, err := l.node(f.data)
			if err != nil {
				return nil, err
			}
			out = appendField(out, graphNode, n)
			nodes++
		case graphInput, graphOutput:
			inner, err := fields(f.data)
			if err != nil {
				return nil, err
			}
			var value []byte
			for _, g := range inner {
				if g.num == valueName && g.typ == protowire.BytesType {
					value = appendField(value, valueName, g.data)
				}
			}
			out = appendField(out, f.num, value)
		}
	}
	if nodes == 0 {
		n := appendField(nil, nodeInput, []byte(l.name()))
		n = appendField(n, nodeOutput, []byte(l.name()))
		out = appendField(out, graphNode, appendField(n, nodeOpType, []byte(absentMark)))
	}
	return out, nil
}

// name returns a placeholder name.
func (l *lean) name() string {
	l.fresh++
	return fmt.Sprintf("%s%d", absentMark, l.fresh)
}

// node rewrites a NodeProto.
func (l *lean) node(msg []byte) ([]byte, error) {
	list, err := fields(msg)
	if err != nil {
		return nil, err
	}
	var out, attrs []byte
	var op, domain string
	seen := map[string]bool{}
	for _, f := range list {
		if f.typ != protowire.BytesType {
			continue
		}
		name := string(f.data)
		if (f.num == nodeInput || f.num == nodeOutput) && strings.ContainsAny(name, absentMark+againMark) {
			return nil, fmt.Errorf("value name %q has control characters", name)
		}
		switch f.num {
		case nodeInput:
			switch {
			case name == "":
				name = l.name()
			case seen[name]:
				l.fresh++
				name = fmt.Sprintf("%s%d%s%s", againMark, l.fresh, againMark, name)
			default:
				seen[name] = true
			}
			out = appendField(out, nodeInput, []byte(name))
		case nodeOutput:
			if name == "" {
				name = l.name()
			}
			out = appendField(out, nodeOutput, []byte(name))
		case nodeOpType:
			op = name
		case nodeDomain:
			domain = name
		case nodeAttribute:
			if attrs, err = l.attribute(attrs, f.data); err != nil {
				return nil, err
			}
		}
	}
	if len(seen) == 0 {
		out = appendField(out, nodeInput, []byte(l.name()+absentMark)) // unlike an absent input
	}
	if domain != "" {
		op = domain + "::" + op
	}
	out = appendField(out, nodeOpType, []byte(op))
	return append(out, attrs...), nil
}

// attribute appends an integer attribute, the graph's handle, for each graph of an AttributeProto.
func (l *lean) attribute(out, msg []byte) ([]byte, error) {
	list, err := fields(msg)
	if err != nil {
		return nil, err
	}
	for _, f := range list {
		if f.num != attributeG && f.num != attributeMany || f.typ != protowire.BytesType {
			continue
		}
		a := appendField(nil, attributeName, fmt.Appendf(nil, "%d", len(l.graphs)))
		a = protowire.AppendVarint(protowire.AppendTag(a, attributeI, protowire.VarintType), uint64(len(l.graphs)))
		a = protowire.AppendVarint(protowire.AppendTag(a, attributeType, protowire.VarintType), attributeIsInt)
		l.graphs = append(l.graphs, f.data)
		out = appendField(out, nodeAttribute, a)
	}
	return out, nil
}
