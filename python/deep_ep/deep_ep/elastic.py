# SPDX-License-Identifier: BSD-3-Clause
"""ElasticBuffer: dispatch and combine as DeepEP 2 has them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn, cast

import torch
from torch import Tensor

import epx
import epx.torch as ep
from epx.interfaces import Ground

from ._config import as_biases, as_fields, refuse, route_exactly
from ._events import EventHandle, EventOverlap, Lane
from ._numbers import align, in_columns

_PAGE = 2 << 20  # sizes are multiples of this
_NUM_QPS = 65  # what DeepEP would allocate


class _Shape(NamedTuple):
    """What ranks agree on before they dispatch."""

    num_experts: int
    num_max_tokens_per_rank: int
    expert_alignment: int
    do_expand: bool


class EPHandle:
    """Where the rows of a dispatch are, for combine and for dispatches that are cached.

    Attributes are DeepEP's. ``recv_src_metadata``, ``dst_buffer_slot_idx`` and, expanded,
    ``psum_num_recv_tokens_per_scaleup_rank`` are computed when they are first asked for. Of a
    dispatch without ``do_cpu_sync`` that is possible until the next one of the same shape.
    """

    token_metadata_at_forward = None
    channel_linked_list = None

    def __init__(self, shape: _Shape, routing: ep.Routing, num_sms: int) -> None:
        self.do_expand, self.num_experts = shape.do_expand, shape.num_experts
        self.expert_alignment = shape.expert_alignment
        self.num_max_tokens_per_rank = shape.num_max_tokens_per_rank
        self.num_sms = num_sms
        self.topk_idx = routing.ids
        self.routing = routing
        self.recv_topk_idx: Tensor | None = None
        self.num_recv_tokens_per_expert_list = self._known_counts()

    def _known_counts(self) -> list[int]:
        if self.routing.sizes is None:
            return []
        return [align(count, self.expert_alignment) for count in self.routing.sizes[0]]

    @functools.cached_property
    def view(self) -> ep.View:
        """What the route shows of this dispatch."""
        return ep.view(self.routing)

    @functools.cached_property
    def psum_num_recv_tokens_per_scaleup_rank(self) -> Tensor:
        """int32 [R]: tokens received from the ranks up to each."""
        if not self.do_expand:
            return self.routing.offsets[1:]
        return self.view.rank_counts.cumsum(0, dtype=torch.int32)

    @functools.cached_property
    def psum_num_recv_tokens_per_expert(self) -> Tensor:
        """int32 [L]: rows of the experts up to each, with padding; expanded, where its rows end."""
        if self.do_expand:
            return self.routing.offsets[:-1] + self.routing.counts
        counts, to = self.routing.counts, self.expert_alignment
        return ((counts + (to - 1)) // to * to).cumsum(0, dtype=torch.int32)

    @property
    def num_unaligned_recv_tokens_per_expert(self) -> Tensor | None:
        """int32 [L]: rows of each expert, without padding; expanded only."""
        return self.routing.counts if self.do_expand else None

    @property
    def num_recv_tokens(self) -> int:
        """Tokens received, or room for them where the host has not waited."""
        if self.do_expand and self.routing.sizes is not None:
            return self.recv_src_metadata.shape[0]
        if self.do_expand:
            return self.routing.route.comm.size * self.num_max_tokens_per_rank
        return self.routing.capacity

    @property
    def num_expanded_tokens(self) -> int:
        """Rows received, padding included, or room for them."""
        return self.routing.capacity if self.do_expand else 0

    @property
    def dst_buffer_slot_idx(self) -> Tensor:
        """int32 [T, K]: the row of each choice on its expert's rank, or -1."""
        return self.view.slots

    @functools.cached_property
    def recv_src_metadata(self) -> Tensor:
        """int32 [n, 2 + K], for each token received: rank * num_max_tokens_per_rank + token; its
        row or -1; expanded, the row of each choice that is here, or -1."""
        return _metadata_of_rows(self) if self.do_expand else _metadata_of_tokens(self)


