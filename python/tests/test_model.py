import ctypes
import ctypes.util
import gc
import os
import subprocess
import sys
import threading
import time
import unittest

import numpy as np

import sparkcompile
from sparkcompile import BusyError, ClosedError, DeviceError, InputError, LibraryError, Model, _library
from tests.data import ROOT, arrays, run_of


class Bits(unittest.TestCase):
    """What Go has computed."""

    def test_runs_are_gos(self):
        saved = arrays("policy")
        with Model(ROOT / "policy") as m:
            for run in range(3):
                got, want = m.run(run_of(saved, f"in{run}")), run_of(saved, f"out{run}")
                self.assertEqual(got.keys(), want.keys())
                for name, x in want.items():
                    self.assertEqual((got[name].dtype, got[name].shape), (x.dtype, x.shape))
                    self.assertEqual(got[name].tobytes(), x.tobytes())
        self.assertNotEqual(saved["out0.outputs"].tobytes(), saved["out1.outputs"].tobytes())

    def test_an_onnx_file_is_compiled_as_gos(self):
        saved = arrays("policy")
        for _ in range(2):  # the second is in the cache
            with Model(str(ROOT / "policy.onnx"), device="cpu", precision="fp16") as m:
                self.assertEqual(m.precision, "fp16")
                self.assertEqual(m.run(run_of(saved, "in0"))["outputs"].tobytes(), saved["out0.outputs"].tobytes())

    def test_states_stay_from_run_to_run(self):
        saved = arrays("supercombo")
        with Model(ROOT / "supercombo") as m:
            self.assertTrue(m.states)
            self.assertNotIn(True, [m.outputs[n].state for n in m.run(run_of(saved, "in0"))])
            m.reset()
            for again in range(2):
                for run in range(3):
                    got, want = m.run(run_of(saved, f"in{run}")), run_of(saved, f"out{run}")
                    for name, x in got.items():
                        self.assertEqual(x.tobytes(), want[name].tobytes(), (again, run, name))
                    for name in m.states:
                        self.assertEqual(m.state(name).tobytes(), want["next_" + name].tobytes())
                if again == 0:
                    self.assertTrue(any(m.state(n).any() for n in m.states))
                    m.reset()
                    self.assertFalse(any(m.state(n).any() for n in m.states))

    def test_a_state_is_set_and_given(self):
        saved = arrays("supercombo")
        with Model(ROOT / "supercombo") as m:
            m.run(run_of(saved, "in0"))
            kept = {name: m.state(name) for name in m.states}
            want = m.run(run_of(saved, "in1"))
            m.reset()
            for name, x in kept.items():
                m.set_state(name, x)
            for given in (run_of(saved, "in1"), run_of(saved, "in1") | kept):
                got = m.run(given)
                for name, x in want.items():
                    self.assertEqual(got[name].tobytes(), x.tobytes())


