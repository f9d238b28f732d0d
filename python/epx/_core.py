# SPDX-License-Identifier: BSD-3-Clause
"""Errors, MPI and operations: the C library by ctypes.

The compiled part is ``_glue*.so`` beside this file, or the file that PYTHON_EPX_GLUE names.
"""

from __future__ import annotations

import atexit
import ctypes
import enum
import os
import struct
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn, SupportsIndex, TypeVar

MAX_ERROR_STRING = 512
MAX_HINT_STRING = 64


class Code(enum.IntEnum):
    """The error codes of epx.h, EPX_ERR_ARG as Code.ARG and so on."""

    ARG = 1
    COMM = 2
    ROUTE = 3
    REQUEST = 4
    BUFFER = 5
    COUNT = 6
    TYPE = 7
    INFO = 8
    TRUNCATE = 9
    PENDING = 10
    IN_STATUS = 11
    TIMEOUT = 12
    NO_MEM = 13
    TRANSPORT = 14
    UNSUPPORTED = 15
    NOT_INITIALIZED = 16
    MPI = 17
    CUDA = 18
    INTERN = 19


class EPXError(RuntimeError):
    """An error of EPX: its text, with the values, and its ``code``, one of ``epx.Code``."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = Code(code)

    def __reduce__(self) -> tuple[type[EPXError], tuple[int, str]]:
        return EPXError, (int(self.code), str(self))


Itself = TypeVar("Itself", bound="Handle")


class Handle:
    """What the library knows by a number, which means nothing to another process.

    A copy is the same object: that of a module, for an average of its weights say, has the
    communicators and routes of the module. Pickling, also by torch.save, is refused.
    """

    def __copy__(self: Itself) -> Itself:
        return self

    def __deepcopy__(self: Itself, memo: object) -> Itself:
        return self

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise TypeError(
            f"cannot pickle {type(self).__module__}.{type(self).__name__}: it belongs to this "
            "process; make it where it is used"
        )


def _find_glue() -> str:
    chosen = os.environ.get("PYTHON_EPX_GLUE")
    if chosen:
        return chosen
    found = sorted(Path(__file__).parent.glob("_glue*.so"))
    if not found:
        raise ImportError(
            "epx: the compiled part, _glue.so, is not beside _core.py: install the package by "
            "`pip install ./python', or by `make install' after configure --enable-python"
        )
    return str(found[0])


_lib = ctypes.CDLL(_find_glue())


def _declare(name: str, *types: Any) -> Callable[..., int]:
    function = getattr(_lib, f"epx_python_{name}")
    function.argtypes = types
    function.restype = ctypes.c_int
    call: Callable[..., int] = function
    return call


_int_p = ctypes.POINTER(ctypes.c_int)
_init = _declare("init", _int_p)
_has_mpi_here = _declare("has_mpi")
_is_initialized = _declare("is_initialized")
_finalize = _declare("finalize")
_world = _declare("world", _int_p)
_node_rank = _declare("node_rank", _int_p)
_gather = _declare("gather", ctypes.c_char_p, ctypes.c_char_p, ctypes.c_int)
_run = _declare("run_in_slices", ctypes.c_char_p)
_start = _declare("start", ctypes.c_char_p, ctypes.POINTER(ctypes.c_int64))
_wait = _declare("wait", ctypes.c_int64, ctypes.c_void_p)
_drop_routing = _declare("drop_routing", ctypes.c_int64, ctypes.c_int64)
_lib.epx_python_unfinished.restype = ctypes.c_int64
for _name in ("abandon", "forget"):
    _function = getattr(_lib, f"epx_python_{_name}")
    _function.argtypes, _function.restype = (ctypes.c_int64,), None
_lib.epx_python_message.argtypes = (ctypes.c_char_p,)
_lib.epx_python_message.restype = None


def _raise(code: int) -> None:
    text = ctypes.create_string_buffer(MAX_ERROR_STRING)
    _lib.epx_python_message(text)
    raise EPXError(code, text.value.decode(errors="replace"))


def _try(code: int) -> None:
    if code:
        _raise(code)


def _packer(name: str, num_members: int) -> Callable[..., bytes]:
    """What packs the members of a struct of glue.h, each of 8 bytes, one behind the other."""
    packer = struct.Struct(f"={num_members}q")
    size = ctypes.c_size_t.in_dll(_lib, f"epx_python_{name}_bytes").value
    if size != packer.size:
        raise ImportError(
            f"epx: the compiled part, {_lib._name}, is of another version: its {name} has {size} "
            f"bytes, that of the modules {packer.size}"
        )
    return packer.pack


_pack = _packer("operation", 9 + 12 * 4)  # 9 members, then 12 tensors of 4


_UNFINISHED = -1  # no error: a slice of time is over, so that Python may see its signals


def run(members: Sequence[int]) -> int:
    """Run one operation, whose members are those of struct epx_python_operation in glue.h.

    Returns 0, or the number of an operation that takes long, which wait() ends.
    """
    packed = _pack(*members)
    while (code := _run(packed)) == _UNFINISHED:
        if number := unfinished():
            return number
    if code:
        _raise(code)
    return 0


def start(members: Sequence[int]) -> int:
    """Begin an operation as run() does, and return the number by which wait() ends it."""
    number, packed = ctypes.c_int64(), _pack(*members)
    while (code := _start(packed, number)) == _UNFINISHED:
        pass
    _try(code)
    return number.value


def wait(number: int, stream: int) -> None:
    """End an operation that began; on device memory the stream waits, and the host does not.

    After an EPXError it has ended, too. Another exception is of a signal, as KeyboardInterrupt is:
    then the operation goes on, and can be waited for again.
    """
    while (code := _wait(number, stream)) == _UNFINISHED:
        pass
    try:
        _try(code)
    finally:
        _lib.epx_python_forget(number)


def unfinished() -> int:
    """The number of what this thread ran or started last, if it goes on; else 0."""
    number: int = _lib.epx_python_unfinished()
    return number


def drop_routing(route: int, key: int) -> None:
    """Have the next operation on the route bring its own routing, on all ranks alike."""
    _try(_drop_routing(route, key))


def abandon(number: int) -> None:
    """Do not write what the routing of an operation shows: the tensors for that may be gone."""
    _lib.epx_python_abandon(number)


_LAUNCHER_VARIABLES = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID")
_process = 0  # that MPI and all communicators belong to; 0 = none yet
_has_mpi = False  # which the process initialized, or found initialized


def is_child() -> bool:
    """Whether this process was forked off by the one that MPI and all communicators belong to."""
    return _process not in (0, os.getpid())


def begin() -> None:
    """Note that this process has what belongs to it alone, or refuse that to one forked off."""
    global _process
    if is_child():
        raise EPXError(
            Code.NOT_INITIALIZED, "this process was forked off: MPI belongs to its parent"
        )
    _process = os.getpid()


def has_launcher() -> bool:
    """Whether what starts MPI, mpiexec or srun, started this process."""
    return any(name in os.environ for name in _LAUNCHER_VARIABLES)


def has_mpi() -> bool:
    """Whether MPI can be used here: its library is loaded to see."""
    return bool(_has_mpi_here())


def is_mpi_running() -> bool:
    """Whether MPI is initialized and not finalized."""
    return bool(_is_initialized())


def _leave() -> None:
    # A rank that ends by an exception must not wait in MPI_Finalize for ranks that wait for it: it
    # leaves without, and its launcher ends the others.
    if getattr(sys, "last_value", None) is None and not is_child():
        sys.stdout.flush()
        _finalize()


def init_mpi() -> None:
    """Initialize MPI if nobody has; then it is finalized when Python exits."""
    global _has_mpi
    begin()
    if _has_mpi:
        return
    if "TORCHELASTIC_RUN_ID" in os.environ and not has_launcher():
        raise EPXError(
            Code.NOT_INITIALIZED,
            "torchrun starts no MPI, which this call needs: start the program by mpiexec or srun",
        )
    here = ctypes.c_int(0)
    _try(_init(here))
    if here.value:
        atexit.register(_leave)
    _has_mpi = True


def world() -> tuple[int, int]:
    """This rank in MPI_COMM_WORLD, and the ranks there. Local."""
    init_mpi()
    place = (ctypes.c_int * 2)()
    _try(_world(place))
    return place[0], place[1]


def node_rank() -> int:
    """This rank among those of its node; collective over MPI_COMM_WORLD."""
    init_mpi()
    rank = ctypes.c_int()
    _try(_node_rank(rank))
    return rank.value


def gather(mine: bytes, size: int) -> list[bytes]:
    """The bytes of all ranks of MPI_COMM_WORLD, equally many from each; collective over it."""
    init_mpi()
    every = ctypes.create_string_buffer(len(mine) * size)
    _try(_gather(mine, every, len(mine)))
    return [every.raw[at : at + len(mine)] for at in range(0, len(every.raw), len(mine))]
