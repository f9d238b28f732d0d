# SPDX-License-Identifier: BSD-3-Clause
"""Tensors of torch in memory that the other ranks store into."""

from __future__ import annotations

import ctypes
import threading
from typing import Any

import torch
from torch import Tensor
from torch.utils.dlpack import from_dlpack

from epx._comm import Comm
from epx._core import _lib
from epx._eager import empty

_take = _lib.epx_python_tensor
_take.argtypes = (ctypes.c_int, ctypes.c_int64)
_take.restype = ctypes.c_void_p
_give = _lib.epx_python_tensor_free
_give.argtypes = (ctypes.c_void_p,)
_give.restype = None
_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
_new_capsule.restype = ctypes.py_object
_CAPSULE = b"dltensor"  # PyCapsule_New keeps the pointer: the name lives as long as the module


class Pools:
    """Pools of torch over the reserved memory of a communicator, on one GPU.

    The glue gives segments; torch cuts them and knows which stream may use a piece again. What is
    captured has another pool than the rest: a replay writes to the memory of its graph, in which no
    other tensor may lie.
    """

    def __init__(self, device: int, function: int) -> None:
        self._device = device
        self._allocator: Any = torch.cuda.memory.CUDAPluggableAllocator(
            _lib._name, f"epx_python_pool_{function}", "epx_python_pool_free"
        )
        self._made: dict[str, Any] = {}
        self._creation, self._allocation = threading.Lock(), threading.Lock()

    def get(self, use: str) -> Any:
        """The pool for one use, made when it is first wanted."""
        with self._creation:
            if use not in self._made:
                with torch.cuda.device(self._device):
                    self._made[use] = torch.cuda.MemPool(self._allocator.allocator())
            return self._made[use]

    def empty(self, like: Tensor, shape: tuple[int, int]) -> Tensor:
        """An empty tensor in the pool of tensors that are not captured."""
        pool = self.get("eager")
        with self._allocation:  # torch lets one thread at a time allocate in a pool
            if pool.use_count() > 1:  # the caller does, so this one lies there too
                return empty(like, shape, like.dtype)
            with torch.cuda.use_mem_pool(pool, like.device):
                return empty(like, shape, like.dtype)

    def drop(self) -> None:
        """Drop the pools, once the GPU is through with their tensors."""
        torch.cuda.synchronize(self._device)
        with self._creation:
            self._made.clear()

    def trim(self) -> None:
        """Have torch give back what dropped pools keep and no tensor has."""
        torch.cuda.empty_cache()


def _on_host(like: Tensor, shape: tuple[int, int], comm: Comm) -> Tensor | None:
    bytes = shape[0] * shape[1] * like.element_size()
    managed = _take(comm._index, bytes)
    if not managed:
        return None
    try:
        flat = from_dlpack(_new_capsule(managed, _CAPSULE, None))
    except BaseException:
        _give(managed)
        raise
    # A tensor of its own, not a view of one of another dtype.
    return like.new_empty(0).set_(flat.untyped_storage(), 0, shape, (shape[1], 1))


def receive_buffer(like: Tensor, shape: tuple[int, int], comm: Comm | None) -> Tensor:
    """An empty tensor of the dtype and device of ``like``, in reserved memory if there is room.

    In a capture it is the graph's pool that says where: the memory must last as long as the graph.
    """
    if comm is None or not comm.has_reserved:
        return empty(like, shape, like.dtype)
    if like.is_cpu:
        made = _on_host(like, shape, comm)
        return empty(like, shape, like.dtype) if made is None else made
    if not like.is_cuda or torch.cuda.is_current_stream_capturing():
        return empty(like, shape, like.dtype)
    pools: Pools = comm._window_pools()
    return pools.empty(like, shape)
