# SPDX-License-Identifier: BSD-3-Clause
"""Dispatch and combine as ops of PyTorch, with gradients, on host memory and on GPUs.

    rows, row_weights, routing = epx.torch.dispatch(x, ids, weights, route)
    y = experts(rows, routing.offsets)
    out = epx.torch.combine(y, routing, row_weights)

Every op, and every backward, is collective: all ranks of the route's communicator call the same ops
in the same order, a rank without tokens or experts too. Which of x and weights want gradients must
be alike on all ranks, and each rank's loss depends on what combine returned, even if that is empty.

On a GPU an op queues on the current stream and the host goes on: ``Comm.check()`` raises what went
wrong there later.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any, Generic, TypeVar, cast, overload

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import get_proxy_mode

from epx import _core
from epx import _torch_ops as ops
from epx._comm import Comm
from epx._core import Code, EPXError
from epx._eager import empty, is_observed
from epx._route import Route
from epx._routing import Routing, View, check_version, first_row_experts, note_version, view

__all__ = [
    "Routing",
    "View",
    "Work",
    "combine",
    "combine_backward",
    "combine_start",
    "dispatch",
    "dispatch_backward",
    "dispatch_by",
    "dispatch_start",
    "route",
    "view",
]

for _public in (Routing, View, view):
    _public.__module__ = __name__  # the name that tracebacks show

_SUMMED = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


class _NoMore(torch.autograd.Function):
    """Gives the first tensors on as what depends on all, and is no second time differentiated."""

    generate_vmap_rule = True

    @staticmethod
    def forward(num: int, *tensors: Tensor) -> tuple[Tensor, ...]:
        return tuple(tensor.view_as(tensor) for tensor in tensors[:num])

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        raise EPXError(Code.UNSUPPORTED, "dispatch and combine have no second derivatives")


Gradients = tuple["Tensor | None", ...]


def _once(backward: Callable[..., Gradients]) -> Callable[..., Gradients]:
    """A backward without a derivative of its own: who asks for that gets an error.

    By once_differentiable of PyTorch the gradients would not depend on what was differentiated, and
    torch.autograd.grad and torch.autograd.functional would take their derivative for zero.
    """

    @functools.wraps(backward)
    def once(ctx: Any, *grads: Tensor) -> Gradients:
        if not torch.is_grad_enabled():  # unless create_graph is asked for
            return backward(ctx, *grads)
        with torch.no_grad():
            made = list(backward(ctx, *grads))
        given = (*grads, *ctx.saved_tensors)
        sources = [each for each in given if each is not None and each.requires_grad]
        if sources:
            there = [at for at, each in enumerate(made) if each is not None]
            kept = cast(Any, _NoMore).apply(len(there), *(made[at] for at in there), *sources)
            for at, each in zip(there, kept):
                made[at] = each
        return tuple(made)

    return once


class _Dispatch(torch.autograd.Function):
    """Dispatch by the op; what it makes that never has a gradient goes to ``others``."""

    @staticmethod
    def forward(
        ctx: Any,
        op: Callable[..., ops.Made],
        others: list[Any],
        x: Tensor,
        ids: Tensor,
        weights: Tensor | None,
        index: int,
        capacity: int,
        *fields: Tensor,
    ) -> tuple[Tensor, Tensor | None, Tensor]:
        made = op(x, ids, weights, index, capacity, *fields)
        rows, row_weights, key, info, row_experts, tie, *row_fields = made
        others += [key, info, row_experts, row_fields]
        if not x.requires_grad:
            ctx.mark_non_differentiable(rows)
        elif row_weights is not None and (weights is None or not weights.requires_grad):
            ctx.mark_non_differentiable(row_weights)
        ctx.save_for_backward(ids, key)
        ctx.place = index, capacity
        ctx.num_fields = len(fields)
        return rows, row_weights, empty(x, (0,), torch.float32) if tie is None else tie

    @staticmethod
    @_once
    def backward(
        ctx: Any, grad_rows: Tensor, grad_row_weights: Tensor, *_: Any
    ) -> tuple[Tensor | None, ...]:
        ids, key = ctx.saved_tensors
        index, capacity = ctx.place
        _refuse_tangents(grad_rows, grad_row_weights)
        wants_x, wants_weights = ctx.needs_input_grad[2], ctx.needs_input_grad[4]
        if not wants_x:
            grad_rows = torch.empty((capacity, 0), device=ids.device)
        grad_of_weights = grad_row_weights if wants_weights else None
        observed = is_observed(grad_rows, grad_of_weights, ids)
        run = ops.dispatch_backward if observed else ops.run_dispatch_backward
        grad_x, grad_weights = run(grad_rows, grad_of_weights, ids, key, index, capacity)
        return (
            *(None, None),
            grad_x if wants_x else None,
            None,
            grad_weights if wants_weights else None,
            *(None,) * (2 + ctx.num_fields),
        )


class _Combine(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        op: Callable[..., Tensor],
        y: Tensor,
        row_weights: Tensor | None,
        ids: Tensor,
        key: Tensor,
        tie: Tensor,
        index: int,
        capacity: int,
        *biases: Tensor,
    ) -> Tensor:
        out = op(y, row_weights, ids, key, tie, index, capacity, *biases)
        wants_weights = row_weights is not None and row_weights.requires_grad
        ctx.save_for_backward(ids, key, row_weights, y if wants_weights else None)
        ctx.place = index, capacity, y.shape[0]
        return out

    @staticmethod
    @_once
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        ids, key, row_weights, y = ctx.saved_tensors
        _refuse_tangents(*grads)
        observed = is_observed(*grads, y, row_weights, ids)
        run = ops.combine_backward if observed else ops.run_combine_backward
        grad_y, grad_row_weights = run(grads[0], y, row_weights, ids, key, *ctx.place)
        return (
            None,
            grad_y if ctx.needs_input_grad[1] else None,
            None if y is None else grad_row_weights,
            *(None, None),
            empty(grad_y, (0,), torch.float32) if ctx.needs_input_grad[5] else None,
            *(None, None),
            *(grads[0] if wanted else None for wanted in ctx.needs_input_grad[8:]),
        )


def _refuse_tangents(*tensors: Tensor | None) -> None:
    """Forward-mode derivatives would be lost in an op, which has none."""
    if forward_ad._current_level < 0:
        return
    unpack = cast(Any, forward_ad.unpack_dual)
    for tensor in tensors:
        if tensor is not None and unpack(tensor).tangent is not None:
            raise EPXError(
                Code.UNSUPPORTED,
                "dispatch and combine have no forward-mode derivatives, only those of backward()",
            )


def _wants_gradients(*tensors: Tensor | None) -> bool:
    _refuse_tangents(*tensors)
    if torch.is_grad_enabled():
        for tensor in tensors:
            if tensor is not None and tensor.requires_grad:
                return True
    return False


def _dispatch(
    op: Callable[..., ops.Made],
    x: Tensor,
    ids: Tensor,
    weights: Tensor | None,
    index: int,
    capacity: int,
    *fields: Tensor,
) -> ops.Made:
    """Dispatch by the op, and by autograd if a gradient is wanted."""
    given = (x, ids, weights, index, capacity, *fields)
    if not _wants_gradients(x, weights):
        return op(*given)
    others: list[Any] = []
    rows, row_weights, tie = cast(Any, _Dispatch).apply(op, others, *given)
    key, info, row_experts, row_fields = others
    return rows, row_weights, key, info, row_experts, tie, *row_fields


def _explain(error: EPXError) -> None:
    """Raises what to do instead of the error of a combine that met _meet_for_backward."""
    if error.code == Code.ARG and "EPX_Combine_backward" in str(error):
        raise EPXError(
            error.code,
            "y requires a gradient on some ranks only, and x and weights of dispatch require none: "
            f"call x.requires_grad_() before dispatch, on all ranks. {error}",
        ) from error


def _meet_for_backward(
    y: Tensor, ids: Tensor, key: Tensor, tie: Tensor, index: int, capacity: int
) -> None:
    """Fails at once if combine's backward would wait for a rank that has none.

    If tokens or weights want gradients, all ranks know it. If y alone does, no rank knows whether
    it does on the others: this backward without elements meets the combine of a rank where it does
    not.
    """
    if ops.route_of(index).comm.size > 1:
        run = ops.combine_backward if is_observed(y, ids) else ops.run_combine_backward
        nothing = empty(y, (ids.shape[0], 0), y.dtype)
        try:
            run(nothing, None, None, ids, key, index, capacity)
        except EPXError as error:
            _explain(error)
            raise


def _combine(
    op: Callable[..., Tensor],
    y: Tensor,
    row_weights: Tensor | None,
    *routed: Any,  # ids, key, tie, index, capacity, biases
) -> Tensor:
    """Combine by the op, and by autograd if a gradient is wanted."""
    tie = routed[2]
    if not _wants_gradients(y, row_weights, tie, *routed[5:]):
        try:
            return op(y, row_weights, *routed)
        except EPXError as error:
            _explain(error)
            raise
    if not tie.requires_grad:
        _meet_for_backward(y, *routed[:5])
    return cast(Tensor, cast(Any, _Combine).apply(op, y, row_weights, *routed))


def _under_autograd(function: Callable[..., Any], op: Callable[..., Any]) -> Callable[..., Any]:
    """What PyTorch's dispatcher calls for an op: the op without autograd is the next in turn."""

    def next_in_turn(*given: Any) -> Any:
        with torch._C._AutoDispatchBelowAutograd():
            return op(*given)

    return lambda *given: function(next_in_turn, *given)


