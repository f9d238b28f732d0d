# SPDX-License-Identifier: BSD-3-Clause
"""Communicators: which ranks, their memory, what they tell."""

from __future__ import annotations

import contextlib
import ctypes
import operator
import sys
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any, NamedTuple, Protocol, cast

from epx import _core, _start
from epx._arena import Arena, Reserved
from epx._core import (
    MAX_HINT_STRING,
    Code,
    EPXError,
    Handle,
    _declare,
    _int_p,
    _lib,
    _try,
    init_mpi,
    is_child,
    world,
)

_fortran_world = _declare("fortran_world")
_comm_create = _declare(
    "comm_create", ctypes.c_int, _int_p, ctypes.c_int, ctypes.POINTER(ctypes.c_char_p), _int_p
)
_comm_create_from = _declare(
    "comm_create_from",
    ctypes.c_int,
    ctypes.c_int,
    _start.ALLGATHER,
    ctypes.POINTER(ctypes.c_char_p),
    _int_p,
)
_device_choose = _declare("device_choose", ctypes.c_int, _int_p)
_lib.epx_python_device_leave.argtypes = (ctypes.c_int,)
_lib.epx_python_device_leave.restype = None
_lib.epx_python_timeout_ms.argtypes = (ctypes.POINTER(ctypes.c_char_p),)
_lib.epx_python_timeout_ms.restype = ctypes.c_int64
_comm_shrink = _declare("comm_shrink", ctypes.c_int, _int_p)
_comm_free = _declare("comm_free", ctypes.c_int)
_comm_place = _declare("comm_place", ctypes.c_int, _int_p, _int_p)
_comm_ranks = _declare("comm_ranks", ctypes.c_int, _int_p)
_comm_hint = _declare("comm_hint", ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p)
_comm_check = _declare("comm_check", ctypes.c_int)
_uint64_p = ctypes.POINTER(ctypes.c_uint64)
_comm_stats = _declare("comm_stats", ctypes.c_int, _uint64_p)
_comm_waits = _declare("comm_waits", ctypes.c_int, _uint64_p, _uint64_p)
_comm_largest = _declare(
    "comm_largest", ctypes.c_int, ctypes.c_int64, ctypes.POINTER(ctypes.c_int64)
)


class _Freed(Protocol):
    """What a communicator knows of its routes and graphs."""

    def free(self) -> None: ...


class Left(NamedTuple):
    """An operation that a signal took from its caller, in ``works`` of its communicator."""

    number: int
    tensors: object  # that the operation still uses

    def wait(self) -> None:
        """Wait for the operation; nobody wants its results."""
        _core.wait(self.number, 0)


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


def _ranks_of(group: object) -> list[int]:
    """The ranks in a group, of those of its launcher: ranks as they are, or a ProcessGroup."""
    if isinstance(group, Iterable) and not hasattr(group, "py2f"):  # as a thing of MPI has
        return [operator.index(rank) for rank in group]
    torch = sys.modules.get("torch.distributed")
    if torch is not None and isinstance(group, torch.ProcessGroup):
        return [int(rank) for rank in torch.get_process_group_ranks(group)]
    raise TypeError(
        f"group is a {type(group).__name__}, want None, ranks, an mpi4py.MPI.Comm or "
        "a torch.distributed.ProcessGroup"
    )


def _check_mpi_ranks(group: object, ranks: list[int]) -> None:
    rank, size = world()
    torch = sys.modules.get("torch.distributed")
    if torch is not None and isinstance(group, torch.ProcessGroup) and torch.get_rank() != rank:
        raise EPXError(
            Code.ARG,
            f"rank {torch.get_rank()} of torch.distributed is rank {rank} of MPI: call "
            "epx.launch.environment() before init_process_group()",
        )
    _start.check_ranks(ranks, rank, size)


def _is_of_mpi(group: object) -> bool:
    return isinstance(group, getattr(sys.modules.get("mpi4py.MPI"), "Comm", ()))


