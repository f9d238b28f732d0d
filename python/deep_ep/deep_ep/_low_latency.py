# SPDX-License-Identifier: BSD-3-Clause
"""Low-latency dispatch and combine: slabs for masked GEMMs, and hooks that end what has begun."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

import epx
import epx.torch as ep
from epx.interfaces import Ground

from ._config import refuse
from ._events import EventOverlap, Lane
from ._numbers import BLOCK, Quantizer, copy_used

_ROUTES = 2  # that take turns: so many dispatches may be in flight without routing again


class LowLatencyHandle:
    """Where the rows of a low-latency dispatch are; a tuple to its callers, as DeepEP's.

    (src_info, layout_range, num_max_dispatch_tokens_per_rank, hidden, num_experts): the first two
    are computed when they are first asked for, which is possible until the second next dispatch.
    """

    def __init__(self, routing: ep.Routing, most: int, hidden: int, num_experts: int) -> None:
        self.routing, self.most, self.hidden, self.num_experts = routing, most, hidden, num_experts
        self.buffer: Tensor | None = None

    @property
    def slabs(self) -> tuple[int, int]:
        """Local experts, and rows of each."""
        route = self.routing.route
        return route.local_experts, route.rows_per_expert

    @functools.cached_property
    def _view(self) -> ep.View:
        return ep.view(self.routing)

    @functools.cached_property
    def src_info(self) -> Tensor:
        """int32 [L, rows]: the token of each row on its home rank."""
        return self._view.row_tokens.view(self.slabs)

    @functools.cached_property
    def layout_range(self) -> Tensor:
        """int64 [L, R]: of each source rank its first row in the slab << 32 | its rows."""
        ranks = self._view.row_ranks.view(self.slabs).long() + 1
        sizes = (self.slabs[0], self.routing.route.comm.size + 1)
        counts = torch.zeros(sizes, dtype=torch.int64, device=ranks.device)
        counts.scatter_add_(1, ranks, torch.ones_like(ranks))
        counts = counts[:, 1:]
        return ((counts.cumsum(1) - counts) << 32) | counts

    def _items(self) -> tuple[Callable[[], Any], ...]:
        return (
            lambda: self.src_info,
            lambda: self.layout_range,
            lambda: self.most,
            lambda: self.hidden,
            lambda: self.num_experts,
        )

    def __len__(self) -> int:
        return len(self._items())

    def __getitem__(self, at: int) -> Any:
        return self._items()[at]()

    def __iter__(self) -> Iterator[Any]:
        return (item() for item in self._items())


def size_hint(most: int, hidden: int, num_ranks: int, num_experts: int) -> int:
    """Bytes of the slabs of two dispatches and one combine, in bfloat16."""
    rows = num_experts // num_ranks * num_ranks * most
    return 3 * rows * hidden * 2


class LowLatency:
    """The low-latency half of a Buffer."""

    def __init__(self, ground: Ground, lane: Lane) -> None:
        self._ground, self._lane, self._calls = ground, lane, 0

    def _route(self, most: int, top_k: int, num_experts: int, hidden: int) -> epx.Route:
        self._calls += 1
        key = ("low latency", self._calls % _ROUTES, most, top_k, num_experts, hidden)
        route = self._ground.known(key)
        if route is not None:
            return route
        return self._ground.make(
            key,
            experts=num_experts,
            top_k=top_k,
            max_tokens=most,
            layout="slab",
            rows_per_expert=most * self._ground.comm.size,
            max_row_bytes=2 * hidden,
        )

    def dispatch(
        self,
        x: Tensor,
        topk_idx: Tensor,
        sizes: tuple[int, int],  # most tokens, experts
        stats: Tensor | None,
        quantize: Quantizer | None,
        is_async: bool,
        has_hook: bool,
    ) -> tuple[Any, Tensor, LowLatencyHandle, EventOverlap, Callable[[], None]]:
        """As Buffer.low_latency_dispatch."""
        most, num_experts = sizes
        route = self._route(most, topk_idx.shape[1], num_experts, x.shape[1])
        if quantize is not None:
            quantize.prepare(x, route.rows_per_expert)

        def operation() -> tuple[Any, Tensor, LowLatencyHandle, Callable[[], None]]:
            rows, scales = (x, None) if quantize is None else quantize(x)
            more: Any = {"scales": scales, "add_counts_to": stats}
            if has_hook:
                work = ep.dispatch_start(rows, topk_idx, None, route, **more)
                made, wait = work.tensors, work.wait
            else:
                made, wait = ep.dispatch(rows, topk_idx, None, route, **more), None
            handle = LowLatencyHandle(made[2], most, x.shape[1], num_experts)
            given, finish = _arrange(made[0], handle, wait)
            if not has_hook:
                finish()
            return given, made[2].counts, handle, finish if has_hook else _nothing

        results, event = self._lane.run(operation, (x, topk_idx, stats), is_async)
        given, counts, handle, hook = results
        return given, counts, handle, event, hook

    def combine(
        self,
        x: Tensor,
        weights: Tensor,
        handle: LowLatencyHandle,
        out: Tensor | None,
        is_async: bool,
        has_hook: bool,
    ) -> tuple[Tensor, EventOverlap, Callable[[], None]]:
        """As Buffer.low_latency_combine."""
        rows = x.reshape(-1, handle.hidden)

        def operation() -> tuple[Tensor, Callable[[], None]]:
            if not has_hook:
                made = ep.combine(rows, handle.routing, token_weights=weights, out=out)
                return made, _nothing
            work = ep.combine_start(rows, handle.routing, token_weights=weights, out=out)
            return work.tensors, lambda: _end(work)

        (made, hook), event = self._lane.run(operation, (x, weights, out, handle), is_async)
        return made, event, hook

    def combine_buffer(self, handle: LowLatencyHandle) -> Tensor:
        """Where the caller may put the rows of the next combine, in reserved memory if there is."""
        if handle.buffer is None:
            shape = (*handle.slabs, handle.hidden)
            handle.buffer = self._ground.comm.empty(shape, torch.bfloat16)
        return handle.buffer


def _nothing() -> None:
    """The hook of what has ended already."""


def _end(work: ep.Work[Any]) -> None:
    work.wait()


def _arrange(
    received: Any, handle: LowLatencyHandle, wait: Callable[[], Any] | None
) -> tuple[Any, Callable[[], None]]:
    """Slabs, with scales in column-major; and what is to be done once rows have arrived."""
    rows, row_scales = received if isinstance(received, tuple) else (received, None)
    slabs = rows.view(*handle.slabs, handle.hidden)
    scales = None if row_scales is None else _slabs_of_scales(handle, row_scales)

    def finish() -> None:
        if wait is not None:
            wait()
        if scales is not None:
            copy_used(row_scales.view(scales.shape), scales, handle.routing.counts)

    return (slabs if scales is None else (slabs, scales)), finish


def _slabs_of_scales(handle: LowLatencyHandle, row_scales: Tensor) -> Tensor:
    """Empty scales [L, rows, S], of each slab in column-major."""
    num_experts, room = handle.slabs
    shape = (num_experts, row_scales.shape[1], room)
    return torch.empty(shape, dtype=row_scales.dtype, device=row_scales.device).transpose(1, 2)


def quantizer(use_fp8: bool, round_scale: bool, use_ue8m0: bool, hidden: int) -> Quantizer | None:
    """What makes fp8 rows and scales of rows, if that is wanted."""
    if not use_fp8:
        return None
    assert not use_ue8m0 or round_scale, "use_ue8m0 wants round_scale"
    wanted = 4 * BLOCK if use_ue8m0 else BLOCK
    if hidden % wanted:
        refuse(f"scales of rows of {hidden} elements", f"want a multiple of {wanted}")
    return Quantizer(round_scale, use_ue8m0)
