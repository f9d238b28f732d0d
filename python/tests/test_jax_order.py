# SPDX-License-Identifier: BSD-3-Clause
"""All ranks run the operations of a program of JAX in the order of the program, through whatever
nests, where some ranks have no tokens, so that nothing else makes an order there.

Rank 0 has tokens, and all go to the expert of the last rank. A layer gives them back as they were.
"""

import functools
import re
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax._src.interpreters import pxla
from jax._src.numpy import indexing, util
from jax._src.ops import scatter
from jax.extend.core import Primitive
from jax.interpreters import mlir
from jax_here import near

import epx
import epx.jax as ep
from epx import _jax_gradient as gradient
from epx import _jax_order as order

pytestmark = pytest.mark.slow

TOKENS, H = 64, 64  # rows of 256 bytes: XLA runs calls on the host in several threads


def slow(x):
    return jax.lax.fori_loop(0, 8, lambda _, v: jnp.sin((v @ v.T) @ v), x)


def is_ordered(comm):
    return comm.size > 1 or comm.on_device


class Layers:
    """What a program is made of, for one rank."""

    def __init__(self, comm, make_route):
        number = TOKENS if comm.rank == 0 else 0
        attributes = dict(experts=comm.size, top_k=1, max_tokens=TOKENS)
        self.route = make_route(zero_unused=True, **attributes)
        self.all_tokens = jax.random.normal(jax.random.key(0), (TOKENS, H))
        self.x = self.all_tokens[:number]
        self.ids = jnp.full((number, 1), comm.size - 1, jnp.int32)
        self.has_rows = comm.rank == comm.size - 1

    def send(self, x):
        return ep.dispatch(x, self.ids, None, self.route)

    def layer(self, x):
        rows, _, routing = self.send(x)
        return ep.combine(rows, routing)


@pytest.fixture
def layers(comm, make_route):
    return Layers(comm, make_route)


def order_of(x):
    """An order of the tokens that only the program which runs can know."""
    return jnp.argsort(x[:, 0])


# Ways to have tokens in another order, which take a short cut in JAX where there are none.
INDEXED = {
    "getitem": lambda x: x[order_of(x)],
    "get": lambda x: x.at[order_of(x)].get(mode="fill", fill_value=0),
    "take": lambda x: jnp.take(x, order_of(x), axis=0),
    "method": lambda x: x.take(order_of(x), axis=0),
    "along": lambda x: jnp.take_along_axis(x, order_of(x)[:, None], axis=0),
    "set": lambda x: jnp.zeros((TOKENS, H)).at[order_of(x)].set(x)[: len(x)],
    "add": lambda x: jnp.zeros((TOKENS, H)).at[order_of(x)].add(x)[: len(x)],
    "segments": lambda x: jax.ops.segment_sum(x, order_of(x), num_segments=TOKENS)[: len(x)],
    "where": lambda x: jnp.where(x > 0, 2.0, x),
    "repeat": lambda x: jnp.repeat(x, one(x), axis=0, total_repeat_length=len(x)),
    "resize": lambda x: jnp.resize(x, (len(x), H)),
}


def as_before(x):
    return x[jnp.arange(len(x))]


def indexed(layer, index=as_before):
    """On a rank without tokens JAX by itself gives the layer no tangent, and leaves it unused."""
    return lambda x: index(layer(index(x)))


def traced_elsewhere(layer):
    """Traces and compiles a program in another thread, at this place of the trace."""

    def layer_again(x):
        program = jax.jit(layer)
        like = jax.ShapeDtypeStruct(x.shape, x.dtype)
        thread = threading.Thread(target=lambda: program.lower(like).compile())
        thread.start()
        thread.join()
        return x

    return layer_again


def traced_before(layer):
    """A jit that was traced alone, and that the program gets out of JAX's cache."""
    program = jax.jit(layer)

    def known(x):
        jax.eval_shape(program, x)
        return program(x)

    return known


def with_rule(layer):
    ruled = jax.custom_vjp(layer)
    ruled.defvjp(lambda x: (layer(x), None), lambda _, grad: (layer(grad),))
    return ruled


