# SPDX-License-Identifier: BSD-3-Clause
"""The memory that a communicator reserves for tensors."""

from __future__ import annotations

import ctypes
import gc
import operator
import threading
from typing import TYPE_CHECKING, NamedTuple

from epx._core import Code, EPXError, _declare, _int_p, _try

if TYPE_CHECKING:
    from epx._pools import Pools

_reserve = _declare("reserve", ctypes.c_int, ctypes.c_int64)
_reserved = _declare("reserved", ctypes.c_int, ctypes.POINTER(ctypes.c_int64))
_is_reserved = _declare("is_reserved", ctypes.c_int, ctypes.c_void_p, ctypes.c_int64)
_release = _declare("release", ctypes.c_int)
_pool = _declare("pool", ctypes.c_int, _int_p)
_pools_lock = threading.Lock()


class Reserved(NamedTuple):
    """What this rank reserved for tensors, in bytes, and what of it is in use.

    ``parts`` are the pieces in use: tensors on host memory; on GPUs segments of torch's pools.
    ``refused`` were too large for the room left: they lie in ordinary memory. ``device`` is the GPU
    of the memory, -1 on the host.
    """

    bytes: int
    used_bytes: int
    parts: int
    refused: int
    device: int


class Arena:
    """What the communicator with a number in the glue has reserved; ``is_open`` to tensors."""

    def __init__(self, comm: int) -> None:
        self.comm = comm
        self._has_windows = False
        self.is_open = False
        self._pool = -1
        self._pools: Pools | None = None

    def reserve(self, bytes: int, *, on_device: bool) -> None:
        """Reserve so many bytes more. Collective."""
        size = operator.index(bytes)
        if not -(2**63) <= size < 2**63:
            raise EPXError(Code.NO_MEM, f"reserve: {size} bytes, of which no machine has so many")
        _try(_reserve(self.comm, size))
        self._has_windows = True
        if on_device:
            index = ctypes.c_int(-1)
            _try(_pool(self.comm, index))
            self._pool = index.value
        self.is_open = True

    def reserved(self) -> Reserved:
        """How much is reserved, and how much of it is in use."""
        counts = (ctypes.c_int64 * len(Reserved._fields))()
        _try(_reserved(self.comm, counts))
        return Reserved(*counts)

    def has(self, address: int, bytes: int) -> bool:
        """Whether so many bytes from an address on lie there."""
        return bool(_is_reserved(self.comm, address, bytes))

    def pools(self) -> Pools:
        """The pools of torch, made when they are first wanted."""
        if self._pool < 0:
            raise EPXError(Code.UNSUPPORTED, "there is no pool before reserve() on GPU memory")
        with _pools_lock:
            if self._pools is None:
                from epx import _pools

                self._pools = _pools.Pools(self.reserved().device, self._pool)
            return self._pools

    def release(self) -> None:
        """Free all of it, or refuse that on all ranks. Collective, if anything is reserved."""
        if not self._has_windows:
            return
        if self.reserved().parts:
            gc.collect()  # cycles may hold tensors
        if self._pools is not None:
            self._pools.drop()
            if self.reserved().parts:
                self._pools.trim()
        _try(_release(self.comm))
        self._has_windows = self.is_open = False
        self._pool, self._pools = -1, None
