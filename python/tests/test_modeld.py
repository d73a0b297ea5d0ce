import dataclasses
import math
import multiprocessing
import unittest
from multiprocessing.shared_memory import SharedMemory

import numpy as np

import sparkcompile
from sparkcompile import (
    BusyError,
    Calibration,
    ClosedError,
    DriverFrame,
    Frame,
    InputError,
    Inputs,
    Intrinsics,
    Modeld,
    Monitoring,
    MonitoringInputs,
    Picture,
)
from tests.data import ROOT, arrays, run_of


def paths(x, path=""):
    """Every number of an output by its path, as the Go test writes them: fields without _, None not at all."""
    if dataclasses.is_dataclass(x):
        for f in dataclasses.fields(x):
            if f.name != "stats":
                yield from paths(getattr(x, f.name), f"{path}.{f.name.replace('_', '')}")
    elif isinstance(x, dict):
        for k, v in x.items():
            yield from paths(v, f"{path}.{k}")
    elif isinstance(x, list):
        for i, v in enumerate(x):
            yield from paths(v, f"{path}.{i}")
    elif isinstance(x, np.ndarray):
        # Go's walk notes vectors whole where they are slices, and number by number where they are arrays.
        yield path, x
    elif x is not None:
        yield path, np.array([float(x)])


class Loops(unittest.TestCase):
    def same(self, got, saved):
        """All that Go said, and no more, to the bit."""
        left = {"." + k: v for k, v in saved.items()}
        for path, x in paths(got):
            if path in left:
                want = left.pop(path)
            else:  # an array of Go's: a path for each number
                want = np.concatenate([left.pop(f"{path}{''.join(f'.{i}' for i in at)}") for at in np.ndindex(x.shape if f"{path}.0" not in left else x.shape[:1])])
            self.assertEqual(np.asarray(x, np.float64).tobytes(), want.tobytes(), path)
        self.assertEqual(list(left), [])


def frame(saved, i):
    fid, desire, right, v_ego, known, *rest = saved[f"{i}.in"]
    rpy, road, wide = rest[:3], rest[3:6], rest[6:9]
    picture = lambda which: Picture(saved[f"{i}.{which}"], *map(int, saved[f"{i}.{which}.layout"]))  # noqa: E731
    c = Calibration(tuple(rpy), Intrinsics(road[0], int(road[1]), int(road[2])), Intrinsics(wide[0], int(wide[1]), int(wide[2])))
    return Frame(picture("road"), picture("wide"), id=int(fid), captured=12345), Inputs(
        desire=int(desire), right_hand_drive=bool(right), v_ego=v_ego, calibration=c if known else None, lateral_delay=0.2, longitudinal_delay=0.3
    )


