# SPDX-License-Identifier: BSD-3-Clause
"""What torch.distributed wants to know, from MPI: for programs that mpiexec or srun starts."""

from __future__ import annotations

import os
import socket

from epx import _core

_LOCAL_RANKS = ("OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID")
_ADDRESS_BYTES = 256


def local_rank() -> int:
    """This rank among those of its node: the GPU to take.

    Read from the launcher's environment; where that does not tell it, collective over
    MPI_COMM_WORLD.
    """
    for name in _LOCAL_RANKS:
        if name in os.environ:
            return int(os.environ[name])
    return _core.node_rank()


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("", 0))
        port: int = listener.getsockname()[1]
        return port


def environment() -> dict[str, str]:
    """Set RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT, and return them.

    Collective over MPI_COMM_WORLD. MASTER_ADDR and MASTER_PORT that rank 0 has already are kept,
    and taken by all. Under torchrun, which starts no MPI, an ``EPXError`` says what to do.
    """
    rank, size = _core.world()
    local = _core.node_rank()
    address = os.environ.get("MASTER_ADDR", socket.gethostname())
    port = os.environ.get("MASTER_PORT") or str(_free_port())
    mine = f"{address} {port}".encode().ljust(_ADDRESS_BYTES, b"\0")
    first = _core.gather(mine, size)[0].rstrip(b"\0").decode().split()
    values = {
        "RANK": str(rank),
        "WORLD_SIZE": str(size),
        "LOCAL_RANK": str(local),
        "MASTER_ADDR": first[0],
        "MASTER_PORT": first[1],
    }
    os.environ.update(values)
    return values