def only_shape(find):
    def same(layer):
        return lambda x: (find(layer)(x), x)[1]

    return same


def one(x):
    """1, which only the program that runs can know."""
    return (x.sum() * 0 + 1).astype(int)


def branch(layer):
    return lambda x: jax.lax.cond(one(x) > 0, layer, lambda v: layer(layer(v)), x)


def scanned(layer):
    return lambda x: jax.lax.scan(lambda v, _: (layer(v), None), x, None, length=2)[0]


NESTED = {
    "plain": lambda layer: layer,
    "jit": jax.jit,
    "jit_known": traced_before,
    "scan": scanned,
    "scan_of_jit": lambda layer: scanned(jax.jit(layer)),
    "scan_of_branch": lambda layer: scanned(branch(layer)),
    "branch": branch,
    "switch": lambda layer: lambda x: jax.lax.switch(one(x), [jnp.negative, layer], x),
    "loop": lambda layer: lambda x: jax.lax.fori_loop(0, 2, lambda _, v: layer(v), x),
    "checkpoint": jax.checkpoint,
    "scan_of_checkpoint": lambda layer: scanned(jax.checkpoint(layer)),
    "checkpoint_of_scan": lambda layer: jax.checkpoint(scanned(layer)),
    "custom_vjp": with_rule,
    "indexed": indexed,
    "jit_of_indexed": lambda layer: jax.jit(indexed(layer)),
    "scan_of_indexed": lambda layer: scanned(indexed(layer)),
    "checkpoint_of_indexed": lambda layer: jax.checkpoint(indexed(layer)),
    "map": lambda layer: lambda x: jax.lax.map(layer, x[None])[0],
    "eval_shape": only_shape(lambda layer: lambda x: jax.eval_shape(layer, x)),
    "make_jaxpr": only_shape(jax.make_jaxpr),
    "thread": traced_elsewhere,
}
FORWARD = {
    **NESTED,
    "while": lambda layer: lambda x: jax.lax.fori_loop(0, one(x), lambda _, v: layer(v), x),
    "gradient": lambda layer: jax.grad(lambda x: (layer(x) ** 2).sum() / 2),
}


def close(got, wanted):
    near(got, np.asarray(wanted, np.float64))


@pytest.mark.parametrize("nest", FORWARD)
def test_rows_are_those_of_their_dispatch(layers, nest):
    inner = FORWARD[nest](layers.layer)

    @jax.jit
    def program(x):
        first, second = slow(x), jnp.tanh(x)
        a = layers.send(first)[0]
        y = inner(x + 1)
        b = layers.send(second)[0]
        return a, y, b

    for _ in range(3):
        a, y, b = program(layers.x)
        close(y, layers.x + 1)
        if layers.has_rows:
            close(a[:TOKENS], slow(layers.all_tokens))
            close(b[:TOKENS], jnp.tanh(layers.all_tokens))


def mixed(layer, nest):
    """The gradient of a loss of layers that need nothing of each other."""
    inner = NESTED[nest](layer)

    def loss(x):
        outs = layer(slow(x)), inner(x), layer(jnp.tanh(x))
        return sum((at + 1) * (out**3).sum() for at, out in enumerate(outs))

    return jax.jit(jax.grad(loss))


@pytest.mark.parametrize("nest", NESTED)
def test_gradients_are_those_without_ranks(layers, nest):
    wanted = mixed(lambda x: x, nest)(layers.x)
    gradient = mixed(layers.layer, nest)
    for _ in range(3):
        close(gradient(layers.x), wanted)


@pytest.mark.parametrize("index", INDEXED)
def test_what_is_indexed_has_the_gradient_of_other_ranks(layers, index):
    def gradient_of(layer):
        block = scanned(jax.checkpoint(indexed(layer, INDEXED[index])))
        return jax.jit(jax.grad(lambda x: (layer(block(x)) ** 3).sum()))

    close(gradient_of(layers.layer)(layers.x), gradient_of(lambda x: x)(layers.x))


