"""Run openpilot's models, and others, as spark-compile compiles them: on an NVIDIA GPU, or by the same PTX on the CPU.

    with sparkcompile.Model("driving_vision.onnx") as m:
        out = m.run({"img": img, "big_img": big_img})

    Model        a compiled directory or an ONNX file: arrays in, arrays out
    Modeld       openpilot's loop around driving models: camera frames in, parsed outputs out
    Monitoring   that of driver monitoring
    sim          (a module) closed loops of driving by the batch, and an environment of Gymnasium
    openpilot    (a module) what openpilot's model runner imports

Every error is an Error, and says what helps.
"""

from ._errors import BugError, BusyError, ClosedError, DeviceError, Error, InputError, LibraryError
from ._library import library as _library_of
from ._model import Model, Port
from ._modeld import (
    T_IDXS,
    X_IDXS,
    Calibration,
    Cameras,
    Confidence,
    Desire,
    Driver,
    DriverFrame,
    Euler,
    Frame,
    Inputs,
    Intrinsics,
    Lead,
    Line,
    Meta,
    Modeld,
    Monitoring,
    MonitoringInputs,
    MonitoringOutputs,
    Number,
    Outputs,
    Picture,
    Plan,
    Pose,
    Stats,
    cameras,
)

__all__ = [
    "BugError", "BusyError", "Calibration", "Cameras", "ClosedError", "Confidence", "Desire", "DeviceError", "Driver", "DriverFrame", "Error",
    "Euler", "Frame", "InputError", "Inputs", "Intrinsics", "Lead", "LibraryError", "Line", "Meta", "Model", "Modeld", "Monitoring",
    "MonitoringInputs", "MonitoringOutputs", "Number", "Outputs", "Picture", "Plan", "Port", "Pose", "Stats", "T_IDXS", "X_IDXS", "cameras",
    "version",
]  # fmt: skip


def version() -> str:
    """The version of the library, which is that of spark-compile."""
    return _library_of().version()
