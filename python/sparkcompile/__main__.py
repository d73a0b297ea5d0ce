"""python -m sparkcompile compile|run|info|bench|dora …: the commands, as spark has them."""

from __future__ import annotations

import sys
from typing import NoReturn

from ._errors import Error
from ._library import library


def main(arguments: list[str] | None = None) -> int:
    """Runs a command and returns its exit code."""
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        return library().main(["python -m sparkcompile", *(sys.argv[1:] if arguments is None else arguments)])
    except Error as e:
        print(f"sparkcompile: {e}", file=sys.stderr)
        return 2


def script() -> NoReturn:
    """The program spark-compile that the package installs."""
    sys.exit(main(["compile", *sys.argv[1:]]))


if __name__ == "__main__":
    sys.exit(main())
