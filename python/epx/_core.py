# SPDX-License-Identifier: BSD-3-Clause
"""Communicators, routes and errors: the C library by ctypes.

The compiled part is ``_glue*.so`` beside this file, or the file that PYTHON_EPX_GLUE names.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import enum
import gc
import operator
import os
import struct
import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

MAX_ERROR_STRING = 512
MAX_INFO_VAL = 1024


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
    """An error of EPX: its text, with the values, and its ``code``."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = Code(code)

    def __reduce__(self) -> tuple[type[EPXError], tuple[int, str]]:
        return EPXError, (int(self.code), str(self))


class Stats(NamedTuple):
    """What this rank has counted since the communicator was made: EPX_Comm_get_stats(3)."""

    calls: int
    rows_self: int
    rows_node: int
    rows_network: int
    bytes_self: int
    bytes_node: int
    bytes_network: int
    dropped_rows: int
    timeouts: int
    host_syncs: int


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
_finalize = _declare("finalize")
_world = _declare("world", _int_p)
_node_rank = _declare("node_rank", _int_p)
_fortran_world = _declare("fortran_world")
_gather = _declare("gather", ctypes.c_char_p, ctypes.c_char_p, ctypes.c_int)
_comm_create = _declare(
    "comm_create", ctypes.c_int, _int_p, ctypes.c_int, ctypes.POINTER(ctypes.c_char_p), _int_p
)
_comm_free = _declare("comm_free", ctypes.c_int)
_comm_place = _declare("comm_place", ctypes.c_int, _int_p, _int_p)
_comm_hint = _declare("comm_hint", ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p)
_comm_check = _declare("comm_check", ctypes.c_int)
_comm_stats = _declare("comm_stats", ctypes.c_int, ctypes.POINTER(ctypes.c_uint64))
_route_create = _declare("route_create", ctypes.c_char_p, _int_p)
_route_free = _declare("route_free", ctypes.c_int)
_route_shape = _declare("route_shape", ctypes.c_int, ctypes.POINTER(ctypes.c_int64))
_run = _declare("run", ctypes.c_char_p)
_start = _declare("start", ctypes.c_char_p, ctypes.POINTER(ctypes.c_int64))
_wait = _declare("wait", ctypes.c_int64, ctypes.c_void_p)
_reserve = _declare("reserve", ctypes.c_int, ctypes.c_int64)
_reserved = _declare("reserved", ctypes.c_int, ctypes.POINTER(ctypes.c_int64))
_is_reserved = _declare("is_reserved", ctypes.c_int, ctypes.c_void_p, ctypes.c_int64)
_release = _declare("release", ctypes.c_int)
_pool = _declare("pool", ctypes.c_int, _int_p)
_lib.epx_python_message.argtypes = (ctypes.c_char_p,)
_lib.epx_python_message.restype = None


def _raise(code: int) -> None:
    text = ctypes.create_string_buffer(MAX_ERROR_STRING)
    _lib.epx_python_message(text)
    raise EPXError(code, text.value.decode(errors="replace"))


def _try(code: int) -> None:
    if code:
        _raise(code)


# How struct epx_python_operation of glue.h lies in memory: 8 members, then 6 tensors of 4.
_pack = struct.Struct("=32q").pack


def run(members: tuple[int, ...]) -> None:
    """Run one operation, whose members are those of struct epx_python_operation in glue.h."""
    code = _run(_pack(*members))
    if code:
        _raise(code)


def start(members: tuple[int, ...]) -> int:
    """Begin an operation as run() does, and return the number by which wait() ends it."""
    number = ctypes.c_int64()
    _try(_start(_pack(*members), number))
    return number.value


def wait(number: int, stream: int) -> None:
    """End an operation that began; on device memory the stream waits, and the host does not."""
    _try(_wait(number, stream))


_LAUNCHER_VARIABLES = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID")
_is_initialized = False


def _leave() -> None:
    # A rank that ends by an exception must not wait in MPI_Finalize for ranks that wait for it: it
    # leaves without, and its launcher ends the others.
    if getattr(sys, "last_value", None) is None:
        sys.stdout.flush()
        _finalize()


def init_mpi() -> None:
    """Initialize MPI if nobody has; then it is finalized when Python exits."""
    global _is_initialized
    if _is_initialized:
        return
    by_torchrun = "TORCHELASTIC_RUN_ID" in os.environ
    if by_torchrun and not any(name in os.environ for name in _LAUNCHER_VARIABLES):
        raise EPXError(
            Code.NOT_INITIALIZED,
            "torchrun starts no MPI, which EPX needs: start the program by mpiexec or srun and "
            "call epx.launch.environment() before torch.distributed.init_process_group()",
        )
    here = ctypes.c_int(0)
    _try(_init(here))
    if here.value:
        atexit.register(_leave)
    _is_initialized = True


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


