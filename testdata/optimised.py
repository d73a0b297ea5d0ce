#!/usr/bin/env python3
"""Let ONNX Runtime's tools optimise and quantise models, and write each result as a test case.

    python optimised.py DIR MODEL.onnx …

For each model, which is converted to opset 17 and f32, a small network with an LSTM, and a layer of BERT:

    NAME_extended     saved with ORT_ENABLE_EXTENDED
    NAME_transformer  by onnxruntime.transformers.optimizer
    NAME_qdq          by quantize_static with QuantizeLinear and DequantizeLinear, then saved with ORT_ENABLE_EXTENDED
    NAME_qoperator    by quantize_static with quantised operators
    NAME_dynamic      by quantize_dynamic, BERT as NAME_transformer, then saved with ORT_ENABLE_EXTENDED

DIR/CASE/model.onnx and DIR/CASE/test_data_set_0/{input,output}_M.pb: inputs are drawn at random, outputs are those of the file, run on
the CPU without further optimisation. DIR/CASE/spread is how far they move, as relative L2, if inputs change by 1e-6: a number that
rounds to the other integer changes those behind it. Prints which operators of com.microsoft each file has.
"""

import collections
import os
import sys

import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper, numpy_helper, version_converter
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_dynamic, quantize_static
from onnxruntime.transformers import optimizer

LEVEL = ort.GraphOptimizationLevel


def session(model, level, save=None):
    options = ort.SessionOptions()
    options.graph_optimization_level = level
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    if save:
        options.optimized_model_filepath = save
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def in_f32(model):
    """The model with f32 for every f16."""
    def tensor(t):
        if t.data_type == onnx.TensorProto.FLOAT16:
            t.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(t).astype(np.float32), t.name))

    for t in model.graph.initializer:
        tensor(t)
    for node in model.graph.node:
        for a in node.attribute:
            if a.HasField("t"):
                tensor(a.t)
            if a.name == "to" and a.i == onnx.TensorProto.FLOAT16:
                a.i = onnx.TensorProto.FLOAT
    for v in list(model.graph.input) + list(model.graph.output) + list(model.graph.value_info):
        if v.type.tensor_type.elem_type == onnx.TensorProto.FLOAT16:
            v.type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    return model


def lstm():
    """Two directions over eight steps, and a layer of the last states."""
    rng = np.random.default_rng(5)
    f = lambda name, *shape: numpy_helper.from_array((rng.standard_normal(shape) / np.sqrt(shape[-1])).astype(np.float32), name)
    nodes = [helper.make_node("LSTM", ["x", "w", "r", "b"], ["", "h"], name="lstm", hidden_size=16, direction="bidirectional"),
             helper.make_node("Transpose", ["h"], ["t"], name="transpose", perm=[1, 0, 2]), helper.make_node("Flatten", ["t"], ["flat"], name="flatten"),
             helper.make_node("MatMul", ["flat", "m"], ["y"], name="last")]
    graph = helper.make_graph(nodes, "lstm", [helper.make_tensor_value_info("x", 1, [8, 1, 12])], [helper.make_tensor_value_info("y", 1, [1, 6])],
                              [f("w", 2, 64, 12), f("r", 2, 64, 16), f("b", 2, 128), f("m", 32, 6)])
    return helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 17)])


