# SPDX-License-Identifier: BSD-3-Clause
"""The same backward calls on all ranks, those without tokens too.

An operation has a backward where JAX sees that what it takes is differentiated and that its results
are used. JAX sees what depends on what, not the sizes of arrays. But some functions of jax.numpy
take a short cut where arrays have no elements: indexing returns zeros without looking at the array.
So on a rank without tokens JAX would see less, and leave out a backward that other ranks wait for.
Here those functions are replaced, wherever a module has them, by others that return the same and
depend on the same arguments in both cases. XLA removes what they add, which has no elements.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

# Which functions of JAX take short cuts, and which of their arguments they do not look at then.
_SHORT_CUTS = {
    "jax._src.numpy.indexing": {"_gather": ["arr"], "_take": ["a"], "take_along_axis": ["arr"]},
    "jax._src.numpy.util": {"_where": ["x", "y"]},
    "jax._src.numpy.lax_numpy": {"_repeat": ["arr"], "resize": ["a"]},
    "jax._src.ops.scatter": {"_scatter_impl": ["y"]},
}


def _depend(made: Array, on: Any) -> Array:
    """What was made, as a function of a further array, of which no element is used."""
    if not isinstance(on, jax.core.Tracer) or not jnp.issubdtype(on.dtype, jnp.floating):
        return made
    start = (0,) * max(on.ndim, 1)
    nothing = lax.slice(jnp.atleast_1d(on), start, start).sum(dtype=jnp.float32)
    kind: Any = jax.typeof(made)
    zero: Array = lax_internal._convert_element_type(nothing, kind.dtype, kind.weak_type)
    return made - zero


def _without_short_cut(function: Callable[..., Any], names: list[str]) -> Callable[..., Any]:
    signature = inspect.signature(function)

    @functools.wraps(function)
    def same(*args: Any, **options: Any) -> Any:
        made = function(*args, **options)
        if made.size and made is not args[0]:
            return made
        given = signature.bind(*args, **options).arguments
        return functools.reduce(_depend, [given[name] for name in names], made)

    return same


def _leave_short_cuts() -> None:
    others: dict[int, Callable[..., Any]] = {}
    for module_name, functions in _SHORT_CUTS.items():
        module = importlib.import_module(module_name)
        for name, arguments in functions.items():
            function = getattr(module, name)
            others[id(function)] = _without_short_cut(function, arguments)
    for module in list(sys.modules.values()):
        for name, value in list(vars(module).items()):
            if id(value) in others:
                setattr(module, name, others[id(value)])


# In a JAX that has these functions elsewhere is_kept() is false.
with contextlib.suppress(ImportError, AttributeError):
    from jax._src.lax import lax as lax_internal

    _leave_short_cuts()


def _has_backward(function: Callable[[Array, Array], Array]) -> bool:
    """Whether what takes the result of a function of x and no indices is differentiated if x is."""
    found: list[bool] = []

    @jax.custom_vjp
    def next_one(value: Array) -> Array:
        return value

    def forward(value: Array) -> tuple[Array, None]:
        found.append(True)
        return value, None

    next_one.defvjp(forward, lambda _, grad: (grad,))
    gradient = jax.grad(lambda x, order: next_one(function(x, order)).sum())
    order = jax.ShapeDtypeStruct((0,), jnp.int32)
    jax.eval_shape(gradient, jax.ShapeDtypeStruct((1, 1), jnp.float32), order)
    return bool(found)


@functools.cache
def is_kept() -> bool:
    """Whether the gradient of what is indexed is that of other ranks on a rank without tokens."""
    return all(
        map(
            _has_backward,
            (
                lambda x, order: x[order],
                lambda x, order: jnp.take(x, order, axis=0),
                lambda x, _: jnp.where(x[:0] > 0, 0, x[:0]),
                lambda x, order: jnp.zeros((1, 1)).at[order].add(x[:0]),
            ),
        )
    )