ops.library.impl("dispatch", _under_autograd(_dispatch, ops.dispatch), "Autograd")
ops.library.impl("combine", _under_autograd(_combine, ops.combine), "Autograd")


_MAY_BE_NONE = (
    *("weights", "row_weights", "grad_row_weights", "y of combine"),
    *("token_weights", "out"),
)


def _check_tensors(names: tuple[str, ...], *tensors: Tensor | None) -> None:
    """All are tensors in one memory: the host's, or that of a GPU of CUDA."""
    device = None
    for name, tensor in zip(names, tensors):
        if tensor is None and name in _MAY_BE_NONE:
            continue
        if not isinstance(tensor, Tensor):
            raise TypeError(f"{name} is a {type(tensor).__name__}, want a torch.Tensor")
        if device is None:
            device = tensor.device
        elif tensor.device != device:
            raise EPXError(Code.BUFFER, f"{names[0]} is on {device}, {name} is on {tensor.device}")
    if device is not None and device.type not in ("cpu", "cuda"):
        raise EPXError(Code.UNSUPPORTED, f"tensors on {device}, want the CPU or a GPU of CUDA")


Scales = "Tensor | tuple[Tensor, ...] | None"
_FIELD_NAMES = ("scales", "scales[1]", "scales[2]")


def _fields_of(scales: Any) -> tuple[Tensor, ...]:
    """What travels beside the rows, one after the other."""
    if scales is None:
        return ()
    fields = tuple(scales) if isinstance(scales, (tuple, list)) else (scales,)
    if len(fields) > ops.MOST_FIELDS:
        raise EPXError(Code.ARG, f"{len(fields)} scales, at most {ops.MOST_FIELDS}")
    return fields


