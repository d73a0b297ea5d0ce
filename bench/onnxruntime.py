"""Times an ONNX file in ONNX Runtime on the CPU. Prints one line of JSON; writes the outputs as .npz, in float64.

    python onnxruntime.py MODEL.onnx INPUTS.npz OUTPUTS.npz RUNS WARMUP
"""

import json
import sys
import time

import numpy as np
import onnxruntime

model, inputs, outputs, runs, warmup = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5])
begin = time.perf_counter()
session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
load = time.perf_counter() - begin
feed = dict(np.load(inputs))


def run():
    start = time.perf_counter()
    result = session.run(None, feed)
    return (time.perf_counter() - start) * 1e3, result


first, result = run()
for _ in range(warmup):
    run()
samples = [run()[0] for _ in range(runs)]
names = [o.name for o in session.get_outputs()]
np.savez(outputs, **{n: np.asarray(x).astype(np.float64) for n, x in zip(names, result)})
print(json.dumps({"version": onnxruntime.__version__, "load_ms": load * 1e3, "first_ms": first, "samples_ms": samples}))
