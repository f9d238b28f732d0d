# SPDX-License-Identifier: BSD-3-Clause
"""usage: wheel.py alone|srun|torchrun, in an environment with a wheel of epx, without MPI.

contrib/check-wheel starts it. A scene prints "ok RANK" at its end; an assertion that fails ends it.
"""

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist

import epx
import epx.torch as ep


def none_is_loaded():
    """Neither libraries of MPI nor others that are not in the wheel were opened."""
    maps = Path("/proc/self/maps").read_text().splitlines()
    names = {Path(line.split()[-1]).name for line in maps if "/" in line}
    assert not [name for name in names if name.startswith(("libmpi", "libucp"))], names
    libraries = [line.split()[-1] for line in maps if "/libepx" in line or "/_glue" in line]
    assert libraries and all(name.startswith(sys.prefix) for name in libraries), libraries
    assert Path(epx.__file__).is_relative_to(sys.prefix), epx.__file__


def exchange(comm):
    """Each token goes to an expert of each rank, and the sum of all comes home."""
    route = epx.Route(comm, experts=comm.size, top_k=comm.size, max_tokens=4)
    ids = torch.arange(comm.size).repeat(4, 1)
    x = torch.full((4, 8), float(comm.rank))
    rows, row_weights, routing = ep.dispatch(x, ids, torch.ones((4, comm.size)), route)
    out = ep.combine(rows, routing, row_weights)
    assert torch.equal(out, x * comm.size), out
    route.free()


def alone():
    """Without a launcher MPI is wanted, and is missing."""
    try:
        epx.Comm()
    except epx.EPXError as error:
        assert error.code == epx.Code.NOT_INITIALIZED, error
        assert "MPI cannot be used" in str(error) and "libmpi" in str(error), error
    else:
        raise AssertionError("there is MPI")
    store = dist.HashStore()
    with epx.Comm(store=store, rank=0, size=1) as comm:
        exchange(comm)


def srun():
    """Where srun started a program that has torch.distributed and no MPI, torch's ranks count."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    with epx.Comm() as comm:
        exchange(comm)
    dist.destroy_process_group()


def torchrun():
    with epx.Comm(timeout_ms=60000) as comm:
        assert (comm.rank, comm.size) == (int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
        assert comm.hint("control") == "sockets"
        exchange(comm)


if __name__ == "__main__":
    {"alone": alone, "srun": srun, "torchrun": torchrun}[sys.argv[1]]()
    none_is_loaded()
    print(f"ok {os.environ.get('RANK', 0)}\n", end="", flush=True)