def _check_route(route: object) -> None:
    if not isinstance(route, Route):
        raise TypeError(f"route is a {type(route).__name__}, want an epx.Route")


def _as_int64(ids: Tensor) -> Tensor:
    return ids.to(torch.int64) if ids.dtype == torch.int32 else ids


def _check_tokens(
    x: Tensor, ids: Tensor, weights: Tensor | None, fields: tuple[Tensor, ...]
) -> None:
    _check_tensors(("x", "ids", "weights", *_FIELD_NAMES[: len(fields)]), x, ids, weights, *fields)
    for name, field in zip(_FIELD_NAMES, fields):
        if field.requires_grad:
            raise EPXError(Code.TYPE, f"{name} require a gradient, and have none")
    if x.requires_grad and x.dtype not in _SUMMED:
        raise EPXError(Code.TYPE, f"x of dtype {x.dtype} requires a gradient, and has none")


def _check_routing(routing: object) -> None:
    if not isinstance(routing, Routing):
        raise TypeError(f"routing is a {type(routing).__name__}, want what dispatch returned")
    check_version(routing)


def _check_enough(routing: Routing, names: tuple[str, ...], *tensors: Tensor | None) -> None:
    """Refuses fewer rows than an exact routing has, of which the host knows without waiting."""
    if routing.sizes is None:
        return
    least = routing.sizes[1][-1]
    for name, tensor in zip(names, tensors):
        if tensor is not None and tensor.dim() and tensor.shape[0] < least:
            raise EPXError(Code.COUNT, f"{name} has {tensor.shape[0]} rows, want at least {least}")


def _check_rows(y: Tensor, routing: Routing, row_weights: Tensor | None) -> None:
    _check_routing(routing)
    _check_tensors(("y", "routing.ids", "row_weights"), y, routing.ids, row_weights)
    _check_enough(routing, ("y", "row_weights"), y, row_weights)


def _refuse_compilers(what: str) -> None:
    if (
        torch.compiler.is_compiling()
        or torch._C._get_tracing_state() is not None
        or get_proxy_mode() is not None
    ):
        raise EPXError(Code.UNSUPPORTED, f"{what} cannot be compiled or traced")


