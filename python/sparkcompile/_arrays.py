"""Arrays of others as NumPy arrays over the same memory, checked against what a model wants. Nothing is converted or copied."""

from __future__ import annotations

from typing import Any

import numpy as np

from ._errors import InputError

# Element types by their names in packages. Those that NumPy lacks are those of ml_dtypes, if it is there, else bytes.
_DTYPES = {
    "bool": "bool", "i8": "int8", "u8": "uint8", "i16": "int16", "u16": "uint16", "i32": "int32", "u32": "uint32", "i64": "int64",
    "u64": "uint64", "f16": "float16", "f32": "float32", "f64": "float64",
}  # fmt: skip
_MORE = {
    "bf16": ("bfloat16", "uint16"), "e4m3": ("float8_e4m3fn", "uint8"), "e4m3fnuz": ("float8_e4m3fnuz", "uint8"),
    "e5m2": ("float8_e5m2", "uint8"), "e5m2fnuz": ("float8_e5m2fnuz", "uint8"), "e8m0": ("float8_e8m0fnu", "uint8"),
}  # fmt: skip

_CPU = {1, 3, 13}  # kDLCPU, kDLCUDAHost, kDLCUDAManaged: memory that the host reads


def dtype(name: str) -> np.dtype[Any]:
    """NumPy's type for an element type."""
    if name in _DTYPES:
        return np.dtype(_DTYPES[name])
    if name in _MORE:
        try:
            import ml_dtypes

            found: np.dtype[Any] = np.dtype(getattr(ml_dtypes, _MORE[name][0]))
            return found
        except (ImportError, AttributeError):
            return np.dtype(_MORE[name][1])
    raise InputError(f"arrays of {name} cannot be given to or taken from NumPy: compile the model with --io f32")


def view(what: str, x: Any) -> np.ndarray[Any, Any]:
    """x over the same memory: a NumPy array, an object of DLPack (a tensor of PyTorch on the CPU), or a buffer."""
    if isinstance(x, np.ndarray):
        if isinstance(x, np.ma.MaskedArray):
            raise InputError(f"{what} is a masked array, whose mask would be lost: give x.filled(value)")
        return x
    kind: Any = 1
    try:
        if hasattr(x, "__dlpack_device__"):
            kind = int(x.__dlpack_device__()[0])
            if kind in _CPU:
                return np.from_dlpack(x)
        elif hasattr(x, "__array_interface__"):
            return np.asarray(x)
    except Exception as e:  # whose text may hold anything
        raise InputError(f"{what}: {type(x).__name__} does not give its memory ({type(e).__name__}): give x.detach().cpu().numpy()") from e
    if kind not in _CPU:
        raise InputError(f"{what}: it is in memory of another device (DLPack's kind {kind}), which is not read from there: give x.cpu(), or x.get() of CuPy")
    try:
        return np.asarray(memoryview(x))
    except TypeError:
        raise InputError(f"{what}: {type(x).__name__} is no array: give numpy.asarray(x, dtype), a tensor on the CPU, or a buffer") from None
    except ValueError:
        raise InputError(f"{what}: this {type(x).__name__} gives no memory: it was released, or has a format that NumPy lacks") from None


def check(what: str, x: Any, want: np.dtype[Any], shape: tuple[int, ...], writable: bool = False) -> np.ndarray[Any, Any]:
    """x over the same memory, of the type, shape and order that are wanted."""
    a = x if type(x) is np.ndarray else view(what, x)
    if a.dtype != want:
        swapped = " in another byte order" if a.dtype.newbyteorder() == want else ""
        raise InputError(
            f"{what} is {a.dtype.name}{swapped}, the model has {want}{_dims(shape)}: give x.astype({want.name!r}), or compile with --io f32 where that fits"
        )
    if a.shape != shape:
        raise InputError(f"{what} is {want}{_dims(a.shape)}, the model has {want}{_dims(shape)}: give x.reshape({shape}) if it is the same data")
    if not a.flags.c_contiguous:
        raise InputError(f"{what} is not in C order (its strides are {a.strides}): give numpy.ascontiguousarray(x)")
    if writable and not a.flags.writeable:
        raise InputError(f"{what} is read-only: give an array that can be written, such as x.copy()")
    return a


def _dims(shape: tuple[int, ...]) -> str:
    return "[" + ", ".join(map(str, shape)) + "]"
