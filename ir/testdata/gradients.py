"""Records gradients that PyTorch computes in float64, for grad_torch_test.go to compare with.

    pip install torch==2.15.0 numpy==2.4.6
    python3 ir/testdata/gradients.py ir/testdata/gradients.json

A case is a graph as text, inputs of three decimals, the gradients of its outputs, and what PyTorch makes of them: the
gradient of every input of floats.
"""
import json
import sys

import numpy as np
import torch
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)
rng = np.random.RandomState(1)
cases = []
TYPES = {torch.float64: "f64", torch.int64: "i64", torch.int32: "i32", torch.bool: "bool"}


def draw(*shape, lo=-1.0, hi=1.0):
    """Numbers of three decimals."""
    return torch.from_numpy(np.asarray(np.round(rng.uniform(lo, hi, shape), 3)))


def distinct(*shape):
    """Numbers at least 0.02 from each other, none of them 0."""
    n = int(np.prod(shape))
    return torch.from_numpy(np.round(0.02 * (rng.permutation(n) - n // 2) + 0.01, 3).reshape(shape))


def ints(*shape, of, dtype=torch.int64):
    return torch.tensor(of, dtype=dtype).reshape(shape)


def typed(v):
    return f"{TYPES[v.dtype]}[{','.join(str(d) for d in v.shape)}]"


def text(v):
    """An attribute's value."""
    if isinstance(v, bool):
        return str(v).lower()
    if isinstance(v, (list, tuple)):
        return "[" + ",".join(text(x) for x in v) + "]"
    if isinstance(v, str) and v in TYPES.values() or v == "i8":
        return v
    return json.dumps(v)


def numbers(v):
    return v.detach().flatten().tolist()


def case(name, body, inputs, function):
    """body: the nodes, a list of (results, op, operands, attributes); results have types in function's second result."""
    leaves = [v.clone().requires_grad_(True) if v is not None and v.is_floating_point() else v for v in inputs]
    outs, types = function(*leaves)
    dys = [draw(*y.shape) for y in outs]
    wrt = [v for v in leaves if v is not None and v.is_floating_point()]
    grads = torch.autograd.grad(outs, wrt, dys)
    lines = [f'graph "{name}" {{']
    lines += [f"  input %x{i}: {typed(v)}" for i, v in enumerate(inputs) if v is not None]
    for results, op, operands, attributes in body:
        left = ", ".join(f"%{r}: {types[r]}" for r in results)
        right = ", ".join("_" if o is None else f"%{o}" for o in operands)
        a = ", ".join(f"{k}={text(v)}" for k, v in sorted(attributes.items()))
        lines.append(f"  {left} = {op}({right})" + (f" {{{a}}}" if a else ""))
    lines += [f"  output %y{i}" for i in range(len(outs))] + ["}"]
    cases.append({
        "graph": "\n".join(lines), "inputs": [numbers(v) for v in inputs if v is not None],
        "dys": [numbers(d) for d in dys], "grads": [numbers(g) for g in grads],
    })


def one(op, attributes, inputs, function, name=None):
    """A case of one node."""
    while inputs and inputs[-1] is None:
        inputs = inputs[:-1]

    def both(*leaves):
        y = function(*leaves)
        outs = list(y) if isinstance(y, (tuple, list)) else [y]
        return outs, {f"y{i}": typed(v) for i, v in enumerate(outs)}

    count = len(both(*inputs)[0])
    operands = [None if v is None else f"x{i}" for i, v in enumerate(inputs)]
    case(name or op, [([f"y{i}" for i in range(count)], op, operands, attributes)], inputs, both)


# Convolutions: spatial size, kernel, strides, dilations, pads (begin, end), group, input and output channels of a group.
CONV = {1: (F.conv1d, F.conv_transpose1d), 2: (F.conv2d, F.conv_transpose2d), 3: (F.conv3d, F.conv_transpose3d)}


def padded(x, begin, end):
    """x with zeros around it; negative pads crop."""
    return F.pad(x, [p for b, e in reversed(list(zip(begin, end))) for p in (b, e)])


def conv(size, kernel, strides, dilations, begin, end, group=1, ci=2, co=2, bias=True, layout="NCHW", batch=2):
    r = len(size)
    x, w = draw(batch, group * ci, *size), draw(group * co, ci, *kernel)
    b = draw(group * co) if bias else None
    a = dict(strides=strides, dilations=dilations, pads=begin + end, group=group)
    if layout == "NHWC":
        a["layout"] = layout
        x = x.permute(0, *range(2, 2 + r), 1).contiguous()

    def f(x, w, b=None):
        if layout == "NHWC":
            x = x.permute(0, 1 + r, *range(1, 1 + r))
        y = CONV[r][0](padded(x, begin, end), w, b, strides, 0, dilations, group)
        return y.permute(0, *range(2, 2 + r), 1) if layout == "NHWC" else y

    one("Conv", a, [x, w, b], f)


conv([7], [3], [1], [1], [1], [1])
conv([8], [3], [2], [1], [2], [0], bias=False)
conv([9], [2], [3], [2], [0], [1], group=2)
conv([4, 5], [3, 3], [1, 1], [1, 1], [1, 1], [1, 1])
conv([5, 5], [1, 1], [1, 1], [1, 1], [0, 0], [0, 0], ci=3, co=4)
conv([5, 6], [3, 2], [2, 3], [1, 2], [1, 0], [2, 1], bias=False)
conv([6, 6], [3, 3], [2, 2], [1, 1], [0, 0], [1, 1], layout="NHWC")
conv([4, 4], [3, 3], [1, 1], [1, 1], [1, 1], [1, 1], group=3, ci=1, co=1)
conv([5, 5], [3, 3], [2, 2], [1, 1], [1, 1], [1, 1], group=2, ci=1, co=2, layout="NHWC")
conv([4, 5], [2, 2], [1, 2], [2, 1], [1, 1], [1, 1], group=2)
conv([7, 7], [2, 2], [4, 4], [1, 1], [0, 0], [0, 0], batch=1)
conv([3, 4, 3], [2, 2, 3], [1, 2, 1], [1, 1, 1], [1, 0, 1], [0, 1, 1])
conv([3, 3, 4], [2, 1, 2], [2, 1, 1], [1, 2, 2], [0, 0, 1], [1, 0, 1], group=2, ci=1, bias=False, batch=1)


def conv_transpose(size, kernel, strides, dilations, begin, end, extra, group=1, ci=2, co=2, bias=True):
    r = len(size)
    x, w = draw(2, group * ci, *size), draw(group * ci, co, *kernel)
    b = draw(group * co) if bias else None

    def f(x, w, b=None):
        y = CONV[r][1](x, w, None, strides, 0, extra, group, dilations)
        y = padded(y, [-p for p in begin], [-p for p in end])
        return y if b is None else y + b.reshape(1, -1, *[1] * r)

    one("ConvTranspose", dict(strides=strides, dilations=dilations, pads=begin + end, output_padding=extra, group=group), [x, w, b], f)


conv_transpose([5], [3], [2], [1], [1], [0], [1])
conv_transpose([3, 3], [3, 3], [2, 2], [1, 1], [1, 1], [1, 1], [1, 1])
conv_transpose([3, 4], [2, 3], [1, 2], [2, 1], [0, 1], [1, 0], [0, 0], group=2, co=1, bias=False)
conv_transpose([2, 2, 3], [2, 2, 2], [2, 1, 2], [1, 2, 1], [0, 1, 0], [0, 0, 1], [1, 0, 0], ci=1)


def attention(q, k, v, mask=None, scale=0.5, causal=False, softcap=0.0):
    """The formula of the op's row, written with PyTorch's products, softmax and repeats."""
    repeat = q.shape[1] // k.shape[1]
    k, v = (u.repeat_interleave(repeat, 1) for u in (k, v))
    s = torch.einsum("bhsd,bhtd->bhst", q, k) * scale
    if softcap:
        s = softcap * torch.tanh(s / softcap)
    if mask is not None:
        s = s + mask
    if causal:
        s = s.masked_fill(torch.ones(s.shape[-2:], dtype=torch.bool).triu(1), float("-inf"))
    return torch.softmax(s, -1) @ v


for heads, kv, mask, causal, softcap in [(2, 2, None, False, 0), (4, 2, None, True, 0), (2, 1, (3, 4), False, 0), (2, 2, (2, 1, 1, 4), False, 1.5), (4, 1, (1, 4, 1, 4), True, 2.0)]:
    x = [draw(2, heads, 3, 3), draw(2, kv, 4, 3), draw(2, kv, 4, 2)] + ([draw(*mask)] if mask else [])
    a = dict(scale=0.7, causal=causal, softcap=float(softcap))
    one("Attention", a, x, lambda *x, a=a: attention(*x, **a))
# PyTorch's own attention, with grouped heads.
one("Attention", dict(scale=0.6, causal=True), [draw(1, 4, 3, 2), draw(1, 2, 3, 2), draw(1, 2, 3, 3)],
    lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.6, enable_gqa=True))
one("Attention", dict(scale=0.6), [draw(2, 2, 3, 2), draw(2, 2, 4, 2), draw(2, 2, 4, 3), draw(2, 1, 3, 4)],
    lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, m, scale=0.6))

# Softmax and normalisations.
for axis in (0, 1, 2):
    one("Softmax", dict(axis=axis), [draw(3, 2, 4, lo=-3, hi=3)], lambda x, axis=axis: torch.softmax(x, axis))
    one("LogSoftmax", dict(axis=axis), [draw(3, 2, 4, lo=-3, hi=3)], lambda x, axis=axis: torch.log_softmax(x, axis))
for axis in (1, 2):
    shape = [3, 2, 4][axis:]
    for affine in (True, False):
        p = [draw(*shape), draw(*shape)] if affine else []
        one("LayerNorm", dict(axis=axis, epsilon=1e-3), [draw(3, 2, 4), *p], lambda x, *p, shape=shape: F.layer_norm(x, shape, *p, eps=1e-3))
        one("RMSNorm", dict(axis=axis, epsilon=1e-3), [draw(3, 2, 4), *p[:1]], lambda x, *p, shape=shape: F.rms_norm(x, shape, *p, eps=1e-3))
for shape in ((3, 2), (2, 3, 2, 2)):
    c = shape[1]
    one("BatchNorm", dict(epsilon=1e-3), [draw(*shape), draw(c), draw(c), draw(c), draw(c, lo=0.3, hi=2)],
        # F.batch_norm keeps no gradient of running statistics, so the formula with PyTorch's primitives
        lambda x, s, b, m, v: (lambda r: (x - r(m)) / torch.sqrt(r(v) + 1e-3) * r(s) + r(b))(lambda p: p.reshape(1, -1, *[1] * (x.dim() - 2))))
one("BatchNorm", dict(epsilon=1e-3, axis=2), [draw(2, 2, 3), draw(3), draw(3), draw(3), draw(3, lo=0.3, hi=2)],
    lambda x, s, b, m, v: (x - m) / torch.sqrt(v + 1e-3) * s + b)


def group_norm(groups):
    """As the importer writes it: LayerNorm over the elements of a group, then scale and bias of channels."""
    x, s, b = draw(2, 4, 3, 2), draw(4), draw(4)
    flat = f"f64[2,{groups},{4 // groups},3,2]"

    def f(x, s, b):
        y = F.group_norm(x, groups, s, b, 1e-3) if groups < 4 else F.instance_norm(x, None, None, s, b, True, 0, 1e-3)
        full = typed(y)
        return [y], {"g": flat, "n": flat, "h": full, "s": "f64[4,1,1]", "b": "f64[4,1,1]", "t": full, "y0": full}

    case("InstanceNorm" if groups == 4 else "GroupNorm", [
        (["g"], "Reshape", ["x0"], dict(shape=[2, groups, 4 // groups, 3, 2])), (["n"], "LayerNorm", ["g"], dict(axis=2, epsilon=1e-3)),
        (["h"], "Reshape", ["n"], dict(shape=[2, 4, 3, 2])), (["s"], "Reshape", ["x1"], dict(shape=[4, 1, 1])), (["b"], "Reshape", ["x2"], dict(shape=[4, 1, 1])),
        (["t"], "Mul", ["h", "s"], {}), (["y0"], "Add", ["t", "b"], {})], [x, s, b], f)


group_norm(2)
group_norm(4)


# Recurrent layers: PyTorch's modules, whose gates stand in another order than ONNX's, and cells of ONNX's formulas for the rest.
ORDER = {"GRU": (1, 0, 2), "LSTM": (0, 2, 3, 1), "RNN": (0,)}  # of ONNX's gates, PyTorch's i-th


def recurrent(kind, direction, lengths=None, activations=None, bias=True):
    """ONNX weights [dirs, gates·H, I] into torch.nn, lengths by packing."""
    gates, dirs, T, B, I, H = len(ORDER[kind]), 1 + (direction == "bidirectional"), 3, 2, 2, 2
    x = [draw(T, B, I), draw(dirs, gates * H, I), draw(dirs, gates * H, H), draw(dirs, 2 * gates * H) if bias else None,
         None if lengths is None else ints(B, of=lengths, dtype=torch.int32), draw(dirs, B, H)]
    a = dict(direction=direction)
    if kind == "GRU":
        a["linear_before_reset"] = True
    if kind == "LSTM":
        x.append(draw(dirs, B, H))
    if activations:
        a["activations"] = [activations] * dirs

    def rows(m):
        parts = m.reshape(gates, H, *m.shape[1:])
        return torch.cat([parts[i] for i in ORDER[kind]])

    def f(x, w, r, b, _, *states):
        extra = dict(nonlinearity=activations.lower()) if activations else {}
        module = getattr(torch.nn, kind)(I, H, bias=bias, bidirectional=dirs == 2, **extra)
        parameters = {}
        for d in range(dirs):
            suffix = "_l0" + ("_reverse" if d else "")
            parameters["weight_ih" + suffix], parameters["weight_hh" + suffix] = rows(w[d]), rows(r[d])
            if bias:
                parameters["bias_ih" + suffix], parameters["bias_hh" + suffix] = rows(b[d, : gates * H]), rows(b[d, gates * H :])
        backwards = direction == "reverse"
        if backwards:
            x = x.flip(0)
        if lengths is not None:
            x = torch.nn.utils.rnn.pack_padded_sequence(x, lengths, enforce_sorted=False)
        y, last = torch.func.functional_call(module, parameters, (x, states[0] if kind != "LSTM" else tuple(states)))
        if lengths is not None:
            y, _ = torch.nn.utils.rnn.pad_packed_sequence(y, total_length=T)
        if backwards:
            y = y.flip(0)
        y = y.reshape(T, B, dirs, H).permute(0, 2, 1, 3)
        return [y, *(last if kind == "LSTM" else [last])]

    one(kind, a, x, f)


for kind in ORDER:
    recurrent(kind, "forward")
    recurrent(kind, "reverse")
    recurrent(kind, "bidirectional", lengths=[3, 2], bias=kind != "LSTM")
    recurrent(kind, "forward", lengths=[1, 3])
recurrent("RNN", "forward", activations="Relu")


def gru_reset_first(x, w, r, b, _, h):
    """ONNX GRU 14 with linear_before_reset 0, forward."""
    H, out = h.shape[-1], []
    h, gi = h[0], x @ w[0].T + b[0, : 3 * H]
    rb = b[0, 3 * H :]
    for g in gi:
        z = torch.sigmoid(g[:, :H] + h @ r[0, :H].T + rb[:H])
        reset = torch.sigmoid(g[:, H : 2 * H] + h @ r[0, H : 2 * H].T + rb[H : 2 * H])
        candidate = torch.tanh(g[:, 2 * H :] + (reset * h) @ r[0, 2 * H :].T + rb[2 * H :])
        h = (1 - z) * candidate + z * h
        out.append(h)
    return [torch.stack(out)[:, None], h[None]]


def lstm_peepholes(x, w, r, b, _, h, c, p):
    """ONNX LSTM 14 with peepholes, forward."""
    H, out = h.shape[-1], []
    h, c, gi = h[0], c[0], x @ w[0].T + b[0, : 4 * H] + b[0, 4 * H :]
    pi, po, pf = p[0].split(H)
    for g in gi:
        i, o, f, n = (g + h @ r[0].T).split(H, 1)
        i, f = torch.sigmoid(i + pi * c), torch.sigmoid(f + pf * c)
        c = f * c + i * torch.tanh(n)
        o = torch.sigmoid(o + po * c)
        h = o * torch.tanh(c)
        out.append(h)
    return [torch.stack(out)[:, None], h[None], c[None]]


one("GRU", {}, [draw(3, 2, 2), draw(1, 6, 2), draw(1, 6, 2), draw(1, 12), None, draw(1, 2, 2)], gru_reset_first)
one("LSTM", {}, [draw(3, 2, 2), draw(1, 8, 2), draw(1, 8, 2), draw(1, 16), None, draw(1, 2, 2), draw(1, 2, 2), draw(1, 6)], lstm_peepholes)

# Pools. PyTorch pads both sides alike.
POOL = {1: (F.max_pool1d, F.avg_pool1d), 2: (F.max_pool2d, F.avg_pool2d), 3: (F.max_pool3d, F.avg_pool3d)}
for size, kernel, strides, pads, ceil in [([7], [3], [2], [1], False), ([5, 6], [3, 2], [2, 2], [1, 1], True), ([4, 4], [2, 2], [2, 2], [0, 0], False), ([3, 4, 3], [2, 3, 2], [1, 2, 1], [1, 1, 0], False)]:
    r = len(size)
    a = dict(kernel=kernel, strides=strides, pads=pads * 2, ceil=ceil, dilations=[1] * r)
    one("MaxPool", a, [distinct(2, 2, *size)], lambda x, r=r: POOL[r][0](x, kernel, strides, pads, ceil_mode=ceil))
    for inside in (False, True):
        one("AveragePool", dict(a, include_pad=inside), [draw(2, 2, *size)],
            lambda x, r=r, inside=inside: POOL[r][1](x, kernel, strides, pads, ceil_mode=ceil, count_include_pad=inside))
one("MaxPool", dict(kernel=[2, 2], strides=[1, 2], pads=[0] * 4, dilations=[2, 1]), [distinct(1, 2, 5, 4)], lambda x: F.max_pool2d(x, 2, (1, 2), 0, (2, 1)))
one("LpPool", dict(kernel=[2, 2], strides=[2, 1], pads=[0] * 4, dilations=[1, 1], p=3), [draw(2, 2, 4, 3, lo=0.1)], lambda x: F.lp_pool2d(x, 3.0, 2, (2, 1)))

# Resize.
for sizes, corners in [((7, 5), False), ((7, 5), True), ((2, 8), False)]:
    a = dict(sizes=[1, 2, *sizes], scales=[1.0, 1.0, sizes[0] / 4, sizes[1] / 3], coordinate="align_corners" if corners else "half_pixel")
    one("Resize", dict(a, mode="linear"), [draw(1, 2, 4, 3)], lambda x: F.interpolate(x, sizes, mode="bilinear", align_corners=corners))
    one("Resize", dict(a, mode="cubic"), [draw(1, 2, 4, 3)], lambda x: F.interpolate(x, sizes, mode="bicubic", align_corners=corners))
for sizes in ((8, 6), (4, 6), (2, 9)):
    a = dict(sizes=[1, 2, *sizes], scales=[1.0, 1.0, sizes[0] / 4, sizes[1] / 3], mode="nearest", coordinate="asymmetric", nearest="floor")
    one("Resize", a, [draw(1, 2, 4, 3)], lambda x: F.interpolate(x, sizes, mode="nearest"))
a = dict(sizes=[1, 2, 9], scales=[1.0, 1.0, 9 / 4], mode="linear")
one("Resize", a, [draw(1, 2, 4)], lambda x: F.interpolate(x, 9, mode="linear"))

# Gather and Scatter.
one("Gather", dict(axis=1), [draw(2, 3, 2), ints(2, 2, of=[0, 2, 2, 1])], lambda x, i: x[:, i])
one("GatherElements", dict(axis=1), [draw(2, 3), ints(2, 4, of=[0, 2, 2, 0, 1, 1, 1, 0])], lambda x, i: torch.gather(x, 1, i))
one("GatherND", {}, [draw(2, 3, 2), ints(3, 2, of=[0, 1, 1, 2, 0, 1])], lambda x, i: x[i[:, 0], i[:, 1]])
one("ScatterElements", dict(axis=1), [draw(2, 4), ints(2, 3, of=[0, 3, 1, 1, 2, 0]), draw(2, 3)], lambda x, i, u: x.scatter(1, i, u))
one("ScatterElements", dict(axis=0, reduction="add"), [draw(4, 2), ints(3, 2, of=[0, 3, 0, 1, 0, 3]), draw(3, 2)], lambda x, i, u: x.scatter_add(0, i, u))
one("ScatterND", dict(reduction="add"), [draw(3, 2), ints(4, 1, of=[2, 0, 2, 1]), draw(4, 2)], lambda x, i, u: x.index_put((i[:, 0],), u, accumulate=True))
one("ScatterND", {}, [draw(3, 2), ints(2, 2, of=[2, 0, 1, 1]), draw(2)], lambda x, i, u: x.index_put((i[:, 0], i[:, 1]), u))

# Products.
for s, t, ta, tb in [((3, 4), (4, 2), False, False), ((4, 3), (2, 4), True, True), ((2, 1, 3, 4), (3, 4, 2), False, False), ((2, 4, 3), (2, 4), True, True), ((4,), (2, 4, 3), False, False), ((2, 3, 4), (4,), False, False), ((4,), (4,), False, False)]:
    swap = lambda v, t: v.transpose(-1, -2) if t else v
    one("MatMul", dict(transA=ta, transB=tb), [draw(*s), draw(*t)], lambda x, y: swap(x, ta) @ swap(y, tb))
for equation, s, t in [("abc,dc->adb", (2, 3, 2), (4, 2)), ("ab,ab->b", (3, 4), (3, 4))]:
    one("Einsum", dict(equation=equation), [draw(*s), draw(*t)], lambda x, y: torch.einsum(equation, x, y))

# Elementwise and reductions with a choice in them.
for op, f in [("Add", torch.add), ("Sub", torch.sub), ("Mul", torch.mul), ("Div", torch.div), ("Pow", torch.pow), ("Min", torch.minimum), ("Max", torch.maximum)]:
    one(op, {}, [draw(2, 1, 3, lo=0.2, hi=2), draw(4, 1, lo=0.2, hi=2)], f)
one("Max", {}, [ints(4, of=[0, 1, 2, 3]).double(), ints(4, of=[1, 1, 2, 0]).double()], torch.maximum)  # equal ones
for op, a, f in [("Gelu", {}, F.gelu), ("Gelu", dict(tanh=True), lambda x: F.gelu(x, approximate="tanh")), ("Silu", {}, F.silu), ("Sigmoid", {}, torch.sigmoid),
                 ("Erf", {}, torch.erf), ("Tanh", {}, torch.tanh), ("Relu", {}, F.relu)]:
    one(op, a, [draw(7, lo=-3, hi=3)], f)
for op, f in [("ReduceMax", torch.amax), ("ReduceMin", torch.amin), ("ReduceMean", torch.mean), ("ReduceSum", torch.sum)]:
    one(op, dict(axes=[0, 2], keepdims=True), [distinct(2, 3, 2)], lambda x: f(x, (0, 2), keepdim=True))
one("ReduceMax", dict(axes=[1]), [ints(2, 3, of=[1, 2, 2, 0, 0, 0]).double()], lambda x: torch.amax(x, 1))  # equal ones
one("ReduceProd", dict(axes=[1]), [draw(3, 4)], lambda x: torch.prod(x, 1))
one("CumSum", dict(axis=1), [draw(2, 4)], lambda x: torch.cumsum(x, 1))


def straight_through():
    """The number that QuantizeLinear and DequantizeLinear store; scale and zero point are no variables."""
    def f(x):
        y = torch.fake_quantize_per_channel_affine(x, torch.tensor([0.015625, 0.03125], dtype=torch.float32), torch.tensor([3, -5], dtype=torch.int32), 1, -128, 127)
        return [y], {"q": "i8[4,2]", "y0": typed(y)}

    x = draw(4, 2, lo=-5, hi=5)
    x[:2, 0] = torch.tensor([1.944, 1.947])  # 127.4 and 127.6 before they are rounded: clipped is what rounds to 128
    case("Quantised", [(["q"], "QuantizeLinear", ["x0", "s", "z"], dict(axis=1, to="i8")), (["y0"], "DequantizeLinear", ["q", "s", "z"], dict(axis=1, to="f64"))], [x], f)
    c = cases[-1]
    c["graph"] = c["graph"].replace("  %q:", "  const %s: f64[2] = [0.015625, 0.03125]\n  const %z: i8[2] = [3, -5]\n  %q:")


straight_through()

# GridSample. Cubic pads pixels in PyTorch and coordinates in ONNX, so it is compared within the image.
for size in ((5, 4), (3, 4, 2)):
    for mode in ("nearest", "linear", "cubic"):
        for padding in ("zeros", "border", "reflection"):
            for align in (False, True):
                if mode == "cubic" and (len(size) > 2 or padding == "reflection"):
                    continue
                most = 0.95 if mode == "cubic" and padding != "zeros" else 2.3
                x = [draw(2, 2, *size), draw(2, 3, *[2] * (len(size) - 1), len(size), lo=-most, hi=most)]
                one("GridSample", dict(mode=mode, padding=padding, align_corners=align), x,
                    lambda x, grid: F.grid_sample(x, grid, {"linear": "bilinear", "cubic": "bicubic"}.get(mode, mode), padding, align))
# Points on pixels and edges, where PyTorch takes one of two slopes.
for padding in ("zeros", "border", "reflection"):
    for align in (False, True):
        one("GridSample", dict(mode="linear", padding=padding, align_corners=align), [draw(1, 2, 5, 3), ints(1, 5, 5, 2, of=[-6, -4, -1, -1, 0, 0, 2, 4, 5, 6] * 5).double() / 4],
            lambda x, grid: F.grid_sample(x, grid, "bilinear", padding, align))

with open(sys.argv[1], "w") as out:
    out.write('{"torch": "%s", "cases": [\n' % torch.__version__.split("+")[0])
    out.write(",\n".join(json.dumps(c, separators=(",", ":")) for c in cases))
    out.write("\n]}\n")