Dispatched = tuple[Tensor, "Tensor | None", Routing]
"""What dispatch returns: rows, their weights, and the routing."""
ScaledDispatched = tuple[tuple[Tensor, ...], "Tensor | None", Routing]
"""What dispatch returns for rows with scales: all of them, their weights, and the routing."""


@functools.cache
def _nothing(device: torch.device, dtype: torch.dtype, *shape: int) -> Tensor:
    """A tensor without elements, for all that have none there."""
    with torch.inference_mode(False):
        return torch.empty(shape, dtype=dtype, device=device)


def _routing(made: ops.Made, ids: Tensor, route: Route, capacity: int) -> Routing:
    key, info, row_experts, tie = made[2:6]
    num_experts = route.local_experts
    counts, offsets = info.split_with_sizes([num_experts, info.shape[0] - num_experts])
    if row_experts is None:
        row_experts = _nothing(ids.device, torch.int32, 0, route.top_k)
    if tie is None:
        tie = _nothing(ids.device, torch.float32, 0)
    note_version(key, ids)
    return Routing(ids, key, route, counts, offsets, row_experts, tie, capacity)


def _check_sums(sums: Tensor | None, ids: Tensor, route: Route) -> None:
    """Checks what counts shall be added to, before anything is sent."""
    if sums is None:
        return
    _check_tensors(("ids", "add_counts_to"), ids, sums)
    if sums.dtype not in (torch.int32, torch.int64):
        raise EPXError(Code.TYPE, f"add_counts_to is of {sums.dtype}, want torch.int32 or int64")
    if tuple(sums.shape) != (route.local_experts,):
        raise EPXError(
            Code.COUNT, f"add_counts_to is {list(sums.shape)}, want [{route.local_experts}]"
        )
    if torch.compiler.is_compiling():
        return  # a compiler asks for no more
    if sums.is_inference() and not torch.is_inference_mode_enabled():
        raise EPXError(Code.BUFFER, "add_counts_to is of torch.inference_mode: want a copy")
    if sums.numel() > 1 and sums.stride(0) == 0:
        raise EPXError(Code.BUFFER, "add_counts_to is one element, repeated: want a copy")


def _add_counts(routing: Routing, sums: Tensor | None) -> None:
    """Adds the rows of each local expert to a tensor of the caller."""
    if sums is not None:
        sums.add_(routing.counts)


def _result(
    made: ops.Made, weights: Tensor | None, num_fields: int, routing: Routing
) -> Dispatched | ScaledDispatched:
    rows, row_weights = made[:2]
    weights_there = None if weights is None else row_weights
    if num_fields:
        return (rows, *made[6 : 6 + num_fields]), weights_there, routing
    return rows, weights_there, routing


@overload
def dispatch(
    x: Tensor,
    ids: Tensor,
    weights: Tensor | None,
    route: Route,
    *,
    scales: None = None,
    add_counts_to: Tensor | None = None,
) -> Dispatched: ...


@overload
def dispatch(
    x: Tensor,
    ids: Tensor,
    weights: Tensor | None,
    route: Route,
    *,
    scales: Tensor | tuple[Tensor, ...],
    add_counts_to: Tensor | None = None,
) -> ScaledDispatched: ...


def dispatch(
    x: Tensor,
    ids: Tensor,
    weights: Tensor | None,
    route: Route,
    *,
    scales: Tensor | tuple[Tensor, ...] | None = None,
    add_counts_to: Tensor | None = None,
) -> Dispatched | ScaledDispatched:
    """Send every token to the ranks of its experts: EPX_Dispatch(3). Collective.

    ``x`` [T, H], floating, fp8, uint8, int32 or int64, T at most max_tokens of the route, 0 too;
    ``ids`` [T, K] int64 or int32, experts or -1 for none; ``weights`` [T, K] float32, or None on
    all ranks. All are on the host, or on the GPU that was current when the communicator was made.

    ``scales`` [T, S], of any dtype that ``x`` may have, or up to three of them, travel beside the
    rows in the same operation: EPX_Dispatch_fields(3). All ranks give them, or none; they have no
    gradient.

    Returns rows [capacity, H] of the dtype of ``x``; their weights, float32 [capacity], in
    rank-major [capacity, K], or None; and the Routing. With ``scales`` the first of these is a
    tuple: rows, and their scales [capacity, S]. Rows from ``routing.offsets[-1]`` on are not
    written, and in slabs those behind ``routing.counts`` of each expert, unless the route has
    ``zero_unused``.

    ``add_counts_to``, int32 or int64 [local experts] of the caller, gets ``routing.counts`` added
    by the current stream, and so once more at each replay of a captured graph. It is a matter of
    each rank.

    Raises EPXError: Code.COUNT for a wrong shape, TYPE for a wrong dtype, BUFFER for a wrong
    device, TRUNCATE on all ranks where a rank lacks room, ARG on the rank that has a bad id, ROUTE
    for a freed route, COMM for a closed communicator. On a GPU TRUNCATE and ARG are raised by
    ``Comm.check()``. Gradients: of ``x``, if its dtype can be added, and of ``weights``.
    """
    fields = _fields_of(scales)
    _check_route(route)
    _check_tokens(x, ids, weights, fields)
    _check_sums(add_counts_to, ids, route)
    ids = _as_int64(ids)
    capacity = route.capacity
    given: Any = (x, ids, weights, route.index, capacity, *fields)
    made = ops.dispatch(*given) if is_observed(*given) else _dispatch(ops.run_dispatch, *given)
    routing = _routing(made, ids, route, capacity)
    _add_counts(routing, add_counts_to)
    return _result(made, weights, len(fields), routing)


