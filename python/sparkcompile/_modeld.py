"""openpilot's loops: camera frames in, parsed outputs out. Histories stay on the device."""

from __future__ import annotations

import ctypes
import json
import typing
from ctypes import byref, c_void_p
from dataclasses import dataclass, field, fields, is_dataclass
from enum import IntEnum
from typing import Any, Mapping, Optional

import numpy as np

from . import _arrays, _check, _library
from ._errors import InputError
from ._model import Array, Open, Path


class Desire(IntEnum):
    """What the driver wants, as openpilot counts it."""

    NONE = 0
    TURN_LEFT = 1
    TURN_RIGHT = 2
    LANE_CHANGE_LEFT = 3
    LANE_CHANGE_RIGHT = 4
    KEEP_LEFT = 5
    KEEP_RIGHT = 6


class Confidence(IntEnum):
    """Confidence in the plan, as openpilot shows it."""

    RED = 0
    YELLOW = 1
    GREEN = 2


@dataclass
class Intrinsics:
    """A camera without distortion: focal length and size in pixels."""

    focal: float
    width: int
    height: int


@dataclass
class Cameras:
    """The cameras of a device."""

    road: Intrinsics
    wide: Intrinsics
    driver: Intrinsics


def cameras(device: str, sensor: str) -> Cameras:
    """The cameras of a device by openpilot's names of it (tici, tizi, mici, neo) and of the road camera's sensor (ar0231, ox03c10, os04c10, unknown)."""
    lib = _library.library()
    out, text = (_library.Intrinsics * 3)(), c_void_p()
    code = lib.cameras(_check.text("device", device).encode(), _check.text("sensor", sensor).encode(), out, byref(text))  # type: ignore[attr-defined]
    if code:
        raise lib.failed(code, text)
    return Cameras(*(Intrinsics(c.focal, c.width, c.height) for c in out))


@dataclass
class Calibration:
    """How the device is mounted in the car: roll, pitch and yaw against it, in radians, and its cameras. One camera is both."""

    rpy: tuple[float, float, float]
    road: Intrinsics
    wide: Intrinsics


@dataclass
class Picture:
    """A camera's picture as NV12: height rows of luma, stride bytes apart, then from uv on height/2 rows of U and V in turn.

    data is any buffer of bytes: an array, shared memory, what visionipc gives. It is read where it lies, during the step only.
    """

    data: Any
    width: int
    height: int
    stride: int = 0  #: 0: width
    uv: int = 0  #: 0: stride * height


@dataclass
class Frame:
    """What the cameras saw at one time. wide is road's picture where there is one camera. id counts the road camera's frames."""

    road: Picture
    wide: Optional[Picture] = None
    id: int = 0
    captured: int = 0  #: end of exposure in ns; comes back as it is


@dataclass
class Inputs:
    """What a driving model wants to know besides the pictures. Speeds in m/s, delays of the actuators in s."""

    desire: int = Desire.NONE
    right_hand_drive: bool = False
    calibration: Optional[Calibration] = None  #: None: not known yet
    v_ego: float = 0.0
    lateral_delay: float = 0.0
    longitudinal_delay: float = 0.0


@dataclass
class Stats:
    """How long the stages of a step took, in ns of the host's clock."""

    prepare: int
    run: int
    parse: int
    in_place: int  #: pictures that the device read where they lay; the others were copied


@dataclass
class Number:
    """An estimate and its standard deviation."""

    value: float
    std: float


@dataclass
class Plan:
    """Where the car goes: rows are the times T_IDXS, columns x forward, y right, z down, or roll, pitch, yaw. Each is float64 [33, 3]."""

    position: Array
    velocity: Array
    acceleration: Array
    orientation: Array
    orientation_rate: Array
    position_std: Array
    velocity_std: Array
    acceleration_std: Array
    orientation_std: Array
    orientation_rate_std: Array
    probability: float
    others: Optional[list["Plan"]]  #: the other hypotheses, by falling probability


@dataclass
class Line:
    """A lane line or road edge at the distances X_IDXS: y to the right and z down, in metres, float64 [33]."""

    y: Array
    z: Array
    y_std: Array
    z_std: Array
    probability: float  #: NaN of models that do not say, 1 of road edges


@dataclass
class Lead:
    """The car ahead, at 0, 2 … 10 s: float64 [6]."""

    offset: float  #: s from now, of which it is the lead
    x: Array
    y: Array
    v: Array
    a: Array
    x_std: Array
    y_std: Array
    v_std: Array
    a_std: Array
    probability: float
    hypothesis: int
    hypothesis_probability: float


@dataclass
class Meta:
    """Probabilities of what driver and car do next, at 2, 4 … 10 s, or 0, 2 … 10 s those that may be None."""

    engaged: float
    gas_disengage: Array
    brake_disengage: Array
    steer_disengage: Array
    brake3: Array
    brake4: Array
    brake5: Array
    gas_press: Optional[Array]
    brake_press: Optional[Array]
    left_blinker: Optional[Array]
    right_blinker: Optional[Array]


