# SPDX-License-Identifier: BSD-3-Clause
"""The one group of a process that dispatches and combines, and its memory."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple, NoReturn

import torch
from torch import Tensor

import epx
from epx import interfaces

_ROUTES = 4  # of each shape, for as many buffers whose rows are under way
_ROWS_AT_A_TIME = 4  # a dispatch's, what combine takes, and the gradients of both
_SLACK = 8192  # of a tensor in reserved memory


def refuse(name: str, instead: str) -> NoReturn:
    """Raises that EPX does not have this, and what to use."""
    interfaces.refuse("epx.te", name, instead)


def refuse_compilers(name: str) -> None:
    """Raises in torch.compile and its like."""
    if torch.compiler.is_compiling():
        refuse(f"{name} in torch.compile", "epx.torch.dispatch and epx.torch.combine")


class Limits(NamedTuple):
    """What ep_bootstrap was told: bounds of all buffers."""

    num_experts: int
    max_tokens_per_rank: int
    hidden_dim: int
    num_topk: int
    recv_capacity_per_rank: int | None
    zero_copy: bool
    drop_on_overflow: bool
    max_token_dtype: torch.dtype


class Group:
    """The communicator of the group, and its routes, which buffers of one shape share."""

    def __init__(self, group: Any, limits: Limits, max_num_sms: int) -> None:
        hints = {"max_sms": max_num_sms} if max_num_sms else {}
        self.process_group, self.limits = group, limits
        self.ground = interfaces.Ground(group, hints)
        self.comm = self.ground.comm
        self._num_buffers: dict[tuple[int, int], int] = {}
        self.ground.reserve(_bytes_at_a_time(limits))

    def device(self) -> torch.device:
        """Where the tensors are."""
        if self.comm.on_device:
            return torch.device("cuda", torch.cuda.current_device())
        return torch.device("cpu")

    def new_route(self, top_k: int, alignment: int) -> epx.Route:
        """The route of a buffer, which it has from its first routing on. Collective.

        Buffers take the routes of their shape in turn: what is under way in one keeps its routing.
        """
        shape = top_k, alignment
        number = self._num_buffers.get(shape, 0)
        self._num_buffers[shape] = number + 1
        key = (*shape, number % _ROUTES)
        limits = self.limits
        return self.ground.known(key) or self.ground.make(
            key,
            experts=limits.num_experts,
            top_k=top_k,
            max_tokens=limits.max_tokens_per_rank,
            alignment=max(alignment, 1),
            capacity=limits.recv_capacity_per_rank,
            overflow="drop" if limits.drop_on_overflow else "error",
        )

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """An empty tensor: with zero copy in reserved memory, if there is room."""
        if not self.limits.zero_copy:
            return torch.empty(shape, dtype=dtype, device=self.device())
        made: Tensor = self.comm.empty(shape, dtype)
        return made

    def is_reserved(self, tensor: Tensor) -> bool:
        """Whether the tensor lies in reserved memory."""
        return self.comm.is_reserved(tensor.data_ptr(), tensor.nbytes)

    def empty_reserved(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """An empty tensor in reserved memory, to which ranks without room add. Collective.

        What zero copy has for the rows of a layer stays free beside it.
        """
        made: Tensor = self.comm.empty(shape, dtype)
        is_there = made.numel() == 0 or self.is_reserved(made)
        reserved = self.comm.reserved()
        lacks = max(0, _bytes_at_a_time(self.limits) - (reserved.bytes - reserved.used_bytes))
        if not is_there:
            lacks += made.nbytes + _SLACK
        if self.comm.largest(lacks):
            self.comm.reserve(lacks)
        if not is_there:
            made = self.comm.empty(shape, dtype)
        return made


def _bytes_at_a_time(limits: Limits) -> int:
    if not limits.zero_copy:
        return 0
    rows = limits.recv_capacity_per_rank or 0
    row_bytes = limits.hidden_dim * limits.max_token_dtype.itemsize + 4  # with its weight
    return _ROWS_AT_A_TIME * (rows * row_bytes + 2 * _SLACK)


_group: Group | None = None


def current() -> Group:
    """The group of this process."""
    if _group is None:
        raise RuntimeError("epx.te: call ep_bootstrap() first")
    return _group


def _check_limits(limits: Limits) -> None:
    if limits.num_topk < 1:
        raise ValueError(f"ep_bootstrap: num_topk is {limits.num_topk}, want 1 or more")
    capacity = limits.recv_capacity_per_rank
    for name in ("zero_copy", "drop_on_overflow"):
        if getattr(limits, name) and capacity is None:
            raise ValueError(f"ep_bootstrap: {name} wants recv_capacity_per_rank")
    if capacity is not None and capacity < 1:
        raise ValueError(f"ep_bootstrap: recv_capacity_per_rank is {capacity}, want 1 or more")


def ep_bootstrap(
    ep_group: Any,
    num_experts: int,
    max_tokens_per_rank: int,
    hidden_dim: int,
    num_topk: int,
    recv_capacity_per_rank: int | None = None,
    max_num_sms: int = 0,
    zero_copy: bool = False,
    drop_on_overflow: bool = False,
    max_token_dtype: torch.dtype = torch.bfloat16,
) -> None:
    """Make the communicator of a ProcessGroup, of whatever backend. Collective, once a process.

    All that follows bounds the buffers. Without ``recv_capacity_per_rank`` results have the size of
    what arrives in each step, for which the host waits; with it they have so many rows, and more
    are an error, or dropped with ``drop_on_overflow``. ``max_num_sms``: the hint epx_max_sms, 0 for
    EPX's own. ``zero_copy`` reserves memory for the rows of a layer, forward and backward, which
    then arrive without a copy.
    """
    global _group
    if _group is not None:
        raise RuntimeError("ep_bootstrap: the process has a group: call ep_finalize() before")
    limits = Limits(
        int(num_experts),
        int(max_tokens_per_rank),
        int(hidden_dim),
        int(num_topk),
        None if recv_capacity_per_rank is None else int(recv_capacity_per_rank),
        bool(zero_copy),
        bool(drop_on_overflow),
        max_token_dtype,
    )
    _check_limits(limits)
    interfaces.check_experts(limits.num_experts, ep_group.size())
    _group = Group(ep_group, limits, int(max_num_sms))


def is_ep_bootstrapped() -> bool:
    """Whether the process has a group."""
    return _group is not None


def ep_finalize() -> None:
    """Give the group back, if there is one. Collective.

    Where tensors lie in reserved memory still, on any rank, that memory stays until Python exits.
    """
    global _group
    if _group is not None:
        group, _group = _group, None
        group.ground.close()


def communicator() -> epx.Comm:
    """EPX's communicator of the group: to reserve more, to check, to count. Local."""
    return current().comm