class Arrays(unittest.TestCase):
    def setUp(self):
        self.saved = arrays("policy")
        self.inputs, self.want = run_of(self.saved, "in0"), self.saved["out0.outputs"]
        self.m = Model(ROOT / "policy")
        self.addCleanup(self.m.close)

    def test_outputs_are_written_where_out_says(self):
        block = np.full((3, *self.want.shape), 7, self.want.dtype)
        got = self.m.run(self.inputs, out={"outputs": block[1]})
        self.assertEqual(got["outputs"].__array_interface__["data"], block[1].__array_interface__["data"])
        self.assertEqual(block[1].tobytes(), self.want.tobytes())
        self.assertTrue((block[[0, 2]] == 7).all())

    def test_memory_is_the_models_own(self):
        for name, x in self.inputs.items():
            self.m.memory(name)[...] = x
        out = self.m.memory("outputs")
        self.assertEqual(self.m.run()["outputs"].tobytes(), self.want.tobytes())
        self.assertEqual(out.tobytes(), self.want.tobytes())
        more = run_of(self.saved, "in1")
        self.m.run(more)
        self.assertEqual(out.tobytes(), self.saved["out1.outputs"].tobytes())

    def test_memory_outlives_the_model(self):
        lib = self.m._handle.lib
        before = lib.counts()[0]
        self.m.run(self.inputs)
        out = self.m.memory("outputs")
        part = out[0, 3:]
        self.m.close()
        self.assertEqual(lib.counts()[0], before)
        self.assertEqual(part.tobytes(), self.want[0, 3:].tobytes())
        with self.assertRaises(ClosedError):
            self.m.run(self.inputs)
        del out, part
        gc.collect()
        self.assertEqual(lib.counts()[0], before - 1)

    def test_dlpack_and_buffers_are_taken(self):
        class Tensor:  # what PyTorch's and others' have
            def __init__(self, x, device=(1, 0)):
                self.x, self.device = x, device

            def __dlpack__(self, **options):
                return self.x.__dlpack__(**options)

            def __dlpack_device__(self):
                return self.device

        tensors = {name: Tensor(x) for name, x in self.inputs.items()}
        self.assertEqual(self.m.run(tensors)["outputs"].tobytes(), self.want.tobytes())
        views = {name: memoryview(x) for name, x in self.inputs.items()}
        self.assertEqual(self.m.run(views)["outputs"].tobytes(), self.want.tobytes())
        name = next(iter(tensors))
        tensors[name].device = (2, 0)
        with self.assertRaisesRegex(InputError, rf'"{name}": it is in memory of another device .* give x\.cpu\(\)'):
            self.m.run(tensors)

    def refused(self, text, inputs=None, out=None):
        with self.assertRaisesRegex(InputError, text):
            self.m.run(self.inputs if inputs is None else inputs, out)
        self.assertEqual(self.m.run(self.inputs)["outputs"].tobytes(), self.want.tobytes())

    def test_wrong_inputs_are_refused(self):
        name = "features_buffer"
        x = self.inputs[name]
        wide = np.zeros((*x.shape[:-1], 2 * x.shape[-1]), x.dtype)
        for text, given in {
            r'input "features_buffer" is float32, the model has float16\[1, 25, 128\]: give x.astype\(\'float16\'\)': x.astype(np.float32),
            r'input "features_buffer" is float16\[25, 128\], the model has float16\[1, 25, 128\]: give x.reshape': x[0],
            r"not in C order .* numpy.ascontiguousarray": wide[..., ::2],
            r"not in C order": np.asfortranarray(x),
            r"list is no array: give numpy.asarray": x.tolist(),
            r"NoneType is no array": None,
        }.items():
            self.refused(text, self.inputs | {name: given})
        self.refused(r'no input "img": policy.onnx has desire_pulse, traffic_convention, features_buffer', self.inputs | {"img": x})
        self.refused(r"missing inputs: features_buffer float16\[1, 25, 128\]: give them", {k: v for k, v in self.inputs.items() if k != name})
        self.refused(r"missing inputs: desire_pulse .*; traffic_convention .*; features_buffer", {})

    def test_read_only_inputs_are_taken(self):
        for x in self.inputs.values():
            x.flags.writeable = False
        self.assertEqual(self.m.run(self.inputs)["outputs"].tobytes(), self.want.tobytes())

    def test_wrong_outputs_are_refused(self):
        out = np.empty_like(self.want)
        out.flags.writeable = False
        self.refused(r'out\["outputs"\] is read-only: give an array that can be written', out={"outputs": out})
        self.refused(r'out\["outputs"\] is float32', out={"outputs": np.empty(self.want.shape, np.float32)})
        self.refused(r"is float16\[1000\], the model has float16\[1, 1000\]", out={"outputs": np.empty(1000, np.float16)})
        self.refused(r'no output "output": policy.onnx has outputs', out={"output": np.empty_like(self.want)})
        self.refused(r"out.* is not in C order", out={"outputs": np.empty((1, 2000), np.float16)[:, ::2]})

    def test_memory_that_an_output_shares_is_refused(self):
        shared = np.zeros(4096, np.float16)
        x = self.inputs["features_buffer"]
        shared[: x.size] = x.ravel()
        given = self.inputs | {"features_buffer": shared[: x.size].reshape(x.shape)}
        self.refused("shares memory with another array", given, {"outputs": shared[100:1100].reshape(1, 1000)})