def bert():
    """Embeddings and a layer of attention over six tokens in f32, as PyTorch exports BERT."""
    rng = np.random.default_rng(7)
    heads, width, tokens = 2, 16, 6
    weights, nodes = [], []

    def f(name, *shape, gain=1.0):
        weights.append(numpy_helper.from_array((gain * rng.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32), name))
        return name

    def c(name, value, dtype=np.int64):
        weights.append(numpy_helper.from_array(np.array(value, dtype), name))
        return name

    def n(op, inputs, out, **attributes):
        nodes.append(helper.make_node(op, inputs, [out], name=out, **attributes))
        return out

    def norm(x, out):
        return n("LayerNormalization", [x, f(out + "_gamma", width), f(out + "_beta", width)], out, axis=-1, epsilon=1e-12)

    def linear(x, out, to, of=width):
        return n("Add", [f(out + "_bias", to), n("MatMul", [x, f(out + "_weight", of, to)], out + "_product")], out)

    words = n("Gather", [f("words", 30, width), "input_ids"], "word")
    segments = n("Gather", [f("segments", 2, width), "token_type_ids"], "segment")
    positions = n("Gather", [f("positions", 9, width), c("numbers", [list(range(tokens))])], "position")
    x = norm(n("Add", [n("Add", [words, segments], "both"), positions], "embedded"), "embeddings")
    hide = n("Unsqueeze", [n("Unsqueeze", ["attention_mask", c("one", [1])], "mask_1"), c("two", [2])], "mask_2")
    hide = n("Mul", [n("Sub", [c("unit", 1, np.float32), n("Cast", [hide], "mask_3", to=1)], "hidden"), c("least", -10000, np.float32)], "hide")
    split = c("split", [0, 0, heads, width // heads])
    q, k, v = (n("Transpose", [n("Reshape", [linear(x, p, width), split], p + "_heads")], p + "_first", perm=perm)
               for p, perm in (("query", [0, 2, 1, 3]), ("key", [0, 2, 3, 1]), ("value", [0, 2, 1, 3])))
    scores = n("Div", [n("MatMul", [q, k], "scores"), c("root", np.sqrt(width // heads), np.float32)], "scaled")
    mixed = n("MatMul", [n("Softmax", [n("Add", [scores, hide], "masked")], "share", axis=-1), v], "mixed")
    joined = n("Reshape", [n("Transpose", [mixed], "tokens", perm=[0, 2, 1, 3]), c("join", [0, 0, width])], "joined")
    x = norm(n("Add", [linear(joined, "attended", width), x], "with_input"), "attention")
    h = linear(x, "inner", 32)
    erf = n("Add", [n("Erf", [n("Div", [h, c("sqrt2", np.sqrt(2), np.float32)], "h_2")], "erf"), c("plus", 1, np.float32)], "erf_1")
    h = n("Mul", [n("Mul", [h, erf], "h_erf"), c("half", 0.5, np.float32)], "gelu")
    x = norm(n("Add", [linear(h, "outer", width, 32), x], "with_attention"), "y")
    value = helper.make_tensor_value_info
    ids = [value(name, onnx.TensorProto.INT64, [1, tokens]) for name in ("input_ids", "token_type_ids", "attention_mask")]
    graph = helper.make_graph(nodes, "bert", ids, [value("y", 1, [1, tokens, width])], weights)
    return helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 17)])


def draw(model, seed):
    rng = np.random.default_rng(seed)
    feed = {}
    for i in model.graph.input:
        t = i.type.tensor_type
        shape = [d.dim_value for d in t.shape.dim]
        dtype = helper.tensor_dtype_to_np_dtype(t.elem_type)
        feed[i.name] = rng.integers(0, 256 if dtype == np.uint8 else 2, shape).astype(dtype) if dtype.kind in "iu" else rng.standard_normal(shape).astype(dtype)
    return feed


class Reader(CalibrationDataReader):
    def __init__(self, model):
        self.feeds = iter([draw(model, seed) for seed in range(10, 14)])

    def get_next(self):
        return next(self.feeds, None)


def put(path, values):
    for i, value in enumerate(values):
        with open(f"{path}_{i}.pb", "wb") as f:
            f.write(numpy_helper.from_array(np.array(value, order="C")).SerializeToString(deterministic=True))


def write(folder, path):
    """Moves a file into its case, and adds what it computes."""
    model = onnx.load(path)
    os.makedirs(os.path.join(folder, "test_data_set_0"))
    feed = draw(model, 1)
    plain = session(path, LEVEL.ORT_DISABLE_ALL)
    outs = plain.run(None, feed)
    put(os.path.join(folder, "test_data_set_0", "input"), feed.values())
    put(os.path.join(folder, "test_data_set_0", "output"), outs)
    spread = 0
    for seed in range(4):
        rng = np.random.default_rng(seed)
        near = {k: v if v.dtype.kind in "iu" else (v * (1 + 1e-6 * rng.choice([-1, 1], v.shape))).astype(v.dtype) for k, v in feed.items()}
        spread = max([spread] + [np.linalg.norm(a - b) / np.linalg.norm(a) for a, b in zip(outs, plain.run(None, near))])
    with open(os.path.join(folder, "spread"), "w") as f:
        f.write(f"{spread:.3g}\n")
    os.rename(path, os.path.join(folder, "model.onnx"))
    ops = collections.Counter(n.op_type for n in model.graph.node if n.domain == "com.microsoft")
    print(os.path.basename(folder), dict(ops), flush=True)


def main():
    out, *paths = sys.argv[1:]
    models = {os.path.splitext(os.path.basename(p))[0]: in_f32(onnx.load(p)) for p in paths}
    models["lstm"], models["bert"] = lstm(), bert()
    for name, model in models.items():
        if model.opset_import[0].version < 17:
            model = version_converter.convert_version(model, 17)
        base = os.path.join(out, name + ".onnx")
        onnx.save(model, base)
        file = lambda variant: os.path.join(out, f"{name}_{variant}.onnx")
        extended = lambda of, to: session(of, LEVEL.ORT_ENABLE_EXTENDED, to)
        extended(base, file("extended"))
        fused = optimizer.optimize_model(base, model_type="bert", num_heads=2 if name == "bert" else 0, hidden_size=16 if name == "bert" else 0, opt_level=0)
        fused.save_model_to_file(file("transformer"))
        for variant, form in (("q", QuantFormat.QDQ), ("qoperator", QuantFormat.QOperator)):
            quantize_static(base, file(variant), Reader(model), quant_format=form, activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8, per_channel=form == QuantFormat.QDQ)
        extended(file("q"), file("qdq"))
        quantize_dynamic(file("transformer") if name == "bert" else base, file("d"), weight_type=QuantType.QInt8, extra_options={"DefaultTensorType": onnx.TensorProto.FLOAT})
        extended(file("d"), file("dynamic"))
        for variant in ("extended", "transformer", "qdq", "qoperator", "dynamic"):
            write(os.path.join(out, f"{name}_{variant}"), file(variant))
        for path in (base, file("q"), file("d")):
            os.remove(path)


main()
