# SPDX-License-Identifier: BSD-3-Clause
"""ep_dispatch and ep_combine, with gradients."""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

import epx
import epx.torch as ep
from epx.te import _mxfp8
from epx.te._buffer import EpBuffer
from epx.te._group import refuse_compilers
from epx.te._mxfp8 import GroupedTensor


class _Rows(NamedTuple):
    """Where rows arrive: as many as results have, and for MXFP8 their scales."""

    rows: Tensor
    scales: Tensor | None


def _carve(buffer: EpBuffer, num: int, given: Tensor | None) -> _Rows:
    """Room for rows in MXFP8 and their scales, one behind the other in what the caller gave."""
    hidden, columns = buffer.hidden_dim, _mxfp8.num_scales(buffer.hidden_dim)
    if given is None:
        rows = buffer.group.empty((num, hidden), torch.float8_e4m3fn)
        return _Rows(rows, buffer.group.empty((num, columns), torch.uint8))
    want = num * (hidden + columns)
    if not given.is_contiguous() or given.nbytes < want:
        raise ValueError(
            f"epx.te: {given.nbytes} bytes for rows and scales, want {want}, without gaps"
        )
    flat = given.detach().view(-1).view(torch.uint8)
    rows = flat[: num * hidden].view(torch.float8_e4m3fn).view(num, hidden)
    return _Rows(rows, flat[num * hidden : want].view(num, columns))


def _room(
    buffer: EpBuffer, num: int, dtype: torch.dtype, given: Tensor | None, recipe: Any
) -> _Rows:
    if recipe is not None:
        return _carve(buffer, num, given)
    if given is None:
        return _Rows(buffer.group.empty((num, buffer.hidden_dim), dtype), None)
    _check_shape("rows of the caller", given, (num, buffer.hidden_dim))
    if given.dtype != dtype:
        raise epx.EPXError(epx.Code.TYPE, f"rows of the caller: {given.dtype}, want {dtype}")
    if not given.is_contiguous():
        raise epx.EPXError(epx.Code.BUFFER, "rows of the caller have gaps")
    return _Rows(given.detach(), None)


def _check_shape(name: str, tensor: Tensor, shape: tuple[int, ...]) -> None:
    if tuple(tensor.shape) != shape:
        raise epx.EPXError(
            epx.Code.COUNT, f"{name}: shape {list(tensor.shape)}, want {list(shape)}"
        )


def _send(
    x: Tensor, routing: ep.Routing, room: _Rows, weights: Tensor | None, row_weights: Tensor | None
) -> None:
    """Sends rows to where they shall arrive: in MXFP8 if there is room for scales."""
    num = routing.capacity  # the worst case may be less than the caller has room for
    out = [room.rows[:num]]
    if weights is not None and row_weights is not None:
        out.append(row_weights[:num])
    scales = None
    if room.scales is not None:
        x, scales = _mxfp8.quantize(x)
        out.append(room.scales[:num])
    cast(Any, ep.dispatch_by)(x, routing, weights, scales=scales, out=tuple(out))


def _arrived(room: _Rows, routing: ep.Routing, dtype: torch.dtype) -> Tensor:
    if room.scales is None:
        return room.rows
    return GroupedTensor.of(room.rows, room.scales, routing.offsets.diff().long(), dtype)


class _Dispatch(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        buffer: EpBuffer,
        room: _Rows,
        row_weights: Tensor,
        tokens: Tensor,
        topk_weights: Tensor,
    ) -> tuple[Tensor, Tensor]:
        ctx.routing = buffer.latest()
        _send(tokens, ctx.routing, room, topk_weights, row_weights)
        return _arrived(room, ctx.routing, tokens.dtype), row_weights.detach()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        made = ep.dispatch_backward(grads[0], ctx.routing, grads[1])
        return None, None, None, *made


class _Combine(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, buffer: EpBuffer, num: int, grad_out: Tensor | None, expert_out: Tensor
    ) -> Tensor:
        ctx.routing, ctx.buffer, ctx.grad_out = buffer.latest(), buffer, grad_out
        ctx.rows, ctx.dtype = expert_out.shape[0], expert_out.dtype
        result = expert_out.new_empty((num, buffer.hidden_dim))
        _bring_home(expert_out, ctx.routing, result)
        return result

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        buffer, recipe = ctx.buffer, ctx.buffer.combine_bwd_quant_recipe
        room = _room(buffer, ctx.rows, ctx.dtype, ctx.grad_out, recipe)
        grad = grads[0][: ctx.routing.ids.shape[0]]
        _send(grad, ctx.routing, room, None, None)
        return None, None, None, _arrived(room, ctx.routing, ctx.dtype)


def _bring_home(expert_out: Tensor, routing: ep.Routing, result: Tensor) -> None:
    """Sums the rows of each token; results behind the tokens are zero."""
    num = routing.ids.shape[0]
    if result.shape[0] < num:
        raise epx.EPXError(epx.Code.COUNT, f"room for {result.shape[0]} results, want {num}")
    ep.combine(expert_out, routing, out=result[:num])
    result[num:].zero_()


