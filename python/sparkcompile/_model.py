"""Model: inputs and outputs as the program has them."""

from __future__ import annotations

import ctypes
import json
import os
import threading
import weakref
from ctypes import byref, c_char_p, c_int32, c_size_t, c_void_p
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Mapping, Self, Sequence, Union

import numpy as np

from . import _arrays, _check, _library
from ._errors import BusyError, ClosedError, InputError

Array = np.ndarray[Any, Any]
Path = Union[str, "os.PathLike[str]"]


@dataclass(frozen=True)
class Port:
    """An input or output of a model."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    nbytes: int
    state: bool = False  #: an input that stays on the device from run to run, or the output that becomes its next value
    delay: int = 1  #: of a state: how many runs later the input has the output's value
    slices: Mapping[str, slice] | None = None  #: named parts of the last axis of an output


class _Handle:
    """An open model of the library. It closes it when nothing refers to it any more."""

    def __init__(self, paths: Sequence[Path], kind: int, device: str, target: str | None, cache: Path | None, check: bool, arguments: Sequence[str]) -> None:
        self.value = 0
        self.lib = _library.library()
        names = [os.fsencode(_check.path("a model's path", p)) for p in paths]
        given = [os.fsencode(a) for a in arguments]
        options = _library.Options(
            size=ctypes.sizeof(_library.Options), kind=kind, check=int(_check.flag("check", check)), device=_check.text("device", device).encode(),
            target=b"" if target is None else _check.text("target", target).encode(),
            cache=None if cache is None else os.fsencode(_check.path("cache", cache)),
            flags=(c_char_p * len(given))(*given), flag_count=len(given),
        )  # fmt: skip
        handle, text = c_size_t(), c_void_p()
        self.call("open", (c_char_p * len(names))(*names), len(names), byref(options), byref(handle), text=text)
        self.value = handle.value

    def call(self, name: str, *arguments: Any, text: c_void_p | None = None) -> None:
        """Calls a function of the library, whose last argument is where its error goes."""
        text = c_void_p() if text is None else text
        code = getattr(self.lib, name)(*arguments, byref(text))
        if code:
            raise self.lib.failed(code, text)

    def close(self) -> None:
        if self.value:
            self.call("close", self.value)
            self.value = 0

    def __del__(self) -> None:
        try:
            if self.value and self.lib.process == os.getpid():
                self.close()
        except Exception:  # of an interpreter that ends
            pass


class Open:
    """What models and loops have in common."""

    _kind = 0

    def __init__(
        self, *paths: Path, device: str = "auto", target: str | None = None, cache: Path | None = None, check: bool = False, **compile_options: Any
    ) -> None:
        if not paths:
            raise InputError("no model: give a directory that spark-compile wrote, or an ONNX file")
        self._handle: _Handle | None = None
        self._views: list[weakref.ref[Any]] = []  # arrays of memory()
        self._lock = threading.Lock()  # taken, never waited for
        self._handle = h = _Handle(paths, self._kind, device, target, cache, check, _check.flags(compile_options))
        text = c_void_p()
        h.call("describe", h.value, byref(text))
        self._about: dict[str, Any] = json.loads(h.lib.take(text))
        self._inputs = [_port(q) for q in self._about["inputs"]]
        self._outputs = [_port(q) for q in self._about["outputs"]]

    def _open(self) -> _Handle:
        h = self._handle
        if h is None:
            raise ClosedError("the model is closed: open it again")
        if h.lib.process != os.getpid():
            _library.library()  # says what helps
        return h

    def _enter(self) -> None:
        if not self._lock.acquire(blocking=False):
            raise BusyError("the model is in use in another thread: an open model is for one thread at a time, open it once more for a second one")

    @property
    def name(self) -> str:
        """The ONNX file that the model was compiled from."""
        return str(self._about["model"])

    @property
    def precision(self) -> str:
        """fp32, fp16 …"""
        return str(self._about["precision"])

    @property
    def device(self) -> str:
        """The device that the model is on: its name and cuda or emu."""
        return f"{self._about['device']} ({self._about['backend']})"

    @property
    def notices(self) -> tuple[str, ...]:
        """Why it is not a better device, and what the compiler warned of."""
        return tuple(self._about["notices"])

    @property
    def states(self) -> tuple[str, ...]:
        """Inputs that stay on the device from run to run."""
        return tuple(q.name for q in self._inputs if q.state)

    def state(self, name: str) -> Array:
        """A copy of a state's value: of one with a delay of n runs, n of them, that of the next run first."""
        port = self._port_of(name)
        self._enter()
        try:
            h = self._open()
            size = c_size_t()
            h.call("get_state", h.value, name.encode(), None, byref(size))
            n = size.value // max(port.nbytes, 1)
            out = np.empty(port.shape if n < 2 else (n, *port.shape), port.dtype)
            h.call("get_state", h.value, name.encode(), _library.address(out), byref(size))
            return out
        finally:
            self._lock.release()

    def set_state(self, name: str, value: Any) -> None:
        """Sets a state: to the value of the next run, or of one with a delay to all of them, as state() has them."""
        port = self._port_of(name)
        a = _arrays.view(f'state "{port.name}"', value)
        shape = a.shape if port.delay > 1 and a.shape[1:] == port.shape else port.shape
        a = _arrays.check(f'state "{port.name}"', a, port.dtype, shape)
        self._enter()
        try:
            h = self._open()
            h.call("set_state", h.value, name.encode(), _library.address(a), a.nbytes)
        finally:
            self._lock.release()

    def _port_of(self, state: str) -> Port:
        for q in self._inputs:
            if q.state and isinstance(state, str) and q.name == state:
                return q
        raise InputError(f'no state {_check.shown(state)}: {self.name} keeps {", ".join(self.states) or "none"}')

    def reset(self) -> None:
        """Makes all states zero: the next run is the first of a drive."""
        self._enter()
        try:
            h = self._open()
            h.call("reset", h.value)
        finally:
            self._lock.release()

    def close(self) -> None:
        """Closes the model. Where arrays of memory() are still in use, what they show is freed with the last of them."""
        if self._handle is None:
            return
        self._enter()
        try:
            if all(v() is None for v in self._views):
                self._handle.close()
            self._handle = None
        finally:
            self._lock.release()

    @property
    def closed(self) -> bool:
        return self._handle is None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} {self.precision} on {self.device}{', closed' if self.closed else ''}>"