class Refusals(unittest.TestCase):
    def refused(self, kind, text, *args, **options):
        with self.assertRaisesRegex(kind, text):
            Model(*args, **options).close()

    def test_what_cannot_be_opened_is_refused_with_a_remedy(self):
        self.refused(InputError, "nothing: no such file or directory: give a directory that spark-compile wrote, or an ONNX file", "nothing")
        self.refused(InputError, "no ONNX file .* and no program.json: it is no package", ROOT / "policy" / "sm_121")
        self.refused(InputError, "not an ONNX model; give the .onnx file", ROOT / "policy.npz")
        self.refused(InputError, "device gpu: want auto, cuda, cuda:N or emu", ROOT / "policy", device="gpu")
        self.refused(InputError, "--precision fp9: want", ROOT / "policy.onnx", precision="fp9")
        self.refused(InputError, "already compiled: --precision fp8 applies to ONNX files only", ROOT / "policy", precision="fp8")
        self.refused(InputError, "--report: a model that is compiled while it is loaded", ROOT / "policy.onnx", report="r.json")
        self.refused(InputError, "unknown flag --what", ROOT / "policy.onnx", what=True)
        self.refused(InputError, r"path is 7: want a path", 7)
        pointer = ROOT / "pointer.onnx"
        pointer.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 46\n")
        self.refused(InputError, "git lfs pull", pointer)

    def test_a_changed_file_is_refused(self):
        target = ROOT / "changed"
        subprocess.run(["cp", "-r", str(ROOT / "policy"), str(target)], check=True)
        with open(target / "weights.bin", "r+b") as f:
            f.write(b"\x01\x02\x03\x04")
        self.refused(InputError, "weights.bin", target)

    def test_a_missing_gpu_is_a_device_error(self):
        if os.path.exists("/dev/nvidiactl"):
            self.skipTest("there is a GPU")
        self.refused(DeviceError, "install the NVIDIA driver", ROOT / "policy", device="cuda")

    def test_a_closed_model_says_so(self):
        m = Model(ROOT / "supercombo")
        m.close()
        m.close()
        self.assertTrue(m.closed)
        for call in (m.run, m.reset, lambda: m.memory("outputs"), lambda: m.state(m.states[0]), lambda: m.set_state(m.states[0], np.zeros(m.inputs[m.states[0]].shape, m.inputs[m.states[0]].dtype))):
            with self.assertRaisesRegex(ClosedError, "closed: open it again"):
                call()

    def test_a_handle_that_was_closed_is_none_for_the_library(self):
        m = Model(ROOT / "policy")
        h = m._handle
        value = h.value
        m.close()
        for name, arguments in {"close": (), "reset": (), "describe": (ctypes.byref(ctypes.c_void_p()),)}.items():
            for handle in (value, 0, 1 << 40):
                with self.assertRaises(ClosedError):
                    h.call(name, handle, *arguments)

    def test_what_c_gives_wrongly_is_bad_input(self):
        with Model(ROOT / "supercombo") as m:
            h, state = m._open(), m.states[0]
            data = ctypes.create_string_buffer(8)
            for call, says in (
                (lambda text: h.lib.run(h.value, None, None, text), "inputs is NULL"),
                (lambda text: h.lib.set_state(h.value, state.encode(), data, 1 << 60, text), "a state of 1152921504606846976 bytes"),
            ):
                text = ctypes.c_void_p()
                code = call(ctypes.byref(text))
                error = h.lib.failed(code, text)
                self.assertIsInstance(error, InputError)
                self.assertIn(says, str(error))

    def test_unknown_states(self):
        with Model(ROOT / "supercombo") as m, Model(ROOT / "policy") as stateless:
            self.assertRaisesRegex(InputError, r'no state "x": supercombo.onnx keeps state', m.state, "x")
            self.assertRaisesRegex(InputError, r'no state "x": policy.onnx keeps none', stateless.state, "x")
            self.assertRaisesRegex(InputError, r"the model has", m.set_state, m.states[0], np.zeros(3, m.inputs[m.states[0]].dtype))

    def test_the_library_must_fit(self):
        run = lambda path: subprocess.run(  # noqa: E731
            [sys.executable, "-c", "import sparkcompile; sparkcompile.version()"], env=dict(os.environ, SPARKCOMPILE_LIBRARY=path), capture_output=True, text=True
        ).stderr  # fmt: skip
        self.assertIn("no such file", run("/nothing.so").lower().replace("cannot open shared object file: ", ""))
        self.assertIn("set SPARKCOMPILE_LIBRARY to the library", run("/nothing.so"))
        self.assertIn("this is no library of sparkcompile", run(ctypes.util.find_library("c") or "libc.so.6"))