def _check_tokens(buffer: EpBuffer, tokens: Tensor, topk_weights: Tensor) -> None:
    if topk_weights.dtype != torch.float32:
        raise TypeError(f"ep_dispatch: topk_weights are {topk_weights.dtype}, want torch.float32")
    if isinstance(tokens, GroupedTensor) or hasattr(tokens, "_rowwise_data"):
        raise NotImplementedError(
            f"ep_dispatch: tokens are a {type(tokens).__name__}, want a torch.Tensor, which the "
            "recipe of the buffer quantizes"
        )
    if tokens.dtype != buffer.payload_dtype:
        raise epx.EPXError(
            epx.Code.TYPE, f"tokens are {tokens.dtype}, payload_dtype is {buffer.payload_dtype}"
        )
    _check_shape("tokens", tokens, (tokens.shape[0], buffer.hidden_dim))


def ep_dispatch(
    buffer: EpBuffer,
    tokens: Tensor,
    topk_idx: Tensor,
    topk_weights: Tensor,
    *,
    recv_tokens: Tensor | None = None,
    recv_topk_weights: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Route, and send every token to its experts: ep_prepare and a dispatch. Collective.

    ``tokens`` [T, H] of the buffer's payload_dtype; ``topk_idx`` [T, K] int32 or int64, not written
    to before the backward; ``topk_weights`` float32 [T, K]. ``recv_tokens`` and
    ``recv_topk_weights`` are where rows and weights arrive, recv_capacity_per_rank of them.

    Returns the rows, expert by expert, with ``dispatch_fwd_quant_recipe`` a GroupedTensor; their
    weights; and ``buffer.tokens_per_expert``. Rows behind these are not written. Gradients: of
    ``tokens`` and ``topk_weights``.
    """
    refuse_compilers("ep_dispatch")
    _check_tokens(buffer, tokens, topk_weights)
    if buffer.eager and (recv_tokens is not None or recv_topk_weights is not None):
        raise ValueError(
            "ep_dispatch: recv_tokens and recv_topk_weights want recv_capacity_per_rank in "
            "ep_bootstrap"
        )
    buffer.prepare(topk_idx)
    num = buffer.num_recv_tokens
    room = _room(buffer, num, tokens.dtype, recv_tokens, buffer.dispatch_fwd_quant_recipe)
    if recv_topk_weights is None:
        recv_topk_weights = buffer.group.empty((num,), torch.float32)
    _check_shape("recv_topk_weights", recv_topk_weights, (num,))
    rows, row_weights = cast(Any, _Dispatch).apply(
        buffer, room, recv_topk_weights, tokens, topk_weights
    )
    return rows, row_weights, buffer.tokens_per_expert


def ep_combine(
    buffer: EpBuffer,
    expert_out: Tensor,
    *,
    num_local_tokens: int | None = None,
    grad_out: Tensor | None = None,
) -> Tensor:
    """Sum the rows of each token, which the caller has multiplied by their weights. Collective.

    ``expert_out`` [rows, H], as many as dispatch returned. Returns [num_local_tokens, H],
    max_tokens_per_rank without it; what is behind the tokens is zero. ``grad_out``: where the
    gradient of ``expert_out`` arrives; with ``combine_bwd_quant_recipe`` that is a GroupedTensor.
    """
    refuse_compilers("ep_combine")
    if buffer.eager and grad_out is not None:
        raise ValueError("ep_combine: grad_out wants recv_capacity_per_rank in ep_bootstrap")
    num = buffer.num_recv_tokens
    _check_shape("expert_out", expert_out, (num, buffer.hidden_dim))
    if grad_out is not None:  # what is wrong with it is told now, and not in the backward
        recipe = buffer.combine_bwd_quant_recipe
        _room(buffer, num, expert_out.dtype, grad_out, recipe)
    num_tokens = buffer.max_tokens_per_rank if num_local_tokens is None else num_local_tokens
    made: Tensor = cast(Any, _Combine).apply(buffer, num_tokens, grad_out, expert_out)
    return made


def _ep_dispatch_raw(
    buffer: EpBuffer,
    topk_idx: Tensor,
    tokens: Tensor,
    topk_weights: Tensor,
    recv_tokens: Tensor,
    recv_topk_weights: Tensor,
) -> None:
    """Dispatch by the routing of ep_prepare, of the same ids, without gradients."""
    _check_shape("topk_idx", topk_idx, tuple(buffer.latest().ids.shape))
    room = _room(buffer, buffer.num_recv_tokens, tokens.dtype, recv_tokens, None)
    with torch.no_grad():
        _send(tokens, buffer.latest(), room, topk_weights, recv_topk_weights)


def _ep_combine_raw(buffer: EpBuffer, expert_out: Tensor, result: Tensor) -> None:
    """Combine by the routing of ep_prepare, without gradients."""
    with torch.no_grad():
        _bring_home(expert_out, buffer.latest(), result)
