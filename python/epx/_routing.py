# SPDX-License-Identifier: BSD-3-Clause
"""Routings as values of epx.torch, and what a route shows of the latest one."""

from __future__ import annotations

import ctypes
import weakref
from typing import Any, NamedTuple

import torch
from torch import Tensor

from epx._core import Code, EPXError, Handle, _declare, _packer, _try
from epx._eager import empty
from epx._route import Route

_look = _declare("look", ctypes.c_char_p)
_pack_look = _packer("look", 12)


class Routing(NamedTuple):
    """Where the rows of one dispatch are. A value: any number of them may live on one route.

    ``ids`` int64 [T, K], not to be written while the routing is used; ``key`` names the routing
    to the library; ``counts`` int32 [L]: rows of each local expert (in rank-major: pairs);
    ``offsets`` int32: first row of each local expert [L+1], in rank-major that of each source rank
    [R+1]; its last element is the number of rows. ``row_experts`` int32, in rank-major [capacity,
    K]: the local experts of each row or -1; else [0, K]. ``tie`` has no element: by it combine's
    backward runs wherever dispatch's does. ``capacity``: rows of the dispatch. ``sizes``: of an
    exact routing ``counts`` and ``offsets`` on the host, else None. ``key`` is on the host, all
    else where the tokens are.
    """

    ids: Tensor
    key: Tensor
    route: Route
    counts: Tensor
    offsets: Tensor
    row_experts: Tensor
    tie: Tensor
    capacity: int
    sizes: tuple[list[int], list[int]] | None = None

    def used(self) -> Tensor:
        """Which rows arrived: bool [capacity], False for padding and what lies behind. Local."""
        if self.route.layout == "rank":
            return torch.arange(self.capacity, device=self.offsets.device) < self.offsets[-1]
        return self.row_expert() >= 0

    def row_expert(self) -> Tensor:
        """The local expert of each row, or -1: int64 [capacity]. Local.

        Not in rank-major, where a row has up to K: ``row_experts``.
        """
        if self.route.layout == "rank":
            raise EPXError(Code.ROUTE, "row_expert: rows in rank-major have row_experts")
        device = self.offsets.device
        rows = torch.arange(self.capacity, device=device, dtype=torch.int32)
        if not self.route.local_experts:
            return torch.full((self.capacity,), -1, device=device, dtype=torch.int64)
        experts = torch.bucketize(rows, self.offsets[1:], right=True)
        ends = self.offsets[:-1] + self.counts
        last = self.route.local_experts - 1
        is_used = (experts <= last) & (rows < ends[experts.clamp(max=last)])
        return torch.where(is_used, experts, -1)


class View(NamedTuple):
    """What a route shows of its latest routing: EPX_Route_get_view(3). All are int32.

    ``row_tokens`` and ``row_ranks`` [capacity]: a row's token on its home rank, and that rank;
    ``row_choices`` [capacity]: which of the token's choices it is, None in rank-major; these three
    are -1 for padding, and undefined from the number of rows on. ``rank_counts`` [R]: rows from
    each rank, a token that has several experts here once. ``slots`` [T, K]: the row of each choice
    on its expert's rank, or -1. ``required_rows`` int64 [1]: what would be used without a capacity;
    ``overflow`` [1]: 1 if a rank lacked room.
    """

    row_tokens: Tensor
    row_ranks: Tensor
    row_choices: Tensor | None
    rank_counts: Tensor
    slots: Tensor
    required_rows: Tensor
    overflow: Tensor


class _IdsWere(Handle):
    """The ids that a routing was made of, and how often they had been written to."""

    def __init__(self, ids: Tensor) -> None:
        self.tensor, self.version = weakref.ref(ids), ids._version


def note_version(key: Any, ids: Tensor) -> None:
    """Notes at the key how often these ids have been written to, where torch counts that."""
    if not torch.compiler.is_compiling() and not ids.is_inference():
        key.ids_were = _IdsWere(ids)


def check_version(routing: Routing) -> None:
    """Refuses a routing whose ids were written to since: its rows would go elsewhere.

    Ids that are a copy of those, as in a routing that was copied, have another count of their own.
    """
    if torch.compiler.is_compiling():
        return
    were, ids = getattr(routing.key, "ids_were", None), routing.ids
    if were is not None and were.tensor() is ids and were.version != ids._version:
        raise EPXError(
            Code.ARG, "routing.ids were written to since they were routed: route a clone of them"
        )


def _look_at(
    route: Route, key: Tensor, like: Tensor, capacity: int, *tensors: Tensor | None
) -> None:
    """Has what the route shows of this routing copied, of its rows as many as the capacity."""
    stream = torch.cuda.current_stream(like.device).cuda_stream if like.is_cuda else 0
    addresses = [0 if tensor is None else tensor.data_ptr() for tensor in tensors]
    _try(_look(_pack_look(route.index, key.data_ptr(), stream, capacity, *addresses)))


def first_row_experts(route: Route, key: Tensor, like: Tensor, num_rows: int) -> Tensor:
    """The local experts of the first rows of a routing in rank-major, the latest of its route."""
    made = empty(like, (num_rows, route.top_k), torch.int32)
    _look_at(route, key, like, num_rows, made, *(None,) * 7)
    return made


def view(routing: Routing) -> View:
    """Copies of what the route shows of a routing. Local, and no op for compilers.

    The routing is the latest of its route: else EPXError with Code.ROUTE.
    """
    check_version(routing)
    route, ids = routing.route, routing.ids
    rows = (routing.capacity,)
    made = View(
        empty(ids, rows, torch.int32),
        empty(ids, rows, torch.int32),
        None if route.layout == "rank" else empty(ids, rows, torch.int32),
        empty(ids, (route.comm.size,), torch.int32),
        empty(ids, tuple(ids.shape), torch.int32),
        empty(ids, (1,), torch.int64),
        empty(ids, (1,), torch.int32),
    )
    _look_at(route, routing.key, ids, routing.capacity, None, *made)
    return made
