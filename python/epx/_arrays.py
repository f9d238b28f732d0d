# SPDX-License-Identifier: BSD-3-Clause
"""Arrays of any library, as the memory that EPX reads and writes.

An array is NumPy's, or it speaks DLPack, the array interface, or CUDA's array interface.
"""

from __future__ import annotations

import ctypes
import math
import sys
from typing import Any, NamedTuple

import numpy as np

from epx._comm import Comm
from epx._core import Code, EPXError, _lib

_TYPES = {
    "uint8": 1,
    "float8_e4m3fn": 2,
    "float8_e5m2": 3,
    "float16": 4,
    "bfloat16": 5,
    "float32": 6,
    "float64": 7,
    "int32": 32,
    "int64": 64,
}
_BYTE = 1
_CUDA = 2  # of DLPack's devices

Members = tuple[int, int, int, int]
NONE: Members = (0, 0, 0, 0)

_take = _lib.epx_python_tensor
_take.argtypes = (ctypes.c_int, ctypes.c_int64)
_take.restype = ctypes.c_void_p
_give = _lib.epx_python_tensor_free
_give.argtypes = (ctypes.c_void_p,)
_give.restype = None


class Array(NamedTuple):
    """An array without gaps: its memory, and the object that the memory belongs to."""

    owner: Any
    address: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    on_device: bool
    stream: int  # of CUDA, that the owner's library works on

    def members(self, *, as_bytes: bool = False) -> Members:
        """As struct epx_python_matrix has it: rows are the first dimension, elements the others.

        ``as_bytes``: elements of a type that EPX does not have are bytes.
        """
        rows, columns = (self.shape[0], math.prod(self.shape[1:])) if self.shape else (1, 1)
        number = _TYPES.get(self.dtype.name, 0)
        if as_bytes and not 1 <= number <= 7:
            return self.address, rows, columns * self.dtype.itemsize, _BYTE
        return self.address, rows, columns, number or 99


def _on_host(name: str, array: Any) -> Array:
    if array.dtype.hasobject:
        raise EPXError(Code.TYPE, f"{name} has Python objects, which cannot be sent")
    dense = np.ascontiguousarray(array) if array.ndim else array
    return Array(dense, dense.ctypes.data, dense.shape, dense.dtype, False, 0)


def _is_dense(shape: tuple[int, ...], strides: tuple[int, ...] | None, element_bytes: int) -> bool:
    if strides is None or not math.prod(shape):
        return True
    wanted = element_bytes
    for length, stride in zip(reversed(shape), reversed(strides)):
        if length != 1 and stride != wanted:
            return False
        wanted *= length
    return True


def _by_cuda_interface(name: str, array: Any) -> Array:
    interface = array.__cuda_array_interface__
    shape, dtype = tuple(interface["shape"]), np.dtype(interface["typestr"])
    if isinstance(getattr(array, "dtype", None), np.dtype):
        dtype = array.dtype  # which may be bfloat16, a type that the interface lacks
    if not _is_dense(shape, interface.get("strides"), dtype.itemsize):
        raise EPXError(Code.BUFFER, f"{name} has gaps between its elements: make it contiguous")
    return Array(array, interface["data"][0] or 0, shape, dtype, True, current_stream(array))


def current_stream(array: Any) -> int:
    """The stream on which the library of an array in a GPU's memory works; 0, CUDA's default."""
    cupy = sys.modules.get("cupy")
    if cupy is not None and isinstance(array, cupy.ndarray):
        return int(cupy.cuda.get_current_stream().ptr)
    named = array.__cuda_array_interface__.get("stream")
    return 0 if named in (None, 1) else int(named)


def array_of(name: str, array: Any) -> Array:
    """The memory of an array, or of a copy without gaps of one on the host."""
    if isinstance(array, np.ndarray):
        return _on_host(name, array)
    if hasattr(array, "__cuda_array_interface__"):
        return _by_cuda_interface(name, array)
    if hasattr(array, "__array_interface__"):
        return _on_host(name, np.asarray(array))
    if not hasattr(array, "__dlpack__"):
        raise TypeError(f"{name} is a {type(array).__name__}, want an array of NumPy or alike")
    if array.__dlpack_device__()[0] == _CUDA:
        raise EPXError(Code.UNSUPPORTED, f"{name} is on a GPU and has no __cuda_array_interface__")
    return _on_host(name, np.from_dlpack(array))


class _Part:
    """Memory that a communicator reserved; it is given back with the last array that shows it."""

    def __init__(self, managed: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self._managed = managed
        address = ctypes.c_void_p.from_address(managed).value  # DLPack's structs begin with it
        self.__array_interface__ = {
            "shape": (math.prod(shape) * dtype.itemsize,),
            "typestr": "|u1",
            "data": (address, False),
            "version": 3,
        }

    def __del__(self) -> None:
        _give(self._managed)


def _in_reserved(shape: tuple[int, ...], dtype: np.dtype[Any], comm: Comm) -> Any:
    bytes = math.prod(shape) * dtype.itemsize
    managed = _take(comm._index, bytes) if comm._arena.is_open else None
    if not managed:
        return None
    return np.asarray(_Part(managed, shape, dtype)).view(dtype).reshape(shape)


def empty(like: Array, shape: tuple[int, ...], dtype: Any, comm: Comm | None = None) -> Any:
    """An empty array: NumPy's on the host, in reserved memory of ``comm`` if there is room.

    On a GPU it is one of the library that ``like`` is of.
    """
    kind = np.dtype(dtype)
    if not like.on_device:
        made = None if comm is None else _in_reserved(shape, kind, comm)
        return np.empty(shape, kind) if made is None else made
    library = sys.modules[type(like.owner).__module__.partition(".")[0]]
    try:
        return library.empty(shape, dtype=kind)
    except (AttributeError, TypeError) as error:
        raise EPXError(
            Code.UNSUPPORTED,
            f"{library.__name__} makes no arrays as NumPy does; for tensors there is epx.torch",
        ) from error