def _ranks_of(group: object) -> list[int]:
    """The ranks of MPI_COMM_WORLD in a group: ranks as they are, or a ProcessGroup of torch."""
    if isinstance(group, Iterable):
        return [int(rank) for rank in group]
    torch = sys.modules.get("torch.distributed")
    if torch is not None and isinstance(group, torch.ProcessGroup):
        if torch.get_rank() != world()[0]:
            raise EPXError(
                Code.ARG,
                f"rank {torch.get_rank()} of torch.distributed is rank {world()[0]} of MPI: call "
                "epx.launch.environment() before init_process_group()",
            )
        return [int(rank) for rank in torch.get_process_group_ranks(group)]
    raise TypeError(
        f"group is a {type(group).__name__}, want None, ranks, an mpi4py.MPI.Comm or "
        "a torch.distributed.ProcessGroup"
    )


_pools_lock = threading.Lock()


class Comm:
    """A communicator of EPX.

    Made and closed by all its ranks together. ``group`` says which: None is all of
    MPI_COMM_WORLD; else ranks of it, an ``mpi4py.MPI.Comm``, or a ``ProcessGroup`` of torch.
    Hints are those of epx(7) without ``epx_``: ``Comm(timeout_ms=60000)``.
    """

    def __init__(self, group: object = None, **hints: object) -> None:
        self._index = -1
        self._routes: list[Route] = []
        self.works: list[Any] = []
        """Operations that began and have not ended."""
        self._has_arenas = False
        self.has_reserved = False  # and tensors may be put there
        self._pool = -1
        self._pools: Any = None
        init_mpi()
        fortran, ranks = 0, []
        if group is None:
            fortran = _fortran_world()
        elif hasattr(group, "py2f"):
            fortran = group.py2f()
        else:
            ranks = _ranks_of(group)
            if not ranks:
                raise EPXError(Code.ARG, "a communicator of no ranks")
        words = [w for key, value in hints.items() for w in (f"epx_{key}", str(value))]
        index = ctypes.c_int(-1)
        _try(
            _comm_create(
                fortran,
                (ctypes.c_int * max(len(ranks), 1))(*ranks),
                len(ranks),
                (ctypes.c_char_p * (len(words) + 1))(*[word.encode() for word in words], None),
                index,
            )
        )
        self._index = index.value
        rank, size = ctypes.c_int(), ctypes.c_int()
        _try(_comm_place(self._index, rank, size))
        self.rank, self.size = rank.value, size.value
        self._refuse_unknown(hints)
        self.memory = self.hint("memory")
        """The memory space of all buffers: system, or that of a GPU."""
        self.on_device = self.memory.startswith("cuda")

    def _refuse_unknown(self, hints: dict[str, object]) -> None:
        unknown = [key for key in hints if not self.hint(key)]
        if unknown:
            self.close()
            raise TypeError(f"EPX has no hint {unknown[0]!r}; epx(7) lists them")

    def hint(self, name: str) -> str:
        """The value of a hint in force, such as ``hint("transport")``; "" if there is none."""
        value = ctypes.create_string_buffer(MAX_INFO_VAL + 1)
        _try(_comm_hint(self._index, f"epx_{name}".encode(), value))
        return value.value.decode()

    def check(self) -> None:
        """Raise the first error since the last check, though a call may have raised it. Local."""
        _try(_comm_check(self._index))

    def stats(self) -> Stats:
        """What this rank has counted. Local."""
        counters = (ctypes.c_uint64 * len(Stats._fields))()
        _try(_comm_stats(self._index, counters))
        return Stats(*counters)

    def reserve(self, bytes: int) -> None:
        """Reserve so many bytes of memory that the other ranks store into. Collective, blocking.

        ``epx.torch`` puts tensors there that ranks receive into, so that rows arrive without a
        copy: the rows of dispatch, and on GPUs the gradient of combine's ``y`` too. Such a tensor
        has capacity * H elements; reserve for all that live at a time. Those that find no room are
        ordinary tensors: every result is the same bytes. The memory is that of the communicator,
        the host's or the GPU's. Bytes may differ by rank and be 0; a direct transport takes the
        largest of all ranks on each. Further calls add to it; close() frees it.

        Raises EPXError: Code.COUNT for a negative size, NO_MEM on all ranks if one of them cannot
        have so much, COMM for a closed communicator.
        """
        size = operator.index(bytes)
        if not -(2**63) <= size < 2**63:
            raise EPXError(Code.NO_MEM, f"reserve: {size} bytes, of which no machine has so many")
        _try(_reserve(self._index, size))
        self._has_arenas = True
        if self.hint("memory") != "system":
            index = ctypes.c_int(-1)
            _try(_pool(self._index, index))
            self._pool = index.value
        self.has_reserved = True

    def reserved(self) -> Reserved:
        """How much this rank reserved, and how much of it is in use. Local."""
        counts = (ctypes.c_int64 * len(Reserved._fields))()
        _try(_reserved(self._index, counts))
        return Reserved(*counts)

    def is_reserved(self, address: int, bytes: int) -> bool:
        """Whether so many bytes from an address on lie in what this rank reserved. Local.

        Of a tensor: ``comm.is_reserved(tensor.data_ptr(), tensor.nbytes)``.
        """
        return bool(_is_reserved(self._index, address, bytes))

    @property
    def pool(self) -> Any:
        """The torch.cuda.MemPool over the reserved memory, for ``torch.cuda.use_mem_pool``.

        ``epx.torch`` uses it by itself. Captures want ``graph_pool``.
        """
        return self._window_pools().get("eager")

    @property
    def graph_pool(self) -> Any:
        """The torch.cuda.MemPool over the reserved memory for CUDA graphs.

        ``torch.cuda.graph(g, pool=comm.graph_pool.id)`` captures tensors that lie there. Graphs of
        one pool share memory: replay them in the order of their captures, one at a time, as torch
        wants it. A graph keeps its memory until it is deleted.
        """
        return self._window_pools().get("graphs")

    def _window_pools(self) -> Any:
        if self._pool < 0:
            raise EPXError(Code.UNSUPPORTED, "there is no pool before reserve() on GPU memory")
        with _pools_lock:
            if self._pools is None:
                from epx import _window

                self._pools = _window.Pools(self.reserved().device, self._pool)
            return self._pools

    def _unreserve(self) -> None:
        if not self._has_arenas:
            return
        if self.reserved().parts:
            gc.collect()  # cycles may hold tensors
        if self._pools is not None:
            self._pools.drop()
            if self.reserved().parts:
                self._pools.trim()
        _try(_release(self._index))
        self._has_arenas = self.has_reserved = False
        self._pool, self._pools = -1, None

    def close(self) -> None:
        """Free what was reserved, the routes in the order in which they were made, and the rest.

        Collective. A second call does nothing. If on any rank tensors lie in reserved memory, which
        autograd's graphs may hold, EPXError with Code.PENDING is raised on all ranks and says how
        many on which rank; the communicator can be used on, and closed later.
        """
        if self._index < 0:
            return
        for work in list(self.works):
            with contextlib.suppress(EPXError):  # nobody wants its results
                work.wait()
        self._unreserve()
        for route in list(self._routes):
            route.free()
        code = _comm_free(self._index)
        if code != Code.PENDING:  # the communicator is gone
            self._index = -1
        _try(code)

    def __enter__(self) -> Comm:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # After an error other ranks may be elsewhere: nobody must wait for this one to close.
        if kind is None:
            self.close()


