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

import weakref
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar, cast, overload

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from epx import _core
from epx import _torch_ops as ops
from epx._comm import Comm
from epx._core import Code, EPXError
from epx._route import Route

__all__ = ["Routing", "Work", "combine", "combine_start", "dispatch", "dispatch_start"]

_SUMMED = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_below_autograd = torch._C._AutoDispatchBelowAutograd


class Routing(NamedTuple):
    """Where the rows of one dispatch are. A value: any number of them may live on one route.

    ``ids`` int64 [T, K], not to be written while the routing is used; ``key`` names the routing
    to the library; ``counts`` int32 [L]: rows of each local expert (in rank-major: pairs);
    ``offsets`` int32: first row of each local expert [L+1], in rank-major that of each source rank
    [R+1]; its last element is the number of rows. ``row_experts`` int32, in rank-major [capacity,
    K]: the local experts of each row or -1; else [0, K]. ``tie`` has no element: by it combine's
    backward runs wherever dispatch's does. ``capacity``: rows of the dispatch. ``key`` is on the
    host, all else where the tokens are.
    """

    ids: Tensor
    key: Tensor
    route: Route
    counts: Tensor
    offsets: Tensor
    row_experts: Tensor
    tie: Tensor
    capacity: int


class _Dispatch(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        ids: Tensor,
        weights: Tensor | None,
        index: int,
        capacity: int,
        scales: Tensor | None = None,
        started: ops.Started | None = None,
    ) -> ops.Dispatched:
        made: ops.Dispatched
        with _below_autograd():
            if started is None:
                made = ops.dispatch(x, ids, weights, index, capacity, scales)
            else:
                made = ops.start_dispatch(x, ids, weights, index, capacity, scales, started)
        rows, row_weights, key, info, row_experts, _, row_scales = made
        nothing = [key, info, row_experts, row_scales]
        if not x.requires_grad:
            nothing.append(rows)
        if weights is None or not weights.requires_grad:
            nothing.append(row_weights)
        ctx.mark_non_differentiable(*nothing)
        ctx.save_for_backward(ids, key)
        ctx.place = index, capacity
        return made

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
        grad_x, grad_weights = ops.dispatch_backward(
            grad_rows, grad_row_weights if wants_weights else None, ids, key, index, capacity
        )
        return (
            grad_x if wants_x else None,
            None,
            grad_weights if wants_weights else None,
            *(None, None, None, None),
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
        started: ops.Started | None = None,
    ) -> Tensor:
        given = (y, row_weights, ids, key, tie, index, capacity)
        out: Tensor
        with _below_autograd():
            out = ops.combine(*given) if started is None else ops.start_combine(*given, started)
        wants_weights = row_weights is not None and row_weights.requires_grad
        ctx.save_for_backward(ids, key, row_weights, y if wants_weights else None)
        ctx.place = index, capacity
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        ids, key, row_weights, y = ctx.saved_tensors
        grad_y, grad_row_weights = ops.combine_backward(
            grads[0], y, row_weights, ids, key, *ctx.place
        )
        return (
            grad_y if ctx.needs_input_grad[0] else None,
            None if y is None else grad_row_weights,
            *(None, None),
            grad_y.new_empty((0,), dtype=torch.float32) if ctx.needs_input_grad[4] else None,
            *(None, None, None),
        )


def _wants_gradients(*tensors: Tensor | None) -> bool:
    return torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)


def _under_autograd(
    function: type,
    op: Callable[..., Any],
    begin: Callable[..., Any],
    inputs: tuple[int, ...],
    num_arguments: int,
) -> Callable[..., Any]:
    """The op, or its beginning, by the Function if one of these inputs wants a gradient.

    PyTorch leaves out arguments at the end that have their default, None.
    """

    def call(*given: Any, started: ops.Started | None = None) -> Any:
        given += (None,) * (num_arguments - len(given))
        if _wants_gradients(*[given[i] for i in inputs]):
            return cast(Any, function).apply(*given, started)
        with _below_autograd():
            return op(*given) if started is None else begin(*given, started)

    return call


