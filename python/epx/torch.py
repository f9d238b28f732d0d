# SPDX-License-Identifier: BSD-3-Clause
"""Dispatch and combine as ops of PyTorch, with gradients.

    rows, row_weights, routing = epx.torch.dispatch(x, ids, weights, route)
    y = experts(rows, routing.offsets)
    out = epx.torch.combine(y, routing, row_weights)

Every op, and every backward, is collective: all ranks of the route's communicator call the same ops
in the same order, a rank without tokens or experts too. Which of x and weights want gradients must
be alike on all ranks, and each rank's loss depends on what combine returned, even if that is empty.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from epx._core import Code, EPXError, Route, routes, run

__all__ = ["Routing", "combine", "dispatch"]

_DISPATCH, _COMBINE, _DISPATCH_BACKWARD, _COMBINE_BACKWARD = range(4)

_TYPES = {
    torch.uint8: 1,
    torch.float8_e4m3fn: 2,
    torch.float8_e5m2: 3,
    torch.float16: 4,
    torch.bfloat16: 5,
    torch.float32: 6,
    torch.float64: 7,
    torch.int32: 32,
    torch.int64: 64,
}
_SUMMED = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_UNKNOWN_TYPE = 99

Dispatched = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]
Members = tuple[int, int, int, int]
_NONE: Members = (0, 0, 0, 0)


class Routing(NamedTuple):
    """Where the rows of one dispatch are. A value: any number of them may live on one route.

    ``ids`` int64 [T, K], not to be written while the routing is used; ``key`` names the routing
    to the library; ``counts`` int32 [L]: rows of each local expert (in rank-major: pairs);
    ``offsets`` int32: first row of each local expert [L+1], in rank-major that of each source rank
    [R+1]; its last element is the number of rows. ``row_experts`` int32, in rank-major [capacity,
    K]: the local experts of each row or -1; else [0, K]. ``tie`` has no element: by it combine's
    backward runs wherever dispatch's does. ``capacity``: rows of the dispatch.
    """

    ids: Tensor
    key: Tensor
    route: Route
    counts: Tensor
    offsets: Tensor
    row_experts: Tensor
    tie: Tensor
    capacity: int


def _members(name: str, tensor: Tensor | None) -> Members:
    if tensor is None:
        return _NONE
    shape = tensor.shape
    if not 1 <= len(shape) <= 2:
        raise EPXError(Code.COUNT, f"{name} has {len(shape)} dimensions, want 2")
    return (
        tensor.data_ptr(),
        shape[0],
        shape[1] if len(shape) == 2 else 1,
        _TYPES.get(tensor.dtype, _UNKNOWN_TYPE),
    )


def _operation(
    verb: int,
    op: tuple[int, int, Tensor, Tensor],
    tensors: tuple[Members, Members, Members, Members, Members],
    view: tuple[int, int, int] = (0, 0, 0),
) -> None:
    index, capacity, ids, key = op
    given, weights, rows, made, made_weights = tensors
    run(
        (
            *(verb, index, capacity, 0, key.data_ptr(), *view),
            *(*_members("ids", ids), *given, *weights, *rows, *made, *made_weights),
        )
    )


def _route(index: int) -> Route:
    route = routes.get(index)
    if route is None:
        raise EPXError(Code.ROUTE, "the route is freed")
    return route


def _dispatch_outputs(
    x: Tensor, weights: Tensor | None, key: Tensor, index: int, capacity: int
) -> Dispatched:
    route = _route(index)
    is_rank_major = route.layout == "rank"
    if x.dim() != 2:
        raise EPXError(Code.COUNT, f"x has {x.dim()} dimensions, want 2")
    rows = x.new_empty(capacity, x.shape[1])
    shape = (capacity, route.top_k) if is_rank_major else (capacity,)
    row_weights = x.new_empty(shape if weights is not None else (0,), dtype=torch.float32)
    num_offsets = route.comm.size if is_rank_major else route.local_experts
    integer = torch.int32
    return (
        rows,
        row_weights,
        key,
        x.new_empty(route.local_experts, dtype=integer),
        x.new_empty(num_offsets + 1, dtype=integer),
        x.new_empty(capacity if is_rank_major else 0, route.top_k, dtype=integer),
        x.new_empty(0, dtype=torch.float32),
    )


def _dispatch_cpu(
    x: Tensor, ids: Tensor, weights: Tensor | None, index: int, capacity: int
) -> Dispatched:
    made = _dispatch_outputs(x, weights, ids.new_empty(1), index, capacity)
    rows, row_weights, key, counts, offsets, row_experts, _ = made
    _operation(
        _DISPATCH,
        (index, capacity, ids.contiguous(), key),
        (
            _members("x", x := x.contiguous()),
            _members("weights", weights := weights if weights is None else weights.contiguous()),
            _NONE,
            _members("rows", rows),
            _NONE if weights is None else _members("row_weights", row_weights),
        ),
        (counts.data_ptr(), offsets.data_ptr(), row_experts.data_ptr()),
    )
    return made


def _combine_output(y: Tensor, ids: Tensor) -> Tensor:
    if y.dim() != 2:
        raise EPXError(Code.COUNT, f"y has {y.dim()} dimensions, want 2")
    return y.new_empty(ids.shape[0], y.shape[1])


def _combine_cpu(
    y: Tensor,
    row_weights: Tensor | None,
    ids: Tensor,
    key: Tensor,
    tie: Tensor,
    index: int,
    capacity: int,
) -> Tensor:
    out = _combine_output(y, ids)
    y = y.contiguous()
    row_weights = row_weights if row_weights is None else row_weights.contiguous()
    _operation(
        _COMBINE,
        (index, capacity, ids.contiguous(), key),
        (
            _members("y", y),
            _members("row_weights", row_weights),
            _NONE,
            _members("out", out),
            _NONE,
        ),
    )
    return out


def _dispatch_backward_outputs(
    grad_rows: Tensor, grad_row_weights: Tensor | None, ids: Tensor
) -> tuple[Tensor, Tensor]:
    shape = (0,) if grad_row_weights is None else tuple(ids.shape)
    return (
        grad_rows.new_empty((ids.shape[0], grad_rows.shape[1])),
        grad_rows.new_empty(shape, dtype=torch.float32),
    )


def _dispatch_backward_cpu(
    grad_rows: Tensor,
    grad_row_weights: Tensor | None,
    ids: Tensor,
    key: Tensor,
    index: int,
    capacity: int,
) -> tuple[Tensor, Tensor]:
    made = _dispatch_backward_outputs(grad_rows, grad_row_weights, ids)
    grad_rows = grad_rows.contiguous()
    given = grad_row_weights if grad_row_weights is None else grad_row_weights.contiguous()
    _operation(
        _DISPATCH_BACKWARD,
        (index, capacity, ids.contiguous(), key),
        (
            _members("grad of rows", grad_rows),
            _members("grad of row_weights", given),
            _NONE,
            _members("grad of x", made[0]),
            _NONE if given is None else _members("grad of weights", made[1]),
        ),
    )
    return made


def _combine_backward_outputs(
    grad: Tensor, y: Tensor | None, capacity: int
) -> tuple[Tensor, Tensor]:
    return (
        grad.new_empty((capacity, grad.shape[1])),
        grad.new_empty((0,) if y is None else (capacity,), dtype=torch.float32),
    )


def _combine_backward_cpu(
    grad: Tensor,
    y: Tensor | None,
    row_weights: Tensor | None,
    ids: Tensor,
    key: Tensor,
    index: int,
    capacity: int,
) -> tuple[Tensor, Tensor]:
    made = _combine_backward_outputs(grad, y, capacity)
    grad = grad.contiguous()
    y = y if y is None else y.contiguous()
    row_weights = row_weights if row_weights is None else row_weights.contiguous()
    _operation(
        _COMBINE_BACKWARD,
        (index, capacity, ids.contiguous(), key),
        (
            _members("grad of out", grad),
            _members("row_weights", row_weights),
            _members("y", y),
            _members("grad of y", made[0]),
            _NONE if y is None else _members("grad of row_weights", made[1]),
        ),
    )
    return made


def _dispatch_fake(
    x: Tensor, ids: Tensor, weights: Tensor | None, index: int, capacity: int
) -> Dispatched:
    key = torch.empty((1,), dtype=torch.int64, device="cpu")
    return _dispatch_outputs(x, weights, key, index, capacity)


def _combine_fake(
    y: Tensor,
    row_weights: Tensor | None,
    ids: Tensor,
    key: Tensor,
    tie: Tensor,
    index: int,
    capacity: int,
) -> Tensor:
    return _combine_output(y, ids)


def _dispatch_backward_fake(
    grad_rows: Tensor,
    grad_row_weights: Tensor | None,
    ids: Tensor,
    key: Tensor,
    index: int,
    capacity: int,
) -> tuple[Tensor, Tensor]:
    return _dispatch_backward_outputs(grad_rows, grad_row_weights, ids)


def _combine_backward_fake(
    grad: Tensor,
    y: Tensor | None,
    row_weights: Tensor | None,
    ids: Tensor,
    key: Tensor,
    index: int,
    capacity: int,
) -> tuple[Tensor, Tensor]:
    return _combine_backward_outputs(grad, y, capacity)


_library: Any = cast(Any, torch.library.Library)("epx", "DEF")
_SCHEMAS = {
    "dispatch": "(Tensor x, Tensor ids, Tensor? weights, int route, SymInt capacity)"
    " -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
    "combine": "(Tensor y, Tensor? row_weights, Tensor ids, Tensor key, Tensor tie,"
    " int route, SymInt capacity) -> Tensor",
    "dispatch_backward": "(Tensor grad_rows, Tensor? grad_row_weights, Tensor ids, Tensor key,"
    " int route, SymInt capacity) -> (Tensor, Tensor)",
    "combine_backward": "(Tensor grad, Tensor? y, Tensor? row_weights, Tensor ids, Tensor key,"
    " int route, SymInt capacity) -> (Tensor, Tensor)",
}
_KERNELS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "dispatch": (_dispatch_cpu, _dispatch_fake),
    "combine": (_combine_cpu, _combine_fake),
    "dispatch_backward": (_dispatch_backward_cpu, _dispatch_backward_fake),
    "combine_backward": (_combine_backward_cpu, _combine_backward_fake),
}
for _name, _schema in _SCHEMAS.items():
    _library.define(_name + _schema)
    _library.impl(_name, _KERNELS[_name][0], "CPU")
    torch.library.register_fake(f"epx::{_name}", _KERNELS[_name][1], lib=_library)

_op_dispatch = torch.ops.epx.dispatch.default
_op_combine = torch.ops.epx.combine.default
_op_dispatch_backward = torch.ops.epx.dispatch_backward.default
_op_combine_backward = torch.ops.epx.combine_backward.default
_below_autograd = torch._C._AutoDispatchBelowAutograd


class _Dispatch(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, ids: Tensor, weights: Tensor | None, index: int, capacity: int
    ) -> Dispatched:
        with _below_autograd():
            made = _op_dispatch(x, ids, weights, index, capacity)
        rows, row_weights, key = made[:3]
        nothing: list[Tensor] = list(made[2:6])
        if not x.requires_grad:
            nothing.append(rows)
        if weights is None or not weights.requires_grad:
            nothing.append(row_weights)
        ctx.mark_non_differentiable(*nothing)
        ctx.save_for_backward(ids, key)
        ctx.place = index, capacity
        result: Dispatched = made
        return result

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, grad_rows: Tensor, grad_row_weights: Tensor, *_: Any
    ) -> tuple[Tensor | None, ...]:
        ids, key = ctx.saved_tensors
        index, capacity = ctx.place
        wants_x, _, wants_weights = ctx.needs_input_grad[:3]
        if not wants_x:
            grad_rows = torch.empty((capacity, 0), device=ids.device)
        grad_x, grad_weights = _op_dispatch_backward(
            grad_rows, grad_row_weights if wants_weights else None, ids, key, index, capacity
        )
        return (
            grad_x if wants_x else None,
            None,
            grad_weights if wants_weights else None,
            None,
            None,
        )


class _Combine(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        y: Tensor,
        row_weights: Tensor | None,
        ids: Tensor,
        key: Tensor,
        tie: Tensor,
        index: int,
        capacity: int,
    ) -> Tensor:
        with _below_autograd():
            out: Tensor = _op_combine(y, row_weights, ids, key, tie, index, capacity)
        wants_weights = row_weights is not None and row_weights.requires_grad
        ctx.save_for_backward(ids, key, row_weights, y if wants_weights else None)
        ctx.place = index, capacity
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        ids, key, row_weights, y = ctx.saved_tensors
        grad_y, grad_row_weights = _op_combine_backward(
            grads[0], y, row_weights, ids, key, *ctx.place
        )
        return (
            grad_y if ctx.needs_input_grad[0] else None,
            None if y is None else grad_row_weights,
            None,
            None,
            grad_y.new_empty((0,), dtype=torch.float32) if ctx.needs_input_grad[4] else None,
            None,
            None,
        )


def _dispatch_autograd(
    x: Tensor, ids: Tensor, weights: Tensor | None, index: int, capacity: int
) -> Any:
    wanted = x.requires_grad or (weights is not None and weights.requires_grad)
    if wanted and torch.is_grad_enabled():
        return cast(Any, _Dispatch).apply(x, ids, weights, index, capacity)
    with _below_autograd():
        return _op_dispatch(x, ids, weights, index, capacity)


def _combine_autograd(
    y: Tensor,
    row_weights: Tensor | None,
    ids: Tensor,
    key: Tensor,
    tie: Tensor,
    index: int,
    capacity: int,
) -> Any:
    wanted = tie.requires_grad or y.requires_grad
    wanted = wanted or (row_weights is not None and row_weights.requires_grad)
    if wanted and torch.is_grad_enabled():
        return cast(Any, _Combine).apply(y, row_weights, ids, key, tie, index, capacity)
    with _below_autograd():
        return _op_combine(y, row_weights, ids, key, tie, index, capacity)


_library.impl("dispatch", _dispatch_autograd, "Autograd")
_library.impl("combine", _combine_autograd, "Autograd")


def _refuse_other_devices(x: Tensor, *others: Tensor | None) -> None:
    device = x.device
    for other in others:
        if other is not None and other.device != device:
            raise EPXError(Code.BUFFER, f"tensors on {device} and on {other.device}")
    if not x.is_cpu:
        raise EPXError(Code.UNSUPPORTED, f"tensors on {device}: epx.torch works on host memory yet")


def dispatch(
    x: Tensor, ids: Tensor, weights: Tensor | None, route: Route
) -> tuple[Tensor, Tensor | None, Routing]:
    """Send every token to the ranks of its experts: EPX_Dispatch(3). Collective.

    ``x`` [T, H], floating, fp8 or uint8, T at most max_tokens of the route, 0 too; ``ids`` [T, K]
    int64 or int32, experts or -1 for none; ``weights`` [T, K] float32, or None on all ranks.

    Returns rows [capacity, H] of the dtype of ``x``; their weights, float32 [capacity], in
    rank-major [capacity, K], or None; and the Routing. Rows from ``routing.offsets[-1]`` on are not
    written, unless the route has ``zero_unused``.

    Raises EPXError: Code.COUNT for a wrong shape, TYPE for a wrong dtype, TRUNCATE on all ranks
    where a rank lacks room, ARG on the rank that has a bad id, ROUTE for a freed route, COMM for a
    closed communicator. Gradients: of ``x``, if its dtype can be added, and of ``weights``.
    """
    _refuse_other_devices(x, ids, weights)
    if x.requires_grad and x.dtype not in _SUMMED:
        raise EPXError(Code.TYPE, f"x of dtype {x.dtype} requires a gradient, and has none")
    if ids.dtype == torch.int32:
        ids = ids.to(torch.int64)
    capacity = route.capacity
    rows, row_weights, key, counts, offsets, row_experts, tie = _op_dispatch(
        x, ids, weights, route.index, capacity
    )
    return (
        rows,
        None if weights is None else row_weights,
        Routing(ids, key, route, counts, offsets, row_experts, tie, capacity),
    )


def combine(y: Tensor, routing: Routing, row_weights: Tensor | None = None) -> Tensor:
    """Bring rows home and sum them for each token: EPX_Combine(3). Collective.

    ``y`` [capacity, H], float16, bfloat16, float32 or float64, a row where dispatch has one;
    ``row_weights`` float32 [capacity], by which rows are multiplied before they are added, or None.

    Returns [T, H]; a token without experts gets zeros. The order of the sums is fixed.

    Raises EPXError as dispatch does. Gradients: of ``y`` and of ``row_weights``.
    """
    ids = routing.ids
    _refuse_other_devices(y, ids, row_weights)
    out: Tensor = _op_combine(
        y, row_weights, ids, routing.key, routing.tie, routing.route.index, routing.capacity
    )
    return out
