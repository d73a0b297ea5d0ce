"""What openpilot's modeld imports to run a model, with models that spark-compile compiled behind it. One import changes:

    openpilot          was                                                                 becomes
    to 0.9.7           from openpilot.selfdrive.modeld.runners import ModelRunner, Runtime      from sparkcompile.openpilot import ModelRunner, Runtime
    0.9.8, 0.9.9       from ….runners.ort_helpers import make_onnx_cpu_runner                   from sparkcompile.openpilot import make_onnx_cpu_runner
    0.9.9 to 0.10.x    import pickle, for what tinygrad compiled                                from sparkcompile import openpilot as pickle

Paths are those of ONNX files or of directories that spark-compile wrote. As openpilot's own runners do, these make f32 of the f16 that a
file's inputs and outputs have. SPARK_DEVICE says where models run, OPENPILOT_DGX_PRECISION in which precision.

modeld's loop keeps histories and warps frames on the host then, as it does with other runners. sparkcompile.Modeld does it on the device.
"""

from __future__ import annotations

import contextlib
import os
import pickle as _pickle
import typing
from enum import IntEnum
from pathlib import Path as _Path
from typing import Any, BinaryIO, Mapping, Sequence, Union

import numpy as np

from . import _arrays, _check
from ._errors import InputError
from ._model import Array, Model, Path, Port

__all__ = ["ModelRunner", "ONNXModel", "ORT_TYPES_TO_NP_TYPES", "Runner", "Runtime", "Session", "load", "make_onnx_cpu_runner"]

ORT_TYPES_TO_NP_TYPES = {"tensor(float16)": np.float16, "tensor(float)": np.float32, "tensor(uint8)": np.uint8}

_ORT_NAMES = {"float16": "float16", "float32": "float", "float64": "double"}


class Runtime(IntEnum):
    """Where openpilot's runners ran a model. It decides nothing here: SPARK_DEVICE does."""

    CPU = 0
    GPU = 1
    DSP = 2


def _load(path: Path) -> Model:
    """The model at a path: an ONNX file with f32 in and out, or a compiled directory as it is."""
    path = _check.path("a model's path", path)
    if os.path.isdir(path) and os.path.exists(os.path.join(path, "program.json")):
        return Model(path)
    return Model(path, io="f32")


def _port(runner: "ONNXModel", name: str) -> Port:
    port = runner._ports.get(name) if isinstance(name, str) else None
    if port is None:
        raise InputError(f"no input {_check.shown(name)}: {runner.model.name} has {', '.join(runner._ports)}")
    return port


def _numbers(name: str, x: Any) -> Array:
    """An input's array of real numbers, of any type and shape. Tensors of tinygrad are read by their numpy()."""
    what = f'input "{name}"'
    try:
        if not isinstance(x, np.ndarray) and not isinstance(x, type) and callable(getattr(x, "numpy", None)):
            x = x.numpy()
    except Exception as e:  # whose text may hold anything
        raise InputError(f"{what}: numpy() of this {type(x).__name__} failed ({type(e).__name__}): give a NumPy array") from e
    a = _arrays.view(what, x)
    if a.dtype.kind not in "biuf":
        raise InputError(f"{what} is {a.dtype.name}: want real numbers")
    return a


