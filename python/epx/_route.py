# SPDX-License-Identifier: BSD-3-Clause
"""Routes: who sends which row where."""

from __future__ import annotations

import ctypes
import operator

from epx._comm import Comm
from epx._core import Code, EPXError, Handle, _declare, _int_p, _packer, _try, is_child

_route_create = _declare("route_create", ctypes.c_char_p, _int_p)
_route_free = _declare("route_free", ctypes.c_int)
_route_shape = _declare("route_shape", ctypes.c_int, ctypes.POINTER(ctypes.c_int64))
_pack_attr = _packer("route_attr", 11)

_LAYOUTS = {"expert": 1, "rank": 2, "slab": 3}
_OVERFLOWS = {"error": 1, "drop": 2}


def _choice(name: str, value: str, choices: dict[str, int]) -> int:
    if value not in choices:
        raise EPXError(Code.ARG, f"{name} is {value!r}, want one of {', '.join(choices)}")
    return choices[value]


class Route(Handle):
    """Who sends which row where: EPX_Route_create(3). Made and freed by all ranks together.

    ``experts`` of all ranks; ``top_k`` ids a token; ``max_tokens`` of any rank in one dispatch;
    ``alignment`` of the rows of an expert; ``capacity``, rows that this rank receives at most, None
    for the worst case; ``layout`` "expert" (a row for each token and choice, by expert), "rank"
    (a row for each token and rank, by rank) or "slab" (as "expert", the rows of each expert in
    ``rows_per_expert`` rows of its own: rows are [local_experts * rows_per_expert, ...], and
    capacity is None); ``overflow`` "error" or "drop"; ``zero_unused`` zeroes the rows that nothing
    arrives in; ``max_row_bytes``, the longest row of any call, all fields together, or 0: if it is
    given, the communicator has a stage for all rows of a call, so that many rows are sent at once,
    not in rounds, and those of a started dispatch or combine are taken when it is waited for; a
    longer row is an EPXError. ``distinct``: no token names an expert twice, so that without a
    capacity a rank has min(top_k, local_experts) rows for a token; one that does may find no room.

    Attributes: these arguments by name, of which ``capacity`` is what the next dispatch has;
    ``max_capacity``, that of the route; ``local_experts``, those of this rank, from
    ``first_expert`` on; ``comm``; ``is_freed``.
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
        rows_per_expert: int = 0,
        max_row_bytes: int = 0,
        distinct: bool = False,
    ) -> None:
        if layout == "slab" and capacity is not None:
            raise EPXError(Code.ARG, f"capacity is {capacity}, want None with slabs")
        experts, top_k, max_tokens, alignment, rows_per_expert, max_row_bytes = map(
            operator.index,
            (experts, top_k, max_tokens, alignment, rows_per_expert, max_row_bytes),
        )
        capacity = None if capacity is None else operator.index(capacity)
        self.comm, self.experts, self.top_k, self.max_tokens = comm, experts, top_k, max_tokens
        self.alignment, self.layout, self.overflow = alignment, layout, overflow
        self.zero_unused, self.rows_per_expert = bool(zero_unused), rows_per_expert
        self.max_row_bytes, self.distinct = max_row_bytes, bool(distinct)
        if self.distinct and capacity is None and layout == "expert":
            capacity = self._worst_distinct() or None
        attr = _pack_attr(
            comm._index,
            experts,
            top_k,
            max_tokens,
            alignment,
            capacity or 0,
            _choice("layout", layout, _LAYOUTS),
            _choice("overflow", overflow, _OVERFLOWS),
            self.zero_unused,
            rows_per_expert,
            max_row_bytes,
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

    def _worst_distinct(self) -> int:
        """The most rows of this rank where all experts of a token are different ones."""
        rank, size = self.comm.rank, self.comm.size
        local = (rank + 1) * self.experts // size - rank * self.experts // size
        per_token = min(self.top_k, local)
        return size * self.max_tokens * per_token + local * (self.alignment - 1)

    def set_capacity(self, capacity: int) -> None:
        """From the next dispatch on this rank receives at most so many rows. Local.

        Rows are [capacity, ...] then. An earlier routing keeps what it had. Slabs stay as they are.
        """
        capacity = operator.index(capacity)
        if self.layout == "slab" and capacity != self.max_capacity:
            raise EPXError(Code.ARG, f"capacity is {capacity}, want {self.max_capacity} with slabs")
        if not 0 <= capacity <= self.max_capacity:
            raise EPXError(
                Code.ARG, f"capacity is {capacity}, want 0 to {self.max_capacity}, the route's own"
            )
        self.capacity = capacity

    def free(self) -> None:
        """Give the route back. Collective. A second call, or one in a child, does nothing."""
        if self.is_freed or is_child():
            return
        _try(_route_free(self.index))
        self.is_freed = True
        self.comm._routes.remove(self)
        del routes[self.index]


routes: dict[int, Route] = {}
"""The routes that are not freed, by index: ops know a route by that number."""