def _metadata_of_tokens(handle: EPHandle) -> Tensor:
    view, routing = handle.view, handle.routing
    made = torch.full(
        (routing.capacity, 2 + routing.ids.shape[1]),
        -1,
        dtype=torch.int32,
        device=routing.ids.device,
    )
    made[:, 0] = view.row_ranks * handle.num_max_tokens_per_rank + view.row_tokens
    made[:, 1] = torch.arange(routing.capacity, device=made.device)
    return made


def _metadata_of_rows(handle: EPHandle) -> Tensor:
    """Tokens that have several rows here stand once, in the order of ranks and tokens."""
    view, routing = handle.view, handle.routing
    most, device = handle.num_max_tokens_per_rank, routing.ids.device
    room, top_k = routing.route.comm.size * most, routing.ids.shape[1]
    used = routing.used()
    token = torch.where(used, view.row_ranks * most + view.row_tokens, room).long()
    choices = cast(Tensor, view.row_choices)  # which rank-major alone has not
    choice = torch.where(used, choices, 0).long()
    rows = torch.full((room + 1, top_k), -1, dtype=torch.int32, device=device)
    slots = torch.arange(routing.capacity, device=device, dtype=torch.int32)
    rows[token, choice] = slots
    is_here = torch.zeros(room + 1, dtype=torch.bool, device=device)
    is_here[token] = True
    is_here[room] = False
    if routing.sizes is None:  # no host sync: all room, tokens that are here first
        first = torch.argsort(~is_here[:room], stable=True)
    else:
        first = is_here.nonzero()[:, 0]
    made = torch.full((len(first), 2 + top_k), -1, dtype=torch.int32, device=device)
    made[:, 0] = first
    made[:, 2:] = rows[first]
    return made


