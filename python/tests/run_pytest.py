# SPDX-License-Identifier: BSD-3-Clause
"""usage: mpiexec -n RANKS python run_pytest.py FILE [PYTEST-ARGUMENT...]

Runs tests on all ranks together. Rank 0 prints what pytest prints; at the end " No Errors" if all
ranks passed, or "SKIP: reason" if a test file wants what is not here.
"""

import importlib
import re
import sys
from pathlib import Path

import pytest

from epx import _core


def missing(file: str) -> str:
    text = Path(file).read_text()
    for name, module in (("numpy", "numpy"), ("torch", "torch"), ("jax", "epx.jax")):
        if not re.search(rf"^import {name}( as \w+)?$", text, re.MULTILINE):
            continue
        try:
            importlib.import_module(module)
        except Exception as error:  # torch without CUDA's libraries raises a ValueError
            return f"{module} cannot be imported: {error}"
    return ""


def main() -> int:
    rank, size = _core.world()
    why = missing(sys.argv[1])
    if why:
        if rank == 0:
            print(f"SKIP: {why}")
        return 0
    quiet = ["-p", "no:terminal"] if rank else ["-q", "--color=no", "--no-header", "--tb=short"]
    # What C writes to stderr, and conftest about the other ranks, is seen at once; and where a test
    # hangs.
    told = ["-p", "no:cacheprovider", "--capture=sys", "-o", "faulthandler_timeout=150"]
    code = int(pytest.main([*told, *quiet, *sys.argv[1:]]))
    codes = _core.gather(bytes([code]), size)
    if rank == 0 and set(codes) == {b"\0"}:
        print(" No Errors")
    sys.stdout.flush()
    return max(code[0] for code in codes)


if __name__ == "__main__":
    sys.exit(main())
