#!/usr/bin/env python3
"""Latency of an ONNX file under PyTorch, and under ONNX Runtime on the CPU: what spark-compile's runs stand beside.

    python bench/torch_latency.py MODEL.onnx GOLDEN.npz [--dtype fp16|fp32] [--modes eager,graph,compile,ort] [--runs 500]

The file becomes the source of one Python function over torch, which is what torch.compile gets to see.

    eager    the function as it is
    graph    captured into one CUDA graph
    compile  torch.compile, max-autotune, and then captured into one CUDA graph
    ort      ONNX Runtime's CPU provider, the file as it is

Prints a line of JSON a mode: mean, p50, p99 and min in ms, and each output's relative L2 error against GOLDEN.npz.
"wall" is by the clock around a run and its synchronisation, inputs already on the device. "event" is by CUDA events: of
a CUDA graph launch to launch, the mean of ten replays in a row on a stream that is busy when the first one arrives, as
spark-bench has it; of eager around a run, at the host's pace. Without a GPU, eager and compile run on the CPU in float32.
Needs torch, onnx and numpy; ort needs onnxruntime.
"""

import argparse
import json
import os
import sys
import time

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

WARMUP = 20
LAUNCHES = 10  # of which a sample of launch-to-launch times is the mean
BUSY_CYCLES = 1_000_000  # that keep the stream busy while replays are enqueued: some 0.5 ms


class Unsupported(Exception):
    pass


