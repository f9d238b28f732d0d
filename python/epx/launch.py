# SPDX-License-Identifier: BSD-3-Clause
"""What torch.distributed and jax.distributed want to know, from MPI: for programs that mpiexec or
srun starts. Under torchrun, which sets it itself, the functions for torch change nothing."""

from __future__ import annotations

import os
import socket
from typing import Any

from epx import _core, _start

_LOCAL_RANKS = ("OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID")
_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
_ADDRESS_BYTES = 256


def local_rank() -> int:
    """This rank among those of its node: the GPU to take.

    Read from the launcher's environment; where that does not tell it, collective over
    MPI_COMM_WORLD.
    """
    if _start.is_by_torchrun() and "LOCAL_RANK" in os.environ:
        return int(os.environ["LOCAL_RANK"])
    for name in _LOCAL_RANKS:
        if name in os.environ:
            return int(os.environ[name])
    return _core.node_rank()


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("", 0))
        port: int = listener.getsockname()[1]
        return port


def _first_ranks(address: str, port: str, size: int) -> list[str]:
    """The address and the port of rank 0."""
    mine = f"{address} {port}".encode().ljust(_ADDRESS_BYTES, b"\0")
    return _core.gather(mine, size)[0].rstrip(b"\0").decode().split()


def jax_arguments() -> dict[str, Any]:
    """The arguments of jax.distributed.initialize: one process a rank, with one GPU each.

    Collective over MPI_COMM_WORLD; under torchrun it is local, and JAX's coordinator listens at the
    second port behind MASTER_PORT. The GPU is the one of this rank's number on its node, of those
    that CUDA_VISIBLE_DEVICES leaves.
    """
    if _start.is_by_torchrun():
        rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        address, port = os.environ["MASTER_ADDR"], str(int(os.environ["MASTER_PORT"]) + 2)
    else:
        rank, size = _core.world()
        address, port = _first_ranks(socket.gethostname(), str(_free_port()), size)
    visible = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    local = local_rank()
    return {
        "coordinator_address": f"{address}:{port}",
        "num_processes": size,
        "process_id": rank,
        "local_device_ids": [local % len(visible) if visible else local],
    }


def environment() -> dict[str, str]:
    """Set RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT, and return them.

    Collective over MPI_COMM_WORLD. MASTER_ADDR and MASTER_PORT that rank 0 has already are kept,
    and taken by all. Under torchrun they are set, and are returned as they are.
    """
    if _start.is_by_torchrun():
        return {name: os.environ[name] for name in _VARIABLES}
    rank, size = _core.world()
    local = _core.node_rank()
    address = os.environ.get("MASTER_ADDR", socket.gethostname())
    port = os.environ.get("MASTER_PORT") or str(_free_port())
    first = _first_ranks(address, port, size)
    values = {
        "RANK": str(rank),
        "WORLD_SIZE": str(size),
        "LOCAL_RANK": str(local),
        "MASTER_ADDR": first[0],
        "MASTER_PORT": first[1],
    }
    os.environ.update(values)
    return values