def route(
    ids: Tensor, route: Route, *, exact: bool = False, add_counts_to: Tensor | None = None
) -> Routing:
    """Decide where every token goes, and send nothing: EPX_Route_tokens(3). Collective.

    ``ids`` as in dispatch. ``dispatch_by`` sends rows by the routing, as often as is wanted. With
    ``exact``, on all ranks or on none, the host waits until the number of rows is known: the
    ``capacity`` of the routing is that number, so that results have no unused rows, and ``sizes``
    has counts and offsets as lists. On a GPU that is one host sync, counted in ``Comm.stats()``;
    the current stream writes ``row_experts`` behind it. ``add_counts_to`` as in dispatch.

    Raises EPXError as dispatch does; with ``exact`` TRUNCATE and ARG on a GPU too. It cannot be
    compiled.
    """
    _refuse_compilers("route")
    _check_route(route)
    _check_tensors(("ids",), ids)
    _check_sums(add_counts_to, ids, route)
    ids, capacity = _as_int64(ids), route.capacity
    made = ops.run_route(ids, route.index, capacity, exact)
    routing = _routing(made, ids, route, capacity)
    _add_counts(routing, add_counts_to)
    return _made_exact(routing, made[3]) if exact else routing


def _made_exact(routing: Routing, info: Tensor) -> Routing:
    """Has the host read how many rows there are; the next op routes for as many, on all ranks."""
    route = routing.route
    values = info.tolist()
    if info.is_cuda:
        route.comm.note_host_sync()
        route.comm.check()
    sizes = values[: route.local_experts], values[route.local_experts :]
    if route.layout == "slab":
        return routing._replace(sizes=sizes)
    rows, row_experts = sizes[1][-1], routing.row_experts
    try:
        if route.layout == "rank":
            row_experts = first_row_experts(route, routing.key, info, rows)
    finally:  # all ranks route again, also where one has no memory for this
        _core.drop_routing(route.index, int(routing.key))
    return routing._replace(capacity=rows, row_experts=row_experts, sizes=sizes)


@overload
def dispatch_by(
    x: Tensor,
    routing: Routing,
    weights: Tensor | None = None,
    *,
    scales: None = None,
    out: tuple[Tensor, ...] | None = None,
    add_counts_to: Tensor | None = None,
) -> Dispatched: ...


@overload
def dispatch_by(
    x: Tensor,
    routing: Routing,
    weights: Tensor | None = None,
    *,
    scales: Tensor | tuple[Tensor, ...],
    out: tuple[Tensor, ...] | None = None,
    add_counts_to: Tensor | None = None,
) -> ScaledDispatched: ...


