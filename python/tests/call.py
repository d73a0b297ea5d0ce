"""What a call of run() takes: reads "KIND N" from standard input, makes so many calls, and prints which ns a tenth and a half of them kept to. BenchmarkCall starts it."""

import sys
import time

import numpy as np

import sparkcompile

with sparkcompile.Model(sys.argv[1], device="emu") as m:
    inputs = {name: np.ones(q.shape, q.dtype) for name, q in m.inputs.items()}
    out = {name: np.empty(q.shape, q.dtype) for name, q in m.outputs.items()}
    calls = {"run": lambda: m.run(inputs), "out": lambda: m.run(inputs, out), "memory": m.run}
    for name in m.inputs:
        m.memory(name)
    print("ready", flush=True)
    for line in sys.stdin:
        kind, n = line.split()
        call = calls[kind]
        took = np.empty(int(n), np.int64)
        for i in range(len(took)):
            begin = time.perf_counter_ns()
            call()
            took[i] = time.perf_counter_ns() - begin
        took.sort()
        print(took[len(took) // 10], took[len(took) // 2], flush=True)
