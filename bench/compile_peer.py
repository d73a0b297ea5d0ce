#!/usr/bin/env python3
"""Compile time of an ONNX file: spark-compile beside tinygrad, alternating in one run.

    python bench/compile_peer.py MODEL.onnx [--pairs 3] [--compiler bin/spark-compile]

tinygrad compiles the way openpilot does (OnnxRunner under TinyJit, the second call compiles); its CPU backend needs
clang. spark-compile's time is the whole process, golden run and package included, less ptxas, whose share it reports itself. Prints a line a pair and
the median of the ratios.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

CHILD = """
import sys, time
start = time.perf_counter()
import numpy as np
from tinygrad import Tensor, TinyJit
from tinygrad.nn.onnx import OnnxRunner
model = OnnxRunner(sys.argv[1])
random = np.random.default_rng(1)
inputs = {}
for name, spec in model.graph_inputs.items():
    kind = str(spec.dtype)
    if "uchar" in kind or "uint8" in kind or "unsigned char" in kind:
        value = random.integers(0, 256, spec.shape, dtype=np.uint8)
    else:
        value = random.standard_normal(spec.shape).astype(np.float16 if "half" in kind or "float16" in kind else np.float32)
    inputs[name] = Tensor(value).realize()
@TinyJit
def call(**given):
    return next(iter(model(given).values())).contiguous().realize()
for _ in range(2):
    call(**inputs).numpy()
print(time.perf_counter() - start)
"""


def tinygrad_seconds(path):
    # An empty cache each time: the second compilation of a file is not the figure.
    with tempfile.TemporaryDirectory() as cache:
        env = dict(os.environ, DEV="CPU", CACHEDB=os.path.join(cache, "cache.db"), XDG_CACHE_HOME=cache)
        out = subprocess.run([sys.executable, "-c", CHILD, path], env=env, capture_output=True, text=True, check=True)
    return float(out.stdout.split()[-1])


def spark_seconds(compiler, path):
    with tempfile.TemporaryDirectory() as scratch:
        report = os.path.join(scratch, "report.json")
        begin = time.perf_counter()
        subprocess.run([compiler, path, "-o", os.path.join(scratch, "model"), "--report", report, "--quiet"], check=True)
        whole = time.perf_counter() - begin
        with open(report) as f:
            figures = json.load(f)
    ptxas = figures.get("ptxas_ms", 0) / 1e3
    return whole - ptxas, ptxas


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--compiler", default="bin/spark-compile")
    args = parser.parse_args()
    ratios = []
    for _ in range(args.pairs):
        ours, ptxas = spark_seconds(args.compiler, args.model)
        peer = tinygrad_seconds(args.model)
        ratios.append(ours / peer)
        print(f"spark-compile {ours:.2f} s (ptxas {ptxas:.2f} s beside it), tinygrad {peer:.2f} s, ratio {ratios[-1]:.3f}", flush=True)
    print(f"median ratio {statistics.median(ratios):.3f} over {args.pairs} pairs")


if __name__ == "__main__":
    main()
