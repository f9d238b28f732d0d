# SPDX-License-Identifier: BSD-3-Clause
"""EpBuffer: what a layer, or a microbatch of it, keeps of its routing."""

from __future__ import annotations

from typing import Any, NoReturn

import torch
from torch import Tensor

import epx
import epx.torch as ep
from epx.te import _mxfp8
from epx.te._group import Group, Limits, current, refuse, refuse_compilers


def _bound(name: str, value: int, most: int, least: int = 1) -> int:
    if not least <= value <= most:
        raise ValueError(f"EpBuffer: {name} is {value}, want {least} to {most}, ep_bootstrap's")
    return value


class EpBuffer:
    """The shape of a layer, and its latest routing. Made locally.

    Attributes: the arguments by name; ``tokens_per_expert`` int64 [num_local_experts], the rows of
    each expert, padding included, and ``total_recv_tokens`` int64 [1], the rows of this rank with
    those that were dropped, both of the latest routing; ``eager`` and ``zero_copy``, as
    ep_bootstrap has it; ``routing``, that of epx.torch, or None. ``handle_mem`` raises.
    """

    def __init__(
        self,
        top_k: int,
        max_tokens_per_rank: int,
        hidden_dim: int,
        num_local_experts: int,
        recv_capacity_per_rank: int | None = None,
        alignment: int = 0,
        payload_dtype: torch.dtype = torch.bfloat16,
        device: torch.device | None = None,
        dispatch_fwd_quant_recipe: Any = None,
        combine_bwd_quant_recipe: Any = None,
    ) -> None:
        self.group: Group = current()
        limits = self.group.limits
        self.eager = limits.recv_capacity_per_rank is None
        self.zero_copy = limits.zero_copy
        self.top_k = _bound("top_k", int(top_k), limits.num_topk)
        self.max_tokens_per_rank = _bound(
            "max_tokens_per_rank", int(max_tokens_per_rank), limits.max_tokens_per_rank
        )
        self.hidden_dim = _bound("hidden_dim", int(hidden_dim), limits.hidden_dim)
        self.recv_capacity_per_rank = _capacity(recv_capacity_per_rank, limits)
        per_rank = limits.num_experts // self.group.comm.size
        self.num_local_experts = _bound(
            "num_local_experts", int(num_local_experts), per_rank, per_rank
        )
        self.alignment = _alignment(int(alignment))
        if payload_dtype.itemsize > limits.max_token_dtype.itemsize:
            raise ValueError(f"EpBuffer: {payload_dtype} is wider than {limits.max_token_dtype}")
        self.payload_dtype = payload_dtype
        self.device = self.group.device() if device is None else torch.device(device)
        if self.device.type != self.group.device().type:
            refuse(f"buffer on {device}", f"the group's device, {self.group.device()}")
        self.dispatch_fwd_quant_recipe = _mxfp8.known(dispatch_fwd_quant_recipe)
        self.combine_bwd_quant_recipe = _mxfp8.known(combine_bwd_quant_recipe)
        self.tokens_per_expert = torch.zeros(
            self.num_local_experts, dtype=torch.int64, device=self.device
        )
        on = "cpu" if self.eager else self.device
        self.total_recv_tokens = torch.zeros(1, dtype=torch.int64, device=on)
        self.routing: ep.Routing | None = None
        self._route: epx.Route | None = None

    @property
    def handle_mem(self) -> NoReturn:
        """Raises: a routing is no tensor."""
        refuse("handle_mem", "EpBuffer.routing, the routing of epx.torch")

    @property
    def num_recv_tokens(self) -> int:
        """The rows of results: of the latest routing, or recv_capacity_per_rank."""
        if self.eager or self.recv_capacity_per_rank is None:
            return self.latest().capacity
        return self.recv_capacity_per_rank

    def latest(self) -> ep.Routing:
        """The latest routing."""
        if self.routing is None:
            raise RuntimeError("epx.te: call ep_prepare() or ep_dispatch() first")
        return self.routing

    def prepare(self, topk_idx: Tensor) -> ep.Routing:
        """Route, and note what it counts. Collective."""
        if topk_idx.dim() == 2 and topk_idx.shape[0] > self.max_tokens_per_rank:
            raise epx.EPXError(
                epx.Code.COUNT,
                f"topk_idx has {topk_idx.shape[0]} tokens, at most {self.max_tokens_per_rank}",
            )
        if self._route is None:
            self._route = self.group.new_route(self.top_k, self.alignment)
        route = self._route
        most = route.max_capacity
        route.set_capacity(min(self.recv_capacity_per_rank or most, most))
        self.routing = ep.route(topk_idx, route, exact=self.eager)
        self._count(self.routing)
        return self.routing

    def _count(self, routing: ep.Routing) -> None:
        offsets = routing.offsets
        torch.sub(offsets[1:], offsets[:-1], out=self.tokens_per_expert)
        if routing.sizes is not None:
            self.total_recv_tokens.fill_(routing.sizes[1][-1])
        elif self.group.limits.drop_on_overflow:
            self.total_recv_tokens.copy_(ep.view(routing).required_rows)
        else:
            self.total_recv_tokens.copy_(offsets[-1:])


def _capacity(capacity: int | None, limits: Limits) -> int | None:
    most = limits.recv_capacity_per_rank
    if capacity is None:
        if most is not None:
            raise ValueError("EpBuffer: want recv_capacity_per_rank, as ep_bootstrap was given one")
        return None
    return _bound("recv_capacity_per_rank", int(capacity), int(capacity) if most is None else most)


def _alignment(alignment: int) -> int:
    if alignment < 0 or alignment & (alignment - 1):
        raise ValueError(f"EpBuffer: alignment is {alignment}, want 0 or a power of two")
    return alignment


def ep_prepare(buffer: EpBuffer, topk_idx: Tensor) -> Tensor:
    """Route the tokens: EPX_Route_tokens(3). Collective. Returns ``buffer.tokens_per_expert``."""
    refuse_compilers("ep_prepare")
    buffer.prepare(topk_idx)
    counts: Tensor = buffer.tokens_per_expert
    return counts
