"""The C library, and sparkcompile.h for ctypes. ctypes releases the GIL while one of its functions runs."""

from __future__ import annotations

import ctypes
import os
import threading
from ctypes import POINTER, c_char_p, c_double, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from pathlib import Path
from typing import Any, Sequence

from ._errors import BY_CODE, Error, LibraryError

ABI = 1
NAME = "libsparkcompile.so"
VARIABLE = "SPARKCOMPILE_LIBRARY"  # another file than the one in the package


class Options(ctypes.Structure):
    _fields_ = [
        ("size", c_size_t), ("kind", c_int32), ("check", c_int32), ("device", c_char_p), ("target", c_char_p), ("cache", c_char_p),
        ("flags", POINTER(c_char_p)), ("flag_count", c_size_t),
    ]  # fmt: skip


class Port(ctypes.Structure):
    _fields_ = [
        ("name", c_char_p), ("dtype", c_char_p), ("shape", POINTER(c_int64)), ("rank", c_size_t), ("bytes", c_size_t), ("state", c_int32),
    ]  # fmt: skip


class Picture(ctypes.Structure):
    _fields_ = [("data", c_void_p), ("bytes", c_size_t), ("width", c_int32), ("height", c_int32), ("stride", c_int32), ("uv", c_int32)]


class Intrinsics(ctypes.Structure):
    _fields_ = [("focal", c_double), ("width", c_int32), ("height", c_int32)]


class Frame(ctypes.Structure):
    _fields_ = [
        ("size", c_size_t), ("road", Picture), ("wide", Picture), ("id", c_uint32), ("desire", c_int32), ("right_hand_drive", c_int32),
        ("calibrated", c_int32), ("rpy", c_double * 3), ("road_camera", Intrinsics), ("wide_camera", Intrinsics), ("v_ego", c_double),
        ("lateral_delay", c_double), ("longitudinal_delay", c_double), ("captured", c_int64),
    ]  # fmt: skip


class DriverFrame(ctypes.Structure):
    _fields_ = [
        ("size", c_size_t), ("picture", Picture), ("id", c_uint32), ("right_hand_drive", c_int32), ("rpy", c_double * 3),
        ("camera", Intrinsics), ("captured", c_int64),
    ]  # fmt: skip


class Result(ctypes.Structure):
    _fields_ = [("values", POINTER(c_double)), ("count", c_size_t), ("layout", c_char_p), ("layout_id", c_uint64)]


_TEXT = POINTER(c_void_p)  # char **: c_void_p, since ctypes would make a str of a c_char_p and lose what is to be freed
_HANDLE = c_size_t

# Arguments of the functions that return a code. The last is always char **error.
_CALLS: dict[str, list[Any]] = {
    "open": [POINTER(c_char_p), c_size_t, POINTER(Options), POINTER(_HANDLE), _TEXT],
    "close": [_HANDLE, _TEXT],
    "ports": [_HANDLE, c_int32, POINTER(POINTER(Port)), POINTER(c_size_t), _TEXT],
    "describe": [_HANDLE, _TEXT, _TEXT],
    "run": [_HANDLE, c_void_p, c_void_p, _TEXT],
    "memory": [_HANDLE, c_int32, c_size_t, POINTER(c_void_p), _TEXT],
    "get_state": [_HANDLE, c_char_p, c_void_p, POINTER(c_size_t), _TEXT],
    "set_state": [_HANDLE, c_char_p, c_void_p, c_size_t, _TEXT],
    "reset": [_HANDLE, _TEXT],
    "drive": [_HANDLE, POINTER(Frame), POINTER(Result), _TEXT],
    "monitor": [_HANDLE, POINTER(DriverFrame), POINTER(Result), _TEXT],
    "value": [_HANDLE, c_char_p, POINTER(POINTER(c_double)), POINTER(c_size_t), _TEXT],
    "cameras": [c_char_p, c_char_p, POINTER(Intrinsics), _TEXT],
    "sim_open": [c_char_p, POINTER(_HANDLE), _TEXT, _TEXT],
    "sim_close": [_HANDLE, _TEXT],
    "sim_params": [_HANDLE, c_void_p, _TEXT],
    "sim_run": [_HANDLE, c_char_p, c_void_p, _TEXT],
    "sim_reset": [_HANDLE, c_void_p, c_uint64, _TEXT],
    "sim_observe": [_HANDLE, c_void_p, _TEXT],
    "sim_step": [_HANDLE, c_void_p, c_void_p, c_void_p, _TEXT],
}


