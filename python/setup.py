# SPDX-License-Identifier: BSD-3-Clause
"""Compiles the glue, and its module for MPI, against the EPX that pkg-config finds.

Both are libraries for ctypes: one wheel serves all versions of Python. With EPX_BUNDLE=1 in the
environment the wheel brings libepx and its modules along, as contrib/make-wheel has it.
"""

import contextlib
import os
import shlex
import shutil
import subprocess
import sysconfig
import tempfile
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

COMMANDS = {}
with contextlib.suppress(ImportError):
    try:
        from setuptools.command.bdist_wheel import bdist_wheel
    except ImportError:  # before setuptools 70.1
        from wheel.bdist_wheel import bdist_wheel

    class Wheel(bdist_wheel):
        """For any Python 3 on this platform."""

        def get_tag(self) -> tuple:
            return ("py3", "none", super().get_tag()[2])

    COMMANDS["bdist_wheel"] = Wheel


def pkg_config(*options: str) -> list:
    try:
        said = subprocess.run(
            ["pkg-config", *options, "epx"], check=True, capture_output=True, text=True
        )
    except FileNotFoundError:
        raise SystemExit("epx: pkg-config is missing") from None
    except subprocess.CalledProcessError as error:
        raise SystemExit(f"epx: install EPX first: {error.stderr}") from None
    return shlex.split(said.stdout)


def xla_headers() -> list:
    """The folder of xla/ffi/api/c_api.h: that of XLA_FFI_INCLUDE, else of the jaxlib that is there.

    pip hides what is installed from the build, so the folder is looked for.
    """
    folder = os.environ.get("XLA_FFI_INCLUDE")
    if folder is not None:
        return [folder] if folder else []
    installed = Path(sysconfig.get_path("platlib"), "jaxlib", "include")
    if (installed / "xla/ffi/api/c_api.h").exists():
        return [str(installed)]
    try:
        import jax
    except ImportError:
        print("epx: jax is not there, nor XLA_FFI_INCLUDE: epx.jax is left out")
        return []
    return [jax.ffi.include_dir()]


HERE = Path(__file__).parent
LIBEPX = Path(pkg_config("--variable=libdir")[0])
IS_BUNDLE = os.environ.get("EPX_BUNDLE") == "1"
WITH_MPI = pkg_config("--libs")
XLA_HEADERS = xla_headers()
# What is built depends on what is installed, which setuptools does not compare: it would take what
# an earlier build has left.
BUILD = tempfile.TemporaryDirectory(prefix="epx-build-")


class Build(build_ext):
    """Names libraries as ctypes loads them, and copies libepx beside them for a bundle.

    A bundle looks for libraries there and nowhere else, whatever flags Python was built with.
    """

    def get_ext_filename(self, fullname: str) -> str:
        return f"{fullname.replace('.', '/')}.so"

    def run(self) -> None:
        super().run()
        if not IS_BUNDLE:
            return
        for path in Path(self.build_lib, "epx").glob("*.so"):
            subprocess.run(["patchelf", "--set-rpath", "$ORIGIN/lib", path], check=True)
        beside = Path(self.build_lib, "epx", "lib")
        (beside / "epx").mkdir(parents=True, exist_ok=True)
        shutil.copy(LIBEPX / "libepx.so.0", beside)
        for module in (LIBEPX / "epx").glob("libepx_*.so"):
            shutil.copy(module, beside / "epx")


COMMANDS["build_ext"] = Build


def library(name: str, sources: list, include: list, links: list) -> Extension:
    folders = [word[2:] for word in links if word.startswith("-L")]
    return Extension(
        f"epx.{name}",
        sources=sources,
        depends=["glue.h", "glue_cuda.h", "glue_mpi.h", "mpi/mpi_parts.h"],
        include_dirs=include,
        extra_compile_args=["-std=c11", "-D_POSIX_C_SOURCE=200809L", *pkg_config("--cflags")],
        extra_link_args=links,
        runtime_library_dirs=folders,
    )


def sources_of(pattern: str) -> list:
    return sorted(str(path.relative_to(HERE)) for path in HERE.glob(pattern))


setup(
    # Without force a library is not copied over one that was built within the same second.
    options={"build": {"build_base": BUILD.name}, "build_ext": {"force": "1"}},
    cmdclass=COMMANDS,
    ext_modules=[
        library(
            "_glue",
            sources_of("glue*.c") + (["xla.c"] if XLA_HEADERS else []),
            XLA_HEADERS,
            [f"-L{LIBEPX}", "-lepx", "-ldl"],
        ),
        library("_mpi", sources_of("mpi/*.c"), ["."], WITH_MPI),
    ],
)