@pytest.mark.parametrize(
    "module, name",
    [
        (indexing, "_gather"),
        (indexing, "_take"),
        (util, "_where"),
        (scatter, "_scatter_impl"),
    ],
)
def test_no_tokens_are_refused_without_a_replaced_function(comm, layers, monkeypatch, module, name):
    """As in a JAX that has the function elsewhere. One token with ids of -1 is what then helps."""
    monkeypatch.setattr(module, name, getattr(module, name).__wrapped__)
    monkeypatch.setattr(gradient, "is_kept", functools.cache(gradient.is_kept.__wrapped__))
    one_token = jnp.zeros((1, H)), jnp.full((1, 1), -1, jnp.int32)
    rows, _, routing = ep.dispatch(*one_token, None, layers.route)
    close(ep.combine(rows, routing), one_token[0])
    if is_ordered(comm):
        with pytest.raises(epx.EPXError, match="pass a token with ids of -1") as caught:
            ep.dispatch(one_token[0][:0], one_token[1][:0], None, layers.route)
        assert caught.value.code == epx.Code.UNSUPPORTED


def bits(array):
    return array.dtype, jax.typeof(array).weak_type, array.shape, np.asarray(array).tobytes()


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16, jnp.float8_e4m3fn, jnp.int32])
def test_replaced_functions_return_the_same(dtype):
    """The same bits, also of a negative zero and of a NaN; and of a weak type, as 1.0 has one."""
    none, some = jnp.zeros((0, 3), dtype), jnp.asarray([[-0.0, np.nan, 1]]).astype(dtype)
    weak = jnp.broadcast_to(-0.0, (1, 3))
    at = jnp.zeros((0,), jnp.int32)
    for index in (
        lambda x, y: x[at],
        lambda x, y: jnp.take(x, at, axis=0),
        lambda x, y: jnp.where(y > 0, y, y),
        lambda x, y: x.at[at].set(y),
        lambda x, y: weak.at[at].add(y.astype(jnp.float32)),
        lambda x, y: weak[at],
    ):
        traced = jax.jit(index)(some, none)  # eagerly nothing is added
        assert bits(traced) == bits(index(some, none))


@pytest.mark.parametrize("nest", ["plain", "scan", "branch", "checkpoint"])
def test_the_same_without_jit(layers, nest):
    with jax.disable_jit():
        close(NESTED[nest](layers.layer)(layers.x), layers.x)
        close(mixed(layers.layer, nest)(layers.x), mixed(lambda x: x, nest)(layers.x))


def calls_made(comm, program, x):
    program(x)  # JAX compiles it
    before = comm.stats().calls
    jax.block_until_ready(program(x))
    return comm.stats().calls - before


def unused(layer):
    def program(x):
        layer(x)
        jax.lax.scan(lambda v, _: (layer(v), None), x, None, length=2)
        jax.lax.cond(one(x) > 0, layer, jnp.negative, x)
        return x

    return program


def unused_layer(layer):
    def loss(x):
        layer(x)
        return (layer(x) ** 2).sum()

    return jax.grad(loss)


def equal(layer):
    return lambda x: layer(x) + layer(x)


@pytest.mark.parametrize(
    "make, number",
    [
        (unused, 8),
        (lambda layer: lambda x: (unused(layer)(x), None)[1], 8),
        (equal, 4),
        (lambda layer: scanned(equal(layer)), 8),
        (unused_layer, 6),  # the backward of the unused layer is no rank's
        # The last two calls are about the earlier routing: the first of them routes.
        (lambda layer: jax.grad(lambda x: jax.checkpoint(equal(layer))(x).sum()), 8 + 1),
    ],
)
@pytest.mark.parametrize("is_empty", [False, True])
def test_every_call_is_made_once(comm, layers, make, number, is_empty):
    """Whether or not anybody needs its results, and whether or not another call is equal to it."""
    if comm.on_device or comm.size == 1:
        pytest.skip("on a GPU calls route, too, and a rank alone may leave calls out")
    program = jax.jit(make(layers.layer))
    if is_empty:
        layers.x, layers.ids = layers.x[:0], layers.ids[:0]
    assert calls_made(comm, program, layers.x) == number