class ONNXModel:
    """A runner of 0.9.x: inputs are arrays that it keeps and reads at each execute(); the one output is written to the array that it was
    given. Arrays may be flat, and of another type: they are converted on their way into the model's memory."""

    def __init__(self, path: Path, output: Array, runtime: int = Runtime.CPU, use_tf8: bool = False, cl_context: Any = None) -> None:
        self.model = _load(path)
        outputs = [q for q in self.model.outputs.values() if not q.state]
        if len(outputs) != 1:
            raise InputError(f"{self.model.name} has {len(outputs)} outputs, and this interface is of models with one: use sparkcompile.Model")
        self._output = output
        if not isinstance(output, np.ndarray) or not output.flags.writeable or output.dtype.kind != "f":
            raise InputError(f"output is {_check.kind(output)}: want a NumPy array of floats that can be written")
        if output.size != outputs[0].nbytes // outputs[0].dtype.itemsize:
            raise InputError(f"output has {output.size} numbers, {self.model.name} gives {outputs[0].shape}")
        self._result = self.model.memory(outputs[0].name)
        self._ports = {q.name: q for q in self.model.inputs.values() if not q.state}
        self._memory = {name: self.model.memory(name) for name in self._ports}
        self._inputs: dict[str, Array | None] = {}

    def addInput(self, name: str, buffer: Array | None) -> None:
        """Names an input, and the array that it is read from at each execute(); None: setInputBuffer gives one."""
        _port(self, name)
        self._inputs[name] = None
        if buffer is not None:
            self.setInputBuffer(name, buffer)

    def setInputBuffer(self, name: str, buffer: Array) -> None:
        """Takes another array for an input."""
        port = _port(self, name)
        if name not in self._inputs:
            raise InputError(f'input "{name}" was not added: call addInput("{name}", …) first')
        a = _numbers(name, buffer)
        count = port.nbytes // port.dtype.itemsize
        if a.size != count and a.nbytes == port.nbytes and a.flags.c_contiguous:
            a = a.reshape(-1).view(port.dtype)  # bytes of a picture that was passed as f32
        if a.size != count:
            raise InputError(f'input "{name}" has {a.size} numbers, the model has {port.dtype}{list(port.shape)}')
        self._inputs[name] = a

    def getCLBuffer(self, name: str) -> None:
        """None: frames are prepared in the host's memory."""
        return None

    def execute(self) -> None:
        """Runs the model: reads the inputs, and fills the output."""
        for name, port in self._ports.items():
            a = self._inputs.get(name)
            if a is None:
                raise InputError(f'input "{name}" has no array: call addInput("{name}", array), or setInputBuffer')
            np.copyto(self._memory[name], a.reshape(port.shape), casting="unsafe")
        self.model.run()
        np.copyto(self._output, self._result.reshape(self._output.shape), casting="unsafe")


class ModelRunner(ONNXModel):
    """ModelRunner(paths, output, runtime, use_tf8, context) of 0.9.x, whose paths are by the kind of runner: the one of ModelRunner.ONNX
    is taken."""

    THNEED = "THNEED"
    SNPE = "SNPE"
    ONNX = "ONNX"

    def __init__(self, paths: Mapping[str, Path], output: Array, runtime: int = Runtime.CPU, use_tf8: bool = False, cl_context: Any = None) -> None:
        if not isinstance(paths, Mapping) or self.ONNX not in paths:
            kinds = ", ".join(map(_check.shown, paths)) or "no paths" if isinstance(paths, Mapping) else _check.kind(paths)
            raise InputError(f"no ONNX model among {kinds}: give {{ModelRunner.ONNX: path}}")
        super().__init__(paths[self.ONNX], output, runtime, use_tf8, cl_context)


class NodeArg:
    """An input or output, as ONNX Runtime describes it."""

    def __init__(self, port: Port) -> None:
        self.name = port.name
        self.shape = list(port.shape)
        self.type = f"tensor({_ORT_NAMES.get(port.dtype.name, port.dtype.name)})"


class Session:
    """What of ONNX Runtime's InferenceSession openpilot calls."""

    def __init__(self, path: Path) -> None:
        self.model = _load(path)

    def get_inputs(self) -> list[NodeArg]:
        return [NodeArg(q) for q in self.model.inputs.values()]

    def get_outputs(self) -> list[NodeArg]:
        return [NodeArg(q) for q in self.model.outputs.values() if not q.state]

    def run(self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: Any = None) -> list[Array]:
        """The outputs in their order, or those that are named."""
        names = [] if output_names is None else _check.names("output_names", output_names)
        known = [q.name for q in self.model.outputs.values() if not q.state]
        for name in names:
            if name not in known:
                raise InputError(f"no output {_check.shown(name)}: {self.model.name} has {', '.join(known)}")
        out = self.model.run(input_feed)
        return [out[name] for name in names or known]