class Driving(Loops):
    def setUp(self):
        self.saved = arrays("driving")
        self.steps = sum(k.endswith(".in") for k in self.saved)

    def result(self, i):
        return {k: v for k, v in run_of(self.saved, str(i)).items() if not k.startswith(("in", "road.", "wide.")) and k not in ("road", "wide")}

    def test_steps_are_gos(self):
        ran = 0
        with Modeld(ROOT / "driving") as m:
            for again in range(2):
                for i in range(self.steps):
                    out = m.step(*frame(self.saved, i))
                    ran += out.ran
                    self.same(out, self.result(i))
                    self.assertGreater(out.stats.run, 0)
                    self.assertIsInstance(out.confidence, sparkcompile.Confidence)
                m.reset()
        self.assertEqual(ran, 2 * (self.steps - 1))  # two frames were missed before one, which was not run

    def test_both_models_are_compiled_as_gos(self):
        w, h = map(int, self.saved["0.road.layout"][:2])
        with Modeld(ROOT / "vision.onnx", ROOT / "policy.onnx", camera=f"{w}x{h}", precision="fp16") as m:
            self.same(m.step(*frame(self.saved, 0)), self.result(0))

    def test_outputs_are_the_callers(self):
        with Modeld(ROOT / "driving") as m:
            m.step(*frame(self.saved, 1))
            first = m.step(*frame(self.saved, 2))
            kept = first.plan.position.copy()
            second = m.step(*frame(self.saved, 3))
            self.assertEqual(first.plan.position.tobytes(), kept.tobytes())
            self.assertNotEqual(second.plan.position.tobytes(), kept.tobytes())
        self.assertEqual(first.plan.position.tobytes(), kept.tobytes())

    def test_bad_frames_are_refused_and_change_nothing(self):
        with Modeld(ROOT / "driving") as m:
            f, inputs = frame(self.saved, 2)
            w, h = f.road.width, f.road.height
            bad = {
                "the road camera's picture.* bytes": (dataclasses.replace(f, road=dataclasses.replace(f.road, data=bytes(100))), inputs),
                "a width of 41 pixels: .* even": (dataclasses.replace(f, road=dataclasses.replace(f.road, width=41)), inputs),
                "stride|row": (dataclasses.replace(f, road=dataclasses.replace(f.road, stride=8)), inputs),
                "--camera": (Frame(Picture(bytes(4 * w * h * 2), 2 * w, 2 * h)), inputs),
                "want the same of both": (dataclasses.replace(f, wide=Picture(bytes(w * h), w // 2, h - 2)), inputs),
                "is float64: want bytes": (dataclasses.replace(f, road=dataclasses.replace(f.road, data=np.zeros(w * h * 2))), inputs),
                "not in C order": (dataclasses.replace(f, road=dataclasses.replace(f.road, data=np.zeros(w * h * 4, np.uint8)[::2])), inputs),
                "NoneType is no array": (dataclasses.replace(f, road=dataclasses.replace(f.road, data=None)), inputs),
                "roll is NaN: want an angle": (f, dataclasses.replace(inputs, calibration=dataclasses.replace(inputs.calibration, rpy=(math.nan, 0, 0)))),
                "rpy has 2 numbers": (f, dataclasses.replace(inputs, calibration=dataclasses.replace(inputs.calibration, rpy=(0, 0)))),
                "desire 8: want 0 to 7": (f, dataclasses.replace(inputs, desire=8)),
                "id is -1: want": (dataclasses.replace(f, id=-1), inputs),
            }
            for i in range(self.steps):
                for text, given in list(bad.items())[i :: self.steps // 2]:
                    with self.assertRaisesRegex(InputError, text):
                        m.step(*given)
                self.same(m.step(*frame(self.saved, i)), self.result(i))

    def test_another_contract_is_refused(self):
        with self.assertRaisesRegex(InputError, "a model alone, with inputs .* compile it with --modeld"):
            Modeld(ROOT / "policy")
        with self.assertRaisesRegex(InputError, "step of monitoring, not of driving"):
            Modeld(ROOT / "monitoring")
        with self.assertRaisesRegex(InputError, "step of driving, not of monitoring"):
            Monitoring(ROOT / "driving")

    def test_a_closed_loop_says_so(self):
        m = Modeld(ROOT / "driving")
        m.close()
        with self.assertRaises(ClosedError):
            m.step(*frame(self.saved, 0))
        with self.assertRaises(ClosedError):
            m.reset()

    def test_a_loop_in_use_says_so(self):
        with Modeld(ROOT / "driving") as m:
            with m._lock:
                self.assertRaises(BusyError, m.step, *frame(self.saved, 0))

    def test_modelds_own_loop_with_frames_in_shared_memory(self):
        """Another process writes frames into rings of shared memory, as cameras do, and this one steps on each where it lies."""
        width, height, stride, uv = map(int, self.saved["0.road.layout"])
        size = len(self.saved["0.road"])
        rings = [SharedMemory(create=True, size=2 * size) for _ in range(2)]
        context = multiprocessing.get_context("spawn")
        here, there = context.Pipe()
        p = context.Process(target=camera, args=(there, [r.name for r in rings], size, str(ROOT / "driving.npz"), self.steps))
        p.start()
        try:
            with Modeld(ROOT / "driving") as m:
                for i in range(self.steps):
                    self.assertTrue(here.poll(60))
                    at = here.recv()
                    f, inputs = frame(self.saved, i)
                    road, wide = (Picture(r.buf[at : at + size], width, height, stride, uv) for r in rings)
                    out = m.step(Frame(road, wide, id=f.id, captured=f.captured), inputs)
                    road.data.release()
                    wide.data.release()
                    here.send("next")
                    self.same(out, self.result(i))
        finally:
            p.join(60)
            for r in rings:
                r.close()  # which an array over it, had the step kept one, would not let
                r.unlink()
        self.assertEqual(p.exitcode, 0)


def camera(pipe, names, size, file, steps):
    """The process that has the cameras."""
    rings = [SharedMemory(name) for name in names]
    with np.load(file) as saved:
        for i in range(steps):
            at = (i % 2) * size
            for r, which in zip(rings, ("road", "wide")):
                r.buf[at : at + size] = saved[f"{i}.{which}"].tobytes()
            pipe.send(at)
            pipe.recv()
    for r in rings:
        r.close()


class DriverMonitoring(Loops):
    def test_steps_are_gos(self):
        for name in ("monitoring", "monitoring_luma"):
            saved = arrays(name)
            with Monitoring(ROOT / name) as m:
                for i in range(2):
                    focal, width, height = saved[f"{i}.in"]
                    given = MonitoringInputs((0.01, -0.02, 0.03), i == 1, Intrinsics(focal, int(width), int(height)))
                    out = m.step(DriverFrame(Picture(saved[f"{i}.road"], *map(int, saved[f"{i}.road.layout"])), i, 12345), given)
                    want = {k: v for k, v in run_of(saved, str(i)).items() if k != "in" and not k.startswith("road")}
                    self.same(out, want)

    def test_a_bad_frame_is_refused(self):
        with Monitoring(ROOT / "monitoring") as m:
            with self.assertRaisesRegex(InputError, "the driver camera's picture"):
                m.step(DriverFrame(Picture(bytes(10), 64, 64)))


class Cameras(unittest.TestCase):
    def test_cameras_of_devices(self):
        c = sparkcompile.cameras("tici", "ar0231")
        self.assertEqual((c.road.width, c.road.height, c.wide.focal), (1928, 1208, 567.0))
        with self.assertRaisesRegex(InputError, "phone"):
            sparkcompile.cameras("phone", "ar0231")


if __name__ == "__main__":
    unittest.main()
