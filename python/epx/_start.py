# SPDX-License-Identifier: BSD-3-Clause
"""How ranks meet that MPI did not start: by a store of torch.distributed or of jax.distributed.

A store holds bytes by keys, which any rank sets and any rank waits for. The first contact of
EPX_Comm_create_from(3) goes by it, and the agreement of Comm.close(); rows never do.
"""

from __future__ import annotations

import collections
import contextlib
import ctypes
import os
import sys
import time
from datetime import timedelta
from typing import Any, ClassVar

from epx import _core
from epx._core import Code, EPXError

ALLGATHER = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p
)
_TORCHRUN = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_FOR_EVER_MS = 2**31 - 1
_RANKS_NAMED = 8
_torchrun_store: Any = None  # rank 0 serves it as long as it lives


class _TorchKeys:
    """The keys of a group in a torch.distributed.Store."""

    def __init__(self, store: Any, name: str) -> None:
        self._store = sys.modules["torch.distributed"].PrefixStore(f"epx/{name}", store)

    def count(self, rank: int, more: int) -> int:
        """How many communicators this rank has made by these keys, with so many more."""
        return int(self._store.add(f"made/{rank}", more))

    def set(self, key: str, value: bytes) -> None:
        self._store.set(key, value)

    def get(self, key: str, timeout_ms: int) -> bytes:
        self._store.wait([key], timedelta(milliseconds=timeout_ms))
        return bytes(self._store.get(key))

    def has(self, key: str) -> bool:
        return bool(self._store.check([key]))

    def delete(self, key: str) -> None:
        self._store.delete_key(key)


class _JaxKeys:
    """The keys of a group at the coordinator of jax.distributed."""

    _made: ClassVar[collections.Counter[str]] = collections.Counter()

    def __init__(self, client: Any, name: str) -> None:
        self._client, self._name = client, name

    def count(self, rank: int, more: int) -> int:
        """How many communicators this rank has made by these keys, with so many more."""
        self._made[f"{self._name}/{rank}"] += more
        return self._made[f"{self._name}/{rank}"]

    def set(self, key: str, value: bytes) -> None:
        self._client.key_value_set_bytes(f"epx/{self._name}/{key}", value)

    def get(self, key: str, timeout_ms: int) -> bytes:
        whole = f"epx/{self._name}/{key}"
        return bytes(self._client.blocking_key_value_get_bytes(whole, timeout_ms))

    def has(self, key: str) -> bool:
        try:
            self.get(key, 1)
        except RuntimeError:
            return False
        return True

    def delete(self, key: str) -> None:
        self._client.key_value_delete(f"epx/{self._name}/{key}")


class Meeting:
    """The ranks of a communicator to be, and their allgather by a store.

    ``rank`` is this one's, ``size`` the number of ranks. A call of ``allgather`` lasts for at most
    ``timeout_ms``, 0 = for ever. Its ``error`` is the exception of the last one that failed.

    All keys carry the number of the communicator, by how many this rank has made, and that of the
    attempt to make it, by how many a rank has given up: nobody meets what is left of an earlier
    attempt, also if another rank has not given that up yet.
    """

    def __init__(self, keys: _TorchKeys | _JaxKeys, rank: int, size: int) -> None:
        if not 0 <= rank < size:
            raise EPXError(Code.ARG, f"rank is {rank} and size is {size}, want 0 <= rank < size")
        self.rank, self.size = rank, size
        self.timeout_ms = 0
        self.error: BaseException | None = None
        self.allgather = ALLGATHER(self._call)  # lives as long as C may call it
        self._keys, self._number, self._attempt, self._calls = keys, 0, 0, 0

    def _key(self, call: int, rank: int) -> str:
        return f"{self._number}/{self._attempt}/{call}/{rank}"

    def _given_up(self) -> str:
        return f"{self._number}/{self._attempt}/given up"

    def _begin(self) -> None:
        self._number = self._keys.count(self.rank, 0) + 1
        while self._keys.has(self._given_up()):
            self._attempt += 1

    def succeed(self) -> None:
        """The communicator is made."""
        self._keys.count(self.rank, 1)

    def give_up(self) -> None:
        """The communicator is not made: who tries again makes another attempt, as do all."""
        if not self._calls:
            return
        with contextlib.suppress(RuntimeError):  # the store may be what failed, or another rank
            self._keys.set(self._given_up(), b"1")  # has said so already
        self._take_back()

    def _missing(self, first: int, timeout_ms: int) -> EPXError:
        absent = []
        for rank in range(first, self.size):
            try:
                self._keys.get(self._key(self._calls, rank), 1)
            except RuntimeError:
                absent.append(str(rank))
        names = ", ".join(absent[:_RANKS_NAMED]) + (", ..." if len(absent) > _RANKS_NAMED else "")
        return EPXError(
            Code.TIMEOUT,
            f"not all {self.size} ranks came to the store within {timeout_ms} ms; "
            f"missing: {names or first}",
        )

    def gather(self, own: bytes) -> list[bytes]:
        """The bytes of all ranks, equally many from each."""
        if not self._number:
            self._begin()
        self._calls += 1
        try:
            every = self._exchange(own)
        except BaseException:
            self._take_back()
            raise
        if self._calls > 1:  # every rank has read those of the call before
            self._keys.delete(self._key(self._calls - 1, self.rank))
        return every

    def _exchange(self, own: bytes) -> list[bytes]:
        self._keys.set(self._key(self._calls, self.rank), own)
        timeout_ms = self.timeout_ms or _FOR_EVER_MS
        end = time.monotonic() + timeout_ms / 1000
        every = []
        for rank in range(self.size):
            left_ms = max(1, round(1000 * (end - time.monotonic())))
            try:
                part = self._keys.get(self._key(self._calls, rank), left_ms)
            except RuntimeError as error:  # as those of both kinds of store are
                if time.monotonic() < end - 0.5:
                    raise EPXError(Code.TRANSPORT, f"the store fails: {error}") from error
                raise self._missing(rank, timeout_ms) from error
            if len(part) != len(own):
                raise EPXError(Code.ARG, f"rank {rank} gives {len(part)} bytes, want {len(own)}")
            every.append(part)
        return every

    def _take_back(self) -> None:
        """Deletes what this rank has left in the store."""
        with contextlib.suppress(RuntimeError):
            for call in range(max(1, self._calls - 1), self._calls + 1):
                self._keys.delete(self._key(call, self.rank))

    def _call(self, own: int, every: int, num_bytes: int, _: object) -> int:
        try:
            parts = self.gather(ctypes.string_at(own, num_bytes))
            ctypes.memmove(every, b"".join(parts), num_bytes * self.size)
        except BaseException as error:  # C code takes none
            self.error = error
            return 1
        return 0


