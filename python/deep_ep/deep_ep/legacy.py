# SPDX-License-Identifier: BSD-3-Clause
"""Buffer: dispatch and combine as DeepEP 1 has them, low-latency ones too."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, NoReturn

import torch
from torch import Tensor

import epx
import epx.torch as ep
from epx.interfaces import Ground, check_experts

from ._config import Config, as_biases, as_fields, refuse, refuse_forks, route_exactly
from ._events import EventHandle, EventOverlap, Lane
from ._low_latency import LowLatency, LowLatencyHandle, quantizer, size_hint
from ._numbers import align

_MOST_RANKS = 64  # that a token may go to by a mask: the most choices of a route
_LEAST_TOKENS = 4096  # that a route has room for, so that later calls may have more than the first
_SHRINK = "start again without the rank: a time-out of EPX names it"


class Handle:
    """Where the rows of a dispatch are; a tuple to its callers, as DeepEP's for one node.

    (rank_prefix_matrix, None, None, recv_src_idx, is_token_in_rank, None). The first and the fourth
    are computed when they are first asked for, until the next dispatch of the same shape.
    """

    def __init__(self, routing: ep.Routing, is_token_in_rank: Tensor) -> None:
        self.routing, self.is_token_in_rank = routing, is_token_in_rank

    @functools.cached_property
    def _view(self) -> ep.View:
        return ep.view(self.routing)

    @functools.cached_property
    def recv_src_idx(self) -> Tensor:
        """int32 [n]: the token of each row on its home rank."""
        return self._view.row_tokens

    @functools.cached_property
    def rank_prefix_matrix(self) -> Tensor:
        """int32 [R, R]: in the column of this rank the rows from the ranks up to each; else -1."""
        comm = self.routing.route.comm
        sizes = (comm.size, comm.size)
        made = torch.full(sizes, -1, dtype=torch.int32, device=self.routing.ids.device)
        made[:, comm.rank] = self.routing.offsets[1:]
        return made

    def _items(self) -> tuple[Callable[[], Any], ...]:
        return (
            lambda: self.rank_prefix_matrix,
            lambda: None,
            lambda: None,
            lambda: self.recv_src_idx,
            lambda: self.is_token_in_rank,
            lambda: None,
        )

    def __len__(self) -> int:
        return len(self._items())

    def __getitem__(self, at: int) -> Any:
        return self._items()[at]()

    def __iter__(self) -> Iterator[Any]:
        return (item() for item in self._items())


class Buffer:
    """Dispatch and combine of a group of ranks: DeepEP's Buffer, by EPX.

    ``num_nvl_bytes`` and ``num_rdma_bytes`` are reserved for results, which then arrive without a
    copy; ``num_qps_per_rank``, ``allow_nvlink_for_low_latency_mode``, ``allow_mnnvl`` and
    ``use_fabric``, which a fork has, say nothing to EPX. ``Buffer.num_max_tokens_per_rank`` is what
    a rank dispatches at most; 0 has the ranks agree at their first dispatch, on 4096 at least.
    """

    num_sms: int = 20
    num_max_tokens_per_rank: ClassVar[int] = 0

    def __init__(
        self,
        group: Any,
        num_nvl_bytes: int = 0,
        num_rdma_bytes: int = 0,
        low_latency_mode: bool = False,
        num_qps_per_rank: int = 24,
        allow_nvlink_for_low_latency_mode: bool = True,
        allow_mnnvl: bool = False,
        explicitly_destroy: bool = False,
        enable_shrink: bool = False,
        comm: Any = None,
        use_fabric: bool = False,
    ) -> None:
        if enable_shrink:
            refuse("shrink mode (enable_shrink)", _SHRINK)
        if group is None and comm is None:
            raise ValueError("want either group or comm")
        self.group = comm if group is None else group
        self.num_nvl_bytes, self.num_rdma_bytes = num_nvl_bytes, num_rdma_bytes
        self.low_latency_mode = low_latency_mode
        self.explicitly_destroy, self.enable_shrink = explicitly_destroy, enable_shrink
        self._ground: Ground | None = Ground(self.group, {"combine_order": "choice"})
        self._comm = self._ground.comm
        self.rank, self.group_size = self._comm.rank, self._comm.size
        self._ground.reserve(num_nvl_bytes + num_rdma_bytes)
        self._lane = Lane(self._comm.on_device)
        self._low_latency = LowLatency(self._ground, self._lane)
        self._most = 0

    def destroy(self) -> None:
        """Free what the buffer has. Collective."""
        assert self.explicitly_destroy, "explicitly_destroy was not set"
        if self._ground is not None:
            self._ground.close()
            self._ground = None

    @staticmethod
    def is_sm90_compiled() -> bool:
        """Whether fp8 rows can be sent: they can."""
        return True

    @staticmethod
    def set_num_sms(new_num_sms: int) -> None:
        """Keep a number of SMs, without effect: the hint epx_max_sms bounds EPX's kernels."""
        assert new_num_sms % 2 == 0, "the number of SMs is even"
        Buffer.num_sms = new_num_sms

    @staticmethod
    def capture() -> EventOverlap:
        """An event on the current stream."""
        return EventOverlap(EventHandle())

    @staticmethod
    def get_low_latency_rdma_size_hint(
        num_max_dispatch_tokens_per_rank: int, hidden: int, num_ranks: int, num_experts: int
    ) -> int:
        """Bytes to reserve, so that rows of low-latency dispatches arrive without a copy."""
        return size_hint(num_max_dispatch_tokens_per_rank, hidden, num_ranks, num_experts)

    def get_comm_stream(self) -> Any:
        """The stream of asynchronous calls; on hosts None."""
        return self._lane.stream

    @staticmethod
    def get_dispatch_config(num_ranks: int) -> Config:
        """Settings, which have no effect."""
        return Config(Buffer.num_sms)

    @staticmethod
    def get_combine_config(num_ranks: int) -> Config:
        """Settings, which have no effect."""
        return Config(Buffer.num_sms)

    def get_dispatch_layout(
        self,
        topk_idx: Tensor,
        num_experts: int,
        previous_event: Any = None,
        async_finish: bool = False,
        allocate_on_comm_stream: bool = False,
    ) -> tuple[Tensor, None, Tensor, Tensor, EventOverlap]:
        """How many tokens go to each rank and expert, and which token to which rank. Local."""
        local = check_experts(num_experts, self.group_size)
        operation = functools.partial(_layout, topk_idx, num_experts, local, self.group_size)
        made, event = self._lane.run(operation, (topk_idx,), async_finish, (previous_event,))
        per_rank, per_expert, is_in = made
        return per_rank, None, per_expert, is_in, event

    def dispatch(
        self,
        x: Tensor | tuple[Tensor, Tensor],
        handle: Handle | None = None,
        num_tokens_per_rank: Tensor | None = None,
        num_tokens_per_rdma_rank: Tensor | None = None,
        is_token_in_rank: Tensor | None = None,
        num_tokens_per_expert: Tensor | None = None,
        topk_idx: Tensor | None = None,
        topk_weights: Tensor | None = None,
        expert_alignment: int = 1,
        num_worst_tokens: int = 0,
        config: Config | None = None,
        previous_event: Any = None,
        async_finish: bool = False,
        allocate_on_comm_stream: bool = False,
    ) -> tuple[Any, Tensor | None, Tensor | None, list[int] | None, Handle | None, EventOverlap]:
        """Send tokens to the ranks of their experts, or by the mask of ranks. Collective.

        Arguments and results are DeepEP's. With topk_idx that alone says where tokens go.
        """
        if handle is not None:
            assert topk_idx is None and topk_weights is None, "a handle has topk_idx"
            begin = functools.partial(_dispatch_cached, handle, x)
        else:
            assert is_token_in_rank is not None and num_tokens_per_expert is not None
            self._agree(as_fields(x)[0].shape[0])
            if topk_idx is None:
                assert topk_weights is None, "topk_weights want topk_idx"
                assert not num_worst_tokens, "num_worst_tokens wants topk_idx"
                begin = functools.partial(
                    self._dispatch_by_mask, x, is_token_in_rank, num_tokens_per_expert
                )
            else:
                tokens = x, topk_idx, topk_weights, is_token_in_rank
                num_experts = num_tokens_per_expert.shape[0]
                begin = functools.partial(self._dispatch_new, tokens, num_experts, num_worst_tokens)

        def operation() -> tuple[Any, ...]:
            rows, experts, weights, counts, made = begin()
            if counts is not None and expert_alignment > 1:
                counts = [align(count, expert_alignment) for count in counts]
            return rows, experts, weights, counts, made

        given = (x, topk_idx, topk_weights, is_token_in_rank, handle)
        results, event = self._lane.run(operation, given, async_finish, (previous_event,))
        return (*results, event)

    def _agree(self, num_tokens: int) -> None:
        """The ranks agree once how many tokens one of them may have."""
        if not self._most:
            least = Buffer.num_max_tokens_per_rank or max(num_tokens, _LEAST_TOKENS)
            self._most = self._comm.largest(least)
        if num_tokens > self._most:
            raise epx.EPXError(
                epx.Code.COUNT,
                f"deep_ep: {num_tokens} tokens, the ranks agreed on {self._most} at their first "
                "dispatch: set Buffer.num_max_tokens_per_rank before it",
            )

    def _rank_route(self, num_experts: int, top_k: int) -> epx.Route:
        assert self._ground is not None, "the buffer is destroyed"
        key = ("normal", num_experts, top_k)
        route = self._ground.known(key)
        if route is not None:
            return route
        return self._ground.make(
            key, experts=num_experts, top_k=top_k, max_tokens=self._most, layout="rank"
        )

    def _dispatch_new(
        self, tokens: tuple[Any, ...], num_experts: int, num_worst_tokens: int
    ) -> tuple[Any, ...]:
        x, topk_idx, topk_weights, is_token_in_rank = tokens
        route, ids = self._rank_route(num_experts, topk_idx.shape[1]), topk_idx.clone()
        rows, fields = as_fields(x)
        scales: Any = fields or None
        if num_worst_tokens:
            route.set_capacity(min(num_worst_tokens, route.max_capacity))
            made, weights, routing = ep.dispatch(rows, ids, topk_weights, route, scales=scales)
            counts: list[int] = []
        else:
            route.set_capacity(route.max_capacity)
            routing = route_exactly(ids, route, rows, topk_weights, scales)
            counts = list(routing.sizes[0])  # type: ignore[index]
            made, weights, routing = ep.dispatch_by(rows, routing, topk_weights, scales=scales)
        handle = Handle(routing, is_token_in_rank)
        return made, routing.row_experts.long(), weights, counts, handle

    def _dispatch_by_mask(self, x: Any, mask: Tensor, per_expert: Tensor) -> tuple[Any, ...]:
        """Tokens go to ranks, as if each had one expert; all tell each other of their experts."""
        size = self.group_size
        if size > _MOST_RANKS:
            refuse(f"dispatch by a mask of {size} ranks, only up to {_MOST_RANKS}", "give topk_idx")
        check_experts(per_expert.shape[0], size)
        ranks, route = torch.arange(size, device=mask.device), self._rank_route(size, size)
        route.set_capacity(route.max_capacity)
        routing = ep.route(torch.where(mask, ranks, -1), route, exact=True)
        rows, fields = as_fields(x)
        scales: Any = fields or None
        made, _, routing = ep.dispatch_by(rows, routing, None, scales=scales)
        handle = Handle(routing, mask)
        return made, None, None, self._counts_told(per_expert), handle

    def _counts_told(self, per_expert: Tensor) -> list[int]:
        """How many tokens all ranks have for each expert of this one."""
        assert self._ground is not None
        size = self.group_size
        key = ("counts",)
        route = self._ground.known(key) or self._ground.make(
            key, experts=size, top_k=1, max_tokens=size, layout="rank"
        )
        ids = torch.arange(size, device=per_expert.device)[:, None]
        told, _, _ = ep.dispatch(per_expert.view(size, -1).to(torch.int32), ids, None, route)
        self._comm.note_host_sync()
        counts: list[int] = told[:size].sum(0).tolist()
        return counts

    def combine(
        self,
        x: Tensor,
        handle: Handle,
        topk_weights: Tensor | None = None,
        bias: Tensor | tuple[Tensor, Tensor] | None = None,
        config: Config | None = None,
        previous_event: Any = None,
        async_finish: bool = False,
        allocate_on_comm_stream: bool = False,
    ) -> tuple[Tensor, Tensor | None, EventOverlap]:
        """Bring rows home and add them, without weights, to the biases. Collective.

        topk_weights [n, K] are added, too, over the ranks of each token.
        """

        def operation() -> tuple[Tensor, Tensor | None]:
            out = ep.combine(x, handle.routing, bias=as_biases(bias))
            return out, None if topk_weights is None else ep.combine(topk_weights, handle.routing)

        given = (x, topk_weights, bias, handle)
        results, event = self._lane.run(operation, given, async_finish, (previous_event,))
        return (*results, event)

    def internode_dispatch(self, x: Any, *given: Any, **named: Any) -> tuple[Any, ...]:
        """As dispatch, which serves all ranks alike."""
        return self.dispatch(x, *given, **named)

    def internode_combine(self, x: Tensor, *given: Any, **named: Any) -> tuple[Any, ...]:
        """As combine, which serves all ranks alike."""
        return self.combine(x, *given, **named)

    def clean_low_latency_buffer(
        self, num_max_dispatch_tokens_per_rank: int, hidden: int, num_experts: int
    ) -> None:
        """Nothing: no buffer of EPX has to be clean."""

    def low_latency_dispatch(
        self,
        x: Tensor,
        topk_idx: Tensor,
        num_max_dispatch_tokens_per_rank: int,
        num_experts: int,
        cumulative_local_expert_recv_stats: Tensor | None = None,
        dispatch_wait_recv_cost_stats: Tensor | None = None,
        use_fp8: bool = True,
        round_scale: bool = False,
        use_ue8m0: bool = False,
        async_finish: bool = False,
        return_recv_hook: bool = False,
        **of_forks: Any,
    ) -> tuple[Any, Tensor, LowLatencyHandle, EventOverlap, Callable[[], None]]:
        """Send tokens to slabs of their experts. Collective.

        Arguments and results are DeepEP's. topk_idx is not written to before combine.
        """
        refuse_forks("low_latency_dispatch", of_forks)
        if dispatch_wait_recv_cost_stats is not None:
            refuse("dispatch_wait_recv_cost_stats", "epx_info --waits, or EPX_TRACE")
        return self._low_latency.dispatch(
            x,
            topk_idx,
            (num_max_dispatch_tokens_per_rank, num_experts),
            cumulative_local_expert_recv_stats,
            quantizer(use_fp8, round_scale, use_ue8m0, x.shape[1]),
            async_finish,
            return_recv_hook,
        )

    def low_latency_combine(
        self,
        x: Tensor,
        topk_idx: Tensor,
        topk_weights: Tensor,
        handle: LowLatencyHandle,
        use_logfmt: bool = False,
        zero_copy: bool = False,
        async_finish: bool = False,
        return_recv_hook: bool = False,
        out: Tensor | None = None,
        combine_wait_recv_cost_stats: Tensor | None = None,
        **of_forks: Any,
    ) -> tuple[Tensor, EventOverlap, Callable[[], None]]:
        """Bring rows home, multiply them by the weights there, and add them. Collective.

        topk_idx is that of the dispatch. With zero_copy the rows are those that the caller put into
        get_next_low_latency_combine_buffer(handle).
        """
        refuse_forks("low_latency_combine", of_forks)
        if use_logfmt:
            refuse("LogFMT (use_logfmt)", "bfloat16 rows")
        if combine_wait_recv_cost_stats is not None:
            refuse("combine_wait_recv_cost_stats", "epx_info --waits, or EPX_TRACE")
        if topk_idx.shape != handle.routing.ids.shape:
            shapes = list(topk_idx.shape), list(handle.routing.ids.shape)
            raise epx.EPXError(epx.Code.COUNT, f"deep_ep: topk_idx is {shapes[0]}, was {shapes[1]}")
        if zero_copy:
            assert handle.buffer is not None, "call get_next_low_latency_combine_buffer first"
            x = handle.buffer
        return self._low_latency.combine(
            x, topk_weights, handle, out, async_finish, return_recv_hook
        )

    def get_next_low_latency_combine_buffer(self, handle: LowLatencyHandle) -> Tensor:
        """bfloat16 [L, R * num_max_dispatch_tokens_per_rank, H], for a combine with zero_copy."""
        return self._low_latency.combine_buffer(handle)

    def get_local_buffer_tensor(self, *_: Any, **__: Any) -> NoReturn:
        """Raises: EPX has no one buffer."""
        refuse("Buffer.get_local_buffer_tensor", "comm.empty() of epx gives reserved memory")

    def low_latency_update_mask_buffer(self, *_: Any, **__: Any) -> NoReturn:
        """Raises: EPX has no shrink mode."""
        refuse("Buffer.low_latency_update_mask_buffer", _SHRINK)

    def low_latency_query_mask_buffer(self, *_: Any, **__: Any) -> NoReturn:
        """Raises: EPX has no shrink mode."""
        refuse("Buffer.low_latency_query_mask_buffer", _SHRINK)

    def low_latency_clean_mask_buffer(self, *_: Any, **__: Any) -> NoReturn:
        """Raises: EPX has no shrink mode."""
        refuse("Buffer.low_latency_clean_mask_buffer", _SHRINK)


def _dispatch_cached(handle: Handle, x: Any) -> tuple[Any, None, None, None, None]:
    rows, fields = as_fields(x)
    scales: Any = fields or None
    made, _, _ = ep.dispatch_by(rows, handle.routing, None, scales=scales)
    return made, None, None, None, None


def _layout(
    topk_idx: Tensor, num_experts: int, local: int, num_ranks: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Tokens for each rank, tokens for each expert, and which token goes to which rank."""
    num_tokens, device = topk_idx.shape[0], topk_idx.device
    is_one = topk_idx >= 0
    experts = torch.where(is_one, topk_idx, num_experts)
    is_in = torch.zeros((num_tokens, num_ranks + 1), dtype=torch.bool, device=device)
    is_in.scatter_(1, experts // local, torch.ones_like(is_one))
    is_in = is_in[:, :num_ranks].contiguous()
    per_expert = torch.zeros(num_experts + 1, dtype=torch.int32, device=device)
    flat = experts.flatten()
    per_expert.scatter_add_(0, flat, torch.ones_like(flat, dtype=torch.int32))
    return is_in.sum(0, dtype=torch.int32), per_expert[:num_experts], is_in