def dispatch_by(
    x: Tensor,
    routing: Routing,
    weights: Tensor | None = None,
    *,
    scales: Tensor | tuple[Tensor, ...] | None = None,
    out: tuple[Tensor, ...] | None = None,
    add_counts_to: Tensor | None = None,
) -> Dispatched | ScaledDispatched:
    """Send rows by a routing that there is: of ``route``, or of a dispatch before. Collective.

    All else is as in dispatch, the gradients too. Nothing is routed if the routing is the latest
    of its route; else the same slots are found again from ``routing.ids``. Returns rows of
    ``routing.capacity``, and the routing with the gradient of these rows. It cannot be compiled.

    ``out``: tensors that are written and returned: rows, their weights if ``weights`` is given, and
    those of each of ``scales``. They have no gradients. ``add_counts_to`` as in dispatch.
    """
    _refuse_compilers("dispatch_by")
    fields = _fields_of(scales)
    _check_routing(routing)
    _check_tokens(x, routing.ids, weights, fields)
    if out is not None:
        _check_results(out, x, weights, fields)
    _check_sums(add_counts_to, routing.ids, routing.route)
    run = functools.partial(ops.run_dispatch_by, routing.key, out=out)
    made = _dispatch(run, x, routing.ids, weights, routing.route.index, routing.capacity, *fields)
    _add_counts(routing, add_counts_to)
    tie = routing.tie if made[5] is None else made[5]
    return _result(made, weights, len(fields), routing._replace(tie=tie))


def _refuse_gradients(name: str, *tensors: Tensor | None) -> None:
    if _wants_gradients(*tensors):
        raise EPXError(Code.UNSUPPORTED, f"{name} has no gradients: call it under torch.no_grad()")


def _check_results(
    out: tuple[Tensor, ...], x: Tensor, weights: Tensor | None, fields: tuple[Tensor, ...]
) -> None:
    """Checks what a caller has for the results of a dispatch."""
    names = ["rows", *([] if weights is None else ["row_weights"]), *_FIELD_NAMES[: len(fields)]]
    if len(out) != len(names):
        raise EPXError(Code.ARG, f"out has {len(out)} tensors, want {', '.join(names)}")
    _check_tensors(("x", *(f"out: {name}" for name in names)), x, *out)
    _refuse_gradients("dispatch_by with out", x, weights, *out)


def dispatch_backward(
    grad_rows: Tensor, routing: Routing, grad_row_weights: Tensor | None = None
) -> tuple[Tensor, Tensor | None]:
    """Sum rows for each token, and bring weights home: EPX_Dispatch_backward(3). Collective.

    ``grad_rows`` [rows, H], H may be 0, and rows any number as in combine; ``grad_row_weights`` as
    the weights that dispatch returned, for as many rows, more or fewer, or None on all ranks.
    Returns [T, H], and [T, K] or None: what each choice's row had as weight, 0 where there was
    none. Not differentiable, and it cannot be compiled.
    """
    _refuse_compilers("dispatch_backward")
    _check_routing(routing)
    names = ("grad_rows", "routing.ids", "grad_row_weights")
    _check_tensors(names, grad_rows, routing.ids, grad_row_weights)
    _check_enough(routing, (names[0], names[2]), grad_rows, grad_row_weights)
    _refuse_gradients("dispatch_backward", grad_rows, grad_row_weights)
    ids, key, route, capacity = routing.ids, routing.key, routing.route, routing.capacity
    grad_x, grad_weights = ops.run_dispatch_backward(
        grad_rows, grad_row_weights, ids, key, route.index, capacity
    )
    return grad_x, None if grad_row_weights is None else grad_weights


def combine_backward(
    grad: Tensor, routing: Routing, y: Tensor | None = None, row_weights: Tensor | None = None
) -> tuple[Tensor, Tensor | None]:
    """Send each token's row to its rows, times their weights: EPX_Combine_backward(3). Collective.

    ``grad`` [T, H]; ``y`` [rows, H] as given to combine, if the gradient of ``row_weights`` is
    wanted, else None; ``row_weights`` as given to combine. Returns gradients [rows, H] of ``y``,
    without it [capacity, H], and [rows] of the weights, without ``y`` None. They are written for
    the rows of the routing, with zero_unused for all. Not differentiable, nor can it be compiled.
    """
    _refuse_compilers("combine_backward")
    _check_routing(routing)
    names = ("grad", "routing.ids", "y of combine", "row_weights")
    _check_tensors(names, grad, routing.ids, y, row_weights)
    _check_enough(routing, names[2:], y, row_weights)
    _refuse_gradients("combine_backward", grad, y, row_weights)
    ids, key, route, capacity = routing.ids, routing.key, routing.route, routing.capacity
    grad_y, grad_row_weights = ops.run_combine_backward(
        grad, y, row_weights, ids, key, route.index, capacity
    )
    return grad_y, None if y is None else grad_row_weights


Biases = "Tensor | tuple[Tensor, ...] | None"
_BIAS_NAMES = ("bias", "bias[1]")


def _biases_of(bias: Any) -> tuple[Tensor, ...]:
    if bias is None:
        return ()
    biases = tuple(bias) if isinstance(bias, (tuple, list)) else (bias,)
    if len(biases) > ops.MOST_BIASES:
        raise EPXError(Code.ARG, f"{len(biases)} biases, at most {ops.MOST_BIASES}")
    return biases