_dispatch = _under_autograd(_Dispatch, ops.dispatch, ops.start_dispatch, (0, 2), 6)
_combine = _under_autograd(_Combine, ops.combine, ops.start_combine, (0, 1, 4), 7)
ops.library.impl("dispatch", _dispatch, "Autograd")
ops.library.impl("combine", _combine, "Autograd")


def _check_devices(x: Tensor, *others: Tensor | None) -> None:
    device = x.device
    for other in others:
        if other is not None and other.device != device:
            raise EPXError(Code.BUFFER, f"tensors on {device} and on {other.device}")
    if not x.is_cpu and not x.is_cuda:
        raise EPXError(Code.UNSUPPORTED, f"tensors on {device}, want the CPU or a GPU of CUDA")


def _check_tokens(
    x: Tensor, ids: Tensor, weights: Tensor | None, scales: Tensor | None = None
) -> Tensor:
    """Returns the ids as int64."""
    _check_devices(x, ids, weights, scales)
    if scales is not None and scales.requires_grad:
        raise EPXError(Code.TYPE, "scales require a gradient, and have none")
    if x.requires_grad and x.dtype not in _SUMMED:
        raise EPXError(Code.TYPE, f"x of dtype {x.dtype} requires a gradient, and has none")
    return ids.to(torch.int64) if ids.dtype == torch.int32 else ids


Dispatched = tuple[Tensor, "Tensor | None", Routing]
"""What dispatch returns: rows, their weights, and the routing."""
ScaledDispatched = tuple[tuple[Tensor, Tensor], "Tensor | None", Routing]
"""What dispatch returns for rows with scales: both, their weights, and the routing."""


def _result(
    made: ops.Dispatched,
    ids: Tensor,
    weights: Tensor | None,
    scales: Tensor | None,
    route: Route,
    capacity: int,
) -> Dispatched | ScaledDispatched:
    rows, row_weights, key, info, row_experts, tie, row_scales = made
    counts, offsets = info[: route.local_experts], info[route.local_experts :]
    routing = Routing(ids, key, route, counts, offsets, row_experts, tie, capacity)
    weights_there = None if weights is None else row_weights
    if scales is None:
        return rows, weights_there, routing
    return (rows, row_scales), weights_there, routing


@overload
def dispatch(
    x: Tensor, ids: Tensor, weights: Tensor | None, route: Route, *, scales: None = None
) -> Dispatched: ...


@overload
def dispatch(
    x: Tensor, ids: Tensor, weights: Tensor | None, route: Route, *, scales: Tensor
) -> ScaledDispatched: ...


def dispatch(
    x: Tensor,
    ids: Tensor,
    weights: Tensor | None,
    route: Route,
    *,
    scales: Tensor | None = None,
) -> Dispatched | ScaledDispatched:
    """Send every token to the ranks of its experts: EPX_Dispatch(3). Collective.

    ``x`` [T, H], floating, fp8 or uint8, T at most max_tokens of the route, 0 too; ``ids`` [T, K]
    int64 or int32, experts or -1 for none; ``weights`` [T, K] float32, or None on all ranks. All
    are on the host, or on the GPU that was current when the communicator was made.

    ``scales`` [T, S], of any dtype that ``x`` may have, travel beside the rows in the same
    operation: EPX_Dispatch_fields(3). All ranks give them, or none; they have no gradient.

    Returns rows [capacity, H] of the dtype of ``x``; their weights, float32 [capacity], in
    rank-major [capacity, K], or None; and the Routing. With ``scales`` the first of these is a
    pair: rows, and their scales [capacity, S]. Rows from ``routing.offsets[-1]`` on are not
    written, and in slabs those behind ``routing.counts`` of each expert, unless the route has
    ``zero_unused``.

    Raises EPXError: Code.COUNT for a wrong shape, TYPE for a wrong dtype, BUFFER for a wrong
    device, TRUNCATE on all ranks where a rank lacks room, ARG on the rank that has a bad id, ROUTE
    for a freed route, COMM for a closed communicator. On a GPU TRUNCATE and ARG are raised by
    ``Comm.check()``. Gradients: of ``x``, if its dtype can be added, and of ``weights``.
    """
    ids = _check_tokens(x, ids, weights, scales)
    capacity = route.capacity
    made = ops.dispatch(x, ids, weights, route.index, capacity, scales)
    return _result(made, ids, weights, scales, route, capacity)