class Library:
    """The functions of the C library, without their prefix."""

    def __init__(self, path: str) -> None:
        try:
            lib = ctypes.CDLL(path)
        except OSError as e:
            raise LibraryError(
                f"{path}: {e}: install the package again (pip install --force-reinstall), for this machine's processor, "
                f"or set {VARIABLE} to the library"
            ) from e
        self.path = path
        self.process = os.getpid()
        try:
            lib.sparkcompile_abi.restype = c_int32
            abi = lib.sparkcompile_abi()
        except AttributeError as e:
            raise LibraryError(f"{path}: this is no library of sparkcompile ({e}): unset {VARIABLE}, or set it to one") from e
        if abi != ABI:
            raise LibraryError(f"{path}: the library has interface {abi}, this package needs {ABI}: install both from one version")
        for name, arguments in _CALLS.items():
            call = getattr(lib, "sparkcompile_" + name)
            call.argtypes, call.restype = arguments, c_int32
            setattr(self, name, call)
        lib.sparkcompile_version.restype = c_char_p
        lib.sparkcompile_free.argtypes, lib.sparkcompile_free.restype = [c_void_p], None
        lib.sparkcompile_counts.argtypes, lib.sparkcompile_counts.restype = [POINTER(c_int64)], None
        lib.sparkcompile_main.argtypes, lib.sparkcompile_main.restype = [c_int32, POINTER(c_char_p)], c_int32
        self._lib = lib

    def version(self) -> str:
        return (self._lib.sparkcompile_version() or b"").decode()

    def take(self, text: c_void_p) -> str:
        """The text at a pointer, which is freed."""
        if not text.value:
            return ""
        try:
            return ctypes.string_at(text.value).decode(errors="replace")
        finally:
            self._lib.sparkcompile_free(text)

    def failed(self, code: int, text: c_void_p) -> Error:
        """The exception for a code and its text."""
        return BY_CODE.get(code, Error)(self.take(text) or f"code {code}")

    def counts(self) -> tuple[int, int, int]:
        """For tests: models in memory, goroutines, bytes held, after a garbage collection."""
        out = (c_int64 * 3)()
        self._lib.sparkcompile_counts(out)
        return out[0], out[1], out[2]

    def main(self, arguments: Sequence[str]) -> int:
        argv = (c_char_p * len(arguments))(*[os.fsencode(a) for a in arguments])
        return int(self._lib.sparkcompile_main(len(arguments), argv))


_loaded: Library | None = None
_lock = threading.Lock()


def path() -> str:
    """The library's file."""
    named = os.environ.get(VARIABLE)
    if named:
        return named
    beside = Path(__file__).with_name(NAME)
    if not beside.exists():
        raise LibraryError(
            f"{beside} is missing: install the package (pip install ./python in a checkout, with Go, or a wheel of make wheel), "
            f"or set {VARIABLE} to a library that `go build -buildmode=c-shared ./cmd/libsparkcompile` made"
        )
    return str(beside)


def library() -> Library:
    """The library, loaded at the first call: not when the package is imported, so that a process may import it and then fork."""
    global _loaded
    lib = _loaded
    if lib is None:
        with _lock:
            if _loaded is None:
                _loaded = Library(path())
            lib = _loaded
    if lib.process != os.getpid():
        raise LibraryError(
            "this process was forked from one that had loaded the library, whose threads are not here: open models behind the fork only, "
            'or start processes with multiprocessing.set_start_method("spawn")'
        )
    return lib


def address(array: Any) -> int:
    """Where an array's data begin."""
    return int(array.__array_interface__["data"][0])


# After a fork in another thread the lock may be held for good.
os.register_at_fork(after_in_child=lambda: globals().__setitem__("_lock", threading.Lock()))