_LAYOUTS = {"expert": 1, "rank": 2}
_OVERFLOWS = {"error": 1, "drop": 2}


def _choice(name: str, value: str, choices: dict[str, int]) -> int:
    if value not in choices:
        raise EPXError(Code.ARG, f"{name} is {value!r}, want one of {', '.join(choices)}")
    return choices[value]


class Route:
    """Who sends which row where: EPX_Route_create(3). Made and freed by all ranks together.

    ``experts`` of all ranks; ``top_k`` ids a token; ``max_tokens`` of any rank in one dispatch;
    ``alignment`` of the rows of an expert; ``capacity``, rows that this rank receives at most, None
    for the worst case; ``layout`` "expert" (a row for each token and choice, by expert) or "rank"
    (a row for each token and rank, by rank); ``overflow`` "error" or "drop"; ``zero_unused``
    zeroes the rows that nothing arrives in.
    """

    def __init__(
        self,
        comm: Comm,
        experts: int,
        top_k: int,
        max_tokens: int,
        alignment: int = 1,
        capacity: int | None = None,
        layout: str = "expert",
        overflow: str = "error",
        zero_unused: bool = False,
    ) -> None:
        self.comm, self.experts, self.top_k, self.max_tokens = comm, experts, top_k, max_tokens
        self.alignment, self.layout, self.overflow = alignment, layout, overflow
        self.zero_unused = bool(zero_unused)
        attr = struct.pack(
            "=9q",
            comm._index,
            experts,
            top_k,
            max_tokens,
            alignment,
            capacity or 0,
            _choice("layout", layout, _LAYOUTS),
            _choice("overflow", overflow, _OVERFLOWS),
            self.zero_unused,
        )
        index = ctypes.c_int(-1)
        _try(_route_create(attr, index))
        self.index = index.value
        shape = (ctypes.c_int64 * 3)()
        _try(_route_shape(self.index, shape))
        self.max_capacity, self.local_experts, self.first_expert = shape
        self.capacity = 0 if capacity == 0 else self.max_capacity  # in C 0 is the worst case
        self.is_freed = False
        comm._routes.append(self)
        routes[self.index] = self

    def set_capacity(self, capacity: int) -> None:
        """From the next dispatch on this rank receives at most so many rows. Local.

        Rows are [capacity, ...] then. An earlier routing keeps what it had.
        """
        if not 0 <= capacity <= self.max_capacity:
            raise EPXError(
                Code.ARG, f"capacity is {capacity}, want 0 to {self.max_capacity}, the route's own"
            )
        self.capacity = capacity

    def free(self) -> None:
        """Give the route back. Collective. A second call does nothing."""
        if self.is_freed:
            return
        _try(_route_free(self.index))
        self.is_freed = True
        self.comm._routes.remove(self)
        del routes[self.index]


routes: dict[int, Route] = {}
"""The routes that are not freed, by index: ops know a route by that number."""
