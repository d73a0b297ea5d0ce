#!/usr/bin/env python3
"""Write test cases of the operators that ONNX Runtime adds to ONNX, and of others that are easily got wrong, as it computes them.

    python microsoft.py DIR SEED

makes DIR/NAME/model.onnx and DIR/NAME/test_data_set_0/{input,output}_M.pb: one node a model, run on the CPU without
optimisation, but for a detector. Data are drawn by SEED; shapes and attributes do not depend on it.
"""

import os
import sys

import ml_dtypes
import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

MICROSOFT = "com.microsoft"
CLASSICAL = "ai.onnx.ml"
cases = []


def case(name, op, inputs, outputs=1, opset=17, domain=MICROSOFT, **attributes):
    """Adds a case. inputs are arrays, None for an absent one, or const(array); outputs is their number, or which to ask for."""
    cases.append((name, op, inputs, outputs, opset, domain, attributes))


class const:
    def __init__(self, value):
        self.value = np.asarray(value)


class Typed(const):
    """A constant of elements of 4 bits, by the name of their type."""

    def __init__(self, values, name):
        self.value = np.asarray(values).astype(getattr(ml_dtypes, name))


def model(op, inputs, outputs, opset, domain, attributes):
    wanted = [True] * outputs if isinstance(outputs, int) else outputs
    node = helper.make_node(op, ["" if x is None else f"in{i}" for i, x in enumerate(inputs)],
                            [f"out{i}" if w else "" for i, w in enumerate(wanted)], name="node", domain=domain, **attributes)
    infos, initializers, feed = [], [], {}
    for i, x in enumerate(inputs):
        if isinstance(x, const):
            initializers.append(numpy_helper.from_array(x.value, f"in{i}"))
        elif x is not None:
            x = np.asarray(x)
            infos.append(helper.make_tensor_value_info(f"in{i}", helper.np_dtype_to_tensor_dtype(x.dtype), x.shape))
            feed[f"in{i}"] = x
    outs = [onnx.ValueInfoProto(name=f"out{i}") for i, w in enumerate(wanted) if w]
    graph = helper.make_graph([node], "graph", infos, outs, initializers)
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid(MICROSOFT, 1)]
    if domain == CLASSICAL:
        opsets.append(helper.make_opsetid(CLASSICAL, 5 if op == "TreeEnsemble" else 3))
    return helper.make_model(graph, ir_version=10, opset_imports=opsets), feed


def run(m, feed):
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    return ort.InferenceSession(m.SerializeToString(), options, providers=["CPUExecutionProvider"]).run(None, feed)


def write(folder, m, feed, outs):
    """Writes a case; outputs are declared as they came out."""
    for info, y in zip(m.graph.output, outs):
        info.CopyFrom(helper.make_tensor_value_info(info.name, helper.np_dtype_to_tensor_dtype(y.dtype), y.shape))
    data = os.path.join(folder, "test_data_set_0")
    os.makedirs(data)
    for kind, values in (("input", feed.values()), ("output", outs)):
        for i, value in enumerate(values):
            with open(os.path.join(data, f"{kind}_{i}.pb"), "wb") as f:
                f.write(numpy_helper.from_array(np.array(value, order="C")).SerializeToString(deterministic=True))
    with open(os.path.join(folder, "model.onnx"), "wb") as f:
        f.write(m.SerializeToString(deterministic=True))


