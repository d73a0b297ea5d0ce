package randgraph

import (
	"slices"
	"strings"

	"github.com/spark-compile/spark-compile/frontend/onnx/onnxpb"
	"github.com/spark-compile/spark-compile/ir"
)

// dispute is a kind of node on which a judge's answer is not what ONNX says, or what ONNX does not say. Where a case has one, that
// judge's answer may differ from ours. Where the judge is ONNX Runtime, the onnx package's evaluator must then agree with us, and
// must not be disputed itself.
type dispute struct {
	judge  string // the verdict's By begins with it
	op     string // or several, separated by commas
	reason string
	when   func(n *onnxpb.NodeProto, in []*value) bool
}

var disputes = []dispute{
	{"reference", "LRN", "its loop over channels ends at the batch size", func(_ *onnxpb.NodeProto, in []*value) bool { return in[0].Shape[0] < in[0].Shape[1] }},
	{"reference", "GlobalMaxPool", "it reduces two axes whatever the rank", func(_ *onnxpb.NodeProto, in []*value) bool { return in[0].Rank() != 4 }},
	{"reference", "RNN, GRU, LSTM", "it ignores clip, sequence_lens and activations", always},
	{"reference", "BatchNormalization", "before opset 14 it mixes in the statistics of the batch", func(n *onnxpb.NodeProto, in []*value) bool {
		m := attribute(n, "training_mode")
		return m == nil
	}},
	{"reference", "MaxPool, AveragePool, LpPool", "its indices are others, and so are its windows with ceil_mode, auto_pad or paddings that differ", always},
	{"reference", "AffineGrid", "of f64 it yields f32", func(_ *onnxpb.NodeProto, in []*value) bool { return in[0].DType != ir.Float32 }},
	{"reference", "LpNormalization", "its 1-norm has a sign", func(n *onnxpb.NodeProto, _ []*value) bool { return attribute(n, "p").GetI() == 1 }},
	{"reference", "Softmax, LogSoftmax, Hardmax", "it takes opset 13's meaning for the older ones", always},
	{"reference", "Resize", "align_corners, pytorch_half_pixel: it takes scale·size, which may be no whole number, for the length", func(n *onnxpb.NodeProto, _ []*value) bool {
		mode := string(attribute(n, "coordinate_transformation_mode").GetS())
		return mode == "align_corners" || mode == "pytorch_half_pixel"
	}},
	{"reference", "Dropout", "its mask is of bool in every opset", func(n *onnxpb.NodeProto, _ []*value) bool { return len(n.Output) > 1 }},
	{"reference", "OneHot", "it computes off + (on - off)·mask, which rounds", func(_ *onnxpb.NodeProto, in []*value) bool { return in[2].DType.IsFloat() }},
	{"reference", "Resize", "half_pixel_symmetric: it takes the neighbours of a coordinate that is a whole number but for the last bit", func(n *onnxpb.NodeProto, _ []*value) bool {
		return string(attribute(n, "coordinate_transformation_mode").GetS()) == "half_pixel_symmetric"
	}},
	{"ort", "Attention", "causal, behind cached keys, it aligns the last query with the last key", func(n *onnxpb.NodeProto, in []*value) bool {
		return attribute(n, "is_causal").GetI() == 1 && len(in) > 4 && in[4] != nil
	}},
	{"ort", "AffineGrid", "a single cell with corners aligned is at 1; here it is at 0, as in PyTorch", oneCell},
	{"reference", "AffineGrid", "a single cell with corners aligned is at -1; here it is at 0, as in PyTorch", oneCell},
	{"ort", "BatchNormalization", "in training it writes running statistics over its inputs, which others may read", func(n *onnxpb.NodeProto, _ []*value) bool {
		return attribute(n, "training_mode").GetI() == 1
	}},
	{"ort", "MeanVarianceNormalization", "it divides by a deviation of 0", func(n *onnxpb.NodeProto, in []*value) bool {
		axes := []int64{0, 2, 3}
		if a := attribute(n, "axes"); a != nil {
			axes = a.Ints
		}
		return equalSlices(in[0], axes)
	}},
	{"ort", "InstanceNormalization", "of equal values it divides what their mean was rounded by through the root of epsilon", func(_ *onnxpb.NodeProto, in []*value) bool {
		var axes []int64
		for k := 2; k < in[0].Rank(); k++ {
			axes = append(axes, int64(k))
		}
		return equalSlices(in[0], axes)
	}},
	{"ort", "BlackmanWindow", "it computes in f32, where an end is not 0 by another rounding", always},
	{"reference", "ReduceSum, ReduceProd, ReduceMean, ReduceL1, ReduceL2, ReduceLogSum, ReduceSumSquare", "of i32 it yields i64", integers},
	{"reference", "Loop", "it stacks scalars as rows, and joins what it should stack", always},
	{"reference", "RoiAlign", "before opset 16 it takes opset 16's coordinates", always},
	{"ort", "GridSample", "cubic, it pads pixels and not coordinates (as PyTorch does)", func(n *onnxpb.NodeProto, _ []*value) bool {
		return strings.HasSuffix(string(attribute(n, "mode").GetS()), "cubic") && string(attribute(n, "padding_mode").GetS()) != "zeros"
	}},
	{"ort", "Resize", "it leaves dimensions alone whose size stays, whatever their scale", staysInSize},
}

