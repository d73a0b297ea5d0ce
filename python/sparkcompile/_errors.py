"""Errors of the library. Their texts say what is wrong and what helps, as those of the commands do."""

from __future__ import annotations


class Error(Exception):
    """Any error of this package."""


class InputError(Error, ValueError):
    """What was given is wrong: a file, a flag, an array's type, shape or order, a frame."""


class ClosedError(Error, RuntimeError):
    """The model is closed."""


class BusyError(Error, RuntimeError):
    """Another thread uses the model: an open model is for one thread at a time."""


class DeviceError(Error, RuntimeError):
    """The device, its driver or memory."""


class BugError(Error, RuntimeError):
    """A bug of ours. Please report it with its text."""


class LibraryError(Error, ImportError):
    """The C library is missing, is of another version, or was loaded before this process was forked."""


BY_CODE: dict[int, type[Error]] = {1: InputError, 2: ClosedError, 3: BusyError, 4: DeviceError, 5: BugError}
