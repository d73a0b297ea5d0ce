"""Closed loops of driving by the batch: road, vehicle, other cars, sensors and metrics are one compiled step.

    result = sim.run_batch(["curve", "mine.yaml"], "pid", n=100, seed=1)
    result.metrics["offset_max"]  # float64 [scenarios, n]

An algorithm is the name of one that is built in, an ONNX file, or a function of yours, which is called once a step for all loops:

    def drive(step, seen):
        return seen["road1"] - 0.002 * seen["offset"], 0.5 * (seen["cruise"] - seen["speed"])

VectorEnv is the same for learners, as an environment of Gymnasium, which `pip install gymnasium` provides.
"""

from __future__ import annotations

import json
import os
from ctypes import byref, c_size_t, c_void_p
from dataclasses import dataclass
from typing import Any, Callable, Sequence

import numpy as np

from . import _check
from ._errors import ClosedError, InputError
from ._library import address, library

__all__ = ["Batch", "Field", "Loops", "run_batch", "vector_env"]

Algorithm = str | os.PathLike[str] | Callable[[int, dict[str, np.ndarray[Any, Any]]], Any]


@dataclass(frozen=True)
class Field:
    """A metric, an observation or a parameter."""

    name: str
    unit: str = ""
    doc: str = ""
    low: float = 0.0  # of a parameter
    high: float = 0.0
    kind: str = ""  # of a metric: failure, cost, gain or neutral


@dataclass(frozen=True)
class Batch:
    """What loops ended with: arrays of [scenarios, n] by name."""

    scenarios: tuple[str, ...]
    metrics: dict[str, np.ndarray[Any, Any]]
    params: dict[str, np.ndarray[Any, Any]]
    failed: np.ndarray[Any, Any]  # bool [scenarios, n]: any metric of kind failure


def _seed(value: Any) -> int:
    return _check.integer("seed", value, 0, (1 << 64) - 1)


class Loops:
    """n loops of each of some scenarios, behind each other: driven to their end by run, or step by step."""

    def __init__(self, scenarios: str | Sequence[str | os.PathLike[str]], n: int = 1, seed: int = 1, device: str | None = None) -> None:
        self._handle = c_size_t(0)
        names = [scenarios] if isinstance(scenarios, (str, os.PathLike)) else list(scenarios)
        self.n = _check.integer("n", n, 1, 1 << 20)
        paths = [_check.path("a scenario", x) for x in names]
        request = {"scenarios": paths, "n": self.n, "seed": _seed(seed), "device": _check.text("device", device or "")}
        self._lib = library()
        text = c_void_p()
        self._call("sim_open", json.dumps(request).encode(), byref(self._handle), byref(text))
        about = json.loads(self._lib.take(text))
        self.device: str = about["device"]
        self.notice: str = about.get("notice", "")
        self.step_time: float = about["step"]  # s
        self.scenarios: tuple[str, ...] = tuple(about["scenarios"])
        self.metrics = tuple(Field(**x) for x in about["metrics"])
        self.observations = tuple(Field(**x) for x in about["observations"])
        self.parameters = tuple(Field(**x) for x in about["params"])
        self.loops = self.n * len(self.scenarios)
        self._seen = np.zeros((len(self.observations), self.loops), np.float32)
        self._alive = np.zeros(self.loops, np.uint8)
        self._ended = np.zeros((self.loops, len(self.metrics)))

    def _call(self, name: str, *arguments: Any) -> None:
        if name != "sim_open" and not self._handle.value:
            raise ClosedError("the loops are closed: open them again")
        text = c_void_p()
        code = getattr(self._lib, name)(*arguments, byref(text))
        if code:
            raise self._lib.failed(code, text)

    def close(self) -> None:
        """Frees the device. It may be called twice."""
        if self._handle.value:
            self._call("sim_close", self._handle)
            self._handle = c_size_t(0)

    def __enter__(self) -> Loops:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        try:
            self.close()
        except Exception:  # the interpreter may be ending
            pass

    def params(self) -> np.ndarray[Any, Any]:
        """What was drawn: float64 [loops, parameters]."""
        out = np.zeros((self.loops, len(self.parameters)))
        self._call("sim_params", self._handle, address(out))
        return out

    def run(self, algorithm: str | os.PathLike[str]) -> np.ndarray[Any, Any]:
        """Drives all loops to their end: float64 [loops, metrics]."""
        out = np.zeros((self.loops, len(self.metrics)))
        self._call("sim_run", self._handle, os.fsencode(_check.path("algorithm", algorithm)), address(out))
        return out

    def reset(self, numbers: Any, seed: int = 1) -> None:
        """Starts loops: numbers, [loops], has the number of each among those of its scenario, which decides what is drawn; -1: it goes on."""
        x = np.asarray(numbers)
        if not np.issubdtype(x.dtype, np.integer):
            raise InputError(f"numbers are {x.dtype}, want integers: the number of each loop, or -1")
        x = np.ascontiguousarray(x, np.int64)
        if x.shape != (self.loops,):
            raise InputError(f"numbers has shape {x.shape}, want ({self.loops},)")
        self._call("sim_reset", self._handle, address(x), _seed(seed))

    def observe(self) -> np.ndarray[Any, Any]:
        """What loops see, float32 [observations, loops]: once in front of each step."""
        self._call("sim_observe", self._handle, address(self._seen))
        return self._seen.copy()

    def step(self, commands: Any) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """Drives all loops for step_time by commands, [2, loops]: curvature in 1/m and acceleration in m/s². Which loops go on, bool
        [loops], and metrics so far, [loops, metrics]. Those that have ended stay as they are."""
        try:
            x = np.ascontiguousarray(commands, np.float32)
        except (TypeError, ValueError) as e:
            raise InputError(f"commands are no numbers ({e}): want curvature and acceleration, a value of each for every loop") from None
        if x.shape != (2, self.loops):
            raise InputError(f"commands have shape {x.shape}, want (2, {self.loops}): curvature and acceleration of every loop")
        self._call("sim_step", self._handle, address(x), address(self._alive), address(self._ended))
        return self._alive != 0, self._ended.copy()


