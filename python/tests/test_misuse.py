"""Every argument of the public functions with values that it is not for: an InputError in a few words, that never shows the value."""

import io
import os
import unittest
from dataclasses import replace

import numpy as np

import sparkcompile
from sparkcompile import DriverFrame, Error, InputError, Model, Modeld, Monitoring, MonitoringInputs, openpilot
from tests.data import ROOT, arrays, run_of
from tests.test_modeld import frame

SECRET = "SECRET" * 30000
LONGEST = 600  # characters of an error


class Loud:
    """Everything that shows it, or wants its memory, gets the secret."""

    def __repr__(self):
        return SECRET

    __str__ = __repr__


class Failing(Loud):
    def fail(self, *args, **options):
        raise RuntimeError(SECRET)

    __array_interface__ = property(fail)
    __index__ = __float__ = __int__ = __bool__ = __len__ = __iter__ = __fspath__ = numpy = fail


class Tensor(Failing):
    __dlpack__ = __dlpack_device__ = Failing.fail


class HostTensor(Failing):
    __dlpack__ = Failing.fail

    def __dlpack_device__(self):
        return 1, 0


class Odd(Loud):
    __array_interface__ = {"shape": (1,), "typestr": SECRET, "version": 3}

    def __fspath__(self):
        return SECRET.encode()


def released():
    view = memoryview(bytearray(8))
    view.release()
    return view


def values():
    """What no argument wants."""
    return {
        "list": [SECRET], "tuple": (SECRET, 1), "set": {SECRET}, "bytes": b"policy", "complex": 1j, "Loud": Loud(), "Failing": Failing(),
        "Tensor": Tensor(), "HostTensor": HostTensor(), "Odd": Odd(), "class": np.ndarray, "objects": np.array([Loud(), Loud()], object),
        "fields": np.zeros(3, [("a", "f4"), (SECRET[:60], "f4")]), "masked": np.ma.masked_array(np.zeros(3, np.float16), mask=True),
        "strings": np.array([SECRET]), "released": released(), "dates": np.zeros(3, "M8[s]"), "function": values, "secret": SECRET,
    }  # fmt: skip


NUMBERS = {"nan": float("nan"), "inf": float("inf"), "none": None, "word": "1"}
WHOLE = NUMBERS | {"half": 1.5, "huge": 1 << 70, "vast": 10**5000, "negative": -1}
NAMES = {"none": None, "number": 5, "NUL": "a\0b", "surrogate": "\udc80", "empty": ""}