def _keys_of(store: Any, name: str) -> _TorchKeys | _JaxKeys:
    if hasattr(store, "key_value_set_bytes"):
        return _JaxKeys(store, name)
    torch = sys.modules.get("torch.distributed")
    if torch is None or not isinstance(store, torch.Store):
        raise TypeError(
            f"store is a {type(store).__name__}, want a torch.distributed.Store or the client of "
            "jax.distributed"
        )
    return _TorchKeys(store, name)


def by_store(store: object, rank: object, size: object) -> Meeting:
    """Of the ranks that have the store: who they are, its caller says."""
    for name, value in (("rank", rank), ("size", size)):
        if not isinstance(value, int):
            raise TypeError(f"{name} is a {type(value).__name__}, want an int beside store")
    return Meeting(_keys_of(store, "store"), int(rank), int(size))  # type: ignore[call-overload]


def is_by_torchrun() -> bool:
    """Whether torchrun started this process, or who sets the variables that torchrun sets."""
    if not all(name in os.environ for name in _TORCHRUN):
        return False
    return "TORCHELASTIC_RUN_ID" in os.environ or not _core.has_launcher()


def _is_by_mpi() -> bool:
    if "TORCHELASTIC_RUN_ID" in os.environ:
        return False
    if _core.has_launcher():  # srun starts programs without MPI, too
        return _core.has_mpi()
    return _core.is_mpi_running() and _core.world()[1] > 1


def _world_of_torch() -> tuple[Any, int, int] | None:
    """The store, the rank and the ranks of torch.distributed, or of the variables of torchrun."""
    global _torchrun_store
    torch = sys.modules.get("torch.distributed")
    if torch is not None and torch.is_available() and torch.is_initialized():
        from torch.distributed.distributed_c10d import _get_default_store

        return _get_default_store(), torch.get_rank(), torch.get_world_size()
    if not is_by_torchrun():
        return None
    if _torchrun_store is None:
        from torch.distributed.rendezvous import rendezvous

        _torchrun_store = next(iter(rendezvous("env://")))[0]
    return _torchrun_store, int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def _world_of_jax() -> tuple[Any, int, int] | None:
    """The client, the rank and the ranks of jax.distributed, if it is initialized."""
    distributed = sys.modules.get("jax._src.distributed")
    state = distributed.global_state if distributed is not None else None
    if state is None or state.client is None:
        return None
    return state.client, state.process_id, state.num_processes


def check_ranks(ranks: list[int], own: int, size: int) -> None:
    """Raises Code.ARG unless all are different ranks below ``size``, and ``own`` is one of them."""
    for i, rank in enumerate(ranks):
        if not 0 <= rank < size:
            raise EPXError(Code.ARG, f"ranks[{i}] is {rank}, this job has {size} ranks")
        if rank in ranks[:i]:
            raise EPXError(Code.ARG, f"ranks[{ranks.index(rank)}] and ranks[{i}] are both {rank}")
    if own not in ranks:
        raise EPXError(Code.ARG, f"this rank, {own}, is not one of the {len(ranks)} ranks")


def _some(ranks: list[int], world: tuple[Any, int, int]) -> Meeting:
    store, own, size = world
    check_ranks(ranks, own, size)
    name = "-".join(map(str, ranks)) if len(ranks) < size else "all"
    return Meeting(_keys_of(store, f"ranks/{name}"), ranks.index(own), len(ranks))


def by_launcher(ranks: list[int] | None) -> Meeting | None:
    """Of all ranks, or of those, as something else than MPI started them; None if MPI does.

    torch.distributed comes first, if it is initialized; then the variables that torchrun sets; then
    jax.distributed.
    """
    if _is_by_mpi():
        return None
    world = _world_of_torch() or _world_of_jax()
    if world is None:
        return None
    return _some(list(range(world[2])) if ranks is None else ranks, world)