class ElasticBuffer:
    """Dispatch and combine of a group of ranks: DeepEP's ElasticBuffer, by EPX.

    ``num_max_tokens_per_rank`` is the default of dispatch; ``num_bytes`` is reserved for results,
    which then arrive without a copy; ``allow_multiple_reduction=False`` sends partial sums in
    float32; the time-out is the longer of the two. Results are always deterministic. ``hidden``,
    ``num_topk``, ``use_fp8_dispatch``, ``allow_hybrid_mode``, ``prefer_overlap_with_compute``,
    ``sl_idx`` and ``num_allocated_qps`` say nothing to EPX.
    """

    def __init__(
        self,
        group: Any,
        num_bytes: int | None = None,
        num_cpu_bytes: int = 0,
        num_max_tokens_per_rank: int = 0,
        hidden: int = 0,
        num_topk: int = 0,
        use_fp8_dispatch: bool = False,
        deterministic: bool = False,
        allow_hybrid_mode: bool = True,
        allow_multiple_reduction: bool = True,
        prefer_overlap_with_compute: bool = True,
        sl_idx: int = 3,
        num_allocated_qps: int = 0,
        num_cpu_timeout_secs: int = 300,
        num_gpu_timeout_secs: int = 100,
        explicitly_destroy: bool = False,
    ) -> None:
        if num_cpu_bytes:
            refuse("memory of hosts in a buffer (num_cpu_bytes)", "keep such tables in torch")
        self.group, self.deterministic = group, deterministic
        self.allow_hybrid_mode = allow_hybrid_mode
        self.allow_multiple_reduction = allow_multiple_reduction
        self.prefer_overlap_with_compute = prefer_overlap_with_compute
        self.num_allocated_qps = num_allocated_qps or _NUM_QPS
        self.explicitly_destroy = explicitly_destroy
        hints: dict[str, object] = {
            "combine_order": "choice",
            "timeout_ms": 1000 * max(num_cpu_timeout_secs, num_gpu_timeout_secs),
        }
        if not allow_multiple_reduction:
            hints["combine_partials"] = "float32"
        self._ground: Ground | None = Ground(group, hints)
        self._comm = self._ground.comm
        self.rank_idx, self.num_ranks = self._comm.rank, self._comm.size
        self.num_bytes = num_bytes or 0
        self._ground.reserve(self.num_bytes)
        self.num_max_tokens_per_rank = num_max_tokens_per_rank
        self.num_scaleout_ranks, self.num_scaleup_ranks = self.get_logical_domain_size()
        self.num_rdma_ranks, self.num_nvlink_ranks = self.get_physical_domain_size()
        self.scaleout_rank_idx, self.scaleup_rank_idx = 0, self.rank_idx
        self._lane = Lane(self._comm.on_device)

    def destroy(self) -> None:
        """Free what the buffer has. Collective."""
        assert self.explicitly_destroy, "explicitly_destroy was not set"
        if self._ground is not None:
            self._ground.close()
            self._ground = None

    @staticmethod
    def get_buffer_size_hint(
        group: Any,
        num_max_tokens_per_rank: int,
        hidden: int,
        num_topk: int = 0,
        use_fp8_dispatch: bool = False,
        allow_hybrid_mode: bool = True,
        allow_multiple_reduction: bool = True,
    ) -> int:
        """Bytes of the rows that a rank receives at most in one dispatch, not expanded."""
        row = hidden + -(-hidden // 128) * 4 if use_fp8_dispatch else 2 * hidden
        return align(group.size() * num_max_tokens_per_rank * row, _PAGE)

    def barrier(
        self, use_comm_stream: bool = True, with_cpu_sync: bool = False, sequential: bool = True
    ) -> None:
        """Wait for all ranks: the host, once the GPU is through with what is queued."""
        if self._lane.on_device:
            torch.cuda.synchronize()
        self._comm.largest(0)

    @staticmethod
    def capture() -> EventHandle:
        """An event on the current stream."""
        return EventHandle()

    def get_comm_stream(self) -> Any:
        """The stream of asynchronous calls; on hosts None."""
        return self._lane.stream

    def get_physical_domain_size(self) -> tuple[int, int]:
        """One domain of all ranks: EPX finds its own ways between nodes."""
        return 1, self.num_ranks

    def get_logical_domain_size(self) -> tuple[int, int]:
        """As get_physical_domain_size."""
        return 1, self.num_ranks

    def get_theoretical_num_sms(self, num_experts: int, num_topk: int, *_: Any, **__: Any) -> int:
        """What a caller may hand over as num_sms, which has no effect: the hint epx_max_sms has."""
        limit = int(self._comm.hint("max_sms") or 0)
        return limit or 24

    def get_theoretical_num_qps(self, num_sms: int) -> int:
        """What a caller may hand over as num_qps, which has no effect."""
        return min(num_sms, self.num_allocated_qps)

    def _route_of(self, shape: _Shape, top_k: int) -> epx.Route:
        assert self._ground is not None, "the buffer is destroyed"
        key = (shape, top_k)
        route = self._ground.known(key)
        if route is not None:
            return route
        return self._ground.make(
            key,
            experts=shape.num_experts,
            top_k=top_k,
            max_tokens=shape.num_max_tokens_per_rank,
            alignment=shape.expert_alignment if shape.do_expand else 1,
            layout="expert" if shape.do_expand else "rank",
        )

    def dispatch(
        self,
        x: Tensor | tuple[Tensor, Tensor],
        topk_idx: Tensor | None = None,
        topk_weights: Tensor | None = None,
        cumulative_local_expert_recv_stats: Tensor | None = None,
        num_experts: int | None = None,
        num_max_tokens_per_rank: int | None = None,
        expert_alignment: int | None = None,
        num_sms: int = 0,
        num_qps: int = 0,
        previous_event: Any = None,
        previous_event_before_epilogue: Any = None,
        async_with_compute_stream: bool = False,
        allocate_on_comm_stream: bool = False,
        handle: EPHandle | None = None,
        do_handle_copy: bool = True,
        do_cpu_sync: bool | None = None,
        do_expand: bool = False,
        do_zero_padding: bool = False,
        use_tma_aligned_col_major_sf: bool = False,
    ) -> tuple[Any, Tensor | None, Tensor | None, EPHandle, EventOverlap]:
        """Send tokens to the ranks of their experts. Collective.

        Arguments and results are DeepEP's. Padding is zero with do_zero_padding or without; num_sms
        and num_qps have no effect.
        """
        assert num_qps <= self.num_allocated_qps, "more QPs than num_allocated_qps"
        stats = cumulative_local_expert_recv_stats
        if handle is None:
            assert topk_idx is not None, "want topk_idx or handle"
            default = num_max_tokens_per_rank or self.num_max_tokens_per_rank
            shape = _Shape(num_experts or 0, default, expert_alignment or 1, bool(do_expand))
            route = self._route_of(shape, topk_idx.shape[1])
            is_exact = do_cpu_sync is None or bool(do_cpu_sync)
            settings = shape, route, num_sms, is_exact, do_handle_copy
            begin: Callable[[], Any] = functools.partial(
                self._dispatch_new, settings, x, topk_idx, topk_weights, stats
            )
        else:
            assert topk_idx is None and not do_cpu_sync, "a handle has topk_idx, and its sizes"
            assert handle.do_expand or not do_expand, "the handle is not of an expanded dispatch"
            _check_agrees(handle, num_experts, num_max_tokens_per_rank, expert_alignment)
            begin = functools.partial(self._dispatch_cached, handle, x, topk_weights, stats)

        def operation() -> tuple[Any, ...]:
            rows, row_weights, made = begin()
            if isinstance(rows, tuple) and use_tma_aligned_col_major_sf:
                rows = rows[0], in_columns(rows[1])
            return rows, made.recv_topk_idx, row_weights, made

        given = (x, topk_idx, topk_weights, stats, handle)
        previous = (previous_event, previous_event_before_epilogue)
        results, event = self._lane.run(operation, given, bool(async_with_compute_stream), previous)
        return (*results, event)

    def _dispatch_new(
        self,
        settings: tuple[Any, ...],
        x: Any,
        ids: Tensor,
        weights: Tensor | None,
        stats: Tensor | None,
    ) -> tuple[Any, Tensor | None, EPHandle]:
        shape, route, num_sms, is_exact, is_copied = settings
        if is_copied:  # on the stream of the operation, which may wait for no more than an event
            ids = ids.clone()
        rows, fields = as_fields(x)
        more: Any = {"scales": fields or None, "add_counts_to": stats}
        if is_exact:
            routing = route_exactly(ids, route, rows, weights, more["scales"])
            made, row_weights, routing = ep.dispatch_by(rows, routing, weights, **more)
        else:
            made, row_weights, routing = ep.dispatch(rows, ids, weights, route, **more)
        handle = EPHandle(shape, routing, num_sms)
        if not shape.do_expand:
            handle.recv_topk_idx = routing.row_experts.long()
        if is_exact:
            handle.view  # while the route shows it  # noqa: B018
        return made, row_weights, handle

    def _dispatch_cached(
        self, handle: EPHandle, x: Any, weights: Tensor | None, stats: Tensor | None
    ) -> tuple[Any, Tensor | None, EPHandle]:
        rows, fields = as_fields(x)
        more: Any = {"scales": fields or None, "add_counts_to": stats}
        made, row_weights, _ = ep.dispatch_by(rows, handle.routing, weights, **more)
        return made, row_weights, handle

    def combine(
        self,
        x: Tensor,
        handle: EPHandle,
        topk_weights: Tensor | None = None,
        bias: Tensor | tuple[Tensor, Tensor] | None = None,
        num_sms: int = 0,
        num_qps: int = 0,
        previous_event: Any = None,
        previous_event_before_epilogue: Any = None,
        async_with_compute_stream: bool = False,
        allocate_on_comm_stream: bool = False,
    ) -> tuple[Tensor, Tensor | None, EventOverlap]:
        """Bring rows home and add them, without weights, to the biases. Collective.

        Weights of rows come home, too: topk_weights, [n, K], or expanded one a row.
        """
        assert num_qps <= self.num_allocated_qps, "more QPs than num_allocated_qps"
        operation = functools.partial(combine, x, handle.routing, topk_weights, as_biases(bias))
        previous = (previous_event, previous_event_before_epilogue)
        results, event = self._lane.run(
            operation, (x, topk_weights, bias, handle), bool(async_with_compute_stream), previous
        )
        return (*results, event)

    def _none(self, name: str, instead: str) -> NoReturn:
        refuse(f"ElasticBuffer.{name}", instead)

    @staticmethod
    def get_engram_storage_size_hint(*_: Any, **__: Any) -> NoReturn:
        """Raises: EPX has no Engram."""
        refuse("ElasticBuffer.get_engram_storage_size_hint", "keep the table in torch")

    def engram_write(self, *_: Any, **__: Any) -> NoReturn:
        """Raises: EPX has no Engram."""
        self._none("engram_write", "keep the table in torch")

    def engram_fetch(self, *_: Any, **__: Any) -> NoReturn:
        """Raises: EPX has no Engram."""
        self._none("engram_fetch", "ask for rows by epx.torch.dispatch, and send them by combine")

    @staticmethod
    def get_pp_buffer_size_hint(*_: Any, **__: Any) -> NoReturn:
        """Raises: EPX has no pipeline messages."""
        refuse("ElasticBuffer.get_pp_buffer_size_hint", "torch.distributed.isend, irecv")

    def pp_set_config(self, *_: Any, **__: Any) -> NoReturn:
        """Raises: EPX has no pipeline messages."""
        self._none("pp_set_config", "torch.distributed.isend, irecv")

    def pp_send(self, *_: Any, **__: Any) -> NoReturn:
        """Raises: EPX has no pipeline messages."""
        self._none("pp_send", "torch.distributed.isend")

    def pp_recv(self, *_: Any, **__: Any) -> NoReturn:
        """Raises: EPX has no pipeline messages."""
        self._none("pp_recv", "torch.distributed.irecv")

    @staticmethod
    def get_agrs_num_max_session_bytes(*_: Any, **__: Any) -> NoReturn:
        """Raises: EPX gathers nothing."""
        refuse("ElasticBuffer.get_agrs_num_max_session_bytes", "torch.distributed.all_gather")

    @staticmethod
    def get_agrs_buffer_size_hint(*_: Any, **__: Any) -> NoReturn:
        """Raises: EPX gathers nothing."""
        refuse("ElasticBuffer.get_agrs_buffer_size_hint", "torch.distributed.all_gather")

    def create_agrs_session(self) -> NoReturn:
        """Raises: EPX gathers nothing."""
        self._none("create_agrs_session", "torch.distributed.all_gather_into_tensor")

    def destroy_agrs_session(self) -> NoReturn:
        """Raises: EPX gathers nothing."""
        self._none("destroy_agrs_session", "torch.distributed.all_gather_into_tensor")

    def agrs_new_session(self, enabled: bool = True) -> NoReturn:
        """Raises: EPX gathers nothing."""
        self._none("agrs_new_session", "torch.distributed.all_gather_into_tensor")

    def agrs_set_config(self, *_: Any, **__: Any) -> NoReturn:
        """Raises: EPX gathers nothing."""
        self._none("agrs_set_config", "torch.distributed.all_gather_into_tensor")

    def agrs_get_inplace_tensor(self, *_: Any, **__: Any) -> NoReturn:
        """Raises: EPX gathers nothing."""
        self._none("agrs_get_inplace_tensor", "torch.distributed.all_gather_into_tensor")

    def all_gather(self, t: Any) -> NoReturn:
        """Raises: EPX gathers nothing."""
        self._none("all_gather", "torch.distributed.all_gather_into_tensor")


def get_physical_domain_size(group: Any) -> tuple[int, int]:
    """One domain of all ranks of the group."""
    return 1, group.size()


def get_logical_domain_size(group: Any, allow_hybrid_mode: bool = True) -> tuple[int, int]:
    """As get_physical_domain_size."""
    return get_physical_domain_size(group)


def _check_agrees(handle: EPHandle, *given: int | None) -> None:
    """What is given beside a handle is what the handle has."""
    has = handle.num_experts, handle.num_max_tokens_per_rank, handle.expert_alignment
    for value, wanted in zip(given, has):
        assert value is None or value == wanted, f"the handle has {wanted}, not {value}"


def combine(
    x: Tensor, routing: ep.Routing, weights: Tensor | None, biases: tuple[Tensor, ...] | None
) -> tuple[Tensor, Tensor | None]:
    """Sums of rows, and each choice's weight at home."""
    if weights is None:
        return ep.combine(x, routing, bias=biases), None
    if biases is None:  # both in one operation
        return ep.dispatch_backward(x, routing, weights)
    _, home = ep.dispatch_backward(x[:, :0], routing, weights)
    return ep.combine(x, routing, bias=biases), home
