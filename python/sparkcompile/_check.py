"""Checks of what callers give, made before anything is done with it.

An error names the argument, its type and what is wanted. Of its value it shows only numbers and short strings: others can be large, or
private, or fail to print.
"""

from __future__ import annotations

import operator
import os
from typing import Any, Mapping, Sequence, TypeVar

import numpy as np

from ._errors import InputError

T = TypeVar("T")

LONGEST = 4096  #: characters of a name, path or option
_SHOWN = 60


def shown(x: Any) -> str:
    """How an error shows what should be a name: shortened and in quotes if it is a string."""
    if not isinstance(x, str):
        return kind(x)
    text = str.__str__(x)
    text = text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
    return '"' + "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text) + '"'


def kind(x: Any) -> str:
    """How an error shows anything else: a number as it is, and of all others the type."""
    if x is None or type(x) in (bool, float) or type(x) is int and abs(x) < 1 << 64:
        return str(x)
    return f"a {type(x).__name__}"[:_SHOWN]


def text(what: str, x: Any) -> str:
    """A string that C can have."""
    if not isinstance(x, str):
        raise InputError(f"{what} is {shown(x)}: want a str")
    return _plain(what, str.__str__(x))


def path(what: str, x: Any) -> str:
    """A path: a str, or an os.PathLike of one."""
    if isinstance(x, (bytes, bytearray)):
        raise InputError(f"{what} is {type(x).__name__}: want a str or an os.PathLike: os.fsdecode(path)")
    if not isinstance(x, str):
        try:
            x = os.fspath(x)
        except Exception:
            raise InputError(f"{what} is {shown(x)}: want a path, as a str or an os.PathLike") from None
        if not isinstance(x, str):
            raise InputError(f"{what} is a path of {type(x).__name__}: want one of str")
    if not x:
        raise InputError(f"{what} is empty: want a path")
    return _plain(what, str.__str__(x), errors="surrogateescape")


def _plain(what: str, x: str, errors: str = "strict") -> str:
    if len(x) > LONGEST:
        raise InputError(f"{what} has {len(x)} characters: want at most {LONGEST}")
    if "\0" in x:
        raise InputError(f"{what} is {shown(x)}: a NUL character cannot be in it")
    try:
        x.encode("utf-8", errors)
    except UnicodeEncodeError:
        raise InputError(f"{what} is {shown(x)}, which is no Unicode text") from None
    return x


def integer(what: str, x: Any, low: int, high: int) -> int:
    """A whole number within bounds."""
    try:
        value = operator.index(x)
    except Exception:
        raise InputError(f"{what} is {kind(x)}: want a whole number from {low} to {high}") from None
    if not low <= value <= high:
        raise InputError(f"{what} is {kind(value)}: want a whole number from {low} to {high}")
    return value


def number(what: str, x: Any, unit: str) -> float:
    """A number. That it is finite is for the library to check."""
    try:
        if not isinstance(x, (str, bytes, bytearray)) and np.ndim(x) == 0:
            return float(x)
    except Exception:
        pass
    raise InputError(f"{what} is {kind(x)}: want a number ({unit})")


def flag(what: str, x: Any) -> bool:
    """True or False, or 1 or 0."""
    if isinstance(x, (bool, np.bool_)) or type(x) is int and x in (0, 1):
        return bool(x)
    raise InputError(f"{what} is {kind(x)}: want True or False")


def of(what: str, x: Any, cls: type[T]) -> T:
    """An object of a class."""
    if not isinstance(x, cls):
        raise InputError(f"{what} is {kind(x)}: want a sparkcompile.{cls.__name__}")
    return x


def named(what: str, x: Any) -> Mapping[str, Any]:
    """Arrays by name."""
    if type(x) is dict:
        return x
    if not isinstance(x, Mapping):
        raise InputError(f"{what} is {kind(x)}: want arrays by name, {{name: array}}")
    return x


def flags(options: Mapping[str, Any]) -> list[str]:
    """Flags of spark-compile: precision="fp8", calibrate=["a.npz"], modeld=True, shape={"x": (1, 3)}."""
    out: list[str] = []
    for name, value in options.items():
        flag = "--" + text("an option's name", name).replace("_", "-")
        if value is None or value is False:
            continue
        if value is True:
            out.append(flag)
        elif isinstance(value, Mapping):
            for k, v in value.items():
                out += [flag, f"{text(f'{name}: a name', k)}={_dims(f'{name}[{shown(k)}]', v)}"]
        elif isinstance(value, (tuple, list)):
            for v in value:
                out += [flag, _value(name, v)]
        else:
            out += [flag, _value(name, value)]
    return out


def _dims(what: str, x: Any) -> str:
    if isinstance(x, (tuple, list)):
        return "x".join(str(integer(what, v, 0, 2**63 - 1)) for v in x)
    return _value(what, x)


def _value(what: str, x: Any) -> str:
    if isinstance(x, (bool, np.bool_)):
        raise InputError(f"{what} is {shown(x)} among others: want a str, a number or a path")
    if isinstance(x, (int, np.integer)):
        return str(integer(what, x, -(2**63), 2**64 - 1))
    if isinstance(x, (float, np.floating)):
        return repr(float(x))
    return path(what, x) if isinstance(x, os.PathLike) else text(what, x)


def names(what: str, x: Any) -> Sequence[str]:
    """Names, in a list or tuple."""
    if not isinstance(x, (list, tuple)):
        raise InputError(f"{what} is {kind(x)}: want a list of names")
    return [text(f"{what}: a name", name) for name in x]