@contextlib.contextmanager
def _current_device(device: int | None) -> Iterator[None]:
    if device is None:
        yield
        return
    chosen = ctypes.c_int()
    _try(_device_choose(operator.index(device), chosen))
    try:
        yield
    finally:
        _lib.epx_python_device_leave(chosen)


def _launch_once(torch: Any) -> None:
    """Launches the kernels that dispatch launches by torch, and reads back an item of each type."""
    from epx._rank_rows import add_up_ranks

    for top_k in (1, 2):
        for first in range(4):  # where the counts lie behind a multiple of 16 bytes
            counts = torch.ones(8, device="cuda", dtype=torch.int32)
            experts = torch.zeros((8, top_k), device="cuda", dtype=torch.int32)
            add_up_ranks(counts[first : first + 2], experts, 8)
    for dtype in (torch.bool, torch.float16, torch.float32, torch.float64):
        torch.zeros(1, device="cuda", dtype=dtype).item()  # waits for the kernels, too


def _prepare_torch(device: int | None, *, messages: bool) -> None:
    """Has torch make what it makes at first use: a pool of streams, pinned memory for items.

    It also launches the kernels that dispatch launches by torch, and, if the host launches messages
    while operations wait for them, starts cuBLAS. CUDA may keep the host in such a call, or the GPU
    in such a launch, until the GPU is idle, and so the messages. Waits for nothing that is queued,
    and fails for nothing.
    """
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return
    with (
        contextlib.suppress(RuntimeError),
        torch.cuda.device(torch.cuda.current_device() if device is None else device),
        torch.cuda.stream(torch.cuda.Stream()),
    ):
        _launch_once(torch)
        if messages:
            factor = torch.ones((2, 2), device="cuda", dtype=torch.float32)
            torch.mm(factor, factor)  # cuBLAS starts at a process's first product


