# SPDX-License-Identifier: BSD-3-Clause
"""What the ops of torch and JAX cost, beside the same operations called from C.

    mpiexec -n RANKS python -m epx.perf [--repeats N] [--loops N] [--device cpu|cuda] [--json FILE]

A row of the table is some operations: their number; microseconds of all of them when C repeats
them (``C``) and when Python calls them (``here``); what an op costs more here (``over/op``), and
the most that it is meant to. Times are those of rank 0, the least of so many loops of so many
repeats, because other programs on the machine only add to them. On a GPU a time ends when the work
is enqueued. The marks are for one rank on a quiet machine: ranks that share cores wait for each
other.

A row with ``empty functions`` is PyTorch alone: the same layer by functions of autograd that make
tensors as large as those of the ops and call nothing. What ``over/op`` is there, no op can be
without.

A row of JAX is what another dispatch and combine add to a program. A row ``graph of N tokens`` has
the times of a replay of a CUDA graph of route, dispatch and combine: as the C library has it alone,
and how much longer that with the ops of torch takes, in percent.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
from typing import Any

from epx import _core, _start
from epx._comm import Comm
from epx._perf import Figure, Options


def show(figures: list[Figure], head: dict[str, object]) -> None:
    """Print the table."""
    print("# " + ", ".join(f"{key} {value}" for key, value in head.items()))
    print(f"{'us':40s} {'ops':>4s} {'C':>9s} {'here':>9s} {'over/op':>9s} {'at most':>9s}")
    for f in figures:
        name, sign = f"{f.framework}: {f.name}", "%" if f.unit == "%" else " "
        most = "-" if f.at_most is None else f"{f.at_most:.1f}"
        print(
            f"{name:40s} {f.ops:4d} {f.c:9.2f} {f.here:9.2f} {f.over:8.1f}{sign} {most:>8s}{sign}"
        )


def _arguments(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m epx.perf", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--repeats", type=int, help="calls in a loop (200; 16 on a GPU)")
    parser.add_argument("--loops", type=int, default=30, help="loops, of which the least counts")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--json", metavar="FILE", help="write the table there too")
    arguments = parser.parse_args(words)
    if arguments.repeats is None:  # a GPU's queue must not be full: then a call waits for the GPU
        arguments.repeats = 200 if arguments.device == "cpu" else 16
    if min(arguments.repeats, arguments.loops) < 1:
        parser.error("--repeats and --loops are 1 or more")
    return arguments


def _machine(comm: Comm, arguments: argparse.Namespace) -> dict[str, object]:
    return {
        "ranks": comm.size,
        "transport": comm.hint("transport"),
        "device": arguments.device,
        "load": round(os.getloadavg()[0], 2),
        "cores": os.cpu_count(),
        "repeats": arguments.repeats,
        "loops": arguments.loops,
    }


def _is_first() -> bool:
    """Whether this rank prints: the first of those that torchrun, or MPI, started."""
    if _start.is_by_torchrun():
        return os.environ["RANK"] == "0"
    return _core.world()[0] == 0


def _module(framework: str) -> Any:
    """What measures a framework; None, and a word why, if that cannot be imported."""
    try:
        return importlib.import_module(f"epx._perf_{framework}")
    except Exception as error:  # torch without CUDA's libraries raises a ValueError
        if _is_first():
            print(f"epx.perf: without {framework}: {error}", file=sys.stderr)
        return None


def _write(path: str, head: dict[str, object], figures: list[Figure]) -> None:
    with open(path, "w") as file:
        json.dump({**head, "figures": [figure._asdict() for figure in figures]}, file, indent=1)
        file.write("\n")


def main(words: list[str] | None = None) -> int:
    """Print the table of the frameworks that are here."""
    arguments = _arguments(words)
    head: dict[str, object] = {}
    figures: list[Figure] = []
    memory: dict[str, Any] = {"memory": "cuda:device"} if arguments.device == "cuda" else {}
    for name in ("torch", "jax"):
        module = _module(name)
        if module is None:
            continue
        with Comm(device=module.prepare(arguments.device), **memory) as comm:
            head = _machine(comm, arguments) | head | {name: module.version()}
            options = Options(arguments.repeats, arguments.loops)
            figures += module.figures(comm, arguments.device, options)
    if figures and _is_first():
        show(figures, head)
        if arguments.json:
            _write(arguments.json, head, figures)
    return 0 if figures else 1


if __name__ == "__main__":
    sys.exit(main())