def _at_home(
    y: Tensor,
    routing: Routing,
    row_weights: Tensor | None,
    biases: tuple[Tensor, ...],
    home: ops.Home,
) -> None:
    """Checks what a combine has from the home rank."""
    _refuse_compilers("combine with bias, token_weights or out")
    names = ("y", *_BIAS_NAMES[: len(biases)], "token_weights", "out")
    _check_tensors(names, y, *biases, *home)
    if home.token_weights is not None and row_weights is not None:
        raise EPXError(Code.ARG, "combine: want either row_weights or token_weights")
    if home.token_weights is None and home.out is None:
        return
    if _wants_gradients(y, row_weights, routing.tie, *biases, home.token_weights):
        name = "token_weights" if home.out is None else "out"
        raise EPXError(
            Code.UNSUPPORTED, f"combine with {name} has no gradients: use torch.no_grad()"
        )


def combine(
    y: Tensor,
    routing: Routing,
    row_weights: Tensor | None = None,
    *,
    bias: Tensor | tuple[Tensor, ...] | None = None,
    token_weights: Tensor | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """Bring rows home and sum them for each token: EPX_Combine(3), EPX_Combine_from(3). Collective.

    ``y`` [rows, H], float16, bfloat16, float32 or float64, a row where dispatch has one;
    ``row_weights`` float32 [rows], by which rows are multiplied before they are added, or None.
    Either has any number of rows from ``routing.offsets[-1]`` on, and those behind are not read.
    On hosts, and of an exact routing, fewer are Code.COUNT; else on a GPU, where the host does not
    wait for that number, fewer are as in C an error that nobody finds.

    ``bias``, [T, H] of the dtype of ``y``, or two of them: what the sum of each token starts from,
    before the one rounding. ``token_weights`` float32 [T, K], instead of ``row_weights``, where the
    weights of choices are at home alone. ``out`` [T, H] is written and returned. All ranks give
    biases and ``token_weights``, or none.

    Returns [T, H]; a token without experts gets its bias, or zeros. The order of the sums is fixed.

    Raises EPXError as dispatch does, and with Code.ARG where ``routing.ids`` were written to since.
    Gradients: of ``y``, ``row_weights`` and ``bias``; with ``token_weights`` or ``out`` none. What
    follows ``row_weights`` cannot be compiled.
    """
    _check_rows(y, routing, row_weights)
    ids, key, route, _, _, _, tie, capacity, *_ = routing
    given: Any = (y, row_weights, ids, key, tie, route.index, capacity)
    if bias is not None or token_weights is not None or out is not None:
        biases, home = _biases_of(bias), ops.Home(token_weights, out)
        _at_home(y, routing, row_weights, biases, home)
        return _combine(functools.partial(ops.run_combine, home=home), *given, *biases)
    if is_observed(*given):
        return cast(Tensor, ops.combine(*given))
    return _combine(ops.run_combine, *given)


Result = TypeVar("Result")


class Work(_core.Handle, Generic[Result]):
    """An operation that began. ``wait()`` ends it and returns what the op without _start does.

    All ranks begin operations in the same order; each waits when it likes. Until then nobody writes
    to the tensors that were given; Work holds them. A Work that nobody waits for is ended by
    ``Comm.close()``.

    ``tensors`` is what ``wait()`` will return: allocated, and written by then.
    """

    def __init__(
        self,
        started: ops.Started,
        comm: Comm,
        device: torch.device,
        tensors: Result,
        end: Callable[[], Result] | None = None,
    ) -> None:
        self.tensors = tensors
        self._started, self._comm, self._device = started, comm, device
        is_on_host = device.type == "cpu"
        self._begun_on = None if is_on_host else torch.cuda.current_stream(device)
        self._is_captured = not is_on_host and torch.cuda.is_current_stream_capturing()
        self._end: Callable[[], Result] | None = end or (lambda: tensors)
        self._result: Result | None = None
        comm.works.append(self)

    def wait(self) -> Result:
        """Return the results. On a GPU the current stream waits, and the host does not.

        What the operation does once somebody waits comes behind all that is on the current stream
        now, so that it takes no multiprocessors from that.

        A second call returns the same. Raises EPXError as the op without _start does.
        """
        if self._end is not None:
            stream = self._join()
            end, self._end = self._end, None
            try:
                _core.wait(self._started.number, stream)
            except BaseException as error:
                if not isinstance(error, EPXError):  # but of a signal: the operation goes on
                    self._end = end
                else:
                    del self.tensors
                raise
            finally:
                if self._end is None and self in self._comm.works:
                    self._comm.works.remove(self)
            self._started.tensors.clear()
            self._result = end()
        if self._result is None:
            raise EPXError(Code.REQUEST, "the operation failed, as the first wait() said")
        return self._result

    def _join(self) -> int:
        """The current stream, behind which the rest of the operation comes.

        What the stream waits for is not reused before it.
        """
        if self._begun_on is None:
            return 0
        if torch.cuda.is_current_stream_capturing() != self._is_captured:
            raise EPXError(
                Code.REQUEST, "wait() belongs in the capture that the operation began in"
            )
        stream = torch.cuda.current_stream(self._device)
        if self._started.stream is not None:
            self._started.stream.wait_stream(stream)
        if stream != self._begun_on:
            for tensor in self._started.tensors:
                if tensor.is_cuda:
                    tensor.record_stream(stream)
        return stream.cuda_stream


_side_streams: weakref.WeakKeyDictionary[Comm, torch.cuda.Stream] = weakref.WeakKeyDictionary()


def _begin(x: Tensor, route: Route) -> ops.Started:
    """On a GPU an operation that only begins has a stream of the communicator's."""
    _refuse_compilers("ops that return a Work")
    if x.is_cpu:
        return ops.Started(None)
    stream = _side_streams.get(route.comm)
    if stream is None or stream.device != x.device:
        stream = _side_streams[route.comm] = cast(Any, torch.cuda.Stream)(x.device)
    return ops.Started(stream)


@overload
def dispatch_start(
    x: Tensor,
    ids: Tensor,
    weights: Tensor | None,
    route: Route,
    *,
    scales: None = None,
    add_counts_to: Tensor | None = None,
) -> Work[Dispatched]: ...


@overload
def dispatch_start(
    x: Tensor,
    ids: Tensor,
    weights: Tensor | None,
    route: Route,
    *,
    scales: Tensor | tuple[Tensor, ...],
    add_counts_to: Tensor | None = None,
) -> Work[ScaledDispatched]: ...


def dispatch_start(
    x: Tensor,
    ids: Tensor,
    weights: Tensor | None,
    route: Route,
    *,
    scales: Tensor | tuple[Tensor, ...] | None = None,
    add_counts_to: Tensor | None = None,
) -> Work[Any]:
    """Begin what dispatch does, and return at once: the Work's wait() returns its results.

    The tensors, ``scales`` among them, are those of dispatch, and so are the errors: of a shape,
    dtype or device at once, of what the ranks find by wait(). On a GPU the rows move beside what is
    queued on the current stream meanwhile. The backward is that of dispatch. wait() has its stream
    add to ``add_counts_to``. Collective when it is called; wait() is local.
    """
    fields = _fields_of(scales)
    _check_route(route)
    _check_tokens(x, ids, weights, fields)
    _check_sums(add_counts_to, ids, route)
    ids = _as_int64(ids)
    started, capacity = _begin(x, route), route.capacity
    begin = functools.partial(ops.run_dispatch, started=started)
    made = _dispatch(begin, x, ids, weights, route.index, capacity, *fields)
    routing = _routing(made, ids, route, capacity)
    result = _result(made, weights, len(fields), routing)

    def end() -> Dispatched | ScaledDispatched:
        ops.add_up(made[3], made[4], route, capacity)
        _add_counts(routing, add_counts_to)
        return result

    return Work(started, route.comm, x.device, result, end)


def combine_start(
    y: Tensor,
    routing: Routing,
    row_weights: Tensor | None = None,
    *,
    bias: Tensor | tuple[Tensor, ...] | None = None,
    token_weights: Tensor | None = None,
    out: Tensor | None = None,
) -> Work[Tensor]:
    """Begin what combine does, and return at once: the Work's wait() returns its result.

    On hosts it waits for the routing first where ``y`` has fewer rows than the capacity.
    """
    _check_rows(y, routing, row_weights)
    biases, home = _biases_of(bias), ops.Home(token_weights, out)
    _at_home(y, routing, row_weights, biases, home)
    started = _begin(y, routing.route)
    given = (routing.ids, routing.key, routing.tie, routing.route.index, routing.capacity)
    begin = functools.partial(ops.run_combine, home=home, started=started)
    made = _combine(begin, y, row_weights, *given, *biases)
    return Work(started, routing.route.comm, y.device, made)
