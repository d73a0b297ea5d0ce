"""Prints how good low precision of the trained network is on inputs that chose nothing: golden inputs 3 to 10, and crops of
pictures unlike any calibration input. `make judge-precision` runs it; it writes to a temporary directory alone.

Choices are made on other inputs. Development inputs choose techniques and constants: the 16 shared calibration inputs, split;
perturbed ones; crops of other pictures than those here. Held-out and perturbed inputs of a compilation choose strengths and
formats. The pictures here chose nothing. Golden inputs are not quite blind: until 2026-11-22 they chose techniques (feedback,
recovery, means, block scales) and bounds of tests, and were printed next to the inputs that chose headroom.

usage: python judge.py BIN MODELS, the directories of spark-compile and spark-run, and of the shared models.
"""
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import onnxruntime

import pictures

NAME = "dmonitoring_model"
OURS = [("fp8", "0"), ("nvfp4", "0"), ("fp8", None), ("nvfp4", None)]  # precision and --min-cosine
THEIRS = ["dmonitoring_modelopt_fp8", "dmonitoring_modelopt_int8", "dmonitoring_ort_int8"]


def quality(got, want):
    """Mean relative L2, variation explained, and the lowest cosine."""
    got, want = np.stack(got).astype(float), np.stack(want).astype(float)
    apart = np.linalg.norm(got - want, axis=1) / np.linalg.norm(want, axis=1)
    explained = 1 - ((got - want) ** 2).sum() / ((want - want.mean(0)) ** 2).sum()
    cosines = (got * want).sum(1) / np.linalg.norm(got, axis=1) / np.linalg.norm(want, axis=1)
    return apart.mean(), explained, cosines.min()


def by_onnxruntime(path, inputs):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    port = session.get_inputs()[0]
    dtype = {"tensor(float)": np.float32, "tensor(float16)": np.float16}[port.type]
    return [session.run(None, {port.name: x.astype(dtype)})[0].ravel() for x in inputs]


def by_us(binaries, package, inputs, scratch):
    out = []
    for x in inputs:
        np.save(scratch / "x.npy", x)
        subprocess.run([binaries / "spark-run", package, "--device", "emu", "--input", f"input_img={scratch / 'x.npy'}", "--output-dir", scratch / "out"],
                       check=True, stdout=subprocess.DEVNULL)
        out.append(np.load(scratch / "out" / "outputs.npy").ravel())
    return out


def row(name, sets, results):
    figures = [f"{x:.4f},{v:.3f},{c:.5f}" for x, v, c in (quality(results[s], want) for s, (_, want) in sets.items())]
    print(",".join([name, *figures]), flush=True)


def main(binaries, models):
    model = models / f"{NAME}.onnx"
    if not model.exists():
        sys.exit(f"{model} is missing: the trained network is not part of the repository; put it there, or name its directory with MODELS=DIR")
    golden = [np.load(models / "golden" / f"{NAME}_{k}.npz") for k in range(3, 11)]
    unlike = pictures.inputs()
    sets = {"golden": ([z["input_img"] for z in golden], [z["outputs"].ravel() for z in golden]),
            "pictures": (unlike, by_onnxruntime(model, unlike))}
    print("program,golden inputs 3-10: relative L2,golden: variation explained,golden: least cosine,pictures: relative L2,pictures: variation explained,pictures: least cosine")
    for precision, budget in OURS:
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            command = [binaries / "spark-compile", model, "--precision", precision, "--calibrate", models / "calibration" / NAME, "-o", folder / "network", "--quiet"]
            done = subprocess.run(command + (["--min-cosine", budget] if budget else []), capture_output=True, text=True)
            name = f"{precision} {'forced' if budget else 'with the default budget'}"
            if done.returncode:
                print(f"{name} was refused: {done.stderr.strip()}", file=sys.stderr)
                continue
            row(name, sets, {s: by_us(binaries, folder / "network", x, folder) for s, (x, _) in sets.items()})
    for file in THEIRS:
        path = models / "quantised" / f"{file}.onnx"
        if path.exists():
            row(f"{file} in ONNX Runtime", sets, {s: by_onnxruntime(path, x) for s, (x, _) in sets.items()})


if __name__ == "__main__":
    main(*(pathlib.Path(p).resolve() for p in sys.argv[1:3]))