class Model(Open):
    """A compiled model on a device.

    path is a directory that spark-compile wrote, or an ONNX file, which is compiled first (seconds, the first time; then it is in the
    cache). device is auto, cuda, cuda:N, or emu, which cpu is too; without one that is named, the best GPU, and the CPU where none can be
    used: notices says why. Options of the compiler are named as its flags are: precision="fp8", calibrate=["a.npz"], io="f32".

    A model is for one thread at a time. run() releases the GIL.
    """

    def __init__(
        self, path: Path, device: str = "auto", *, target: str | None = None, cache: Path | None = None, check: bool = False, **compile_options: Any
    ) -> None:
        super().__init__(path, device=device, target=target, cache=cache, check=check, **compile_options)
        self._index = {q.name: (i, q.dtype, q.shape) for i, q in enumerate(self._inputs)}
        self._out_index = {q.name: (i, q.dtype, q.shape) for i, q in enumerate(self._outputs)}
        self._needed = frozenset(q.name for q in self._inputs if not q.state)
        self._results = [(i, q.name, q.dtype, q.shape) for i, q in enumerate(self._outputs) if not q.state]
        self._in_type = c_void_p * max(len(self._inputs), 1)
        self._out_type = c_void_p * max(len(self._outputs), 1)
        self._filled: set[str] = set()
        self._run = self._open().lib.run  # type: ignore[attr-defined]

    @property
    def inputs(self) -> dict[str, Port]:
        """What run() wants, by name. States are among them: run() takes them too, and else they are what the last run left."""
        return {q.name: q for q in self._inputs}

    @property
    def outputs(self) -> dict[str, Port]:
        """What run() returns, by name. New values of states are not among what it returns: state() reads them."""
        return {q.name: q for q in self._outputs}

    def run(self, inputs: Mapping[str, Any] | None = None, out: Mapping[str, Array] | None = None) -> dict[str, Array]:
        """Runs the model, and returns its outputs by name.

        inputs are arrays by name: of NumPy, of DLPack on the CPU (PyTorch), or buffers, of the types and shapes of self.inputs and in C
        order. They are read where they lie. out are arrays that outputs are written to, where they lie; others are new. Inputs that
        memory() was asked for need not be given.
        """
        inputs = {} if inputs is None else _check.named("inputs", inputs)
        out = {} if out is None else _check.named("out", out)
        self._enter()
        try:
            h = self._open()
            ins, outs = self._in_type(), self._out_type()
            held: list[tuple[Array, int]] = []
            index = self._index
            for name, x in inputs.items():
                at = index.get(name)
                if at is None:
                    raise self._no_input(name)
                if type(x) is not np.ndarray or x.dtype != at[1] or x.shape != at[2] or not x.flags.c_contiguous:
                    x = _arrays.check(f'input "{name}"', x, at[1], at[2])
                p = x.__array_interface__["data"][0]
                held.append((x, p))
                ins[at[0]] = p
            if not self._needed <= inputs.keys():
                self._missing(inputs)
            result: dict[str, Array] = {}
            if out:
                self._given(out, outs, result, held)
            for i, name, dtype, shape in self._results:
                if name not in result:
                    a = np.empty(shape, dtype)
                    result[name] = a
                    outs[i] = a.__array_interface__["data"][0]
            text = c_void_p()
            code = self._run(h.value, ins, outs, byref(text))
            if code:
                raise h.lib.failed(code, text)
            return result
        finally:
            self._lock.release()

    def _no_input(self, name: Any) -> InputError:
        if isinstance(name, str) and name in self._out_index:
            return InputError(f'"{name}" is an output of {self.name}: leave it out, as {{n: x[n] for n in model.inputs}} does')
        return InputError(f"no input {_check.shown(name)}: {self.name} has {', '.join(self._index)}")

    def _missing(self, inputs: Mapping[str, Any]) -> None:
        if self._needed <= self._filled:
            return
        missing = [q for q in self._inputs if not q.state and q.name not in inputs and q.name not in self._filled]
        if missing:
            wanted = "; ".join(f"{q.name} {q.dtype}{list(q.shape)}" for q in missing)
            raise InputError(f"missing inputs: {wanted}: give them in run({{name: array}}), or fill memory(name)")

    def _given(self, out: Mapping[str, Any], outs: Any, result: dict[str, Array], held: list[tuple[Array, int]]) -> None:
        for name, x in out.items():
            at = self._out_index.get(name)
            if at is None:
                raise InputError(f"no output {_check.shown(name)}: {self.name} has {', '.join(self._out_index)}")
            a = _arrays.check(f'out["{name}"]', x, at[1], at[2], writable=True)
            p = _library.address(a)
            end = p + a.nbytes
            for other, begin in held:
                if p < begin + other.nbytes and begin < end:
                    raise InputError(f'out["{name}"] shares memory with another array of this run: give it memory of its own')
            held.append((a, p))
            result[name] = a
            outs[at[0]] = p

    def memory(self, name: str) -> Array:
        """The model's own memory of an input or output: an input may be filled before a run, and an output read behind one, without any
        copy. It stays the same from run to run, and may be used until it is let go, also when the model is closed by then. None of a
        state, and none where the host does not see it: an InputError then."""
        self._enter()
        try:
            h = self._open()
            for outputs, ports in ((0, self._inputs), (1, self._outputs)):
                for i, q in enumerate(ports):
                    if q.state or not isinstance(name, str) or q.name != name:
                        continue
                    at = c_void_p()
                    h.call("memory", h.value, c_int32(outputs), i, byref(at))
                    if not at.value:
                        raise InputError(f'"{q.name}": the host does not see this memory: give and take it with run()')
                    block: Any = (ctypes.c_uint8 * q.nbytes).from_address(at.value)
                    block.handle = h  # which stays open as long as the block is used
                    self._views = [v for v in self._views if v() is not None] + [weakref.ref(block)]
                    if not outputs:
                        self._filled.add(q.name)
                    array: Array = np.frombuffer(block, q.dtype).reshape(q.shape)
                    return array
            known = [q.name for q in (*self._inputs, *self._outputs) if not q.state]
            raise InputError(f"no memory of {_check.shown(name)}: {self.name} has {', '.join(known)}; state() reads states")
        finally:
            self._lock.release()


def _port(q: dict[str, Any]) -> Port:
    slices = {s["name"]: slice(s["start"], s["stop"]) for s in q.get("slices") or []}
    return Port(q["name"], _arrays.dtype(q["dtype"]), tuple(q["shape"]), q["bytes"], bool(q.get("state")), max(q.get("delay", 1), 1), slices or None)
