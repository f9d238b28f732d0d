# SPDX-License-Identifier: BSD-3-Clause
"""Tensors of torch in memory that the other ranks store into."""

from __future__ import annotations

import ctypes

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
    if comm is None or not comm._arena.is_open:
        return empty(like, shape, like.dtype)
    if like.is_cpu:
        made = _on_host(like, shape, comm)
        return empty(like, shape, like.dtype) if made is None else made
    if not like.is_cuda or torch.cuda.is_current_stream_capturing():
        return empty(like, shape, like.dtype)
    return comm._arena.pools().empty(like, shape)