def test_two_threads_trace_at_a_time(comm, layers):
    """Their traces take turns, and each program has its own order."""
    turns = threading.Barrier(2)
    compiled = {}

    def make(name, factor):
        def layers_in_turns(x):
            for _ in range(3):
                turns.wait(60)
                x = layers.layer(x) * factor
            return layers.layer(x)

        compiled[name] = jax.jit(layers_in_turns).lower(layers.x).compile()

    threads = [threading.Thread(target=make, args=given) for given in (("a", 2.0), ("b", 3.0))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    close(compiled["a"](layers.x), layers.x * 8)
    close(compiled["b"](layers.x), layers.x * 27)


def calls_of(text):
    """For each call its number of results, the last two of its arguments, and its name."""
    found = re.findall(r"%(\w+):(\d+) = stablehlo.custom_call @epx_\w+\(([^)]*)\)", text)
    return [(name, int(number), operands.split(", ")[-2:]) for name, number, operands in found]


@pytest.mark.parametrize("has_gradient", [False, True])
def test_each_call_takes_tie_and_token_of_the_one_before(comm, layers, has_gradient):
    if not is_ordered(comm):
        pytest.skip("a rank alone needs no order")

    def loss(x):
        return sum(layers.layer(x * at).sum() for at in range(3))

    program = jax.jit(jax.grad(loss) if has_gradient else loss)
    calls = calls_of(program.lower(layers.x).as_text())
    assert len(calls) == (12 if has_gradient else 6)
    for (before, number, _), (_, _, taken) in zip(calls, calls[1:]):
        assert taken == [f"%{before}#{number - 2}", f"%{before}#{number - 1}"]


def test_where_nothing_gives_an_order_is_refused(comm, layers):
    """A primitive of somebody else that does not tell JAX of the effects of what it is made of."""
    if not is_ordered(comm):
        pytest.skip("a rank alone needs no order")
    hiding = Primitive("hiding")
    hiding.def_abstract_eval(lambda x: x)
    mlir.register_lowering(hiding, mlir.lower_fun(layers.layer, multiple_results=False))
    with pytest.raises(epx.EPXError, match="epx_dispatch in a primitive") as caught:
        jax.jit(hiding.bind)(layers.x)
    assert ep.error_code(caught.value) == epx.Code.UNSUPPORTED
    close(jax.jit(layers.layer)(layers.x), layers.x)


def test_other_effects_and_references_stay(layers, capfd):
    """Ordered output of JAX, and a reference that the program changes."""
    count = jax.new_ref(jnp.int32(0))

    @jax.jit
    def program(x):
        jax.debug.print("first", ordered=True)
        x = layers.layer(x)
        count[...] += 1
        x = layers.layer(x)
        jax.debug.print("second", ordered=True)
        return x

    for _ in range(2):
        close(program(layers.x), layers.x)
    jax.effects_barrier()
    assert re.findall("first|second", capfd.readouterr().out) == ["first", "second"] * 2
    assert count[...] == 2


def arguments_of(program, x):
    (main,) = re.findall(r"func.func public @main\((.*)\)", program.lower(x).as_text())
    return main


def test_a_program_takes_no_token(layers):
    """It is called as fast as other programs are, and an error of one is no error of the next."""
    program = jax.jit(layers.layer)
    assert "token" not in arguments_of(program, layers.x)
    close(program.lower(layers.x).compile()(layers.x), layers.x)


def test_right_in_a_jax_that_hands_tokens_to_programs(comm, layers, monkeypatch):
    monkeypatch.setattr(pxla, order._LOWERING, getattr(pxla, order._LOWERING).__wrapped__)
    program = jax.jit(lambda x: scanned(layers.layer)(layers.layer(x) + 1))
    assert ("token" in arguments_of(program, layers.x)) == is_ordered(comm)
    for _ in range(2):
        close(program(layers.x), layers.x + 1)
