import pickle as real_pickle
import unittest

import numpy as np

from sparkcompile import InputError, Model
from sparkcompile import openpilot
from sparkcompile import openpilot as pickle  # the one import that changes, of 0.9.9 and later
from sparkcompile.openpilot import ModelRunner, Runtime, make_onnx_cpu_runner  # and of those before
from tests.data import ROOT, arrays, run_of


def wide(x):
    return x.astype(np.float32)


class DropIn(unittest.TestCase):
    def setUp(self):
        self.saved = arrays("policy")
        self.inputs = [run_of(self.saved, f"in{i}") for i in range(3)]
        with Model(ROOT / "policy.onnx", io="f32") as m:
            self.want = [m.run({n: wide(x) for n, x in given.items()})["outputs"].ravel() for given in self.inputs]
        self.assertNotEqual(self.want[0].tobytes(), self.want[1].tobytes())
        for i, w in enumerate(self.want):  # the model in f16 rounds no more than its output
            self.assertEqual(w.astype(np.float16).tobytes(), self.saved[f"out{i}.outputs"].tobytes())

    def test_the_loop_of_0_9_7(self):
        """Flat f32 arrays, which the runner reads at each execute()."""
        output = np.zeros(1000, np.float32)
        inputs = {n: np.zeros(x.size, np.float32) for n, x in self.inputs[0].items()}
        model = ModelRunner({ModelRunner.THNEED: ROOT / "policy.thneed", ModelRunner.ONNX: ROOT / "policy.onnx"}, output, Runtime.GPU, False, None)
        model.addInput("features_buffer", None)
        for n, x in inputs.items():
            if n != "features_buffer":
                model.addInput(n, x)
        for given, want in zip(self.inputs, self.want):
            for n, x in given.items():
                inputs[n][:] = wide(x).ravel()
            self.assertIsNone(model.getCLBuffer("features_buffer"))
            model.setInputBuffer("features_buffer", inputs["features_buffer"].copy())
            model.execute()
            self.assertEqual(output.tobytes(), want.tobytes())

    def test_what_the_runner_of_0_9_7_refuses(self):
        output = np.zeros(1000, np.float32)
        with self.assertRaisesRegex(InputError, 'no ONNX model among "THNEED"'):
            ModelRunner({ModelRunner.THNEED: "x"}, output, Runtime.GPU, False, None)
        with self.assertRaisesRegex(InputError, "output has 10 numbers"):
            openpilot.ONNXModel(ROOT / "policy.onnx", output[:10], Runtime.CPU)
        model = openpilot.ONNXModel(ROOT / "policy", output, Runtime.CPU)  # compiled: f16 inside
        with self.assertRaisesRegex(InputError, 'no input "img"'):
            model.addInput("img", None)
        with self.assertRaisesRegex(InputError, "was not added"):
            model.setInputBuffer("features_buffer", output)
        model.addInput("features_buffer", None)
        with self.assertRaisesRegex(InputError, "has 1000 numbers"):
            model.setInputBuffer("features_buffer", output)
        with self.assertRaisesRegex(InputError, "has no array"):
            model.execute()
        for n, x in self.inputs[1].items():
            model.addInput(n, wide(x).ravel())
        model.execute()
        self.assertEqual(output.tobytes(), wide(self.saved["out1.outputs"]).tobytes())

    def test_the_session_of_0_9_8(self):
        s = make_onnx_cpu_runner(ROOT / "policy.onnx")
        self.assertEqual([(q.name, q.type) for q in s.get_inputs()], [(n, "tensor(float)") for n in ("desire_pulse", "traffic_convention", "features_buffer")])
        self.assertEqual([(q.name, q.shape) for q in s.get_outputs()], [("outputs", [1, 1000])])
        self.assertEqual(openpilot.ORT_TYPES_TO_NP_TYPES[s.get_inputs()[0].type], np.float32)
        for given, want in zip(self.inputs, self.want):
            self.assertEqual(s.run(None, {n: wide(x) for n, x in given.items()})[0].flatten().tobytes(), want.tobytes())
        self.assertEqual(s.run(["outputs"], {n: wide(x) for n, x in self.inputs[0].items()})[0].ravel().tobytes(), self.want[0].tobytes())
        with self.assertRaisesRegex(InputError, 'no output "x"'):
            s.run(["x"], {n: wide(x) for n, x in self.inputs[0].items()})

    def test_the_loop_of_0_10(self):
        """policy_run(**tensors), of what pickle.load gave, over arrays that the loop writes between runs."""

        class Tensor:  # tinygrad's over the memory of a NumPy array
            def __init__(self, x):
                self.x = x

            def numpy(self):
                return self.x

        (ROOT / "policy_tinygrad.pkl").write_bytes(b"what tinygrad compiled")
        metadata = {"model_checkpoint": "x", "output_slices": {"plan": slice(0, 990), "desire_state": slice(-8, None)}, "output_shapes": {"outputs": (1, 1000)}}
        (ROOT / "policy_metadata.pkl").write_bytes(real_pickle.dumps(metadata))
        with open(ROOT / "policy_metadata.pkl", "rb") as f:
            self.assertEqual(pickle.load(f), metadata)
        self.assertEqual(pickle.load(ROOT / "policy_metadata.pkl"), metadata)
        with open(ROOT / "policy_tinygrad.pkl", "rb") as f:
            policy_run = pickle.load(f)
        buffers = {n: np.zeros(x.shape, np.float32) for n, x in self.inputs[0].items()}
        tensors = {n: Tensor(x) for n, x in buffers.items()}
        results = []
        for given in self.inputs:
            for n, x in given.items():
                buffers[n][...] = x
            results.append(policy_run(**tensors).contiguous().realize().uop.base.buffer.numpy())
        for got, i in zip(results, range(3)):  # the directory policy lies there too, and is taken: f16
            self.assertEqual((got.dtype, got.shape), (np.float32, (1000,)))
            self.assertEqual(got.tobytes(), wide(self.saved[f"out{i}.outputs"]).tobytes())
        self.assertEqual(np.asarray(policy_run(**tensors)).tobytes(), results[2].tobytes())
        self.assertEqual(policy_run(**tensors).numpy().tobytes(), results[2].tobytes())
        with self.assertRaisesRegex(InputError, 'inputs "x": policy.onnx has desire_pulse'):
            policy_run(x=buffers["features_buffer"])
        with self.assertRaisesRegex(InputError, "want one of other.onnx, other beside it: what tinygrad"):
            pickle.load(ROOT / "other_tinygrad.pkl")

    def test_a_pickle_with_code_is_not_run(self):
        class Bad:
            def __reduce__(self):
                return (print, ("ran",))

        (ROOT / "bad_metadata.pkl").write_bytes(real_pickle.dumps({"x": Bad()}))
        with self.assertRaisesRegex(InputError, "wants builtins.print, and only data are read"):
            pickle.load(ROOT / "bad_metadata.pkl")


if __name__ == "__main__":
    unittest.main()
