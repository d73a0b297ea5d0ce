"""Times an ONNX file in ONNX Runtime on the CPU. Prints one line of JSON; writes the outputs as .npz, in float64.

    python run.py MODEL.onnx INPUTS.npz OUTPUTS.npz RUNS WARMUP

Inputs are converted to the element types of the file. What goes wrong is the last line of standard error.
"""

import json
import sys
import time

try:
    import numpy as np
    import onnxruntime
except ImportError as e:
    sys.exit(f"{sys.executable} cannot import {e.name}: run {sys.executable} -m pip install onnxruntime numpy, "
             "or set SPARK_PYTHON to a Python that has both")

TYPES = {"float": np.float32, "double": np.float64, "bool": np.bool_}
TYPES |= {name: np.dtype(name) for name in ("float16", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")}
model, inputs, outputs, runs, warmup = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5])
begin = time.perf_counter()
onnxruntime.set_default_logger_severity(4)  # what matters is raised


def fail(what, e):
    sys.exit(f"ONNX Runtime {onnxruntime.__version__} cannot {what} {model}: {' '.join(str(e).split())[:500]}")


try:
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
except Exception as e:
    fail("load", e)
load = time.perf_counter() - begin
given, feed = np.load(inputs), {}
for i in session.get_inputs():
    kind = i.type.removeprefix("tensor(").removesuffix(")")
    if kind not in TYPES:
        fail("be given input", f"{i.name} is {i.type}, which NumPy does not have")
    if i.name in given:
        feed[i.name] = given[i.name].astype(TYPES[kind])


def run():
    start = time.perf_counter()
    result = session.run(None, feed)
    return (time.perf_counter() - start) * 1e3, result


try:
    first, result = run()
except Exception as e:
    fail("run", e)
for _ in range(warmup):
    run()
samples = [run()[0] for _ in range(runs)]
names = [o.name for o in session.get_outputs()]
np.savez(outputs, **{n: np.asarray(x).astype(np.float64) for n, x in zip(names, result)})
print(json.dumps({"version": onnxruntime.__version__, "load_ms": load * 1e3, "first_ms": first, "samples_ms": samples}))
