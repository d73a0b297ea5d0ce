"""Runs models for the tests, one request a line: {"model": base64, "inputs": {name: base64 of a TensorProto}, "by": "", or
"reference"}. ONNX Runtime runs them without optimisations. Where it lacks a kernel of a type, it runs the model in f32; where it
lacks the operator, or its version, the onnx package's reference evaluator runs it. The answer says who ran it, the outputs as
TensorProtos, and what the others said. An error of ONNX Runtime that is about the model ends it."""
import base64, json, os, sys, warnings

import numpy as np
import onnx
import onnxruntime as ort
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

warnings.simplefilter("ignore")
np.seterr(all="ignore")
ort.set_default_logger_severity(4)
options = ort.SessionOptions()
options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
options.intra_op_num_threads = options.inter_op_num_threads = 1
options.log_severity_level = 4
# Of what is optional in opsets that this ONNX Runtime is too old for.
MISSING = ("NOT_IMPLEMENTED", "Could not find an implementation", "is under development", "Opset", "opset", "Unsupported", "not supported", "NotImplemented",
           "not implemented", "No Op registered", "is not a registered function/op", "Unexpected input data type", "bfloat16", "Type Error", "does not support", "InsertedPrecisionFreeCast",
           "No corresponding Numpy type", "MLDataType")
NEWEST = 26  # opset of this ONNX Runtime


def operators(g):
    for n in g.node:
        yield n.domain, n.op_type
        for a in n.attribute:
            if a.HasField("g"):
                yield from operators(a.g)


def lowered(model):
    """The model at an opset that this ONNX Runtime has, if its operators are the same there."""
    m = onnx.ModelProto.FromString(model)
    for o in m.opset_import:
        if o.domain == "" and o.version > NEWEST and all(
                onnx.defs.has(op, o.version) and onnx.defs.get_schema(op, o.version).since_version <= NEWEST for d, op in operators(m.graph) if d == ""):
            o.version = NEWEST
            m.ir_version = min(m.ir_version, 13)
    return m.SerializeToString()


def by_runtime(model, inputs):
    model = lowered(model)
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"]).run(None, inputs)


def by_reference(model, inputs):
    m = onnx.ModelProto.FromString(model)
    for n in m.graph.node:
        for a in n.attribute:  # it knows the names of opset 20 alone
            if n.op_type == "GridSample" and a.name == "mode":
                a.s = a.s.removeprefix(b"bi")
    return ReferenceEvaluator(m).run(None, inputs)


NARROW = {onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16, onnx.TensorProto.DOUBLE}
TYPES = ("to", "dtype", "output_dtype", "output_datatype", "softmax_precision", "precision")


def widened_tensor(t):
    if t.data_type in NARROW:
        name = t.name
        t.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(t).astype(np.float32), name))


def widened_graph(g):
    for v in list(g.input) + list(g.output) + list(g.value_info):
        if v.type.tensor_type.elem_type in NARROW:
            v.type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    for t in g.initializer:
        widened_tensor(t)
    for n in g.node:
        for a in n.attribute:
            if a.name in TYPES and a.i in NARROW:
                a.i = onnx.TensorProto.FLOAT
            widened_tensor(a.t) if a.HasField("t") else None
            widened_graph(a.g) if a.HasField("g") else None


def in_f32(model, inputs):
    """The model with f32 for every other float of 16 bits and more."""
    m = onnx.ModelProto.FromString(model)
    widened_graph(m.graph)
    return m.SerializeToString(), {n: x.astype(np.float32) if x.dtype.kind == "f" or x.dtype.name == "bfloat16" else x for n, x in inputs.items()}


def answer(q):
    model = base64.b64decode(q["model"])
    names = [o.name for o in onnx.ModelProto.FromString(model).graph.output]
    inputs = {n: numpy_helper.to_array(onnx.TensorProto.FromString(base64.b64decode(t))) for n, t in q["inputs"].items()}
    ways = {"ort": lambda: by_runtime(model, inputs), "ort in f32": lambda: by_runtime(*in_f32(model, inputs)),
            "reference in f32": lambda: by_reference(*in_f32(model, inputs)), "reference": lambda: by_reference(model, inputs)}
    errors = []
    for by, run in ways.items():
        if not by.startswith(q["by"]):
            continue
        try:
            if by.startswith("ort") and any(x.dtype.kind == "V" or x.dtype.name not in np.sctypeDict for x in inputs.values()) and not (
                    by == "ort in f32" and all(x.dtype.name in np.sctypeDict or x.dtype.name == "bfloat16" for x in inputs.values())):
                raise TypeError("not supported: an input's type is not NumPy's")
            out = run()
            tensors = [numpy_helper.from_array(np.asarray(x)).SerializeToString() for x in out]
            return {"by": by, "error": " ".join(errors), "outputs": {n: base64.b64encode(t).decode() for n, t in zip(names, tensors)}}
        except Exception as e:
            error = f"{by}: {type(e).__name__} {str(e)[:400]}"
            if by == "ort" and not any(m in error for m in MISSING):
                return {"by": "", "error": error}
            errors.append(error)
    return {"by": "", "missing": True, "error": " ".join(errors)}


protocol = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # whatever libraries print is no answer
for line in sys.stdin:
    print(json.dumps(answer(json.loads(line))), file=protocol, flush=True)
