# SPDX-License-Identifier: BSD-3-Clause
"""Dispatch and combine as functions of JAX, with gradients.

    rows, row_weights, routing = epx.jax.dispatch(x, ids, weights, route)
    y = experts(rows, epx.jax.group_sizes(routing))
    out = epx.jax.combine(y, routing, row_weights)

They work under jit, grad, scan, checkpoint and shard_map, in programs of one device a process and
in those of jax.distributed, there inside shard_map. Every rank runs the same program. Import this
module before JAX makes its first array: it has programs on the CPU run in the order of their calls.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from typing import overload

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from epx import _jax_gradient as gradient
from epx import _jax_ops as ops
from epx._core import Code, EPXError, Handle
from epx._route import Route, routes

__all__ = ["Routing", "combine", "dispatch", "error_code", "group_sizes"]

jax.config.update("jax_cpu_enable_async_dispatch", False)


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["ids", "key", "counts", "offsets", "row_experts"],
    meta_fields=["index", "capacity"],
)
@dataclass(frozen=True)
class Routing(Handle):
    """Where the rows of one dispatch are: a pytree. Any number of them may live on one route.

    ``ids`` int32 or int64 [T, K]; ``key`` names the routing to the library; ``counts`` int32 [L]:
    rows of each local expert (in rank-major: pairs); ``offsets`` int32: first row of each local
    expert [L+1], in rank-major that of each source rank [R+1]; its last element is the number of
    rows. ``row_experts`` int32, in rank-major [capacity, K]: the local experts of each row or -1;
    else [0, K]. Static: ``index`` of the route, and ``capacity``, rows of the dispatch.
    """

    ids: Array
    key: Array
    counts: Array
    offsets: Array
    row_experts: Array
    index: int
    capacity: int

    @property
    def route(self) -> Route:
        """The route, if it is not freed."""
        return _route(self.index)


def _route(index: int) -> Route:
    route = routes.get(index)
    if route is None:
        raise EPXError(Code.ROUTE, "the route is freed")
    return route


def _manual_axes(ranks: int) -> tuple[str, ...]:
    """The axes of the shard_map around; refuses programs that have not one device a process."""
    mesh = jax.sharding.get_abstract_mesh()
    axes = tuple(mesh.manual_axes)
    processes = jax.process_count()
    if processes > 1 and not axes:
        raise EPXError(
            Code.UNSUPPORTED,
            f"JAX has {processes} processes: call this inside shard_map, where arrays are those of "
            "one rank",
        )
    if axes and mesh.size > processes:
        raise EPXError(
            Code.UNSUPPORTED,
            f"a mesh of {mesh.size} devices, and JAX has {processes} processes: want one device a "
            "process",
        )
    return axes


def _place(route: Route, capacity: int) -> ops.Place:
    ranks = route.comm.size
    return ops.Place(
        route.index,
        capacity,
        route.local_experts,
        route.top_k,
        ranks,
        route.layout == "rank",
        ranks > 1 or route.comm.on_device,
        _manual_axes(ranks),
    )


def _check(name: str, value: Array, shape: tuple[int, ...]) -> None:
    if value.ndim != len(shape):
        raise EPXError(
            Code.COUNT, f"{name} has {value.ndim} dimensions, want {len(shape)}: {list(shape)}"
        )
    if value.shape != shape:
        raise EPXError(Code.COUNT, f"{name} is {list(value.shape)}, want {list(shape)}")


def _check_float32(name: str, value: Array) -> None:
    if value.dtype != np.float32:
        raise EPXError(Code.TYPE, f"{name} is of type {value.dtype}, want float32")


def _check_rows(name: str, value: Array) -> None:
    if value.ndim != 2:
        raise EPXError(Code.COUNT, f"{name} has {value.ndim} dimensions, want 2")
    if value.dtype not in ops.SENT:
        raise EPXError(Code.TYPE, f"{name} is of type {value.dtype}, which cannot be sent")


def _check_tokens(
    x: Array, ids: Array, weights: Array | None, scales: Array | None, route: Route
) -> None:
    _check_rows("x", x)
    if x.shape[0] > route.max_tokens:
        raise EPXError(
            Code.COUNT, f"{x.shape[0]} tokens, and max_tokens of the route is {route.max_tokens}"
        )
    if ids.dtype not in (np.int32, np.int64):
        raise EPXError(Code.TYPE, f"ids is of type {ids.dtype}, want int32 or int64")
    _check("ids", ids, (x.shape[0], route.top_k))
    if weights is not None:
        _check_float32("weights", weights)
        _check("weights", weights, (x.shape[0], route.top_k))
    if scales is not None:
        _check_rows("scales", scales)
        _check("scales", scales, (x.shape[0], scales.shape[1]))


def _check_gradient(x: Array, place: ops.Place) -> None:
    if place.is_ordered and 0 in (x.shape[0], place.capacity) and not gradient.is_kept():
        raise EPXError(
            Code.UNSUPPORTED,
            f"{x.shape[0]} tokens, room for {place.capacity} rows: without either JAX "
            f"{jax.__version__} may leave out a backward that other ranks make; pass a token with "
            "ids of -1, and give the route a capacity",
        )


def _routing(ids: Array, made: tuple[Array, ...], route: Route, place: ops.Place) -> Routing:
    """The library gives rows of each rank for offsets, and in the rows that nothing arrived in no
    experts at all; without room, the rows of all ranks may be more than there are."""
    key, info, row_experts = made
    counts, offsets = info[: route.local_experts], info[route.local_experts :]
    if place.is_rank_major:
        offsets = jnp.minimum(jnp.cumsum(offsets), place.capacity).astype(jnp.int32)
        used = lax.iota(jnp.int32, place.capacity)[:, None] < offsets[-1]
        row_experts = jnp.where(used, row_experts, -1)
    return Routing(ids, key, counts, offsets, row_experts, route.index, place.capacity)


Dispatched = tuple[Array, "Array | None", Routing]
"""What dispatch returns: rows, their weights, and the routing."""
ScaledDispatched = tuple[tuple[Array, Array], "Array | None", Routing]
"""What dispatch returns for rows with scales: both, their weights, and the routing."""


@overload
def dispatch(
    x: Array, ids: Array, weights: Array | None, route: Route, *, scales: None = None
) -> Dispatched: ...


@overload
def dispatch(
    x: Array, ids: Array, weights: Array | None, route: Route, *, scales: Array
) -> ScaledDispatched: ...


def dispatch(
    x: Array,
    ids: Array,
    weights: Array | None,
    route: Route,
    *,
    scales: Array | None = None,
) -> Dispatched | ScaledDispatched:
    """Send every token to the ranks of its experts: EPX_Dispatch(3). Collective.

    ``x`` [T, H], floating, fp8 or uint8, T at most max_tokens of the route, 0 too; ``ids`` [T, K]
    int32 or int64, experts or -1 for none; ``weights`` [T, K] float32, or None on all ranks. T may
    differ by rank where each process has a program of its own. All are in the memory that the
    communicator is for.

    ``scales`` [T, S], of any dtype that ``x`` may have, travel beside the rows in the same
    operation: EPX_Dispatch_fields(3). All ranks give them, or none; they have no gradient.

    Returns rows [capacity, H] of the dtype of ``x``, where capacity is that of the route when the
    program is traced; their weights, float32 [capacity], in rank-major [capacity, K], or None; and
    the Routing. With ``scales`` the first of these is a pair: rows, and their scales [capacity, S].
    XLA allocates them all. Rows from ``routing.offsets[-1]`` on are not written, and may be NaN,
    and so are in slabs those behind ``routing.counts`` of each expert, unless the route has
    ``zero_unused``; their scales alike.

    Raises EPXError when traced: Code.COUNT for a wrong shape, TYPE for a wrong dtype and for a
    gradient that there is none of, ROUTE for a freed route, UNSUPPORTED under vmap, or outside of
    shard_map where JAX has several processes. What is found when the program runs is an error of
    JAX, of which error_code() tells the code: TRUNCATE on all ranks where a rank lacks room, ARG on
    the rank that has a bad id, and on all ranks where scales or the bytes of rows differ, ROUTE for
    a route freed since. On a GPU TRUNCATE and ARG are raised by ``Comm.check()``. Gradients: of
    ``x``, if its dtype can be added, and of ``weights``.
    """
    _route(route.index)
    x, ids = jnp.asarray(x), jnp.asarray(ids)
    weights = None if weights is None else jnp.asarray(weights)
    scales = None if scales is None else jnp.asarray(scales)
    _check_tokens(x, ids, weights, scales, route)
    place = _place(route, route.capacity)
    _check_gradient(x, place)
    if x.dtype not in ops.SUMMED:
        x = ops.refuse_gradient("x", x)
    given = (
        *(x, ids, ops.none() if weights is None else weights),
        ops.none() if scales is None else ops.refuse_gradient("scales", scales),
    )
    rows, row_weights, *made, row_scales = ops.dispatch(
        place, *(ops.varying(one, place.axes) for one in given)
    )
    weights_there = None if weights is None else row_weights
    routing = _routing(ids, tuple(made), route, place)
    if scales is None:
        return rows, weights_there, routing
    return (rows, row_scales), weights_there, routing


def combine(y: Array, routing: Routing, row_weights: Array | None = None) -> Array:
    """Bring rows home and sum them for each token: EPX_Combine(3). Collective.

    ``y`` [rows, H], float16, bfloat16, float32 or float64, a row where dispatch has one;
    ``row_weights`` float32 [rows], by which rows are multiplied before they are added, or None.
    Either has any number of rows from ``routing.offsets[-1]`` on: fewer are Code.COUNT on hosts,
    when the program runs, and on a GPU an error that nobody finds.

    Returns [T, H]; a token without experts gets zeros. The order of the sums is fixed.

    Raises EPXError as dispatch does. Gradients: of ``y`` and of ``row_weights``.
    """
    route = routing.route
    y = jnp.asarray(y)
    if y.ndim != 2:
        raise EPXError(Code.COUNT, f"y has {y.ndim} dimensions, want 2")
    if y.dtype not in ops.SUMMED:
        raise EPXError(Code.TYPE, f"y is of type {y.dtype}, which cannot be added")
    if row_weights is not None:
        row_weights = jnp.asarray(row_weights)
        _check_float32("row_weights", row_weights)
        _check("row_weights", row_weights, (row_weights.shape[0] if row_weights.ndim else 0,))
    place = _place(route, routing.capacity)
    given = (y, routing.ids, ops.none() if row_weights is None else row_weights, routing.key)
    return ops.combine(place, *(ops.varying(one, place.axes) for one in given))


def group_sizes(routing: Routing) -> Array:
    """Rows of each local expert, padding included: int32 [L], the sizes of jax.lax.ragged_dot.

    Routings in expert-major have them, and in slabs, where all are rows_per_expert. ragged_dot
    gives zeros for rows past their sum. Others must not let those reach the loss, nor the unused
    rows of slabs: they may be NaN, and then so is their product with a zero, in gradients too.
    ``zero_unused`` of the route zeroes them.
    """
    if routing.route.layout == "rank":
        raise EPXError(Code.ARG, "group_sizes wants a routing in expert-major or in slabs")
    return jnp.diff(routing.offsets)


def error_code(error: BaseException) -> Code | None:
    """EPX's code of an error, an EPXError or one that JAX raised; None if EPX has no part in it."""
    if isinstance(error, EPXError):
        return error.code
    found = re.search(r"EPX_ERR_([A-Z_]+): ", str(error))
    return Code[found[1]] if found and found[1] in Code.__members__ else None
