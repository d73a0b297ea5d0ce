import gc
import os
import unittest

import sparkcompile
from sparkcompile import Model, Modeld, Monitoring
from tests.data import FULL, ROOT, arrays, run_of


def resident():
    """Bytes of memory that the process has."""
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Leaks(unittest.TestCase):
    def held(self, times, work):
        """What stays of so many repetitions, after as many that warm up as caches need."""
        lib = sparkcompile._library.library()
        for _ in range(5):
            work()
        gc.collect()
        models, goroutines, heap = lib.counts()
        before = resident()
        self.assertEqual(models, 0)
        for _ in range(times):
            work()
        gc.collect()
        after, now, bytes_ = lib.counts()
        files = len(os.listdir("/proc/self/fd"))
        self.assertEqual(after, 0, "closed models are still in memory")
        self.assertLessEqual(now, goroutines)
        self.assertLess(bytes_ - heap, 1 << 20)
        self.assertLess(resident() - before, 64 << 20)
        return files

    def test_loads_and_closes_leave_nothing(self):
        inputs = run_of(arrays("policy"), "in0")

        def work():
            with Model(ROOT / "policy") as m:
                m.run(inputs)

        few = self.held(1, work)
        many = self.held(1000 if FULL else 25, work)
        self.assertEqual(few, many, "open files")

    def test_models_that_are_only_dropped_leave_nothing(self):
        inputs = run_of(arrays("policy"), "in0")

        def work():
            m = Model(ROOT / "policy")
            out = m.memory("outputs")
            m.run(inputs, out={})
            del m
            out[...] = 0

        self.held(200 if FULL else 10, work)

    def test_loops_leave_nothing(self):
        def work():
            Modeld(ROOT / "driving").close()
            Monitoring(ROOT / "monitoring").close()

        self.held(100 if FULL else 5, work)

    def test_what_fails_leaves_nothing(self):
        def work():
            for path, options in ((ROOT / "policy", {"device": "none"}), (ROOT / "policy.onnx", {"precision": "none"}), (ROOT / "policy", {"target": "sm_50"})):
                with self.assertRaises(sparkcompile.Error):
                    Model(path, **options)
            with self.assertRaises(sparkcompile.InputError):
                Modeld(ROOT / "policy")

        self.held(500 if FULL else 30, work)
