# SPDX-License-Identifier: BSD-3-Clause
"""The same backward calls on all ranks, those without tokens too.

An operation has a backward where JAX sees that what it takes is differentiated and that what it
returns is used. On a rank without tokens JAX sees less: indexing an array without elements gives
zeros that have no gradient, and leaves the array unused. So an operation follows the one before it
in the same trace, by a link that is differentiated if that one is; and an effect keeps its backward
whatever becomes of its results. Neither is in the program that runs: the backward of both is
nothing.
"""

from __future__ import annotations

import threading
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax._src import effects  # JAX has no public way to declare an effect
from jax.extend.core import Effect, Primitive, get_opaque_trace_state
from jax.interpreters import ad


class _Kept(Effect):
    """Keeps a call in a gradient."""

    def __str__(self) -> str:
        return "EPX gradient"


for _kind in (
    effects.lowerable_effects,
    effects.control_flow_allowed_effects,
    effects.custom_derivatives_allowed_effects,
    effects.remat_allowed_effects,
    effects.partial_eval_kept_effects,
):
    _kind.add_type(_Kept)

_KEPT = _Kept()
_tangent = Primitive("epx_tangent")  # the first argument, as if it depended on the second
_tangent.def_effectful_abstract_eval(lambda first, _: (first, {_KEPT}))


def _transpose(cotangent: Any, first: Any, _: Any) -> tuple[Any, None]:
    return cotangent if ad.is_undefined_primal(first) else None, None


ad.primitive_transposes[_tangent] = _transpose


@jax.custom_jvp
def _follow(value: Array, link: Array) -> Array:
    """The value, which is differentiated if the link is."""
    return value


@jax.custom_jvp
def _link(value: Array) -> Array:
    """A link that is differentiated if the value is."""
    return jnp.zeros((1,), jnp.float32)


_follow.defjvp(lambda given, tangents: (given[0], _tangent.bind(*tangents)))
_link.defjvp(lambda given, tangents: (_no_link(), _tangent.bind(_no_link(), tangents[0])))


def _no_link() -> Array:
    return jnp.zeros((1,), jnp.float32)


class _Latest(threading.local):
    trace: Any = None
    link: Any = None


_latest = _Latest()


def follow(value: Array) -> Array:
    """What an operation takes, which is differentiated if the operation before it is."""
    is_first = _latest.trace != get_opaque_trace_state(convention="flax")
    return value if is_first else _follow(value, _latest.link)


def lead(value: Array) -> Array:
    """What an operation returns, which the next one follows."""
    # jax.checking_leaks, which is for debugging, takes what is kept here for a leak.
    if not jax.config.jax_check_tracer_leaks:  # type: ignore[attr-defined]
        _latest.trace = get_opaque_trace_state(convention="flax")
        _latest.link = _link(value)
    return _follow(value, _no_link())