def fill(rng):
    f = lambda *shape: rng.standard_normal(shape).astype(np.float32)
    h = lambda *shape: f(*shape).astype(np.float16)
    u = lambda *shape: rng.integers(0, 256, shape, np.uint8)
    i = lambda *shape: rng.integers(-128, 128, shape, np.int8)
    ids = lambda top, *shape: rng.integers(0, top, shape, np.int32)
    scale = lambda *shape: (rng.random(shape) * 0.05 + 0.01).astype(np.float32)
    u8, i8 = np.uint8(rng.integers(100, 150)), np.int8(rng.integers(-20, 20))

    case("Gelu", "Gelu", [f(3, 5) * 2])
    case("BiasGelu", "BiasGelu", [f(2, 3, 5), f(5)])
    case("FastGelu", "FastGelu", [f(3, 5) * 2])
    case("FastGelu_bias", "FastGelu", [f(2, 3, 5), f(5)])
    case("QuickGelu", "QuickGelu", [f(3, 5) * 2])
    case("QuickGelu_alpha", "QuickGelu", [f(3, 5) * 2], alpha=1.0)

    case("LayerNormalization_before_17", "LayerNormalization", [f(2, 3, 8), f(8), f(8)], opset=13, domain="", axis=-1, epsilon=1e-5)
    case("LayerNormalization_before_17_statistics", "LayerNormalization", [f(2, 3, 8), f(8), f(8)], 3, opset=13, domain="", axis=1)
    case("SimplifiedLayerNormalization", "SimplifiedLayerNormalization", [f(2, 3, 8), f(8)], domain="", axis=-1, epsilon=1e-6)
    case("SimplifiedLayerNormalization_statistics", "SimplifiedLayerNormalization", [f(2, 3, 8), f(8)], 2, domain="", axis=-1, epsilon=1e-2)
    case("SkipLayerNormalization", "SkipLayerNormalization", [f(2, 3, 8), f(2, 3, 8), f(8), f(8), f(8)], [1, 0, 0, 1], epsilon=1e-3)
    case("SkipLayerNormalization_broadcast", "SkipLayerNormalization", [f(2, 3, 8), f(1, 3, 8), f(8)])
    case("SkipLayerNormalization_two_dimensions", "SkipLayerNormalization", [f(2, 3, 8), f(3, 8), f(8), f(8)])
    case("SkipSimplifiedLayerNormalization", "SkipSimplifiedLayerNormalization", [f(2, 3, 8), f(2, 3, 8), f(8)], epsilon=1e-3)
    case("SkipSimplifiedLayerNormalization_bias", "SkipSimplifiedLayerNormalization", [f(2, 3, 8), f(2, 3, 8), f(8), f(8)], [1, 0, 0, 1])
    mask = np.array([[1, 1, 1, 0], [1, 0, 0, 0]], np.int32)
    case("EmbedLayerNormalization", "EmbedLayerNormalization", [ids(9, 2, 4), ids(2, 2, 4), f(9, 8), f(6, 8), f(2, 8), f(8), f(8), mask], 3, epsilon=1e-3)
    case("EmbedLayerNormalization_positions", "EmbedLayerNormalization", [ids(9, 2, 4), None, f(9, 8), f(6, 8), None, f(8), f(8), None, ids(6, 2, 4)], 2)

    case("FusedMatMul", "FusedMatMul", [f(2, 5, 3), f(2, 4, 5)], transA=1, transB=1, alpha=0.25)
    case("FusedMatMul_batch", "FusedMatMul", [f(3, 2, 5), f(4, 2, 5)], transBatchA=1, transBatchB=1, transB=1)
    case("FusedMatMul_batch_4", "FusedMatMul", [f(5, 2, 3, 7), f(2, 3, 5, 4)], transBatchA=1, transA=1, alpha=2.0)
    case("FusedMatMul_vector", "FusedMatMul", [f(5), f(5, 4)], alpha=3.0, transA=1)
    case("TransposeMatMul", "TransposeMatMul", [f(5, 3), f(4, 5)], transA=1, transB=1, alpha=0.5)
    for act, attrs in (("Relu", {}), ("LeakyRelu", {"alpha": 0.2}), ("Elu", {"alpha": 0.7}), ("HardSigmoid", {"alpha": 0.3, "beta": 0.4}), ("Sigmoid", {}),
                       ("Tanh", {}), ("Softplus", {}), ("Softsign", {}), ("ThresholdedRelu", {"alpha": 0.5}), ("Selu", {"alpha": 1.5, "gamma": 1.1})):
        case(f"FusedGemm_{act}", "FusedGemm", [f(3, 5), f(4, 5), f(4)], transB=1, alpha=0.5, beta=2.0, activation=act,
             **{"activation_" + k: v for k, v in attrs.items()})
    case("FusedConv_none", "FusedConv", [f(1, 3, 6, 6), f(4, 3, 3, 3), f(4)], pads=[1, 1, 1, 1])
    for act, params in (("Relu", None), ("LeakyRelu", [0.2]), ("Sigmoid", None), ("Tanh", None), ("Clip", [-0.3, 0.8]), ("HardSigmoid", [0.3, 0.4])):
        more = {"activation_params": params} if params else {}
        case(f"FusedConv_{act}", "FusedConv", [f(1, 4, 7, 6), f(4, 2, 3, 3), f(4)], pads=[1, 0, 1, 1], strides=[2, 1], group=2, activation=act, **more)
    case("FusedConv_sum", "FusedConv", [f(1, 3, 6, 6), f(4, 3, 3, 3), f(4), f(1, 4, 4, 4)], activation="Relu")
    for bits, block, k, zero in ((4, 16, 32, False), (4, 32, 48, True), (8, 16, 40, True), (4, 16, 80, True)):
        n, blocks = 6, -(-k // block)
        zeros = const(u(n * -(-blocks * bits // 8))) if zero else None
        case(f"MatMulNBits_{bits}_{k}" + "_zero" * zero, "MatMulNBits", [f(2, 3, k), const(u(n, blocks, block * bits // 8)), const(scale(n * blocks)), zeros],
             K=k, N=n, bits=bits, block_size=block)
    case("MatMulNBits_bias", "MatMulNBits", [f(3, 32), const(u(5, 2, 8)), const(scale(10)), None, None, const(f(5))], K=32, N=5, bits=4, block_size=16)

    b, s, n, d = 2, 4, 2, 4
    w, bias = const(f(8, 3 * n * d)), const(f(3 * n * d))
    keys = np.array([[1, 1, 1, 0], [1, 1, 0, 0]], np.int32)
    case("Attention", "Attention", [f(b, s, 8), w, bias], num_heads=n)
    case("Attention_causal", "Attention", [f(b, s, 8), w, bias], num_heads=n, unidirectional=1, scale=0.3)
    case("Attention_keys", "Attention", [f(b, s, 8), w, bias, keys], num_heads=n)
    case("Attention_keys_causal", "Attention", [f(b, s, 8), w, bias, keys], num_heads=n, unidirectional=1)
    case("Attention_filter", "Attention", [f(b, s, 8), w, bias, keys], num_heads=n, mask_filter_value=-1.0)
    case("Attention_ends", "Attention", [f(b, s, 8), w, bias, np.array([3, 2], np.int32)], num_heads=n)
    case("Attention_ends_starts", "Attention", [f(b, s, 8), w, bias, np.array([3, 4, 1, 0], np.int32)], num_heads=n)
    each = rng.integers(0, 2, (b, s, s)).astype(np.int32)
    each[..., 1] = 1  # where all keys are hidden, scores near -10000 decide, of which f32 keeps three digits
    case("Attention_mask_of_queries", "Attention", [f(b, s, 8), w, bias, each], num_heads=n)
    case("Attention_bias", "Attention", [f(b, s, 8), w, bias, None, None, f(b, n, s, s)], num_heads=n)
    case("Attention_sizes", "Attention", [f(b, s, 8), const(f(8, 8 + 8 + 12)), const(f(28))], num_heads=n, qkv_hidden_sizes=[8, 8, 12])
    case("Attention_past", "Attention", [f(b, 2, 8), w, bias, None, f(2, b, n, 3, d)], 2, num_heads=n, unidirectional=1)
    case("Attention_past_keys", "Attention", [f(b, 1, 8), w, bias, np.array([[1, 1, 1, 1], [0, 1, 1, 1]], np.int32), f(2, b, n, 3, d)], 2, num_heads=n)
    h8 = n * d
    case("MultiHeadAttention", "MultiHeadAttention", [f(b, s, h8), f(b, 5, h8), f(b, 5, 12)], num_heads=n)
    case("MultiHeadAttention_bias", "MultiHeadAttention", [f(b, s, h8), f(b, 5, h8), f(b, 5, h8), f(3 * h8)], num_heads=n, scale=0.7)
    case("MultiHeadAttention_keys", "MultiHeadAttention", [f(b, s, h8), f(b, 4, h8), f(b, 4, h8), None, keys], num_heads=n)
    case("MultiHeadAttention_ends", "MultiHeadAttention", [f(b, s, h8), f(b, 5, h8), f(b, 5, h8), None, np.array([3, 5], np.int32)], num_heads=n)
    case("MultiHeadAttention_attention_bias", "MultiHeadAttention", [f(b, s, h8), f(b, 5, h8), f(b, 5, h8), None, None, f(1, n, s, 5)], num_heads=n)
    case("MultiHeadAttention_cross", "MultiHeadAttention", [f(b, s, h8), f(b, n, 5, d), f(b, n, 5, d)], num_heads=n)
    case("MultiHeadAttention_past", "MultiHeadAttention", [f(b, 2, h8), f(b, 2, h8), f(b, 2, h8), None, None, None, f(b, n, 3, d), f(b, n, 3, d)], 3, num_heads=n, unidirectional=1)
    case("MultiHeadAttention_causal", "MultiHeadAttention", [f(b, s, h8), f(b, s, h8), f(b, s, h8)], num_heads=n, unidirectional=1)

    case("QuantizeLinear", "QuantizeLinear", [f(3, 4) * 3, np.float32(0.02), u8])
    case("QuantizeLinear_axis", "QuantizeLinear", [f(3, 4), scale(4), i(4)], axis=1)
    case("QuantizeLinear_16", "QuantizeLinear", [f(3, 4), np.float32(0.001), np.uint16(30000)])
    case("DequantizeLinear", "DequantizeLinear", [u(3, 4), np.float32(0.02), u8])
    case("DequantizeLinear_axis", "DequantizeLinear", [i(3, 4), scale(3), i(3)], axis=0)
    case("DequantizeLinear_32", "DequantizeLinear", [rng.integers(-9999, 9999, (3, 4)).astype(np.int32), np.float32(0.02)])
    for t, v, z in (("u8", u, u8), ("i8", i, i8)):
        low = np.uint8(3) if t == "u8" else np.int8(-120)
        one, two, three = scale(3)  # drawn: of round ones, results lie between two integers, and the order of products decides
        case(f"QLinearAdd_{t}", "QLinearAdd", [v(2, 3, 5), one, z, v(3, 1), two, z, three * 2, z])
        case(f"QLinearMul_{t}", "QLinearMul", [v(2, 3, 5), one, z, v(5), two, z, three * 6, z])
        case(f"QLinearSigmoid_{t}", "QLinearSigmoid", [v(3, 50), one, z, three / 8, low])
        case(f"QLinearLeakyRelu_{t}", "QLinearLeakyRelu", [v(3, 50), one, z, two, z], alpha=0.2)
        case(f"QLinearConcat_{t}", "QLinearConcat", [two, z, v(2, 3), one, z, v(2, 4), two, z], axis=-1)
        case(f"QLinearGlobalAveragePool_{t}", "QLinearGlobalAveragePool", [v(2, 3, 4, 5), one, z, three / 4, z])
        case(f"QLinearGlobalAveragePool_last_{t}", "QLinearGlobalAveragePool", [v(2, 4, 5, 3), one, z, three / 4, z], channels_last=1)
        case(f"QLinearAveragePool_{t}", "QLinearAveragePool", [v(1, 3, 6, 7), one, z, two, z], kernel_shape=[3, 2], strides=[2, 1], pads=[1, 0, 1, 1])
        case(f"QLinearAveragePool_last_{t}", "QLinearAveragePool", [v(1, 6, 7, 3), one, z, two, z], kernel_shape=[3, 3], pads=[1, 1, 1, 1], channels_last=1, count_include_pad=1)
        case(f"QLinearWhere_{t}", "QLinearWhere", [rng.random((3, 5)) < 0.5, v(3, 5), one, z, v(5), two, z, three * 2, z])
        case(f"NhwcMaxPool_{t}", "NhwcMaxPool", [v(1, 6, 7, 3)], kernel_shape=[3, 2], strides=[2, 1], pads=[1, 0, 1, 1])
        case(f"QLinearConv_last_{t}", "QLinearConv", [v(1, 6, 7, 4), one, z, const(v(6, 4, 3, 3)), const(two), const(v(1)[0]), three * 40, z, const(rng.integers(-999, 999, 6).astype(np.int32))],
             channels_last=1, pads=[1, 1, 1, 1], strides=[2, 2])
        case(f"QGemm_{t}", "QGemm", [v(3, 7), one, z, const(i(5, 7)), const(scale(5)), const(i(5)), const(rng.integers(-999, 999, 5).astype(np.int32)), three * 20, z], transB=1, alpha=0.7)
        case(f"QGemm_float_{t}", "QGemm", [v(7, 3), one, z, i(7, 5), scale(5), i(5)], transA=1)
        case(f"MatMulIntegerToFloat_{t}", "MatMulIntegerToFloat", [v(2, 3, 7), v(7, 5), one, scale(5), z, v(5), f(5)])
        case(f"MatMulIntegerToFloat_plain_{t}", "MatMulIntegerToFloat", [u(3, 7), v(7, 5), one, two])
        case(f"DynamicQuantizeMatMul_{t}", "DynamicQuantizeMatMul", [f(2, 3, 7), const(v(7, 5)), const(scale(5)), const(v(5)), const(f(5))])
        case(f"DynamicQuantizeMatMul_one_{t}", "DynamicQuantizeMatMul", [f(3, 7), v(7, 5), two, z])
        case(f"QAttention_{t}", "QAttention", [u(b, s, 8), const(v(8, 24)), const(f(24)), one, const(np.float32(0.01)), keys, u8, const(z)], num_heads=n)
        for dirs, per in ((1, False), (2, True)):
            hid, ins = 4, 3
            ws = lambda: const(scale(dirs, 4 * hid) if per else scale(dirs))
            wz = lambda: const(np.full((dirs, 4 * hid), 128 if t == "u8" else 0, v(1).dtype) if per else v(dirs) // 16)
            case(f"DynamicQuantizeLSTM_{t}_{dirs}", "DynamicQuantizeLSTM",
                 [f(5, 1, ins), const(v(dirs, ins, 4 * hid)), const(v(dirs, hid, 4 * hid)), const(f(dirs, 8 * hid)), None, f(dirs, 1, hid), f(dirs, 1, hid), None, ws(), wz(), ws(), wz()],
                 3, hidden_size=hid, direction="bidirectional" if dirs == 2 else "forward")
    case("QLinearSoftmax_12", "QLinearSoftmax", [u(3, 4, 5), np.float32(0.03), u8, np.float32(1 / 255), np.uint8(0)], opset_=12, axis=1)
    case("QLinearSoftmax_u8", "QLinearSoftmax", [u(3, 4, 5), np.float32(0.03), u8, np.float32(1 / 256), np.uint8(0)], opset_=13, axis=-1)
    case("QLinearSoftmax_i8", "QLinearSoftmax", [i(3, 4, 5), np.float32(0.03), i8, scale(1)[0] / 4, np.int8(-128)], opset_=13, axis=1)
    case("DynamicQuantizeLSTM_peephole", "DynamicQuantizeLSTM",
         [f(4, 2, 3), const(i(1, 3, 16)), const(i(1, 4, 16)), const(f(1, 32)), None, None, None, const(f(1, 12)), const(scale(1)), const(i(1) // 16), const(scale(1)), const(i(1) // 16)],
         1, hidden_size=4, direction="reverse", clip=0.8)
    q = lambda *shape: [const(u(*shape))]
    case("QEmbedLayerNormalization", "QEmbedLayerNormalization",
         [ids(9, 2, 4), ids(2, 2, 4)] + q(9, 8) + q(6, 8) + q(2, 8) + q(8) + q(8) + [mask] + [const(scale(1)[0]) for _ in range(5)] + [const(u(1)[0]) for _ in range(5)], 2, epsilon=1e-3)

    # of ai.onnx, with zero points that the program computes or that are inputs
    case("QLinearMatMul", "QLinearMatMul", [u(3, 7), np.float32(0.03), u8, i(7, 5), np.float32(0.02), i8, np.float32(0.4), u8], domain="")
    case("MatMulInteger", "MatMulInteger", [u(3, 7), i(7, 5), u8, i8], domain="")
    case("MatMulInteger_columns", "MatMulInteger", [u(3, 7), i(7, 5), u8, i(5)], domain="")
    case("ConvInteger", "ConvInteger", [u(1, 3, 6, 6), u(4, 3, 3, 3), u8, u8], domain="", pads=[1, 1, 1, 1])
    case("QLinearConv", "QLinearConv", [u(1, 3, 6, 6), np.float32(0.03), u8, i(4, 3, 3, 3), scale(4), np.zeros(4, np.int8), np.float32(1.1), u8], domain="")
    case("DynamicQuantizeLinear", "DynamicQuantizeLinear", [f(3, 7)], 3, domain="")


    # of ai.onnx, with a number of outputs that depends on data
    def boxes(*shape):
        at, size = rng.random((*shape, 2)), rng.random((*shape, 2)) * 0.4
        return np.concatenate([at - size / 2, at + size / 2], -1).astype(np.float32)

    one64, half, third = (const(np.array([x], t)) for x, t in ((4, np.int64), (0.5, np.float32), (0.3, np.float32)))
    scores = rng.random((2, 3, 40)).astype(np.float32)
    swapped = boxes(2, 40)[..., [2, 1, 0, 3]]
    centred = np.concatenate([rng.random((2, 40, 2)), rng.random((2, 40, 2)) * 0.4], -1).astype(np.float32)
    case("NonMaxSuppression", "NonMaxSuppression", [swapped, scores, one64, half, third], domain="")
    case("NonMaxSuppression_centred", "NonMaxSuppression", [centred, scores, np.array([3], np.int64), np.array([0.2], np.float32), np.array([0.6], np.float32)], domain="", center_point_box=1)
    case("NonMaxSuppression_all", "NonMaxSuppression", [boxes(1, 9), scores[:1, :1, :9] - 0.5, const(np.int64(99)), half], domain="")
    case("NonZero", "NonZero", [ids(3, 3, 4, 5)], domain="")
    case("NonZero_float", "NonZero", [np.maximum(f(4, 6), 0)], domain="")
    case("Compress", "Compress", [f(3, 6), rng.random(5) < 0.5], domain="", axis=1)
    case("Compress_flat", "Compress", [ids(9, 3, 6), rng.random(18) < 0.5], domain="")
    for is_sorted in (0, 1):
        case(f"Unique_{is_sorted}", "Unique", [ids(12, 3, 10).astype(np.int64)], 4, domain="", sorted=is_sorted)
        case(f"Unique_rows_{is_sorted}", "Unique", [ids(2, 9, 3).astype(np.float32)], 4, domain="", sorted=is_sorted, axis=0)
    case("Unique_columns", "Unique", [ids(2, 2, 3, 9).astype(np.int64)], 1, domain="", axis=2)
    cases.append(("Detector", detector(), {"boxes": boxes(1, 30), "scores": rng.random((1, 4, 30)).astype(np.float32)}))

    classical(rng)
    case("Det_7", "Det", [f(3, 7, 7)], domain="")
    zero = f(6, 6)
    zero[0, 0], zero[:, 4] = 0, zero[:, 1] * 2
    case("Det_pivots", "Det", [np.stack([zero, np.roll(np.eye(6), 1, 0).astype(np.float32) * 2, np.zeros((6, 6), np.float32)])], domain="")
    for name, m in sequences().items():
        cases.append((name, m, {"x": f(7, 3), "y": f(2, 3)}))
    for x in (-2.0, 2.5, 3.25):
        cases.append((f"Loop_on_data_{x}", countdown(), {"x": np.array(x, np.float32)}))
    block_weights(rng)
    queries(rng)
    regions(rng)


def regions(rng):
    """RoiAlign with as many samples as a bin has pixels. Half-pixel regions of which one side alone is negative end ONNX Runtime."""
    x = rng.standard_normal((3, 4, 9, 11)).astype(np.float32)
    boxes = np.array([
        [1, 1, 7, 6], [1.3, 0.7, 9.6, 7.1], [2, 2, 2.4, 2.7],  # inside; within a pixel
        [-9, -14, 31, 40], [-50, -3, 200, 90],  # larger than the image
        [-4, 3, 3, 12], [7.5, -2.25, 14.5, 4], [-1, -1, 11, 9], [-0.5, -0.5, 10.5, 8.5],  # partly outside, and its edges
        [20, 20, 26, 25], [-9, -9, -3, -4], [4, 30, 9, 41],  # outside
        [3, 3, 3, 3], [3, 3, 7, 3], [6, 7, 2, 1],  # of no size and of a negative one
        [0, 0, 4, 3], [2, 1, 10, 7], [0.5, 0.5, 8.5, 6.5],  # bins of whole pixels
    ], np.float32)
    images = np.arange(len(boxes), dtype=np.int64) * 2 % 3
    for opset, mode, moved in ((10, None, 0), (16, "half_pixel", 0), (16, "output_half_pixel", 0), (16, "half_pixel", 1)):
        more = {} if mode is None else {"coordinate_transformation_mode": mode}
        for scale, (h, w) in ((1.0, (3, 4)), (0.25, (2, 2)), (1 / 3, (7, 5)), (0.1, (1, 3))):
            drawn = (boxes + rng.random(boxes.shape) * moved * (boxes[:, 2:3] > boxes[:, :1])).astype(np.float32)
            case(f"RoiAlign_adaptive_{opset}_{mode}_{h}x{w}" + "_moved" * moved, "RoiAlign", [x, drawn / np.float32(scale), images], opset=opset, domain="",
                 output_height=h, output_width=w, spatial_scale=scale, **more)
    for scale in (1.0, 0.7):
        case(f"RoiAlign_adaptive_one_image_{scale}", "RoiAlign", [x[:1], boxes, images * 0], opset=16, domain="", output_height=4, output_width=2, spatial_scale=scale, sampling_ratio=0)
    case("RoiAlign_adaptive_f64", "RoiAlign", [x.astype(np.float64), boxes.astype(np.float64), images], opset=16, domain="", output_height=2, output_width=3)
    case("RoiAlign_adaptive_row", "RoiAlign", [x[:, :, :1], boxes, images], opset=16, domain="", output_height=2, output_width=3)


def block_weights(rng):
    """Weights in blocks: zero points that are no codes, columns in another order, and rows of a table."""
    f = lambda *shape: rng.standard_normal(shape).astype(np.float32)
    u = lambda *shape: rng.integers(0, 256, shape, np.uint8)
    scale = lambda *shape: (rng.random(shape) * 0.05 + 0.01).astype(np.float32)
    for bits, block, k in ((4, 16, 80), (4, 32, 48), (2, 16, 40)):
        n, count = 6, -(-k // block)
        packed = [const(u(n, count, block * bits // 8)), const(scale(n, count))]
        case(f"MatMulNBits_float_zero_{bits}_{k}", "MatMulNBits", [f(2, 3, k)] + packed + [const((rng.random((n, count)) * 2**bits).astype(np.float32))],
             K=k, N=n, bits=bits, block_size=block)
    # Beside g_idx, ONNX Runtime ignores zero points that are packed.
    ordered = np.repeat(np.arange(3), 16).astype(np.int32)
    for name, order, zero in (("ordered", ordered, True), ("reordered", rng.permutation(ordered), False), ("reordered_float_zero", rng.permutation(ordered), True)):
        zeros = const((rng.random((5, 3)) * 16).astype(np.float32)) if zero else None
        case(f"MatMulNBits_{name}", "MatMulNBits", [f(4, 48), const(u(5, 3, 8)), const(scale(5, 3)), zeros, const(order)], K=48, N=5, bits=4, block_size=16)

    rows = np.array([[0, 3], [-1, 7]], np.int32)  # 7 is beyond the 6 rows
    nibbles = lambda *shape: rng.integers(-8, 8, shape)
    for name in ("int4", "uint4"):
        low = 8 if name == "uint4" else 0
        case(f"GatherBlockQuantized_{name}", "GatherBlockQuantized", [Typed(nibbles(6, 40) + low, name), rows, const(scale(6, 3)), Typed(nibbles(6, 3) + low, name)],
             opset=21, block_size=16)
        case(f"GatherBlockQuantized_{name}_columns", "GatherBlockQuantized", [Typed(nibbles(32, 6) + low, name), rows, const(scale(2, 6))],
             opset=21, block_size=16, gather_axis=1, quantize_axis=0)
        case(f"GatherBlockQuantized_{name}_same_axis", "GatherBlockQuantized", [Typed(nibbles(3, 40, 2) + low, name), rows, const(scale(3, 3, 2)), Typed(nibbles(3, 3, 2) + low, name)],
             opset=21, block_size=16, gather_axis=1, quantize_axis=-2)
    for bits in (2, 4, 8):
        width = 48 * bits // 8
        case(f"GatherBlockQuantized_{bits}_bits", "GatherBlockQuantized", [const(u(6, width)), rows, const(scale(6, 3))], opset=21, block_size=16, bits=bits)
        case(f"GatherBlockQuantized_{bits}_bits_zero", "GatherBlockQuantized", [const(u(2, 3, width)), np.array([1], np.int64), const(scale(2, 3, 3)), const(u(2, 3, -(-3 * bits // 8)))],
             opset=21, block_size=16, bits=bits, quantize_axis=2)
    case("GatherBlockQuantized_half", "GatherBlockQuantized", [const(u(6, 16)), rows, const(scale(6, 2).astype(np.float16))], opset=21, block_size=16, bits=4)


def queries(rng):
    """GroupQueryAttention and RotaryEmbedding."""
    f = lambda *shape: rng.standard_normal(shape).astype(np.float32)
    i = lambda *values: np.array(values, np.int32)
    heads, kv, d = 4, 2, 16
    table = rng.random((40, 8)).astype(np.float32) * 6
    angles = [const(np.cos(table)), const(np.sin(table))]

    def query(name, batch, new, total, past=0, lengths=None, extra=(), packed=False, half=False, outputs=3, **attributes):
        qkv = [f(batch, new, (heads + 2 * kv) * d), None, None] if packed else [f(batch, new, heads * d), f(batch, new, kv * d), f(batch, new, kv * d)]
        cache = [f(batch, kv, past, d), f(batch, kv, past, d)] if past else [None, None]
        inputs = qkv + cache
        if half:
            inputs = [x if x is None else x.astype(np.float16) for x in inputs]
        lengths = i(*(lengths or [total - 1] * batch))
        case("GroupQueryAttention_" + name, "GroupQueryAttention", inputs + [lengths, const(np.int32(total))] + list(extra), outputs,
             num_heads=heads, kv_num_heads=kv, **attributes)

    query("prompt", 2, 5, 5)
    query("prompt_ragged", 2, 5, 5, lengths=[4, 2])
    query("prompt_packed_rotary", 2, 5, 5, packed=True, extra=angles, do_rotary=1)
    query("prompt_window_cap", 1, 7, 7, local_window_size=3, softcap=0.7)
    query("prompt_in_longer_cache", 1, 5, 5, past=9, scale=0.4)
    query("prompt_all_see_all", 2, 4, 4, lengths=[3, 2], causal=0)
    query("prompt_sink_cap", 2, 4, 4, extra=[None] * 4 + [f(heads)], softcap=0.7)
    query("prompt_smooth_half", 1, 4, 4, smooth_softmax=1, half=True)
    query("prompt_bias_cap", 2, 4, 4, extra=[None] * 3 + [f(2, 1, 4, 4)], softcap=0.9)
    query("prompt_positions", 2, 4, 4, extra=angles + [np.array([[3, 4, 5, 6], [1, 2, 3, 9]], np.int64)], do_rotary=1)
    query("token", 2, 1, 9, past=8)
    query("token_ragged_rotary", 2, 1, 6, past=8, lengths=[5, 3], extra=angles, do_rotary=1)
    query("token_interleaved_packed", 1, 1, 6, past=5, packed=True, extra=angles, do_rotary=1, rotary_interleaved=1)
    query("token_window_bias_sink", 2, 1, 8, past=8, lengths=[7, 4], extra=[None] * 3 + [f(1, heads, 1, 8), f(heads)], local_window_size=3)
    query("token_positions", 2, 1, 6, past=5, extra=angles + [np.array([[7], [2]], np.int64)], do_rotary=1)
    query("tokens_in_cache", 1, 3, 8, past=12, extra=angles, do_rotary=1, local_window_size=4)
    query("tokens_behind_cache", 1, 3, 8, past=5, smooth_softmax=1)

    positions = np.array([[0, 1, 2], [4, 5, 1]], np.int64)
    case("RotaryEmbedding_contrib", "RotaryEmbedding", [f(2, 3, 64), positions] + angles)
    case("RotaryEmbedding_contrib_offset", "RotaryEmbedding", [f(2, 3, 64), np.array([5], np.int64)] + angles, interleaved=1, scale=3.0)
    case("RotaryEmbedding_contrib_heads", "RotaryEmbedding", [f(2, 4, 3, 16), positions] + angles, interleaved=1)
    case("RotaryEmbedding_contrib_partial", "RotaryEmbedding", [f(2, 3, 96), positions] + angles, rotary_embedding_dim=16, num_heads=4)
    case("RotaryEmbedding_contrib_half", "RotaryEmbedding", [f(2, 3, 64).astype(np.float16), positions] + [const(x.value.astype(np.float16)) for x in angles])


def forest(rng, prefix, targets, trees=5, depth=4, low=-1.0, modes=("BRANCH_LEQ",), leaves=None):
    """Attributes of random trees over 6 features; leaves are the targets that a leaf has weights of, all if None."""
    nodes = {k: [] for k in ("treeids", "nodeids", "featureids", "values", "modes", "truenodeids", "falsenodeids", "missing_value_tracks_true")}
    weights = {k: [] for k in ("treeids", "nodeids", "ids", "weights")}

    def grow(tree, count, left):
        me = count[0]
        count[0] += 1
        leaf = left == 0 or left < depth and rng.random() < 0.2
        row = {"treeids": tree, "nodeids": me, "featureids": 0 if leaf else int(rng.integers(6)), "values": 0.0 if leaf else float(rng.integers(-4, 5)) / 4,
               "modes": "LEAF" if leaf else str(rng.choice(modes)), "truenodeids": 0, "falsenodeids": 0, "missing_value_tracks_true": 0 if leaf else int(rng.integers(2))}
        for k, v in row.items():
            nodes[k].append(v)
        at = len(nodes["treeids"]) - 1
        if leaf:
            for k in leaves or range(targets):
                if leaves is None or len(leaves) == 1 or rng.random() < 0.5:
                    for name, v in (("treeids", tree), ("nodeids", me), ("ids", k), ("weights", float(np.float32(rng.uniform(low, 1))))):
                        weights[name].append(v)
            return me
        nodes["truenodeids"][at] = grow(tree, count, left - 1)
        nodes["falsenodeids"][at] = grow(tree, count, left - 1)
        return me

    for tree in range(trees):
        grow(tree, [0], depth)
    return {**{"nodes_" + k: v for k, v in nodes.items()}, **{prefix + k: v for k, v in weights.items()}}


def classical(rng):
    """What scikit-learn's models are exported to."""
    x = (rng.integers(-6, 7, (7, 6)) / 4).astype(np.float32)
    hole = x.copy()
    hole[::2, 1], hole[1::3, 4] = np.nan, np.nan
    modes = ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"]
    ml = lambda name, op, inputs, outputs=1, **attributes: case(name, op, inputs, outputs, domain=CLASSICAL, **attributes)
    for function in ("SUM", "AVERAGE", "MIN", "MAX"):
        ml(f"TreeEnsembleRegressor_{function}", "TreeEnsembleRegressor", [hole], n_targets=2, aggregate_function=function, base_values=[0.5, -0.25],
           **forest(rng, "target_", 2, modes=modes))
    ml("TreeEnsembleRegressor_one", "TreeEnsembleRegressor", [x], n_targets=1, **forest(rng, "target_", 1, depth=7))
    ml("TreeEnsembleRegressor_sparse", "TreeEnsembleRegressor", [x], n_targets=3, aggregate_function="MIN", **forest(rng, "target_", 3, leaves=[0, 1, 2]))
    ml("TreeEnsembleRegressor_double", "TreeEnsembleRegressor", [x.astype(np.float64)], n_targets=1, **forest(rng, "target_", 1))
    for post in ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO"):
        ml(f"TreeEnsembleClassifier_{post}", "TreeEnsembleClassifier", [x], 2, classlabels_int64s=[7, 3, 5], post_transform=post, base_values=[0.25, 0.5, -0.125],
           **forest(rng, "class_", 3))
    ml("TreeEnsembleClassifier_sparse", "TreeEnsembleClassifier", [x], 2, classlabels_int64s=[7, 3, 5], **forest(rng, "class_", 3, low=-2, leaves=[0, 1, 2]))
    ml("TreeEnsembleClassifier_int", "TreeEnsembleClassifier", [rng.integers(-2, 3, (7, 6))], 2, classlabels_int64s=[0, 1, 2, 3], **forest(rng, "class_", 4))
    ml("TreeEnsembleClassifier_PROBIT", "TreeEnsembleClassifier", [x], 2, classlabels_int64s=[7, 3, 5], post_transform="PROBIT",
       **forest(rng, "class_", 3, trees=1, low=0.05))
    for name, low, more in (("probability", 0, {"trees": 1}), ("margin", -1, {}), ("margin_base", -1, {})):
        for post in ("NONE", "LOGISTIC"):
            base = {"base_values": [0.25]} if name == "margin_base" else {}
            ml(f"TreeEnsembleClassifier_two_{name}_{post}", "TreeEnsembleClassifier", [x], 2, classlabels_int64s=[4, 9], post_transform=post,
               **base, **forest(rng, "class_", 2, low=low, leaves=[0], **more))
    for t in (np.float32, np.float64):  # of whole numbers: ONNX Runtime cuts features off for a test of membership
        tensor = lambda v, dtype=t: numpy_helper.from_array(np.asarray(v, dtype))
        ml(f"TreeEnsemble_{np.dtype(t).name}", "TreeEnsemble", [np.round(x).astype(t)], n_targets=2, aggregate_function=1, post_transform=0,
           tree_roots=[0, 3], nodes_featureids=[0, 1, 2, 3, 4], nodes_splits=tensor([0.25, -0.5, 0, 1, 0]), nodes_modes=tensor([0, 3, 6, 5, 1], np.uint8),
           nodes_truenodeids=[1, 0, 2, 4, 4], nodes_trueleafs=[0, 1, 1, 0, 1], nodes_falsenodeids=[2, 1, 3, 5, 6], nodes_falseleafs=[0, 1, 1, 1, 1],
           leaf_targetids=[0, 1, 0, 1, 1, 0, 1], leaf_weights=tensor([1, 2, 4, 8, 16, 32, 64]), membership_values=tensor([1, -1, 0, np.nan]))
    f = lambda *shape: rng.standard_normal(shape).astype(np.float32)
    some = lambda n: [float(v) for v in f(n)]
    ml("Scaler", "Scaler", [x], offset=some(6), scale=some(6))
    ml("Scaler_int", "Scaler", [rng.integers(-9, 9, (3, 4))], offset=[0.5], scale=[0.25])
    for norm in ("MAX", "L1", "L2"):
        rows = f(4, 5)
        rows[2] = 0
        ml(f"Normalizer_{norm}", "Normalizer", [rows], norm=norm)
    ml("LinearRegressor", "LinearRegressor", [x], coefficients=some(12), intercepts=some(2), targets=2)
    for post in ("NONE", "SOFTMAX", "LOGISTIC"):
        ml(f"LinearClassifier_{post}", "LinearClassifier", [x], 2, coefficients=some(18), intercepts=some(3), classlabels_ints=[7, 3, 5], post_transform=post)
    ml("LinearClassifier_two", "LinearClassifier", [x], 2, coefficients=some(12), intercepts=some(2), classlabels_ints=[4, 9], post_transform="SOFTMAX")
    ml("LabelEncoder", "LabelEncoder", [rng.integers(0, 6, (3, 4))], keys_int64s=[1, 3, 4], values_int64s=[10, 30, -40], default_int64=7)
    ml("LabelEncoder_float", "LabelEncoder", [np.array([[1.5, np.nan], [2, 0]], np.float32)], keys_floats=[1.5, float("nan")], values_int64s=[3, 4])
    ml("LabelEncoder_to_float", "LabelEncoder", [rng.integers(0, 4, (5,))], keys_int64s=[1, 3], values_floats=[0.5, -2.0], default_float=9.0)


def sequences():
    """Models of x [7,3] and y [2,3] that take tensors apart and join them as sequences."""
    node, value = helper.make_node, helper.make_tensor_value_info
    sequence = lambda name: helper.make_tensor_sequence_value_info(name, 1, None)
    body = helper.make_graph(
        [node("Gather", ["x", "i"], ["row"]), node("Tanh", ["row"], ["z"]), node("SequenceInsert", ["list", "z"], ["more"]), node("Identity", ["going"], ["on"])],
        "body", [value("i", 7, []), value("going", 9, []), sequence("list")], [value("on", 9, []), sequence("more")])
    bodies = {
        "Sequence_split": [node("SplitToSequence", ["x", "two"], ["s"], axis=0), node("SequenceAt", ["s", "last"], ["a"]), node("Neg", ["a"], ["b"]),
                           node("SequenceErase", ["s"], ["s1"]), node("SequenceInsert", ["s1", "b", "zero"], ["s2"]), node("ConcatFromSequence", ["s2"], ["z"], axis=0)],
        "Sequence_sizes": [node("SplitToSequence", ["x", "sizes"], ["s"], axis=0), node("SequenceErase", ["s", "zero"], ["s1"]), node("SequenceAt", ["s1", "last"], ["z"])],
        "Sequence_stack": [node("SplitToSequence", ["x"], ["s"], axis=1, keepdims=0), node("ConcatFromSequence", ["s"], ["a"], axis=-1, new_axis=1), node("Exp", ["a"], ["z"])],
        "Sequence_length": [node("SequenceConstruct", ["x", "y"], ["s"]), node("SequenceLength", ["s"], ["n"]), node("Cast", ["n"], ["m"], to=1), node("Mul", ["x", "m"], ["z"])],
        "Sequence_loop": [node("SequenceEmpty", [], ["e"]), node("Loop", ["four", "yes", "e"], ["s"], body=body), node("ConcatFromSequence", ["s"], ["z"], axis=0, new_axis=1)],
    }
    constants = {"two": np.array(2), "last": np.array(-1), "zero": np.array(0), "sizes": np.array([3, 0, 4]), "four": np.array(4), "yes": np.array(True)}
    models = {}
    for name, nodes in bodies.items():
        graph = helper.make_graph(nodes, name, [value("x", 1, [7, 3]), value("y", 1, [2, 3])], [onnx.ValueInfoProto(name="z")],
                                  [numpy_helper.from_array(v, k) for k, v in constants.items()])
        models[name] = helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 17)])
    return models


def countdown():
    """A loop of at most six iterations, which ends once its state is below 1."""
    node, value = helper.make_node, helper.make_tensor_value_info
    body = helper.make_graph(
        [node("Sub", ["state", "one"], ["less"]), node("Gather", ["table", "i"], ["row"]), node("Add", ["sum", "row"], ["more"]), node("Greater", ["less", "one"], ["on"])],
        "body", [value("i", 7, []), value("going", 9, []), value("state", 1, []), value("sum", 1, [2])],
        [value("on", 9, []), value("less", 1, []), value("more", 1, [2])])
    constants = {"most": np.array(6), "yes": np.array(True), "one": np.array(1, np.float32), "zero": np.zeros(2, np.float32), "table": np.arange(12, dtype=np.float32).reshape(6, 2)}
    graph = helper.make_graph([node("Loop", ["most", "yes", "x", "zero"], ["last", "total"], body=body)], "countdown", [value("x", 1, [])],
                              [value("last", 1, []), value("total", 1, [2])], [numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()])
    return helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 17)])


def detector():
    """Boxes and scores, of which those that NonMaxSuppression picks become boxes, scores and classes, as exporters write it."""
    node = helper.make_node
    nodes = [
        node("NonMaxSuppression", ["boxes", "scores", "most", "iou", "least"], ["picked"], name="/nms"),
        node("Slice", ["picked", "one", "two", "one"], ["class"]),
        node("Slice", ["picked", "two", "three", "one"], ["box"]),
        node("Squeeze", ["class", "one"], ["classes"]),
        node("Squeeze", ["box", "one"], ["box_1"]),
        node("Squeeze", ["boxes", "zero"], ["boxes_1"]),
        node("Gather", ["boxes_1", "box_1"], ["corners"]),
        node("Mul", ["corners", "size"], ["picked_boxes"]),
        node("GatherND", ["scores", "picked"], ["picked_scores"]),
        node("Shape", ["picked_scores"], ["number"]),
        node("Unsqueeze", ["picked_scores", "one"], ["column"]),
        node("Concat", ["number", "one"], ["shape"], axis=0),
        node("Reshape", ["column", "shape"], ["column_1"]),
        node("Concat", ["picked_boxes", "column_1"], ["rows"], axis=1),
    ]
    constants = {"most": np.array([5]), "iou": np.array([0.4], np.float32), "least": np.array([0.3], np.float32), "zero": np.array([0]), "one": np.array([1]),
                 "two": np.array([2]), "three": np.array([3]), "size": np.array([640], np.float32)}
    value = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "detector", [value("boxes", 1, [1, 30, 4]), value("scores", 1, [1, 4, 30])],
                              [value("rows", 1, ["n", 5]), value("classes", 7, ["n"])], [numpy_helper.from_array(v, k) for k, v in constants.items()])
    return helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 17)])


def main():
    out, seed = sys.argv[1], int(sys.argv[2])
    fill(np.random.default_rng(seed))
    failed = []
    for name, *of in cases:
        if len(of) == 2:
            m, feed = of
        else:
            op, inputs, outputs, opset, domain, attributes = of
            if "opset_" in attributes:
                attributes["opset"] = attributes.pop("opset_")
            m, feed = model(op, inputs, outputs, opset, domain, attributes)
        try:
            write(os.path.join(out, name), m, feed, run(m, feed))
        except Exception as e:
            failed.append(f"{name}: {str(e).splitlines()[0][:300]}")
    if failed:
        sys.exit("\n".join(failed))


main()