def make_onnx_cpu_runner(model_path: Path) -> Session:
    """A session for a model, on the device that SPARK_DEVICE says, the CPU or not."""
    return Session(model_path)


class Result:
    """A vector as modeld reads those of tinygrad."""

    def __init__(self, array: Array) -> None:
        self._array = array

    def numpy(self) -> Array:
        return self._array

    def contiguous(self) -> "Result":
        return self

    def realize(self) -> "Result":
        return self

    def flatten(self) -> "Result":
        return Result(self._array.reshape(-1))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return self._array if dtype is None or dtype == self._array.dtype else self._array.astype(dtype)

    @property
    def uop(self) -> "Result":
        return self

    lazydata = base = buffer = uop


class Runner:
    """What tinygrad compiled, as modeld calls it: vision_run(img=…, big_img=…). Tensors are read by their numpy(), arrays where they lie,
    and converted on their way into the model's memory."""

    def __init__(self, path: Path) -> None:
        self.model = _load(path)
        outputs = [q for q in self.model.outputs.values() if not q.state]
        if len(outputs) != 1:
            raise InputError(f"{self.model.name} has {len(outputs)} outputs, and this interface is of models with one: use sparkcompile.Model")
        self._result = self.model.memory(outputs[0].name)
        self._ports = {q.name: q for q in self.model.inputs.values() if not q.state}
        self._memory = {name: self.model.memory(name) for name in self._ports}

    def __call__(self, **inputs: Any) -> Result:
        if inputs.keys() != self._ports.keys():
            raise InputError(f"inputs {', '.join(map(_check.shown, inputs)) or 'none'}: {self.model.name} has {', '.join(self._ports)}")
        for name, x in inputs.items():
            a, port = _numbers(name, x), self._ports[name]
            if a.size != self._memory[name].size:
                raise InputError(f'input "{name}" has {a.size} numbers, the model has {port.dtype}{list(port.shape)}')
            np.copyto(self._memory[name], a.reshape(port.shape), casting="unsafe")
        self.model.run()
        return Result(self._result.astype(np.float32).reshape(-1))


class _Data(_pickle.Unpickler):
    """Reads pickles that hold data and no code."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in {("builtins", "slice"), ("builtins", "tuple")}:
            return slice if name == "slice" else tuple
        raise InputError(f"the pickle wants {module}.{name}, and only data are read from pickles here")


def load(file: Union[Path, BinaryIO]) -> Any:
    """pickle.load for modeld: of driving_vision_tinygrad.pkl it is a Runner of driving_vision.onnx, or of the directory driving_vision or
    drivingvision, beside it (the pickle need not exist, and is not read); of driving_vision_metadata.pkl it is the dict that is in it."""
    opened = not isinstance(file, (str, os.PathLike, bytes)) and callable(getattr(file, "read", None))
    path = _Path(_check.path("file", getattr(file, "name", None) if opened else file))
    if not path.name.endswith(".pkl"):
        return Runner(path)
    if not path.stem.endswith("_tinygrad"):
        try:
            with contextlib.nullcontext(typing.cast(BinaryIO, file)) if opened else open(path, "rb") as f:
                return _Data(f).load()
        except InputError:
            raise
        except OSError as e:
            raise InputError(f"{path}: {e.strerror}: give openpilot's driving_vision_metadata.pkl") from None
        except Exception as e:  # whose text may hold anything
            raise InputError(f"{path}: this is no pickle of data ({type(e).__name__}): give openpilot's driving_vision_metadata.pkl") from e
    stem = path.stem.removesuffix("_tinygrad")
    beside = [path.with_name(name) for name in dict.fromkeys((stem + ".onnx", stem, stem.replace("_", "")))]
    for p in reversed(beside):
        if p.exists() and (p.suffix == ".onnx" or (p / "program.json").exists()):
            return Runner(p)
    raise InputError(f"{path}: want one of {', '.join(p.name for p in beside)} beside it: what tinygrad compiled is not read")