@dataclass
class Pose:
    """A motion: of the camera between frames, or of the road's plane against it. Each is float64 [3]."""

    translation: Array
    rotation: Array
    translation_std: Array
    rotation_std: Array


@dataclass
class Euler:
    """A rotation in radians."""

    angles: Array
    std: Array


@dataclass
class Outputs:
    """What a driving model says of a frame. What it does not have is None. Behind missed frames that a release skips, ran is False and
    there is nothing below."""

    frame_id: int
    captured: int
    missed: int
    ran: bool
    valid: bool  #: the calibration was known
    drop_ratio: float
    plan: Optional[Plan]
    lane_lines: Optional[list[Line]]  #: far left, left, right, far right
    road_edges: Optional[list[Line]]  #: left, right
    leads: Optional[list[Lead]]  #: for 0, 2 and 4 s from now
    meta: Optional[Meta]
    pose: Optional[Pose]
    wide_from_device: Optional[Euler]
    road_transform: Optional[Pose]
    desire_state: Optional[Array]
    desire_prediction: Optional[Array]
    desired_curvature: Optional[Number]
    action: Optional[Array]
    hidden_state: Optional[Array]
    hard_brake_predicted: bool
    confidence: Confidence
    acceleration_command: float  #: m/s²
    curvature_command: float  #: 1/m
    should_stop: bool
    raw: Mapping[str, Array]  #: the program's outputs by name
    stats: Stats


@dataclass
class Driver:
    """What is seen of a person in a seat."""

    orientation: Array
    orientation_std: Array
    position: Array
    position_std: Array
    size: float
    size_std: float
    face: float
    left_eye: float
    right_eye: float
    left_blink: float
    right_blink: float
    sunglasses: float
    phone: float
    occluded: float
    ready: Optional[Array]
    not_ready: Optional[Array]


@dataclass
class MonitoringOutputs:
    """What a driver-monitoring model says. Of models that see one seat the other is None."""

    frame_id: int
    captured: int
    left: Optional[Driver]
    right: Optional[Driver]
    wheel_on_right: float
    raw: Mapping[str, Array]
    stats: Stats


@dataclass
class DriverFrame:
    """What the driver camera saw."""

    picture: Picture
    id: int = 0
    captured: int = 0


@dataclass
class MonitoringInputs:
    """What a driver-monitoring model wants to know besides the picture: the device's angles in radians, and the camera."""

    rpy: tuple[float, float, float] = (0.0, 0.0, 0.0)
    right_hand_drive: bool = False
    camera: Intrinsics = field(default_factory=lambda: Intrinsics(0, 0, 0))


#: Times of a path's points in s from now, and distances of a line's points in m.
T_IDXS: Array = 10.0 * (np.arange(33) / 32.0) ** 2
X_IDXS: Array = 192.0 * (np.arange(33) / 32.0) ** 2


class _Loop(Open):
    _layout_id = -1
    _tree: Any = None

    def _step(self, call: str, frame: Any, out: type[Any]) -> Any:
        h = self._open()
        result, text = _library.Result(), c_void_p()
        code = getattr(h.lib, call)(h.value, byref(frame), byref(result), byref(text))
        if code:
            raise h.lib.failed(code, text)
        if result.layout_id != self._layout_id:
            self._tree, self._layout_id = json.loads(result.layout), result.layout_id
        values = np.empty(result.count)
        ctypes.memmove(_library.address(values), result.values, values.nbytes)
        return _build(self._tree, out, values)


class Modeld(_Loop):
    """The loop of openpilot's modeld: frames in, parsed outputs out.

    paths are a directory that spark-compile wrote, or an ONNX file of a driving model, or driving_vision.onnx and driving_policy.onnx.
    Other arguments are those of Model.
    """

    _kind = 1

    def __init__(self, *paths: Path, device: str = "auto", target: str | None = None, cache: Path | None = None, check: bool = False, **compile_options: Any) -> None:
        super().__init__(*paths, device=device, target=target, cache=cache, check=check, **compile_options)

    def step(self, frame: Frame, inputs: Inputs | None = None) -> Outputs:
        """Runs the models on a frame. It releases the GIL. Outputs are yours to keep."""
        frame = _check.of("frame", frame, Frame)
        inputs = Inputs() if inputs is None else _check.of("inputs", inputs, Inputs)
        self._enter()
        try:
            f = _library.Frame(
                size=ctypes.sizeof(_library.Frame), id=_id(frame.id), desire=_check.integer("desire", inputs.desire, -(1 << 31), (1 << 31) - 1),
                right_hand_drive=_check.flag("right_hand_drive", inputs.right_hand_drive), v_ego=_check.number("v_ego", inputs.v_ego, "m/s"),
                lateral_delay=_check.number("lateral_delay", inputs.lateral_delay, "s"),
                longitudinal_delay=_check.number("longitudinal_delay", inputs.longitudinal_delay, "s"), captured=_captured(frame.captured),
            )  # fmt: skip
            wide = frame.wide if frame.wide is not None else frame.road
            f.road, road_held = _picture("the road camera's picture", frame.road)
            f.wide, wide_held = _picture("the wide camera's picture", wide)
            if inputs.calibration is not None:
                c = _check.of("calibration", inputs.calibration, Calibration)
                f.calibrated, f.rpy = 1, _angles(c.rpy)
                f.road_camera, f.wide_camera = _intrinsics("calibration.road", c.road), _intrinsics("calibration.wide", c.wide)
            result: Outputs = self._step("drive", f, Outputs)
            del road_held, wide_held  # until here they hold the pictures
            result.captured = f.captured
            return result
        finally:
            self._lock.release()


