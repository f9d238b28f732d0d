# SPDX-License-Identifier: BSD-3-Clause
"""Compiles the glue against the EPX that pkg-config finds."""

import os
import shlex
import subprocess
import sysconfig
import tempfile
from pathlib import Path

from setuptools import Extension, setup


def pkg_config(option: str) -> list:
    try:
        said = subprocess.run(
            ["pkg-config", option, "epx"], check=True, capture_output=True, text=True
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


LIBRARIES = pkg_config("--libs")
XLA_HEADERS = xla_headers()
# What is built depends on what is installed, which setuptools does not compare: it would take what
# an earlier build has left.
BUILD = tempfile.TemporaryDirectory(prefix="epx-build-")
setup(
    options={"build": {"build_base": BUILD.name}},
    ext_modules=[
        Extension(
            "epx._glue",
            sources=[
                *sorted(path.name for path in Path(__file__).parent.glob("glue*.c")),
                *(["xla.c"] if XLA_HEADERS else []),
            ],
            depends=["glue.h", "glue_cuda.h"],
            include_dirs=XLA_HEADERS,
            extra_compile_args=["-std=c11", "-D_POSIX_C_SOURCE=200809L", *pkg_config("--cflags")],
            extra_link_args=[*LIBRARIES, "-ldl"],
            runtime_library_dirs=[word[2:] for word in LIBRARIES if word.startswith("-L")],
        )
    ],
)
