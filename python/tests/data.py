"""What the Go test has prepared: compiled directories, their ONNX files, and what Go's own session said."""

import os
from pathlib import Path

import numpy as np

ROOT = Path(os.environ["SPARKCOMPILE_TESTDATA"])
FULL = bool(os.environ.get("SPARK_FULL"))


def arrays(name):
    with np.load(ROOT / (name + ".npz")) as z:
        return {k: z[k] for k in z.files}


def run_of(saved, prefix):
    """The arrays whose names begin with the prefix, without it."""
    return {k.removeprefix(prefix + "."): v for k, v in saved.items() if k.startswith(prefix + ".")}