class Monitoring(_Loop):
    """The loop of openpilot's driver monitoring. Arguments are those of Modeld."""

    _kind = 2

    def __init__(self, path: Path, device: str = "auto", *, target: str | None = None, cache: Path | None = None, check: bool = False, **compile_options: Any) -> None:
        super().__init__(path, device=device, target=target, cache=cache, check=check, **compile_options)

    def step(self, frame: DriverFrame, inputs: MonitoringInputs | None = None) -> MonitoringOutputs:
        """Runs the model on a picture of the driver. It releases the GIL. Outputs are yours to keep."""
        frame = _check.of("frame", frame, DriverFrame)
        inputs = MonitoringInputs() if inputs is None else _check.of("inputs", inputs, MonitoringInputs)
        self._enter()
        try:
            f = _library.DriverFrame(
                size=ctypes.sizeof(_library.DriverFrame), id=_id(frame.id), rpy=_angles(inputs.rpy), camera=_intrinsics("camera", inputs.camera),
                right_hand_drive=_check.flag("right_hand_drive", inputs.right_hand_drive), captured=_captured(frame.captured),
            )  # fmt: skip
            f.picture, held = _picture("the driver camera's picture", frame.picture)
            result: MonitoringOutputs = self._step("monitor", f, MonitoringOutputs)
            del held
            result.captured = f.captured
            return result
        finally:
            self._lock.release()


_PIXELS = (1 << 31) - 1


def _id(x: Any) -> int:
    return _check.integer("frame's id", x, 0, (1 << 32) - 1)


def _captured(x: Any) -> int:
    return _check.integer("captured", x, -(1 << 63), (1 << 63) - 1)


def _angles(rpy: Any) -> Any:
    try:
        angles = list(rpy)
    except Exception:
        raise InputError(f"rpy is {_check.kind(rpy)}: want roll, pitch and yaw") from None
    if len(angles) != 3:
        raise InputError(f"rpy has {len(angles)} numbers: want roll, pitch and yaw")
    return (ctypes.c_double * 3)(*(_check.number(name, x, "an angle in rad") for name, x in zip(("roll", "pitch", "yaw"), angles)))


def _intrinsics(what: str, c: Intrinsics) -> _library.Intrinsics:
    c = _check.of(what, c, Intrinsics)
    return _library.Intrinsics(
        _check.number(f"{what}.focal", c.focal, "pixels"), _check.integer(f"{what}.width", c.width, 0, _PIXELS), _check.integer(f"{what}.height", c.height, 0, _PIXELS)
    )


def _picture(what: str, p: Picture) -> tuple[_library.Picture, Array]:
    """The picture for C, and the array that holds its memory."""
    p = _check.of(what, p, Picture)
    sizes = [_check.integer(f"{what}: {name}", getattr(p, name), 0, _PIXELS) for name in ("width", "height", "stride", "uv")]
    a = _arrays.view(what, p.data)
    if a.dtype.itemsize != 1 or a.dtype.kind not in "uibSV":
        raise InputError(f"{what} is {a.dtype.name}: want bytes of NV12 (uint8)")
    if not a.flags.c_contiguous:
        raise InputError(f"{what} is not in C order (its strides are {a.strides}): give the whole buffer, with stride and uv for where rows begin")
    return _library.Picture(_library.address(a) if a.nbytes else None, a.nbytes, *sizes), a


_hints: dict[type[Any], dict[str, Any]] = {}


def _build(tree: Any, kind: Any, values: Array) -> Any:
    """What a tree of the layout says, as a type's hint wants it."""
    if tree is None:
        return None
    if isinstance(tree, dict) and "@" in tree:
        at, dims, code = tree["@"]
        if not dims:
            x = values[at]
            if code == "f":
                return float(x)
            if isinstance(kind, type) and issubclass(kind, IntEnum):
                return kind(int(x))
            return bool(x) if code == "b" else int(x)
        n = 1
        for d in dims:
            n *= d
        return values[at : at + n].reshape(dims)
    arguments = [k for k in typing.get_args(kind) if k is not type(None)]
    if typing.get_origin(kind) is typing.Union:
        return _build(tree, arguments[0], values)
    if isinstance(tree, list):
        return [_build(t, arguments[0], values) for t in tree]
    if isinstance(kind, type) and is_dataclass(kind):
        hints = _hints.get(kind)
        if hints is None:
            hints = _hints[kind] = typing.get_type_hints(kind)
        return kind(**{f.name: _build(tree[f.name], hints[f.name], values) for f in fields(kind)})
    return {name: _build(t, Any, values) for name, t in tree.items()}