class Comm(Handle):
    """A communicator of EPX.

    Made and closed by all its ranks together. ``group`` says which: None is all that were started
    together; else ranks of those, an ``mpi4py.MPI.Comm``, or a ``ProcessGroup`` of torch. What
    started them is mpiexec or srun, then by MPI; or torchrun, or a program that initialized
    torch.distributed or jax.distributed, then without. ``store`` with ``rank`` and ``size`` says it
    without any of them: size processes, which have ranks from 0 on and the same
    ``torch.distributed.Store``, or the client of jax.distributed. Threads that make communicators
    at a time want a ``PrefixStore`` each.

    Hints are those of epx_hints(7) without ``epx_``: ``Comm(timeout_ms=60000)``. ``device`` is the
    number of this rank's GPU, of those that the process sees; without it the thread's current
    device is taken, which ``torch.cuda.set_device`` sets. JAX sets none:
    ``Comm(memory="cuda:device", device=jax.local_devices()[0].local_hardware_id)``.

    Attributes: ``rank`` of this process and ``size``, the ranks; ``ranks``, of each its rank in
    what ``shrink`` made the communicator from, else the rank itself; ``memory``, the memory space
    of all buffers, "system" or that of a GPU, and ``on_device``, whether it is a GPU's; ``works``,
    the operations that began and have not ended.
    """

    def __init__(
        self,
        group: object = None,
        *,
        store: object = None,
        rank: int | None = None,
        size: int | None = None,
        device: int | None = None,
        **hints: object,
    ) -> None:
        words = [w for key, value in hints.items() for w in (f"epx_{key}", str(value))]
        if any("\0" in word for word in words):
            raise EPXError(Code.INFO, f"a hint or its value has a NUL: {words}")
        texts = (ctypes.c_char_p * (len(words) + 1))(*[word.encode() for word in words], None)
        meeting = self._meet(group, store, rank, size)
        with _current_device(device):
            if meeting is None:
                index = self._create(group, texts)
            else:
                index = self._create_from(meeting, texts)
        self._hold(index, meeting)
        self._refuse_unknown(hints)
        if self.on_device:
            _prepare_torch(device, messages=self.hint("transport") in ("nccl", "ucx"))

    def _hold(self, index: int, meeting: _start.Meeting | None) -> None:
        """Be the communicator of that number in the glue, which calls the meeting, if any."""
        self._index, self._meeting = index, meeting
        self._routes: list[_Freed] = []
        self._graphs: list[_Freed] = []
        self.works: list[Any] = []
        self._host_syncs = 0
        own, size = ctypes.c_int(), ctypes.c_int()
        _try(_comm_place(index, own, size))
        self.rank, self.size = own.value, size.value
        parents = (ctypes.c_int * self.size)()
        _try(_comm_ranks(index, parents))
        self.ranks = tuple(parents)
        self._arena = Arena(index)
        self.memory = self.hint("memory")
        self.on_device = self.memory.startswith("cuda")

    @staticmethod
    def _meet(
        group: object, store: object, rank: int | None, size: int | None
    ) -> _start.Meeting | None:
        """How ranks that MPI did not start meet; None for those that it did."""
        _core.begin()
        if store is not None:
            if group is not None:
                raise TypeError("want either group or store")
            return _start.by_store(store, rank, size)
        if rank is not None or size is not None:
            raise TypeError("rank and size are for a store")
        if _is_of_mpi(group):
            return None
        return _start.by_launcher(None if group is None else _ranks_of(group))

    @staticmethod
    def _create(group: object, hints: Any) -> int:
        init_mpi()
        fortran, ranks = 0, []
        if group is None:
            fortran = _fortran_world()
        elif _is_of_mpi(group):
            fortran = cast(Any, group).py2f()
        else:
            ranks = _ranks_of(group)
            if not ranks:
                raise EPXError(Code.ARG, "a communicator of no ranks")
            _check_mpi_ranks(group, ranks)
        index = ctypes.c_int(-1)
        numbers = (ctypes.c_int * max(len(ranks), 1))(*ranks)
        _try(_comm_create(fortran, numbers, len(ranks), hints, index))
        return index.value

    @staticmethod
    def _create_from(meeting: _start.Meeting, hints: Any) -> int:
        index = ctypes.c_int(-1)
        meeting.timeout_ms = _lib.epx_python_timeout_ms(hints)
        code = _comm_create_from(meeting.rank, meeting.size, meeting.allgather, hints, index)
        if code:
            meeting.give_up()
        if code and meeting.error is not None:
            raise meeting.error
        _try(code)
        meeting.succeed()
        return index.value

    def _refuse_unknown(self, hints: dict[str, object]) -> None:
        unknown = [key for key in hints if not self.hint(key)]
        if unknown:
            self.close()
            raise TypeError(f"EPX has no hint {unknown[0]!r}; epx_hints(7) lists them")

    def hint(self, name: str) -> str:
        """The value of a hint in force, such as ``hint("transport")``; "" if there is none."""
        value = ctypes.create_string_buffer(MAX_HINT_STRING)
        _try(_comm_hint(self._index, f"epx_{name}".encode(), value))
        return value.value.decode()

    def _keep_until_ended(self, tensors: object) -> None:
        """Keep the tensors of what this thread began last, if that goes on, until it has ended."""
        number = _core.unfinished()
        if number:
            _core.abandon(number)
            self.works.append(Left(number, tensors))

    def check(self) -> None:
        """Raise the first error since the last check, though a call may have raised it. Local."""
        _try(_comm_check(self._index))

    def stats(self) -> Stats:
        """What this rank has counted. Local."""
        counters = (ctypes.c_uint64 * len(Stats._fields))()
        _try(_comm_stats(self._index, counters))
        made = Stats(*counters)
        return made._replace(host_syncs=made.host_syncs + self._host_syncs)

    def note_host_sync(self) -> None:
        """Count one more wait of the host for the GPU, which a caller asked for. Local."""
        self._host_syncs += 1

    def largest(self, value: int) -> int:
        """The largest of the values of all ranks. Collective, blocking; not for every step.

        ``Route(comm, ..., max_tokens=comm.largest(len(x)))`` has room for the tokens of all.
        """
        made = ctypes.c_int64()
        _try(_comm_largest(self._index, operator.index(value), made))
        return made.value

    def empty(self, shape: int | Iterable[int], dtype: Any) -> Any:
        """An empty tensor of torch, in reserved memory if there is room, else ordinary. Local.

        On the host or on the communicator's GPU. A graph that is captured has a pool of its own.
        """
        from epx import _window

        sizes = tuple(shape) if isinstance(shape, Iterable) else (shape,)
        shape = tuple(operator.index(size) for size in sizes)
        return _window.empty_in(self._arena, shape, dtype, on_device=self.on_device)

    def waits(self) -> memoryview[int]:
        """How long this rank has waited for each other one: EPX_Comm_get_waits(3). Local.

        A matrix of two rows and a column a rank, as ``numpy.asarray`` takes it: ``waits[0, r]`` are
        the nanoseconds waited for rank r, ``waits[1, r]`` the operations in which it came last.
        """
        counters = (ctypes.c_uint64 * (2 * self.size))()
        ns = ctypes.cast(counters, _uint64_p)
        operations = ctypes.cast(ctypes.byref(counters, 8 * self.size), _uint64_p)
        _try(_comm_waits(self._index, ns, operations))
        return memoryview(counters).cast("B").cast("Q", (2, self.size))

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
        self._arena.reserve(bytes, on_device=self.on_device)

    def reserved(self) -> Reserved:
        """How much this rank reserved, and how much of it is in use. Local."""
        return self._arena.reserved()

    def is_reserved(self, address: int, bytes: int) -> bool:
        """Whether so many bytes from an address on lie in what this rank reserved. Local.

        Of a tensor: ``comm.is_reserved(tensor.data_ptr(), tensor.nbytes)``.
        """
        return self._arena.has(address, bytes)

    @property
    def pool(self) -> Any:
        """The torch.cuda.MemPool over the reserved memory, for ``torch.cuda.use_mem_pool``.

        ``epx.torch`` uses it by itself. Captures want ``graph_pool``.
        """
        return self._arena.pools().get("eager")

    @property
    def graph_pool(self) -> Any:
        """The torch.cuda.MemPool over the reserved memory for CUDA graphs.

        ``torch.cuda.graph(g, pool=comm.graph_pool.id)`` captures tensors that lie there. Graphs of
        one pool share memory: replay them in the order of their captures, one at a time, as torch
        wants it. A graph keeps its memory until it is deleted.
        """
        return self._arena.pools().get("graphs")

    def shrink(self) -> Comm:
        """Make a communicator of the ranks that live: EPX_Comm_shrink(3). Collective over them.

        After a ``Code.TIMEOUT``, or of a whole communicator, on host or device memory. Ranks keep
        their order, and ``ranks`` of the new one tells which they were. Ranks that die during the
        call may make it a ``Code.TIMEOUT`` on all; call it again. On a GPU it waits for what is
        queued there.

        Operations of this communicator end with ``Code.TIMEOUT``, its routes and graphs can only be
        freed, and ``close`` is local. No other rank stores into its memory any more: tensors there
        keep their values. Routes, graphs and reserved memory are made anew on the new one, and what
        ``jax.jit`` traced with an old route is traced anew with a new one.
        """
        index = ctypes.c_int(-1)
        _try(_comm_shrink(self._index, index))
        smaller = Comm.__new__(Comm)
        smaller._hold(index.value, None)
        return smaller

    def close(self) -> None:
        """Free what was reserved, routes and graphs in the order of their making, and the rest.

        Collective. A second call does nothing, nor does one in a forked child. If on any rank
        tensors lie in reserved memory, which autograd's graphs may hold, EPXError with Code.PENDING
        is raised on all ranks and says how many on which rank; the communicator can be used on, and
        closed later.
        """
        if self._index < 0 or is_child():
            return
        while self.works:
            work = self.works[0]
            with contextlib.suppress(EPXError):  # nobody wants its results
                work.wait()
            if self.works and self.works[0] is work:
                del self.works[0]
            del work  # and what it has in reserved memory
        self._arena.release()
        for made in [*self._routes, *self._graphs]:
            made.free()
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