class Threads(unittest.TestCase):
    def test_two_threads_on_one_model(self):
        """At the same time one is refused, in Python and by the library itself."""
        saved = arrays("supercombo")
        inputs = run_of(saved, "in0")
        with Model(ROOT / "supercombo") as m:
            outcomes = self.together(lambda: m.run(inputs))
            self.assertIn("BusyError", outcomes)
            self.assertIn("done", outcomes)
            # What was refused has harmed nothing.
            m.reset()
            self.assertEqual({n: x.tobytes() for n, x in m.run(inputs).items()}, {n: saved["out0." + n].tobytes() for n in m.outputs if not m.outputs[n].state})
            h, text = m._open(), ctypes.c_void_p

            def straight():
                ins = (text * len(m._inputs))()
                for i, q in enumerate(m._inputs):
                    if q.name in inputs:
                        ins[i] = _library.address(inputs[q.name])
                h.call("run", h.value, ins, (text * len(m._outputs))())

            self.assertIn("BusyError", self.together(straight))

    def together(self, call):
        """What comes of a call in two threads, until one of them was refused."""
        outcomes, stop = [], threading.Event()

        def work():
            for _ in range(500):
                if stop.is_set():
                    return
                try:
                    call()
                    outcomes.append("done")
                except BusyError:
                    outcomes.append("BusyError")
                    stop.set()

        threads = [threading.Thread(target=work) for _ in range(2)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        return outcomes

    def test_a_model_is_not_closed_under_a_run(self):
        inputs = run_of(arrays("supercombo"), "in0")
        for _ in range(50):
            m = Model(ROOT / "supercombo")
            h, call, ended = m._handle, self._prepared(m, inputs), []

            def work(h=h, call=call, ended=ended):
                try:
                    while not h.lib.run(*call):
                        pass
                finally:
                    ended.append(True)

            t = threading.Thread(target=work)
            t.start()
            refused = False
            try:
                while not ended:
                    h.call("close", h.value)  # where no run is going on it is closed, and the next one refused
                    break
            except BusyError:
                refused = True
            while refused:
                try:
                    h.call("close", h.value)
                    break
                except BusyError:
                    pass
            t.join()
            h.value = 0
            if refused:
                return
        self.fail("no call to close was refused")

    def test_the_gil_is_released(self):
        """While a model runs another thread goes on. No thread is made to switch here, so it can only where the run lets go of the GIL."""
        inputs = run_of(arrays("supercombo"), "in0")
        count, stop = [0], threading.Event()

        def work():
            while not stop.is_set():
                count[0] += 1
                time.sleep(0)  # lets the other thread have the GIL back

        interval = sys.getswitchinterval()
        with Model(ROOT / "supercombo") as m:
            t = threading.Thread(target=work, daemon=True)
            t.start()
            run, call = m._open().lib.run, self._prepared(m, inputs)
            sys.setswitchinterval(1000)
            try:
                before = count[0]
                code = run(*call)
                after = count[0]
            finally:
                sys.setswitchinterval(interval)
                stop.set()
                t.join()
            self.assertEqual(code, 0)
            self.assertGreater(after, before)

    def _prepared(self, m, inputs):
        ins = (ctypes.c_void_p * len(m._inputs))()
        for i, q in enumerate(m._inputs):
            if q.name in inputs:
                ins[i] = _library.address(inputs[q.name])
        return m._handle.value, ins, (ctypes.c_void_p * len(m._outputs))(), ctypes.byref(ctypes.c_void_p())


class Processes(unittest.TestCase):
    def test_a_fork_before_the_library_is_loaded_is_fine_and_one_behind_it_refused(self):
        program = f"""
import os, sys, warnings
import sparkcompile
warnings.simplefilter("ignore")
def child(what):
    pid = os.fork()
    if pid == 0:
        try:
            with sparkcompile.Model({str(ROOT / "policy")!r}) as m:
                print(what, m.name, flush=True)
        except sparkcompile.LibraryError as e:
            print(what, e, flush=True)
        os._exit(0)
    os.waitpid(pid, 0)
child("before")
m = sparkcompile.Model({str(ROOT / "policy")!r})
child("after")
if os.fork() == 0:
    try:
        m.run({{}})
    except sparkcompile.LibraryError as e:
        print("open", e, flush=True)
    os._exit(0)
os.wait()
m.close()
"""
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = done.stdout.splitlines()
        self.assertEqual(lines[0], "before policy.onnx")
        self.assertRegex(lines[1], "after this process was forked .*spawn")
        self.assertRegex(lines[2], "open this process was forked .*spawn")

    def test_the_environment_is_read_when_a_model_is_opened(self):
        """Go has read it when the library was loaded."""
        sparkcompile.version()
        old = os.environ.get("OPENPILOT_DGX_PRECISION")
        os.environ["OPENPILOT_DGX_PRECISION"] = "bf16"
        try:
            with Model(ROOT / "policy.onnx") as m:
                self.assertEqual(m.precision, "bf16")
        finally:
            del os.environ["OPENPILOT_DGX_PRECISION"]
        self.assertIsNone(old)
        with Model(ROOT / "policy.onnx") as m:
            self.assertEqual(m.precision, "fp16")

    def test_commands(self):
        run = lambda *a: subprocess.run([sys.executable, "-m", "sparkcompile", *a], capture_output=True, text=True, cwd=ROOT)  # noqa: E731
        done = run("compile", "policy.onnx", "-o", "made", "--quiet", "--precision", "fp32")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        with Model(ROOT / "made") as m:
            self.assertEqual(m.precision, "fp32")
        done = run("compile", "nothing.onnx")
        self.assertEqual(done.returncode, 2)
        self.assertRegex(done.stderr, "^python -m sparkcompile compile: .*nothing.onnx")
        self.assertEqual(run("run", "made").returncode, 0)
        self.assertIn("there is no command", run("nothing").stderr)


if __name__ == "__main__":
    unittest.main()