def symm_mem_alloc(
    shape: int | Iterable[int],
    dtype: torch.dtype,
    ep_group: Any,
    device: torch.device | None = None,
    use_pool: bool = False,
    backend: str = "NCCL",
) -> Tensor:
    """An empty tensor in memory that the other ranks store into.

    Collective: memory is reserved where it lacks. With ``use_pool`` local: the tensor is ordinary
    where there is no room, and rows are copied to it.
    """
    group = current()
    if ep_group is not group.process_group:
        refuse("memory of another group than ep_bootstrap's", "epx.Comm(group).reserve(), .empty()")
    if backend != "NCCL":
        refuse(f"backend {backend!r} of symmetric memory", "the default, memory of EPX")
    if device is not None and torch.device(device).type != group.device().type:
        refuse(f"reserved memory on {device}", f"the group's, on {group.device()}")
    sizes = tuple(shape) if isinstance(shape, Iterable) else (shape,)
    if not use_pool:
        return group.empty_reserved(sizes, dtype)
    made: Tensor = group.comm.empty(sizes, dtype)
    return made


def release_symm_mem_pool() -> None:
    """Nothing: reserved memory is given back by ep_finalize()."""


def is_symm_backed(t: Tensor) -> bool:
    """Whether the tensor lies in memory that the other ranks store into. Local."""
    return current().is_reserved(t)