def run_batch(
    scenarios: str | Sequence[str | os.PathLike[str]], algorithm: Algorithm, n: int = 1, seed: int = 1, device: str | None = None
) -> Batch:
    """Runs n loops of each scenario. A function is called as algorithm(step, seen), where seen has an array [loops] for each
    observation by its name, and returns curvature in 1/m and acceleration in m/s² of every loop. What it returns for loops that have
    ended is not used. An error says which step, and which loop and scenario if it is one."""
    with Loops(scenarios, n, seed, device) as loops:
        params = loops.params()
        if callable(algorithm):
            loops.reset(np.tile(np.arange(loops.n), len(loops.scenarios)), seed)
            alive, step = np.ones(loops.loops, bool), 0
            ended = np.zeros((loops.loops, len(loops.metrics)))
            while alive.any():
                rows = loops.observe()
                try:
                    alive, ended = loops.step(algorithm(step, {o.name: rows[k] for k, o in enumerate(loops.observations)}))
                except InputError as e:
                    at = "" if str(e).startswith("step ") else f"step {step}: "
                    raise InputError(f"algorithm {getattr(algorithm, '__name__', algorithm)}: {at}{e}") from e
                step += 1
        else:
            ended = loops.run(algorithm)
        shape = (len(loops.scenarios), loops.n)
        failures = [k for k, m in enumerate(loops.metrics) if m.kind == "failure"]
        return Batch(
            loops.scenarios,
            {m.name: ended[:, k].reshape(shape) for k, m in enumerate(loops.metrics)},
            {p.name: params[:, k].reshape(shape) for k, p in enumerate(loops.parameters)},
            (ended[:, failures] > 0).any(axis=1).reshape(shape),
        )


def vector_env(
    scenarios: str | Sequence[str | os.PathLike[str]], n: int = 1, device: str | None = None, reward: Callable[..., Any] | None = None
) -> Any:
    """An environment of Gymnasium (gymnasium.vector.VectorEnv) of n sub-environments of each scenario.

    Observations are float32 [num_envs, observations], actions [num_envs, 2]: curvature and acceleration. A collision or a number that is
    not finite terminates a loop; its duration truncates it. In the step behind that it is reset, whatever its action is
    (AutoresetMode.NEXT_STEP), to draws that it has not had. infos has the metrics of loops that ended, by name.

    reward(observations, actions, metrics), of arrays [num_envs, …], returns [num_envs]; without it: metres of progress, less the squared
    distance from the centre of the lane in m², and less 100 where a loop terminates.
    """
    try:
        from ._vector_env import VectorEnv
    except ImportError as e:
        raise ImportError("sparkcompile.sim.vector_env needs Gymnasium 1.1 or newer: pip install gymnasium") from e
    return VectorEnv(scenarios, n, device, reward)
