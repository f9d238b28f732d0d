# SPDX-License-Identifier: BSD-3-Clause
"""The four operations as calls of XLA's foreign function interface, with gradients.

On host memory XLA runs calls that do not depend on each other in several threads, in an order that
may differ by rank, and in a CUDA graph at the same time. So a call takes a tie, a value without
meaning, and returns it: it runs after the call that the tie came from. Gradients take ties in
reverse order, and each backward comes after the operation itself. On the host a rank that is alone
has no ties.
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
from jax.extend.core import Primitive
from jax.interpreters import batching, mlir, partial_eval
from jax.sharding import NamedSharding, PartitionSpec

from epx._core import Code, EPXError, _lib

DISPATCH, COMBINE = "epx_dispatch", "epx_combine"
DISPATCH_BACKWARD, COMBINE_BACKWARD = "epx_dispatch_backward", "epx_combine_backward"
_TIE, _TIE_MADE = 5, 2  # places among the arguments and the results, as in xla.c

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
    has_tie: bool
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


def first_tie(has_tie: bool) -> Array:
    return jnp.zeros((1,), jnp.float32) if has_tie else none()


class _Shape(NamedTuple):
    shape: tuple[int, ...]
    dtype: np.dtype[Any]


_NONE = _Shape((0,), np.dtype(bool))


def _avals(*_: Any, place: Place, made: tuple[_Shape, ...]) -> list[Any]:
    around = NamedSharding(jax.sharding.get_abstract_mesh(), PartitionSpec())
    return [jax.core.ShapedArray(one.shape, one.dtype, sharding=around) for one in made]


def _refuse_vmap(target: str, *_: Any, **__: Any) -> Any:
    raise EPXError(
        Code.UNSUPPORTED, f"{target} under vmap: a batch is a longer x, or a scan of dispatches"
    )


def _keep(_: Any, unknown: Sequence[bool], kept: Sequence[bool], equation: Any) -> Any:
    """The rule of jax.checkpoint for a call with a tie: its results are kept, it does not run
    again. Nothing would tell XLA when."""
    number = len(equation.outvars)
    if not any(unknown):
        return equation, None, [False] * number, [False] * number, []
    wanted = [
        value
        for value, is_kept in zip(equation.invars, kept)
        if not is_kept and not hasattr(value, "val")
    ]
    return None, equation, [True] * number, [True] * number, wanted


def _primitive(target: str, has_tie: bool) -> Primitive:
    """The operation as a primitive of JAX. To JAX it is a pure function, and one that nobody needs
    goes from all ranks. XLA knows the sizes, which differ by rank: where results have no elements
    it would leave out a call that other ranks make. So to XLA it has a side effect."""
    primitive = Primitive(target)
    primitive.multiple_results = True

    @functools.cache
    def compiled(place: Place, made: tuple[_Shape, ...]) -> Any:
        return jax.jit(functools.partial(primitive.bind, place=place, made=made))

    def lower(ctx: Any, *args: Any, place: Place, made: tuple[_Shape, ...]) -> Any:
        aliases = {_TIE: _TIE_MADE} if has_tie else None
        rule = jax.ffi.ffi_lowering(target, has_side_effect=True, operand_output_aliases=aliases)
        return rule(ctx, *args, route=np.int32(place.route))

    primitive.def_abstract_eval(_avals)
    primitive.def_impl(lambda *args, place, made: compiled(place, made)(*args))
    mlir.register_lowering(primitive, lower)
    batching.primitive_batchers[primitive] = functools.partial(_refuse_vmap, target)
    if has_tie:
        partial_eval.partial_eval_jaxpr_custom_rules[primitive] = _keep
    return primitive


_TARGETS = (DISPATCH, COMBINE, DISPATCH_BACKWARD, COMBINE_BACKWARD)
_primitives = {
    (target, has_tie): _primitive(target, has_tie)
    for target in _TARGETS
    for has_tie in (False, True)
}


def _call(target: str, place: Place, args: list[Array], made: list[_Shape]) -> list[Array]:
    """Arguments: input, ids, weights, key, rows, tie, what the call comes after, and scales."""
    tie = _Shape(args[_TIE].shape, args[_TIE].dtype)
    results = (*made[:_TIE_MADE], tie, *made[_TIE_MADE:])
    varied = [varying(arg, place.axes) for arg in args]
    arrays = _primitives[target, place.has_tie].bind(*varied, place=place, made=results)
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
    place: Place, x: Array, ids: Array, weights: Array, scales: Array, tie: Array
) -> tuple[Array, ...]:
    """Returns rows, row_weights, tie, key, counts and offsets in one, row_experts, row_scales."""
    num_offsets = place.ranks if place.is_rank_major else place.local_experts
    num_rows = place.capacity if place.is_rank_major else 0
    integer = np.dtype(np.int32)
    made = _call(
        DISPATCH,
        place,
        [x, words(ids), weights, none(), none(), tie, none(), scales],
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
    return made, (ids, made[_TIE_MADE + 1], made[_TIE_MADE], jnp.zeros((0,), x.dtype))


def _dispatch_backward(place: Place, kept: Any, grads: Any) -> tuple[Any, ...]:
    ids, key, done, sample = kept
    grad_rows, grad_weights, tie = grads[:3]
    is_summed = sample.dtype in SUMMED
    if not is_summed:
        grad_rows = jnp.zeros((place.capacity, 0), jnp.float32)
    has_weights = grad_weights.dtype == np.float32
    made = _call(
        DISPATCH_BACKWARD,
        place,
        [
            grad_rows,
            words(ids),
            grad_weights if has_weights else none(),
            key,
            none(),
            tie if place.has_tie else none(),
            done,
        ],
        [
            _Shape((ids.shape[0], grad_rows.shape[1]), grad_rows.dtype),
            _Shape(ids.shape, np.dtype(np.float32)) if has_weights else _NONE,
        ],
    )
    return (
        made[0] if is_summed else None,
        None,
        made[1] if has_weights else None,
        None,
        made[_TIE_MADE] if place.has_tie else None,
    )


dispatch = jax.custom_vjp(_dispatch, nondiff_argnums=(0,))
dispatch.defvjp(_dispatch_forward, _dispatch_backward)


def _combine(
    place: Place, y: Array, ids: Array, row_weights: Array, key: Array, tie: Array
) -> tuple[Array, Array]:
    """Returns the sums and a tie."""
    made = _call(
        COMBINE,
        place,
        [y, words(ids), row_weights, key, none(), tie, none()],
        [_Shape((ids.shape[0], y.shape[1]), y.dtype), _NONE],
    )
    return made[0], made[_TIE_MADE]


def _combine_forward(place: Place, *args: Array) -> tuple[Any, Any]:
    y, ids, row_weights, key, _ = args
    out, done = _combine(place, *args)
    return (out, done), (none() if is_none(row_weights) else y, ids, row_weights, key, done)


def _combine_backward(place: Place, kept: Any, grads: Any) -> tuple[Any, ...]:
    y, ids, row_weights, key, done = kept
    grad, tie = grads
    has_weights = not is_none(row_weights)
    made = _call(
        COMBINE_BACKWARD,
        place,
        [grad, words(ids), row_weights, key, y, tie if place.has_tie else none(), done],
        [
            _Shape((place.capacity, grad.shape[1]), grad.dtype),
            _Shape((place.capacity,), np.dtype(np.float32)) if has_weights else _NONE,
        ],
    )
    return (
        made[0],
        None,
        made[1] if has_weights else None,
        None,
        made[_TIE_MADE] if place.has_tie else None,
    )


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
