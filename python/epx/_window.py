# SPDX-License-Identifier: BSD-3-Clause
"""Tensors of torch in memory that the other ranks store into."""

from __future__ import annotations

import ctypes
import functools
import math

import torch
from torch import Tensor
from torch.utils.dlpack import from_dlpack

from epx._arena import Arena
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


def _on_host(like: Tensor, shape: tuple[int, int], arena: Arena) -> Tensor | None:
    bytes = shape[0] * shape[1] * like.element_size()
    managed = _take(arena.comm, bytes)
    if not managed:
        return None
    try:
        flat = from_dlpack(_new_capsule(managed, _CAPSULE, None))
    except BaseException:
        _give(managed)
        raise
    # A tensor of its own, not a view of one of another dtype.
    return like.new_empty(0).set_(flat.untyped_storage(), 0, shape, (shape[1], 1))


@functools.cache
def _sample(device: str, dtype: torch.dtype) -> Tensor:
    with torch.inference_mode(False):
        return torch.empty((0,), dtype=dtype, device=device)


def empty_in(
    arena: Arena, shape: tuple[int, ...], dtype: torch.dtype, *, on_device: bool
) -> Tensor:
    """An empty tensor of any shape in the memory of a communicator."""
    device = f"cuda:{torch.cuda.current_device()}" if on_device else "cpu"
    made = receive_buffer(_sample(device, dtype), (1, math.prod(shape)), arena)
    return made.view(shape)


def receive_buffer(like: Tensor, shape: tuple[int, int], arena: Arena | None) -> Tensor:
    """An empty tensor of the dtype and device of ``like``, in reserved memory if there is room.

    In a capture it is the graph's pool that says where: the memory must last as long as the graph.
    """
    if arena is None or not arena.is_open:
        return empty(like, shape, like.dtype)
    if like.is_cpu:
        made = _on_host(like, shape, arena)
        return empty(like, shape, like.dtype) if made is None else made
    if not like.is_cuda or torch.cuda.is_current_stream_capturing():
        return empty(like, shape, like.dtype)
    return arena.pools().empty(like, shape)
