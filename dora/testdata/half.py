"""Gradients of an adapter by PyTorch, in float64 and with 16 bits, for half_test.go to compare with.

    pip install torch==2.15.0 onnx==1.23.2
    SPARK_RECORD=python3 go test ./dora -run TestGradientsInHalfPrecision

The test writes the folder that is the argument: model.onnx, layers.json with the adapted layers, adapters.npz and batches.npz with
arrays NAME.INDEX. Adapted layers compute what PEFT's do, in the same order and types, those of kind magnitude too. Writes
gradients.npz with arrays WAY:TENSOR [batches, numbers]. Ways:

    f64        everything in float64
    autocast   torch.autocast on the CPU, and softmax and layer_norm in f32, as autocast has them on CUDA
    base       the base's weights and all values in 16 bits, trained numbers in f32, as PEFT has them

In fp16 the loss is multiplied by 65536, or the greatest half, quarter … of it that leaves gradients finite, and these are divided by it.
"""
import json
import sys

import numpy as np
import onnx
import torch
import torch.nn.functional as F

from network import TYPES, attributes, compute, indexed, tensor

torch.set_num_threads(1)
folder = sys.argv[1]
layers = {l["weight"]: l for l in json.load(open(folder + "/layers.json"))}


class Net:
    """Executes a file node by node. Bias is added in its layer, and what spells out Gelu or Silu is one function."""

    def __init__(self, path, dtype, half):
        self.trained, self.dtype, self.half = {}, None, half
        self.graph = onnx.shape_inference.infer_shapes(onnx.load(path), data_prop=True).graph
        shapes = {v.name: [d.dim_value for d in v.type.tensor_type.shape.dim] for v in [*self.graph.input, *self.graph.value_info]}
        self.values = {"": None}
        for t in self.graph.initializer:
            self.values[t.name] = tensor(t)
        self.by = {o: n for n in self.graph.node for o in n.output}
        self.uses = {}
        for n in self.graph.node:
            for i in n.input:
                self.uses.setdefault(i, []).append(n)
        self.bias, self.biased, self.gelu, self.silu, self.skip = {}, {}, {}, {}, set()
        for n in self.graph.node:
            if n.op_type == "MatMul" and self.source(n.input[1]) in self.values:
                (add,) = self.uses[n.output[0]]
                if add.op_type == "Add" and add.input[0] in self.values:
                    self.bias[n.output[0]] = add.input[0]
                    self.biased[add.output[0]] = n.output[0]
            if n.op_type == "Mul" and n.input[1] in self.by and list(self.by[n.input[1]].input) == [n.input[0]] and self.by[n.input[1]].op_type == "Sigmoid":
                self.skip.add(n.input[1])
                self.silu[n.output[0]] = n.input[0]
            if n.op_type == "Erf":
                x = self.by[n.input[0]].input[0]
                (add,) = self.uses[n.output[0]]
                (times,) = self.uses[add.output[0]]
                (half_,) = self.uses[times.output[0]]
                self.skip.update([n.input[0], n.output[0], add.output[0], times.output[0]])
                self.gelu[half_.output[0]] = x, self.by[n.input[0]].input[1]

        for n in self.graph.node:  # what depends on no input, in f32
            if n.op_type == "Shape":
                self.values[n.output[0]] = torch.tensor(shapes[n.input[0]])
            elif len(n.output) == 1 and all(i in self.values for i in n.input):
                self.values[n.output[0]] = self.run(n, attributes(n), [self.values[i] for i in n.input])
        roots = {root: self.values[root] for _, root in self.gelu.values()}
        self.dtype = dtype
        self.values = {k: self.cast(v) for k, v in self.values.items()} | roots

    def cast(self, x):
        return x if x is None or self.dtype is None or not x.is_floating_point() else x.to(self.dtype)

    def source(self, name):
        """The initializer that a name stands for, if it does."""
        while name in self.by and self.by[name].op_type == "Identity":
            name = self.by[name].input[0]
        return name

    def __call__(self, inputs):
        v = {**self.values, **inputs}
        for n in self.graph.node:
            out = n.output[0]
            if out in self.values:
                continue
            if out in self.gelu:
                x, root = (v[i] for i in self.gelu[out])  # F.gelu, with the file's √2
                wide = x if x.dtype == torch.float64 else x.float()
                v[out] = (wide * 0.5 * (1 + torch.erf(wide / root.to(wide.dtype)))).to(x.dtype)
                continue
            if out in self.silu:
                v[out] = F.silu(v[self.silu[out]])
                continue
            if out in self.biased:
                v[out] = v[self.biased[out]]
                continue
            if out in self.skip:
                continue
            y = self.run(n, attributes(n), [v[i] for i in n.input])
            for name, y in zip(n.output, y if isinstance(y, (list, tuple)) else [y]):
                v[name] = y
        return {o.name: v[o.name] for o in self.graph.output}

    def layer(self, n, w, multiply, b, x):
        """Multiplies by a weight, with its adapter as PEFT has it."""
        result = multiply(x, w, b)
        l = layers.get(self.source(n.input[1]))
        if l is None:
            return result
        conv = n.op_type == "Conv"
        p = {k: self.trained[l["module"] + s] for k, s in SUFFIX.items() if l["module"] + s in self.trained}
        row = w.to(p["m"].dtype).T if n.op_type == "MatMul" else w.to(p["m"].dtype)
        lead = (1, -1, 1, 1) if conv else (1, -1)
        low, change = 0, 0
        if "a" in p:
            g, r = l["group"], l["rank"]
            z = multiply(x.to(p["a"].dtype), p["a"].T if n.op_type == "MatMul" else p["a"], None)
            low = F.conv2d(z, p["b"], groups=g) if conv else F.linear(z, p["b"])
            low = low * l["scale"]
            change = torch.bmm(p["b"].reshape(g, -1, r // g), p["a"].reshape(g, r // g, -1)).reshape(row.shape) * l["scale"]
        norm = (row + change).flatten(1).norm(dim=1).detach()
        gain = (p["m"] / norm).view(lead)
        base = result if b is None else result - b.view(lead)
        return (result + ((gain - 1) * base + gain * low)).to(result.dtype)

    def run(self, n, a, x):
        op = n.op_type
        if op == "Conv":
            top, left, bottom, right = a.get("pads", [0, 0, 0, 0])
            how = {k: tuple(a[o]) for k, o in (("stride", "strides"), ("dilation", "dilations")) if o in a}
            image = lambda x: x if top == bottom and left == right else F.pad(x, (left, right, top, bottom))
            pad = (top, left) if top == bottom and left == right else 0
            return self.layer(n, x[1], lambda x, w, b: F.conv2d(image(x), w, b, padding=pad, groups=a.get("group", 1), **how), x[2] if len(x) > 2 else None, x[0])
        if op == "Gemm":
            return self.layer(n, x[1], F.linear, x[2], x[0])
        if op == "MatMul":
            if self.source(n.input[1]) not in self.values:
                return torch.matmul(x[0], x[1])
            b = self.bias.get(n.output[0])
            return self.layer(n, x[1], lambda x, w, b: F.linear(x, w.T, b), None if b is None else self.values[b], x[0])
        if op == "LayerNormalization":
            wide = [v.float() if self.half else v for v in x]
            return F.layer_norm(wide[0], wide[1].shape, wide[1], wide[2], a.get("epsilon", 1e-5)).to(self.stored(x[0]))
        if op == "Softmax":
            return torch.softmax(x[0].float() if self.half else x[0], a.get("axis", -1)).to(self.stored(x[0]))
        if op == "GRU":
            return self.gru(*x)
        if op == "Cast":
            to = TYPES[a["to"]]
            return x[0].to(self.dtype if self.dtype and to.is_floating_point else to)
        return compute(n, a, x)

    def stored(self, x):
        """The type of what normalises x: autocast leaves it in f32."""
        return torch.float32 if self.half == "autocast" else x.dtype

    def gru(self, x, w, r, b, _, h):
        """linear_before_reset = 1; gates in the file's order: update, reset, new."""
        w, r, (wb, rb), h, out = w[0], r[0], b[0].chunk(2), h[0], []
        for t in range(x.shape[0]):
            i, g = F.linear(x[t], w, wb).chunk(3, 1), F.linear(h, r, rb).chunk(3, 1)
            z, reset = torch.sigmoid(i[0] + g[0]), torch.sigmoid(i[1] + g[1])
            h = (1 - z) * torch.tanh(i[2] + reset * g[2]) + z * h
            out.append(h)
        return torch.stack(out)[:, None], h[None]


SUFFIX = {"a": ".lora_A.weight", "b": ".lora_B.weight", "m": ".lora_magnitude_vector"}
batches, adapters = indexed(folder + "/batches.npz"), indexed(folder + "/adapters.npz")


def gradients(way, half):
    wide = torch.float64 if way == "f64" else torch.float32
    stored = half if way == "base" else wide
    net = Net(folder + "/model.onnx", stored, None if way == "f64" else way)
    rows = {k: [] for k in adapters[0]}
    for batch, numbers in zip(batches, adapters):
        net.trained = {k: v.to(wide).requires_grad_() for k, v in numbers.items()}
        given = {k: v.to(stored) if v.is_floating_point() else v for k, v in batch.items() if not k.startswith("target:")}
        with torch.autocast("cpu", half or torch.bfloat16, enabled=way == "autocast"):
            out = net(given)
        loss = sum(((y.to(wide) - batch["target:" + k].to(wide)) ** 2).mean() for k, y in sorted(out.items()))
        scale = 65536 if half == torch.float16 else 1
        while True:
            found = [g.double() / scale for g in torch.autograd.grad(loss * scale, [net.trained[k] for k in rows], retain_graph=True)]
            if all(g.isfinite().all() for g in found):
                break
            scale /= 2
        for k, g in zip(rows, found):
            rows[k].append(g.flatten().numpy())
    return {k: np.stack(v) for k, v in rows.items()}


arrays = {}
for k, v in gradients("f64", None).items():
    arrays["f64:" + k] = v
for way in ("autocast", "base"):
    for name, half in (("bf16", torch.bfloat16), ("fp16", torch.float16)):
        for k, v in gradients(way, half).items():
            arrays[f"{way} {name}:{k}"] = v
np.savez(folder + "/gradients.npz", **arrays)
print(torch.__version__)
