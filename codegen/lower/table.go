package lower

// Expanded lists the ops that passes replace by others, which therefore have no rule, and Region itself.
func Expanded() []string { return []string{"GRU", "LSTM", "RNN", "Region"} }

// table maps ops to rules.
func table() map[string]rule {
	t := map[string]rule{
		"BatchNorm": batchNorm, "QuantizeLinear": quantize, "DequantizeLinear": dequantize, "BlockQuantize": blockQuantize,

		"Reshape": reshape, "Transpose": transpose, "Expand": expand, "Slice": slice, "Concat": concat, "Pad": pad, "Tile": tile,
		"Gather": gather, "GatherElements": gatherElements, "GatherND": gatherND, "ScatterElements": scatterElements,
		"ScatterND": scatterND, "Trilu": trilu, "OneHot": oneHot, "ReverseSequence": reverseSequence,
		"Resize": resize, "GridSample": gridSample, "RoiAlign": roiAlign,

		"ReduceSum": reduce, "ReduceMean": reduce, "ReduceMax": reduce, "ReduceMin": reduce, "ReduceProd": reduce,
		"ArgMax": arg, "ArgMin": arg, "Softmax": softmax, "LogSoftmax": softmax, "LayerNorm": norm, "RMSNorm": norm,
		"CumSum": cumulative, "CumProd": cumulative, "TopK": topK,

		"MatMul": matMul, "Conv": conv, "ConvTranspose": convTranspose, "Einsum": einsum, "Attention": attention,
		"SegmentedMatVec": segmentedMatVec, "MaxPool": maxPool, "AveragePool": averagePool, "LpPool": averagePool,
	}
	for _, op := range []string{
		"Abs", "Neg", "Sign", "Ceil", "Floor", "Round", "Reciprocal", "Sqrt", "Exp", "Log", "Log1p", "Sin", "Cos", "Tan", "Asin",
		"Acos", "Atan", "Sinh", "Cosh", "Tanh", "Asinh", "Acosh", "Atanh", "Erf", "Sigmoid", "Relu", "Silu", "Gelu", "Not",
		"BitNot", "IsNaN", "IsInf", "Cast", "BitCast", "Add", "Sub", "Mul", "Div", "Mod", "Pow", "Min", "Max", "And", "Or", "Xor",
		"BitAnd", "BitOr", "BitXor", "ShiftLeft", "ShiftRight", "Equal", "Less", "LessEqual", "Greater", "GreaterEqual", "Where",
	} {
		t[op] = elementwise
	}
	return t
}