func integers(_ *onnxpb.NodeProto, in []*value) bool { return !in[0].DType.IsFloat() }

// equalSlices reports whether x is the same all over a slice that a node normalises over some axes.
func equalSlices(x *value, axes []int64) bool {
	first := map[int]float64{}
	varies := map[int]bool{}
	for i, v := range x.data.F {
		key, rest, stride := 0, i, 1
		for k := x.Rank() - 1; k >= 0; k-- {
			d := x.Shape[k]
			if !slices.Contains(axes, int64(k)) && !slices.Contains(axes, int64(k-x.Rank())) {
				key += rest % d * stride
				stride *= d
			}
			rest /= d
		}
		if f, ok := first[key]; !ok {
			first[key] = v
		} else if f != v {
			varies[key] = true
		}
	}
	return len(varies) < len(first)
}

func oneCell(n *onnxpb.NodeProto, in []*value) bool {
	return attribute(n, "align_corners").GetI() == 1 && slices.Contains(in[1].data.I[2:], 1)
}

// staysInSize reports whether a scale other than 1 leaves a dimension's size as it is.
func staysInSize(_ *onnxpb.NodeProto, in []*value) bool {
	for _, v := range in[1:] {
		if v == nil || v.DType != ir.Float32 || v.Numel() != in[0].Rank() {
			continue
		}
		for i, d := range in[0].Shape {
			if s := v.data.F[i]; s != 1 && int(s*float64(d)) == d {
				return true
			}
		}
	}
	return false
}

func always(*onnxpb.NodeProto, []*value) bool { return true }

func attribute(n *onnxpb.NodeProto, name string) *onnxpb.AttributeProto {
	for _, a := range n.Attribute {
		if a.GetName() == name {
			return a
		}
	}
	return nil
}

// disputed lists the disputes of a node, as "judge: op: reason".
func disputed(op string, n *onnxpb.NodeProto, in []*value) []string {
	var out []string
	for _, d := range disputes {
		if slices.Contains(strings.Split(d.op, ", "), op) && d.when(n, in) {
			out = append(out, d.judge+": "+op+": "+d.reason)
		}
	}
	return out
}

// Disputed reports whether a judge's answer to the case may differ from ours, and why.
func (c *Case) Disputed(by string) string {
	for _, d := range c.Disputes {
		judge, _, _ := strings.Cut(d, ":")
		if strings.HasPrefix(by, judge) {
			return d
		}
	}
	return ""
}

// disputedOp reports whether one of the disputes with a judge is about an operator.
func (c *Case) disputedOp(by, op string) bool {
	return slices.ContainsFunc(c.Disputes, func(d string) bool {
		judge, reason, _ := strings.Cut(d, ": ")
		return strings.HasPrefix(by, judge) && strings.HasPrefix(reason, op+":")
	})
}