class Misuse(unittest.TestCase):
    def each(self, what, call, more=None, but=()):
        """Calls with every value, and with more of them."""
        for name, value in (values() | (more or {})).items():
            if name in but:
                continue
            with self.subTest(argument=what, value=name):
                with self.assertRaises(InputError) as caught:
                    call(value)
                text = str(caught.exception)
                self.assertLess(len(text), LONGEST)
                self.assertNotIn("SECRET" * 11, text)
                self.assertNotIn("object at 0x", text)

    def test_models(self):
        saved = arrays("policy")
        ins, want = run_of(saved, "in0"), saved["out0.outputs"].tobytes()
        with Model(ROOT / "policy") as m:
            some = {"array": ins["features_buffer"], "number": 1}
            self.each("inputs", m.run, some | {"empty": {}, "none": None})
            self.each("out", lambda x: m.run(ins, x), some)
            self.each("an input's name", lambda x: m.run(ins | {x: ins["features_buffer"]}), NAMES, but=UNHASHABLE)
            self.each("an output's name", lambda x: m.run(ins, {x: np.empty((1, 1000), np.float16)}), NAMES, but=UNHASHABLE)
            self.each("memory", m.memory, NAMES)
            strange = {"order": ins["features_buffer"].astype(">f2"), "reversed": ins["features_buffer"][..., ::-1], "none": None, "deep": np.zeros((1,) * 60)}
            self.each("an input", lambda x: m.run(ins | {"features_buffer": x}), strange)
            self.each("an output", lambda x: m.run(ins, {"outputs": x}), strange)
            self.assertEqual(m.run(ins)["outputs"].tobytes(), want)
            with self.assertRaisesRegex(InputError, "features_buffer.* is float16 in another byte order"):
                m.run(ins | {"features_buffer": strange["order"]})
            with self.assertRaisesRegex(InputError, '"outputs" is an output of policy.onnx: leave it out, as {n: x.n. for n in model.inputs}'):
                m.run(ins | {"outputs": saved["out0.outputs"]})

    def test_states(self):
        with Model(ROOT / "supercombo") as m:
            self.each("state", m.state, NAMES)
            self.each("set_state", lambda x: m.set_state(x, np.zeros(1)), NAMES)
            self.each("a state's value", lambda x: m.set_state(m.states[0], x))

    def test_opening(self):
        for open_ in (Model, Modeld, Monitoring):
            self.each(open_.__name__, open_, NAMES)
        self.assertRaisesRegex(InputError, "no model: give", Modeld)
        self.assertRaisesRegex(InputError, r"is bytes: want a str or an os.PathLike: os.fsdecode", Model, os.fsencode(ROOT / "policy"))
        with Model(os.fspath(ROOT / "policy")) as m:
            self.assertEqual(m.name, "policy.onnx")
        path = ROOT / "policy.onnx"
        self.each("device", lambda x: Model(path, device=x), NAMES | {"empty": "x"})
        self.each("target", lambda x: Model(path, target=x), NAMES | {"none": "x", "empty": "x"})
        self.each("cache", lambda x: Model(path, cache=x), {"NUL": "a\0b", "number": 5})
        self.each("check", lambda x: Model(path, check=x), NAMES)
        self.each("precision", lambda x: Model(path, precision=x), {"number": 5, "NUL": "a\0b", "map": {"a": 1}})
        self.each("calibrate", lambda x: Model(path, precision="fp8", calibrate=[x]), NAMES)
        self.each("a shape", lambda x: Model(path, shape={"features_buffer": x}), NAMES)
        self.each("a shape's name", lambda x: Model(path, shape={x: (1, 2)}), NAMES, but=UNHASHABLE)
        self.each("a dimension", lambda x: Model(path, shape={"features_buffer": (1, x)}), WHOLE)
        self.each("an option", lambda x: Model(path, **{x: 1}), but=NO_STRINGS)
        self.each("a camera's device", lambda x: sparkcompile.cameras(x, "unknown"), NAMES)
        self.each("a camera's sensor", lambda x: sparkcompile.cameras("tici", x), NAMES)

    def test_loops(self):
        saved = arrays("driving")
        with Modeld(ROOT / "driving") as m:
            f, i = frame(saved, 2)
            want = m.step(f, i).raw
            m.reset()
            self.each("frame", m.step, NUMBERS)
            self.each("inputs", lambda x: m.step(f, x), {"number": 1})
            for name in ("road", "wide"):
                self.each(name, lambda x: m.step(replace(f, **{name: x})), {"number": 1})
            for name in ("id", "captured"):
                self.each(name, lambda x: m.step(replace(f, **{name: x})), WHOLE, but=("negative",))
            for name in ("width", "height", "stride", "uv"):
                self.each(name, lambda x: m.step(replace(f, road=replace(f.road, **{name: x}))), WHOLE)
            self.each("data", lambda x: m.step(replace(f, road=replace(f.road, data=x))), {"number": 1, "none": None})
            self.each("desire", lambda x: m.step(f, replace(i, desire=x)), WHOLE)
            self.each("right_hand_drive", lambda x: m.step(f, replace(i, right_hand_drive=x)), WHOLE)
            for name in ("v_ego", "lateral_delay", "longitudinal_delay"):
                self.each(name, lambda x: m.step(f, replace(i, **{name: x})), NUMBERS)
            self.each("calibration", lambda x: m.step(f, replace(i, calibration=x)), {"number": 1})
            self.each("rpy", lambda x: m.step(f, replace(i, calibration=replace(i.calibration, rpy=x))), NUMBERS)
            self.each("yaw", lambda x: m.step(f, replace(i, calibration=replace(i.calibration, rpy=(0, 0, x)))), NUMBERS)
            self.each("camera", lambda x: m.step(f, replace(i, calibration=replace(i.calibration, wide=x))), NUMBERS)
            for name in ("focal", "width", "height"):
                more = NUMBERS if name == "focal" else WHOLE
                self.each(name, lambda x: m.step(f, replace(i, calibration=replace(i.calibration, road=replace(i.calibration.road, **{name: x})))), more)
            got = m.step(f, i).raw  # what was refused has left no trace
            self.assertEqual({n: x.tobytes() for n, x in got.items()}, {n: x.tobytes() for n, x in want.items()})
        with Monitoring(ROOT / "monitoring") as m:
            picture = f.road
            self.each("frame", m.step, NUMBERS)
            self.each("inputs", lambda x: m.step(DriverFrame(picture), x), {"number": 1})
            self.each("picture", lambda x: m.step(DriverFrame(x)), NUMBERS)
            self.each("rpy", lambda x: m.step(DriverFrame(picture), MonitoringInputs(rpy=x)), NUMBERS)
            self.each("camera", lambda x: m.step(DriverFrame(picture), MonitoringInputs(camera=x)), NUMBERS)

    def test_what_openpilot_imports(self):
        path, output = ROOT / "policy.onnx", np.zeros(1000, np.float32)
        runner = openpilot.ModelRunner({"ONNX": path}, output)
        runner.addInput("features_buffer", None)
        some = {"number": 1, "none": None}
        self.each("paths", lambda x: openpilot.ModelRunner(x, output), some)
        self.each("path", lambda x: openpilot.ModelRunner({"ONNX": x}, output), NAMES)
        self.each("output", lambda x: openpilot.ModelRunner({"ONNX": path}, x), some)
        self.each("addInput", lambda x: runner.addInput(x, None), NAMES)
        self.each("addInput's array", lambda x: runner.addInput("features_buffer", x), {"number": 1})
        self.each("setInputBuffer", lambda x: runner.setInputBuffer(x, output), NAMES)
        self.each("setInputBuffer's array", lambda x: runner.setInputBuffer("features_buffer", x), some)
        self.each("make_onnx_cpu_runner", openpilot.make_onnx_cpu_runner, NAMES)
        self.each("Runner", openpilot.Runner, NAMES)
        self.each("load", openpilot.load, NAMES | {"file without a name": io.BytesIO(b"x")})
        session, run = openpilot.make_onnx_cpu_runner(path), openpilot.Runner(path)
        inputs = {n: x.astype(np.float32) for n, x in run_of(arrays("policy"), "in0").items()}
        self.each("output_names", lambda x: session.run(x, inputs), {"number": 1})
        self.each("an output's name", lambda x: session.run([x], inputs), NAMES)
        self.each("input_feed", lambda x: session.run(None, x), some)
        self.each("an input", lambda x: run(**inputs | {"features_buffer": x}), some)
        self.each("an input's name", lambda x: run(**inputs | {x: 1}), but=NO_STRINGS)
        for content in (b"", b"\x80\x04what", b"I" + b"9" * 10000, b"\x80\x04\x8e" + b"\xff" * 8):
            bad = ROOT / "bad_metadata.pkl"
            bad.write_bytes(content)
            self.assertRaisesRegex(InputError, "bad_metadata.pkl: this is no pickle of data", openpilot.load, bad)
        self.assertRaisesRegex(InputError, "nothing_metadata.pkl: No such file", openpilot.load, ROOT / "nothing_metadata.pkl")

    def test_every_error_is_one_of_ours(self):
        self.assertTrue(issubclass(InputError, Error) and issubclass(InputError, ValueError))


UNHASHABLE = ("list", "set", "objects", "fields", "masked", "strings", "dates", "released")
NO_STRINGS = tuple(name for name in values() if name != "secret")  # Python itself wants strings there
