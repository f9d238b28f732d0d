# SPDX-License-Identifier: BSD-3-Clause
"""Compiles the glue against the EPX that pkg-config finds."""

import shlex
import subprocess
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


LIBRARIES = pkg_config("--libs")
setup(
    ext_modules=[
        Extension(
            "epx._glue",
            sources=sorted(path.name for path in Path(__file__).parent.glob("glue*.c")),
            depends=["glue.h", "glue_cuda.h"],
            extra_compile_args=["-std=c11", "-D_POSIX_C_SOURCE=200809L", *pkg_config("--cflags")],
            extra_link_args=[*LIBRARIES, "-ldl"],
            runtime_library_dirs=[word[2:] for word in LIBRARIES if word.startswith("-L")],
        )
    ]
)
