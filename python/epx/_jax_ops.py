# SPDX-License-Identifier: BSD-3-Clause
"""The four operations as calls of XLA's foreign function interface, with gradients.

_jax_order.py keeps them in the order of the program. On the host a rank that is alone needs none.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.extend.core import Effect, Primitive
from jax.interpreters import batching, mlir
from jax.sharding import NamedSharding, PartitionSpec

from epx import _jax_order as order
from epx._core import Code, EPXError, _lib

DISPATCH, COMBINE = "epx_dispatch", "epx_combine"
DISPATCH_BACKWARD, COMBINE_BACKWARD = "epx_dispatch_backward", "epx_combine_backward"

SUMMED = tuple(np.dtype(name) for name in (jnp.float16, jnp.bfloat16, jnp.float32, jnp.float64))
SENT = (
    *SUMMED,
    *(np.dtype(name) for name in (jnp.uint8, jnp.float8_e4m3fn, jnp.float8_e5m2)),
)


def _register() -> None:
    for target in (DISPATCH, COMBINE, DISPATCH_BACKWARD, COMBINE_BACKWARD):
        symbol = target.replace("epx_", "epx_python_xla_")
        if not hasattr(_lib, symbol):
            raise ImportError(
                "epx was built without the header of jaxlib: install jax, then build epx again"
            )
        for platform, suffix in (("cpu", ""), ("CUDA", "_cuda")):
            function = ctypes.cast(getattr(_lib, symbol + suffix), ctypes.c_void_p)
            jax.ffi.register_ffi_target(target, jax.ffi.pycapsule(function), platform=platform)


_register()


class Place(NamedTuple):
    """What a call knows when it is traced."""

    route: int
    capacity: int
    local_experts: int
    top_k: int
    ranks: int
    is_rank_major: bool
    is_ordered: bool
    axes: tuple[str, ...]
    """The manual axes of shard_map, over which all results vary."""


def varying(value: Array, axes: Sequence[str]) -> Array:
    """The value as one that varies over the axes, which shard_map with check_vma wants to know."""
    kind: Any = jax.typeof(value)
    known = kind.mat.varying if hasattr(kind, "mat") else getattr(kind, "vma", ())
    missing = tuple(axis for axis in axes if axis not in known)
    return lax.pcast(value, missing, to="varying") if missing else value


def none() -> Array:
    """An argument that is missing."""
    return jnp.zeros((0,), bool)


class _Shape(NamedTuple):
    shape: tuple[int, ...]
    dtype: np.dtype[Any]


_NONE = _Shape((0,), np.dtype(bool))


def _avals(*_: Any, place: Place, made: tuple[_Shape, ...]) -> tuple[list[Any], set[Effect]]:
    around = NamedSharding(jax.sharding.get_abstract_mesh(), PartitionSpec())
    avals = [jax.core.ShapedArray(one.shape, one.dtype, sharding=around) for one in made]
    return avals, {order.ORDER} if place.is_ordered else set()


def _refuse_vmap(target: str, *_: Any, **__: Any) -> Any:
    raise EPXError(
        Code.UNSUPPORTED, f"{target} under vmap: a batch is a longer x, or a scan of dispatches"
    )


def _primitive(target: str) -> Primitive:
    """The operation as a primitive of JAX. To XLA it has a side effect, ordered or not: XLA knows
    the sizes, which differ by rank, and where results have no elements it would leave out a call
    that other ranks make."""
    primitive = Primitive(target)
    primitive.multiple_results = True

    @functools.cache
    def compiled(place: Place, made: tuple[_Shape, ...]) -> Any:
        return jax.jit(functools.partial(primitive.bind, place=place, made=made))

    def run(*args: Array, place: Place, made: tuple[_Shape, ...]) -> Any:
        with jax.disable_jit(False):
            return compiled(place, made)(*args)

    def lower(ctx: Any, *args: Any, place: Place, made: tuple[_Shape, ...]) -> Any:
        known: Any = {"route": np.int32(place.route), "capacity": np.int64(place.capacity)}
        if place.is_ordered:
            return order.lower(target, ctx, args, **known)
        return jax.ffi.ffi_lowering(target, has_side_effect=True)(ctx, *args, **known)

    primitive.def_effectful_abstract_eval(_avals)
    primitive.def_impl(run)
    mlir.register_lowering(primitive, lower, cacheable=False)
    batching.primitive_batchers[primitive] = functools.partial(_refuse_vmap, target)
    return primitive


_TARGETS = (DISPATCH, COMBINE, DISPATCH_BACKWARD, COMBINE_BACKWARD)
_primitives = {target: _primitive(target) for target in _TARGETS}


def _call(target: str, place: Place, args: list[Array], made: list[_Shape]) -> list[Array]:
    """Arguments: input, ids, weights, key, rows, and scales of a dispatch."""
    varied = [varying(arg, place.axes) for arg in args]
    arrays = _primitives[target].bind(*varied, place=place, made=tuple(made))
    return [varying(one, place.axes) for one in arrays]


def words(ids: Array) -> Array:
    """The ids as the library wants them, 64 bits each: as int64, or as two words of int32."""
    if jax.config.jax_enable_x64:  # type: ignore[attr-defined]
        return ids.astype(jnp.int64)
    return jnp.stack([ids, jnp.where(ids < 0, -1, 0)], axis=-1)


def _weights_shape(place: Place) -> _Shape:
    shape = (place.capacity, place.top_k) if place.is_rank_major else (place.capacity,)
    return _Shape(shape, np.dtype(np.float32))


def is_none(value: Array) -> bool:
    return value.dtype == bool


def _dispatch(
    place: Place, x: Array, ids: Array, weights: Array, scales: Array
) -> tuple[Array, ...]:
    """Returns rows, row_weights, key, counts and offsets in one, row_experts, row_scales."""
    num_offsets = place.ranks if place.is_rank_major else place.local_experts
    num_rows = place.capacity if place.is_rank_major else 0
    integer = np.dtype(np.int32)
    made = _call(
        DISPATCH,
        place,
        [x, words(ids), weights, none(), none(), scales],
        [
            _Shape((place.capacity, x.shape[1]), x.dtype),
            _NONE if is_none(weights) else _weights_shape(place),
            _Shape((2,), integer),
            _Shape((place.local_experts + 1 + num_offsets,), integer),
            _Shape((num_rows, place.top_k), integer),
            _NONE if is_none(scales) else _Shape((place.capacity, scales.shape[1]), scales.dtype),
        ],
    )
    return tuple(made)


def _dispatch_forward(place: Place, *args: Array) -> tuple[Any, Any]:
    made = _dispatch(place, *args)
    x, ids = args[:2]
    return made, (ids, made[2], jnp.zeros((0,), x.dtype))


def _dispatch_backward(place: Place, kept: Any, grads: Any) -> tuple[Any, ...]:
    ids, key, sample = kept
    grad_rows, grad_weights = grads[:2]
    is_summed = sample.dtype in SUMMED
    if not is_summed:
        grad_rows = jnp.zeros((place.capacity, 0), jnp.float32)
    has_weights = grad_weights.dtype == np.float32
    grad_x, grad_x_weights = _call(
        DISPATCH_BACKWARD,
        place,
        [grad_rows, words(ids), grad_weights if has_weights else none(), key, none()],
        [
            _Shape((ids.shape[0], grad_rows.shape[1]), grad_rows.dtype),
            _Shape(ids.shape, np.dtype(np.float32)) if has_weights else _NONE,
        ],
    )
    return grad_x if is_summed else None, None, grad_x_weights if has_weights else None, None


dispatch = jax.custom_vjp(_dispatch, nondiff_argnums=(0,))
dispatch.defvjp(_dispatch_forward, _dispatch_backward)


def _combine(place: Place, y: Array, ids: Array, row_weights: Array, key: Array) -> Array:
    out = _Shape((ids.shape[0], y.shape[1]), y.dtype)
    return _call(COMBINE, place, [y, words(ids), row_weights, key, none()], [out, _NONE])[0]


def _combine_forward(place: Place, *args: Array) -> tuple[Any, Any]:
    y, ids, row_weights, key = args
    kept = y[:, :0] if is_none(row_weights) else y  # of which the number of rows is wanted always
    return _combine(place, *args), (kept, ids, row_weights, key)


def _resized(made: Array, num: int) -> Array:
    """The gradients of so many rows: those behind the capacity are zero."""
    rows = made.shape[0]
    if num <= rows:
        return made if num == rows else made[:num]
    return jnp.pad(made, [(0, num - rows), *[(0, 0)] * (made.ndim - 1)])


def _combine_backward(place: Place, kept: Any, grad: Array) -> tuple[Any, ...]:
    y, ids, row_weights, key = kept
    has_weights = not is_none(row_weights)
    grad_y, grad_weights = _call(
        COMBINE_BACKWARD,
        place,
        [grad, words(ids), row_weights, key, y if has_weights else none()],
        [
            _Shape((place.capacity, grad.shape[1]), grad.dtype),
            _Shape((place.capacity,), np.dtype(np.float32)) if has_weights else _NONE,
        ],
    )
    grad_y = _resized(grad_y, y.shape[0])
    return grad_y, None, _resized(grad_weights, row_weights.shape[0]) if has_weights else None, None


combine = jax.custom_vjp(_combine, nondiff_argnums=(0,))
combine.defvjp(_combine_forward, _combine_backward)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def refuse_gradient(name: str, value: Array) -> Array:
    """The value itself, which is sent and has no gradient: a narrow x, or scales."""
    return value


def _refuse_forward(name: str, value: Array) -> tuple[Array, None]:
    raise EPXError(
        Code.TYPE,
        f"a gradient of {name}, of dtype {value.dtype}, is wanted, and there is none",
    )


def _refuse_backward(name: str, _: None, grad: Array) -> tuple[Array]:
    return (grad,)


refuse_gradient.defvjp(_refuse_forward, _refuse_backward)
