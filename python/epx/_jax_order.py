# SPDX-License-Identifier: BSD-3-Clause
"""One order for the calls of a program of JAX: that in which the program has them.

All ranks must make the same calls in the same order, and XLA runs what it is free to run in an
order of its own. So a call has an ordered effect of JAX: JAX hands a token of XLA from each call to
the next through all that nests, as loops, branches, checkpoints and jits, and leaves no call out.
Beside the token goes a tie, a value without meaning: in its mode CONCURRENT XLA orders the calls of
a CUDA graph by the memory that they use, and a token is none.

A program as a whole takes no token. JAX would hand one from each program to the next: then calling
a program takes many times as long, and after a program that failed all later ones may fail, too.
Without that, programs still run in the order in which they are called. So before JAX lowers a
program, the program becomes one call that has the order inside.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax._src import effects  # JAX has no public way to declare an effect
from jax._src.core import abstract_token
from jax._src.interpreters import pxla
from jax.extend.core import Effect, Primitive
from jax.interpreters import mlir

from epx._core import Code, EPXError


class _Order(Effect):
    """What a call does to the order of all calls."""

    def __str__(self) -> str:
        return "EPX"


ORDER = _Order()

for _kind in (
    effects.ordered_effects,
    effects.shardable_ordered_effects,
    effects.lowerable_effects,
    effects.control_flow_allowed_effects,
    effects.custom_derivatives_allowed_effects,
    effects.remat_allowed_effects,
    effects.partial_eval_kept_effects,
):
    _kind.add_type(_Order)

_TIE = jax.core.ShapedArray((1,), np.dtype(np.float32))
_TIE_FROM_END = 2  # the last but one of the arguments and of the results, as in xla.c


def _tie_before(token: Any) -> Any:
    """The tie of the call that made the token, if that is in the same body as the next call."""
    before = token.owner
    if getattr(before, "name", "") == "stablehlo.custom_call":
        return before.results[len(before.results) - _TIE_FROM_END]
    return mlir.ir_constant(np.zeros(_TIE.shape, _TIE.dtype))


def lower(target: str, ctx: Any, args: Sequence[Any], **attributes: Any) -> Any:
    """The call of XLA's foreign function interface, with a tie and a token behind its arguments and
    results."""
    if ORDER not in ctx.tokens_in.effects():
        raise EPXError(
            Code.UNSUPPORTED,
            f"{target} in a primitive that does not tell JAX of the effects of what it is made of: "
            "nothing would order it; call it outside of that",
        )
    token = ctx.tokens_in.get(ORDER)
    order = [_TIE, abstract_token]
    aliases = {len(ctx.avals_in): len(ctx.avals_out)}
    rule = jax.ffi.ffi_lowering(target, has_side_effect=True, operand_output_aliases=aliases)
    inner = ctx.replace(avals_in=[*ctx.avals_in, *order], avals_out=[*ctx.avals_out, *order])
    *results, _, token = rule(inner, *args, _tie_before(token), token, **attributes)
    ctx.set_tokens_out(ctx.tokens_in.update_tokens(mlir.TokenSet({ORDER: token})))
    return results


_program = Primitive("epx_program")
_program.multiple_results = True


def _effects_around(call_jaxpr: Any) -> set[Effect]:
    return {effect for effect in call_jaxpr.effects if effect is not ORDER}


def _lower_program(ctx: Any, *args: Any, call_jaxpr: Any) -> Any:
    tokens = dict(ctx.tokens_in.items())
    tokens_inside = {**tokens, **dict(mlir.TokenSet.create([ORDER]).items())}
    inner = ctx.replace(tokens_in=mlir.TokenSet(tokens_inside))
    results = mlir.core_call_lowering(inner, *args, name="epx_program", call_jaxpr=call_jaxpr)
    left = {effect: inner.tokens_out.get(effect) for effect in tokens}
    ctx.set_tokens_out(mlir.TokenSet(left))
    return results


_program.def_effectful_abstract_eval(
    lambda *_, call_jaxpr: (call_jaxpr.out_avals, _effects_around(call_jaxpr))
)
mlir.register_lowering(_program, _lower_program, cacheable=False)


def _ordered_inside(program: Any) -> Any:
    """The program as one call that has the order inside."""
    call = functools.partial(_program.bind, call_jaxpr=program)
    return jax.make_jaxpr(call)(*program.in_avals)


def _lowering_ordered_inside(lowering: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(lowering)
    def lower_ordered_inside(program: Any, *args: Any, **options: Any) -> Any:
        if ORDER in program.effects:
            program = _ordered_inside(program)
        return lowering(program, *args, **options)

    return lower_ordered_inside


_LOWERING = "_cached_lowering_to_hlo"
if hasattr(pxla, _LOWERING):  # in a JAX without it programs take tokens, and are right, too
    setattr(pxla, _LOWERING, _lowering_ordered_inside(getattr(pxla, _LOWERING)))
