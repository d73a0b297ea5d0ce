package onnxgo

import (
	"fmt"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/spark-compile/spark-compile/frontend/onnx/onnxpb"
)

// Prefixes of placeholder names; no name of a model may contain them.
const (
	absentMark = "\x01" // an absent input or output, or a placeholder
	againMark  = "\x02" // an input that the node has read before: "\x02number\x02name"
)

// lean rewrites one graph for onnx-go.
type lean struct {
	bodies []*onnxpb.GraphProto // inner graphs, by handle
	fresh  int
}

func (l *lean) graph(g *onnxpb.GraphProto) (*onnxpb.GraphProto, error) {
	out := &onnxpb.GraphProto{Input: bare(g.Input), Output: bare(g.Output)}
	for _, n := range g.Node {
		m, err := l.node(n)
		if err != nil {
			return nil, err
		}
		out.Node = append(out.Node, m)
	}
	if len(out.Node) == 0 {
		out.Node = []*onnxpb.NodeProto{{OpType: proto.String(absentMark), Input: []string{l.absent()}, Output: []string{l.absent()}}}
	}
	return out, nil
}

// bare keeps only the names of values.
func bare(list []*onnxpb.ValueInfoProto) (out []*onnxpb.ValueInfoProto) {
	for _, v := range list {
		out = append(out, &onnxpb.ValueInfoProto{Name: v.Name})
	}
	return out
}

// absent returns a placeholder name.
func (l *lean) absent() string {
	l.fresh++
	return fmt.Sprintf("%s%d", absentMark, l.fresh)
}

func (l *lean) node(n *onnxpb.NodeProto) (*onnxpb.NodeProto, error) {
	if names := strings.Join(append(n.Input, n.Output...), " "); strings.ContainsAny(names, absentMark+againMark) {
		return nil, fmt.Errorf("a name among %q has control characters", names)
	}
	out := &onnxpb.NodeProto{OpType: n.OpType}
	if n.GetDomain() != "" {
		out.OpType = proto.String(n.GetDomain() + "::" + n.GetOpType())
	}
	seen := map[string]bool{}
	for _, name := range n.Input {
		switch {
		case name == "":
			name = l.absent()
		case seen[name]:
			l.fresh++
			name = fmt.Sprintf("%s%d%s%s", againMark, l.fresh, againMark, name)
		default:
			seen[name] = true
		}
		out.Input = append(out.Input, name)
	}
	if len(seen) == 0 {
		out.Input = append(out.Input, l.absent()+absentMark) // unlike an absent input
	}
	for _, name := range n.Output {
		if name == "" {
			name = l.absent()
		}
		out.Output = append(out.Output, name)
	}
	for _, a := range n.Attribute {
		graphs := a.Graphs
		if a.G != nil {
			graphs = append([]*onnxpb.GraphProto{a.G}, graphs...)
		}
		for _, g := range graphs {
			handle := len(l.bodies)
			l.bodies = append(l.bodies, g)
			out.Attribute = append(out.Attribute, &onnxpb.AttributeProto{Name: proto.String(strconv.Itoa(handle)),
				Type: onnxpb.AttributeProto_INT.Enum(), I: proto.Int64(int64(handle))})
		}
	}
	return out, nil
}
