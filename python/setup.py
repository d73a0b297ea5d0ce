"""Builds the C library with Go, from the checkout that this directory is in, and puts it into the package.

GOARCH, CC and GOFLAGS are Go's. SPARKCOMPILE_LIBRARY names a library that is built already. SPARKCOMPILE_PLATFORM is the wheel's platform
tag where the library runs on more than this machine (make wheel sets it).
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py
from setuptools.dist import Distribution

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
NAME = "libsparkcompile.so"
VERSION = "0.0.0"


def say(text: str) -> None:
    """Says what is being done, to whoever reads it: pip install -v, or setup.py."""
    print(f"sparkcompile: {text}", file=sys.stderr, flush=True)


def fail(text: str) -> None:
    sys.exit(f"sparkcompile: {text}")


def go(*arguments: str) -> str:
    """Runs Go in the checkout."""
    env = dict(os.environ, CGO_ENABLED="1")
    done = subprocess.run(["go", *arguments], cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        hint = ""
        if "C compiler" in done.stderr or "exec: " in done.stderr:
            hint = "\nThe C library needs a C compiler: install gcc or clang, or set CC."
        fail(f"go {' '.join(arguments)} failed:\n{done.stderr.strip()}{hint}")
    return done.stdout.strip()


def library(to: Path) -> None:
    """Makes the library at a path."""
    to = to.resolve()  # Go runs in another directory
    built = os.environ.get("SPARKCOMPILE_LIBRARY")
    if built:
        if not Path(built).exists():
            fail(f"SPARKCOMPILE_LIBRARY={built}: no such file")
        say(f"taking the library {built}, which SPARKCOMPILE_LIBRARY names")
        shutil.copyfile(built, to)
        return
    if not (ROOT / "cmd" / "libsparkcompile").is_dir():
        fail("the C library is built from spark-compile's Go sources, and they are not beside this directory: install from a checkout "
             "(pip install ./python), or install a wheel that make wheel has made")  # fmt: skip
    if shutil.which("go") is None:
        fail("the C library is built with Go, and there is no go on the PATH: install Go (https://go.dev/dl), or install a wheel that "
             "make wheel has made on another machine")  # fmt: skip
    if sys.platform != "linux":
        fail(f"the C library is for Linux, and this is {sys.platform}")
    version, system, processor = go("env", "GOVERSION", "GOOS", "GOARCH").splitlines()
    say(f"building the library for {system}/{processor} with {version}; the first time this takes a minute or two")
    go("build", "-buildmode=c-shared", "-trimpath", "-ldflags=-s -w", "-o", str(to), "./cmd/libsparkcompile")
    if not to.exists():
        fail(f"go build wrote no {to}")
    say(f"built {to.name}, {to.stat().st_size / 1e6:.0f} MB")
    to.with_suffix(".h").unlink(missing_ok=True)  # cgo's; sparkcompile.h is the one to use


class Build(build_py):
    def run(self) -> None:
        super().run()
        package = Path(self.build_lib) / "sparkcompile"
        if self.editable_mode:
            package = HERE / "sparkcompile"
        package.mkdir(parents=True, exist_ok=True)
        library(package / NAME)
        for path in (ROOT / "cmd" / "libsparkcompile" / "sparkcompile.h", ROOT / "LICENSE", ROOT / "THIRD-PARTY-LICENSES"):
            shutil.copyfile(path, package / path.name)


class Wheel(bdist_wheel):
    """Any Python 3, one processor: the library is no extension of Python's."""

    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", os.environ.get("SPARKCOMPILE_PLATFORM") or super().get_tag()[2]


class Binary(Distribution):
    def has_ext_modules(self) -> bool:
        return True


setup(version=VERSION, cmdclass={"build_py": Build, "bdist_wheel": Wheel}, distclass=Binary)