class Translation:
    """A model as the source of a function.

    Values that depend on no input are computed with ONNX's reference evaluator and become arguments of the function
    (tensors) or literals (shapes, axes). Shape nodes are answered by ONNX's shape inference.
    """

    def __init__(self, model):
        model = onnx.shape_inference.infer_shapes(model, data_prop=True)
        self.opset = {o.domain: o.version for o in model.opset_import}[""]
        self.graph = model.graph
        self.known = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
        self.inputs = [i for i in model.graph.input if i.name not in self.known]
        self.shapes = {
            v.name: [d.dim_value for d in v.type.tensor_type.shape.dim]
            for v in [*model.graph.input, *model.graph.value_info, *model.graph.output]
            if v.type.tensor_type.HasField("shape")
        }
        self.variables = {i.name: f"x{k}" for k, i in enumerate(self.inputs)}
        self.tensors = {}  # parameter name -> array
        self.lines = []
        for node in model.graph.node:
            self.translate(node)
        self.outputs = [o.name for o in model.graph.output]

    def source(self):
        parameters = ", ".join([f"x{k}" for k in range(len(self.inputs))] + list(self.tensors))
        results = ", ".join(self.value(o) for o in self.outputs)
        return "\n".join([f"def forward({parameters}):", *("    " + line for line in self.lines), f"    return ({results},)"])

    def translate(self, node):
        if node.op_type == "Shape" and all(self.shapes.get(node.input[0], [0])):
            self.known[node.output[0]] = np.array(self.shapes[node.input[0]], np.int64)
            return
        if all(name == "" or name in self.known for name in node.input):
            feed = {name: self.known[name] for name in node.input if name}
            # The evaluator takes a node by itself; it finds its version by the opset.
            values = ReferenceEvaluator(node, opsets={"": self.opset}).run(None, feed)
            self.known.update((name, np.asarray(value)) for name, value in zip(node.output, values))
            return
        emit = getattr(self, "op_" + node.op_type, None)
        if emit is None:
            raise Unsupported(f"no translation of {node.op_type}")
        attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        expression = emit(node, attributes)
        names = [self.fresh(o) for o in node.output if o]
        self.lines.append(f"{', '.join(names)} = {expression}")

    def fresh(self, name):
        self.variables[name] = f"v{len(self.variables)}"
        return self.variables[name]

    def value(self, name):
        """The expression of a value: a variable, or a parameter that holds a constant."""
        if name in self.variables:
            return self.variables[name]
        for parameter, array in self.tensors.items():
            if array is self.known[name]:
                return parameter
        parameter = f"c{len(self.tensors)}"
        self.tensors[parameter] = self.known[name]
        return parameter

    def values(self, node):
        return [self.value(i) if i else "None" for i in node.input]

    def literal(self, node, index):
        """A constant operand as a list of integers, None if it is absent."""
        if len(node.input) <= index or node.input[index] == "":
            return None
        if node.input[index] not in self.known:
            raise Unsupported(f"{node.op_type} whose operand {index} depends on an input")
        return [int(v) for v in self.known[node.input[index]].ravel()]

    def operand(self, node, attributes, name, index):
        """What is an attribute in older opsets and an operand in newer ones."""
        return list(attributes[name]) if name in attributes else self.literal(node, index)

    def op_Conv(self, node, a):
        x = self.values(node)
        spatial = len(self.known[node.input[1]].shape) - 2
        if a.get("auto_pad", b"NOTSET") != b"NOTSET":
            raise Unsupported("Conv with auto_pad")
        pads = list(a.get("pads", [0] * 2 * spatial))
        source = x[0]
        if pads[:spatial] != pads[spatial:]:
            order = [pads[d + side * spatial] for d in reversed(range(spatial)) for side in (0, 1)]
            source, pads = f"F.pad({source}, {order})", [0] * spatial
        bias = x[2] if len(x) > 2 else "None"
        strides, dilations = list(a.get("strides", [1] * spatial)), list(a.get("dilations", [1] * spatial))
        return f"F.conv{spatial}d({source}, {x[1]}, {bias}, {strides}, {pads[:spatial]}, {dilations}, {a.get('group', 1)})"

    def op_Gemm(self, node, a):
        x = self.values(node)
        if a.get("alpha", 1.0) != 1 or a.get("beta", 1.0) != 1:
            raise Unsupported("Gemm with alpha or beta")
        left = x[0] + (".t()" if a.get("transA") else "")
        right = x[1] if a.get("transB") else x[1] + ".t()"
        return f"F.linear({left}, {right})" + (f" + {x[2]}" if len(x) > 2 else "")

    def op_BatchNormalization(self, node, a):
        x, scale, bias, mean, variance = self.values(node)
        return f"F.batch_norm({x}, {mean}, {variance}, {scale}, {bias}, False, 0.0, {a.get('epsilon', 1e-5)})"

    def op_LayerNormalization(self, node, a):
        x = self.values(node)
        shape = list(self.known[node.input[1]].shape)
        return f"F.layer_norm({x[0]}, {shape}, {', '.join(x[1:])}, eps={a.get('epsilon', 1e-5)})"

    def op_Softmax(self, node, a):
        if self.opset < 13 and a.get("axis", 1) not in (-1, len(self.shapes[node.input[0]]) - 1):
            raise Unsupported("Softmax over several axes")
        return f"torch.softmax({self.value(node.input[0])}, {a.get('axis', -1)})"

    def op_Reshape(self, node, a):
        shape = self.literal(node, 1)
        before = self.shapes.get(node.input[0], [])
        shape = [before[k] if d == 0 else d for k, d in enumerate(shape)]
        return f"{self.value(node.input[0])}.reshape({shape})"

    def op_Flatten(self, node, a):
        axis = a.get("axis", 1)
        if axis != 1:
            raise Unsupported("Flatten with an axis other than 1")
        return f"{self.value(node.input[0])}.flatten(1)"

    def op_Transpose(self, node, a):
        return f"{self.value(node.input[0])}.permute({list(a['perm'])})"

    def op_Concat(self, node, a):
        return f"torch.cat([{', '.join(self.values(node))}], {a['axis']})"

    def op_Split(self, node, a):
        x, axis = self.value(node.input[0]), a.get("axis", 0)
        parts = self.operand(node, a, "split", 1)
        if parts is None:
            parts = [self.shapes[node.input[0]][axis] // len(node.output)] * len(node.output)
        return f"torch.split({x}, {parts}, {axis})"

    def op_Slice(self, node, a):
        x = self.value(node.input[0])
        starts, ends = self.operand(node, a, "starts", 1), self.operand(node, a, "ends", 2)
        axes = self.operand(node, a, "axes", 3) or list(range(len(starts)))
        steps = self.literal(node, 4) or [1] * len(starts)
        if any(s < 1 for s in steps):
            raise Unsupported("Slice backwards")
        index = [":"] * len(self.shapes[node.input[0]])
        for start, end, axis, step in zip(starts, ends, axes, steps):
            size = self.shapes[node.input[0]][axis]
            first, last, step = slice(start, end, step).indices(size)
            index[axis] = f"{first}:{last}:{step}"
        return f"{x}[{', '.join(index)}]"

    def op_Gather(self, node, a):
        x, axis = self.value(node.input[0]), a.get("axis", 0)
        if node.input[1] not in self.known:
            raise Unsupported("Gather by a computed index")
        index = self.known[node.input[1]]
        if index.ndim == 0:
            return f"{x}.select({axis}, {int(index)})"
        if index.ndim != 1:
            raise Unsupported("Gather by a matrix")
        return f"{x}.index_select({axis}, {self.value(node.input[1])})"

    def op_Unsqueeze(self, node, a):
        rank = len(self.shapes[node.output[0]])
        axes = sorted(axis % rank for axis in self.operand(node, a, "axes", 1))
        return self.value(node.input[0]) + "".join(f".unsqueeze({axis})" for axis in axes)

    def op_Squeeze(self, node, a):
        rank = len(self.shapes[node.input[0]])
        axes = self.operand(node, a, "axes", 1)
        if axes is None:
            return f"{self.value(node.input[0])}.squeeze()"
        return f"{self.value(node.input[0])}.squeeze({tuple(axis % rank for axis in axes)})"

    def op_Expand(self, node, a):
        shape = np.broadcast_shapes(tuple(self.shapes[node.input[0]]), tuple(self.literal(node, 1)))
        return f"{self.value(node.input[0])}.expand({list(shape)})"

    def op_ReduceMean(self, node, a):
        axes = self.operand(node, a, "axes", 1)
        return f"{self.value(node.input[0])}.mean({axes}, {bool(a.get('keepdims', 1))})"

    def op_GlobalAveragePool(self, node, a):
        rank = len(self.shapes[node.input[0]])
        return f"{self.value(node.input[0])}.mean({list(range(2, rank))}, True)"

    def op_Cast(self, node, a):
        name = onnx.TensorProto.DataType.Name(a["to"])
        kinds = {"UINT8": "torch.uint8", "INT32": "torch.int32", "INT64": "torch.int64", "BOOL": "torch.bool"}
        # Whatever floating type the file names, the run has one.
        return f"{self.value(node.input[0])}.to({kinds.get(name, 'FLOATING')})"

    def op_Pow(self, node, a):
        # A constant exponent is a number: torch squares by multiplication then.
        exponent = self.known.get(node.input[1])
        if exponent is not None and exponent.size == 1:
            return f"{self.value(node.input[0])} ** {float(exponent.ravel()[0])}"
        return "torch.pow({}, {})".format(*self.values(node))


def elementwise():
    """Adds the operators that are one expression of their operands."""
    patterns = {
        "Add": "{} + {}",
        "Sub": "{} - {}",
        "Mul": "{} * {}",
        "Div": "{} / {}",
        "MatMul": "{} @ {}",
        "Equal": "{} == {}",
        "Where": "torch.where({}, {}, {})",
        "Identity": "{}",
    }
    for name in ("Relu", "Sigmoid", "Tanh", "Erf", "Sqrt", "Exp", "Log", "Neg", "Abs", "Reciprocal"):
        patterns[name] = f"torch.{name.lower()}({{}})"
    for name, pattern in patterns.items():
        setattr(Translation, "op_" + name, lambda self, node, a, pattern=pattern: pattern.format(*self.values(node)))


elementwise()


def build(translation, floating, device):
    """The translated function and its constants on the device."""
    import torch
    import torch.nn.functional as F

    scope = {"torch": torch, "F": F, "FLOATING": floating}
    exec(compile(translation.source(), "<translated model>", "exec"), scope)
    function = scope["forward"]

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            for name, array in translation.tensors.items():
                self.register_buffer(name, tensor(array, floating, device))

        def forward(self, *inputs):
            return function(*inputs, *(getattr(self, name) for name in translation.tensors))

    return Model().eval()


def tensor(array, floating, device):
    import torch

    value = torch.from_numpy(np.array(array))
    return value.to(device, floating) if value.is_floating_point() else value.to(device)


def capture(step):
    """A CUDA graph of one step: (replay, results)."""
    import torch

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = step()
    return graph.replay, results


def figures(times):
    times = sorted(times)
    return {
        "mean_ms": sum(times) / len(times),
        "p50_ms": times[len(times) // 2],
        "p99_ms": times[min(len(times) - 1, len(times) * 99 // 100)],
        "min_ms": times[0],
    }


def measure(run, runs, cuda, graph=False):
    """Times of runs after the warm-up, by the clock and, on a GPU, by events, in two series: an event costs time."""
    if cuda:
        import torch
    for _ in range(min(WARMUP, runs)):
        run()
    wall = []
    for _ in range(runs):
        if cuda:
            torch.cuda.synchronize()
        begin = time.perf_counter()
        run()
        if cuda:
            torch.cuda.synchronize()
        wall.append((time.perf_counter() - begin) * 1e3)
    out = {"wall": figures(wall)}
    if cuda:
        out["event"] = figures([launch_to_launch(run) if graph else between_events(run) for _ in range(runs)])
    return out


def between_events(run):
    """Time of a run in ms as the device sees it, its waits for the host included."""
    import torch

    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    run()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end)


def launch_to_launch(replay):
    """Mean time in ms from a replay to the next, as the device sees it.

    The stream spins while the host enqueues. If the host took longer than the device was busy, the time would hold the
    host's launches: then it measures again behind a longer delay.
    """
    import torch

    cycles = BUSY_CYCLES
    for _ in range(6):
        torch.cuda.synchronize()
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda._sleep(cycles)
        begin.record()
        for _ in range(LAUNCHES):
            replay()
        end.record()
        held = not begin.query()
        end.synchronize()
        if held:
            return begin.elapsed_time(end) / LAUNCHES
        cycles *= 2
    raise RuntimeError("the host enqueues replays more slowly than the device spins")


def errors(names, results, golden):
    out = {}
    for name, result in zip(names, results):
        if name in golden:
            want = golden[name].astype(np.float64).ravel()
            got = np.asarray(result, np.float64).ravel()
            error = float(np.linalg.norm(got - want) / np.linalg.norm(want))
            out[name] = error if np.isfinite(error) else None  # JSON has no other numbers
    return out


def run_torch(mode, translation, golden, dtype, runs):
    import torch

    cuda = torch.cuda.is_available()
    if mode == "graph" and not cuda:
        raise Unsupported("a CUDA graph needs a GPU")
    device = "cuda" if cuda else "cpu"
    floating = torch.float16 if dtype == "fp16" and cuda else torch.float32
    # fp32 means fp32: no TF32, as in what it is compared with.
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True  # cuDNN's fastest algorithm for each shape, not its default
    begin = time.perf_counter()
    with torch.no_grad():
        model = build(translation, floating, device)
        inputs = [tensor(golden[i.name], floating, device) for i in translation.inputs]
        if mode == "compile":
            model = torch.compile(model, mode="max-autotune-no-cudagraphs", fullgraph=True)

        def step():
            return model(*inputs)

        results = step()
        if cuda and mode != "eager":
            step, results = capture(step)
            step()
            torch.cuda.synchronize()
        ready = time.perf_counter() - begin
        report = {
            "device": torch.cuda.get_device_name() if cuda else "cpu",
            "dtype": str(floating).removeprefix("torch."),
            "version": "torch " + torch.__version__,
            "ready_s": ready,
            "rel_l2": errors(translation.outputs, [r.double().cpu().numpy() for r in results], golden),
        }
        report.update(measure(step, runs, cuda, graph=cuda and mode != "eager"))
    return report


def run_ort(path, golden, runs):
    import onnxruntime

    begin = time.perf_counter()
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors only
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    kinds = {"tensor(float16)": np.float16, "tensor(float)": np.float32, "tensor(uint8)": np.uint8}
    feed = {i.name: golden[i.name].astype(kinds.get(i.type, golden[i.name].dtype)) for i in session.get_inputs()}
    names = [o.name for o in session.get_outputs()]
    results = session.run(None, feed)
    report = {
        "device": f"cpu, {os.cpu_count()} cores",
        "dtype": "file",
        "version": "onnxruntime " + onnxruntime.__version__,
        "ready_s": time.perf_counter() - begin,
        "rel_l2": errors(names, results, golden),
    }
    report.update(measure(lambda: session.run(None, feed), runs, False))
    return report


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("golden")
    parser.add_argument("--dtype", choices=["fp16", "fp32"], default="fp16")
    parser.add_argument("--modes", default="eager,graph,compile")
    parser.add_argument("--runs", type=int, default=500)
    args = parser.parse_args()
    golden = dict(np.load(args.golden))
    translation, failed = None, 0
    for mode in args.modes.split(","):
        line = {"model": os.path.basename(args.model), "mode": mode, "asked": args.dtype, "runs": args.runs}
        try:
            if mode == "ort":
                line.update(run_ort(args.model, golden, args.runs))
            else:
                if translation is None:
                    translation = Translation(onnx.load(args.model))
                line.update(run_torch(mode, translation, golden, args.dtype, args.runs))
        except Unsupported as e:
            line["skipped"] = str(e)
        except Exception as e:  # the other modes are still worth having
            line["error"] = f"{type(e).__name__}: {e}"[:500]
            failed += 1
        print(json.dumps(line, allow_nan=False), flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