def combine(y: Tensor, routing: Routing, row_weights: Tensor | None = None) -> Tensor:
    """Bring rows home and sum them for each token: EPX_Combine(3). Collective.

    ``y`` [capacity, H], float16, bfloat16, float32 or float64, a row where dispatch has one;
    ``row_weights`` float32 [capacity], by which rows are multiplied before they are added, or None.

    Returns [T, H]; a token without experts gets zeros. The order of the sums is fixed.

    Raises EPXError as dispatch does. Gradients: of ``y`` and of ``row_weights``.
    """
    ids = routing.ids
    _check_devices(y, ids, row_weights)
    out: Tensor = ops.combine(
        y, row_weights, ids, routing.key, routing.tie, routing.route.index, routing.capacity
    )
    return out


Result = TypeVar("Result")


class Work(Generic[Result]):
    """An operation that began. ``wait()`` ends it and returns what the op without _start does.

    All ranks begin operations in the same order; each waits when it likes. Until then nobody writes
    to the tensors that were given; Work holds them. A Work that nobody waits for is ended by
    ``Comm.close()``.
    """

    def __init__(
        self, started: ops.Started, comm: Comm, device: torch.device, end: Callable[[], Result]
    ) -> None:
        self._started, self._comm, self._device = started, comm, device
        is_on_host = device.type == "cpu"
        self._begun_on = None if is_on_host else torch.cuda.current_stream(device)
        self._is_captured = not is_on_host and torch.cuda.is_current_stream_capturing()
        self._end: Callable[[], Result] | None = end
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
            if self in self._comm.works:
                self._comm.works.remove(self)
            _core.wait(self._started.number, stream)
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
    if torch.compiler.is_compiling():
        raise EPXError(Code.UNSUPPORTED, "ops that return a Work cannot be compiled")
    if x.is_cpu:
        return ops.Started(None)
    stream = _side_streams.get(route.comm)
    if stream is None or stream.device != x.device:
        stream = _side_streams[route.comm] = cast(Any, torch.cuda.Stream)(x.device)
    return ops.Started(stream)


@overload
def dispatch_start(
    x: Tensor, ids: Tensor, weights: Tensor | None, route: Route, *, scales: None = None
) -> Work[Dispatched]: ...


@overload
def dispatch_start(
    x: Tensor, ids: Tensor, weights: Tensor | None, route: Route, *, scales: Tensor
) -> Work[ScaledDispatched]: ...


def dispatch_start(
    x: Tensor,
    ids: Tensor,
    weights: Tensor | None,
    route: Route,
    *,
    scales: Tensor | None = None,
) -> Work[Any]:
    """Begin what dispatch does, and return at once: the Work's wait() returns its results.

    The tensors, ``scales`` among them, are those of dispatch, and so are the errors: of a shape,
    dtype or device at once, of what the ranks find by wait(). On a GPU the rows move beside what is
    queued on the current stream meanwhile. The backward is that of dispatch. Collective when it is
    called; wait() is local.
    """
    ids = _check_tokens(x, ids, weights, scales)
    started, capacity = _begin(x, route), route.capacity
    made = _dispatch(x, ids, weights, route.index, capacity, scales, started=started)

    def end() -> Dispatched | ScaledDispatched:
        row_experts = made[4]
        if row_experts.shape[0]:
            ops.add_up_ranks(made[3][route.local_experts :], row_experts, capacity)
        return _result(made, ids, weights, scales, route, capacity)

    return Work(started, route.comm, x.device, end)


def combine_start(y: Tensor, routing: Routing, row_weights: Tensor | None = None) -> Work[Tensor]:
    """Begin what combine does, and return at once: the Work's wait() returns its result."""
    _check_devices(y, routing.ids, row_weights)
    started = _begin(y, routing.route)
    given = (routing.ids, routing.key, routing.tie, routing.route.index, routing.capacity)
    out: Tensor = _combine(y, row_weights, *given, started=started)
    return Work(started, routing.route.comm, y.device, lambda: out)
