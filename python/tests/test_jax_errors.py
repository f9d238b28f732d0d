# SPDX-License-Identifier: BSD-3-Clause
"""What is wrong is an EPXError when a program is traced, and an error of JAX when it runs."""

import contextlib
import copy
import pickle
import re
import threading
import time

import jax
import jax.numpy as jnp
import pytest
from jax_here import K, arrays, tokens_of

import epx
import epx.jax as ep
from epx import Code, EPXError

E, T, MAX = 5, 6, 8


@pytest.fixture
def route(make_route):
    return make_route(experts=E, top_k=K, max_tokens=MAX)


@pytest.fixture
def given(comm):
    x, ids, weights, _ = arrays(tokens_of(comm.rank, E, num=T))
    return {"x": x, "ids": ids, "weights": weights}


def expect(code, text, call, *arguments):
    with pytest.raises(EPXError) as caught:
        call(*arguments)
    assert caught.value.code == code and ep.error_code(caught.value) == code
    assert re.search(text, str(caught.value))


def expect_run(comm, code, status, text, call, *arguments):
    """The error of a program that runs; on a GPU Comm.check() has those that are found there,
    unless an operation behind them has told JAX."""
    with pytest.raises((EPXError, jax.errors.JaxRuntimeError, ValueError)) as caught:
        jax.block_until_ready(call(*arguments))
        comm.check()
    if comm.on_device and status != "FAILED_PRECONDITION":
        with contextlib.suppress(EPXError):  # of the operations behind
            comm.check()
    else:
        assert not isinstance(caught.value, EPXError)
    if not isinstance(caught.value, EPXError):
        assert str(caught.value).startswith(status)
    assert ep.error_code(caught.value) == code
    assert re.search(text, str(caught.value))


def layer(x, ids, weights, route):
    rows, row_weights, routing = ep.dispatch(x, ids, weights, route)
    return ep.combine(rows, routing, row_weights)


def still_works(route, given):
    jax.block_until_ready(layer(*given.values(), route))


@pytest.mark.parametrize(
    "name, change, code, text",
    [
        ("x", lambda x: x[0], Code.COUNT, "x has 1 dimensions"),
        ("x", lambda x: x[:3], Code.COUNT, r"ids is \[6, 3\], want \[3, 3\]"),
        ("x", lambda x: jnp.concatenate([x, x]), Code.COUNT, "12 tokens, and max_tokens .* 8"),
        ("x", lambda x: x.astype(jnp.int32), Code.TYPE, "x is of type int32"),
        ("x", lambda x: x > 0, Code.TYPE, "x is of type bool"),
        ("x", lambda x: x.astype(jnp.complex64), Code.TYPE, "x is of type complex64"),
        ("ids", lambda ids: ids[:, :1], Code.COUNT, r"ids is \[6, 1\], want \[6, 3\]"),
        ("ids", lambda ids: ids[0], Code.COUNT, "ids has 1 dimensions, want 2"),
        ("ids", lambda ids: ids.astype(jnp.float32), Code.TYPE, "ids is of type float32"),
        ("ids", lambda ids: ids.astype(jnp.uint32), Code.TYPE, "ids is of type uint32"),
        ("weights", lambda w: w[:3], Code.COUNT, r"weights is \[3, 3\], want \[6, 3\]"),
        ("weights", lambda w: w[:, :1], Code.COUNT, r"weights is \[6, 1\], want \[6, 3\]"),
        ("weights", lambda w: w.astype(jnp.float16), Code.TYPE, "weights is of type float16"),
    ],
)
def test_what_dispatch_refuses(route, given, name, change, code, text):
    wrong = {**given, name: change(given[name])}
    for call in (ep.dispatch, jax.jit(ep.dispatch, static_argnums=3)):
        expect(code, text, call, *wrong.values(), route)
    still_works(route, given)


@pytest.mark.parametrize(
    "name, change, code, text",
    [
        ("y", lambda y: y[0], Code.COUNT, "y has 1 dimensions"),
        ("y", lambda y: y.astype(jnp.uint8), Code.TYPE, "uint8, which cannot be added"),
        ("y", lambda y: y.astype(jnp.float8_e5m2), Code.TYPE, "which cannot be added"),
        ("row_weights", lambda w: w[:, None], Code.COUNT, "row_weights has 2 dimensions"),
        ("row_weights", lambda w: w.astype(jnp.float16), Code.TYPE, "row_weights is of type"),
    ],
)
def test_what_combine_refuses(route, given, name, change, code, text):
    rows, row_weights, routing = ep.dispatch(*given.values(), route)
    arguments = {"y": rows, "routing": routing, "row_weights": row_weights}
    arguments[name] = change(arguments[name])
    expect(code, text, ep.combine, *arguments.values())
    still_works(route, given)


def test_fp8_that_wants_a_gradient_is_refused(route, given):
    x = given["x"].astype(jnp.float8_e4m3fn)

    def total(x):
        rows, _, _ = ep.dispatch(x, given["ids"], None, route)
        return rows.astype(jnp.float32).sum()

    for call in (jax.grad(total), jax.jit(jax.grad(total)), jax.grad(jax.jit(total))):
        expect(Code.TYPE, "a gradient of x, of dtype float8_e4m3fn, is wanted", call, x)
    still_works(route, given)


@pytest.mark.parametrize(
    "change, code, text",
    [
        (lambda s: s[:-1], Code.COUNT, r"scales is \[5, 2\], want \[6, 2\]"),
        (lambda s: s[:, 0], Code.COUNT, "scales has 1 dimensions, want 2"),
        (lambda s: s.astype(jnp.int32), Code.TYPE, "scales is of type int32, which cannot be sent"),
        (lambda s: s > 0, Code.TYPE, "scales is of type bool"),
    ],
)
def test_what_dispatch_refuses_of_scales(route, given, change, code, text):
    scales = change(given["x"][:, :2])

    def call(*arguments):
        return ep.dispatch(*arguments, given["weights"], route, scales=scales)

    for function in (call, jax.jit(call)):
        expect(code, text, function, given["x"], given["ids"])
    still_works(route, given)


def test_scales_that_want_a_gradient_are_refused(route, given):
    def total(x, is_stopped):
        scales = jnp.abs(x).max(1, keepdims=True)
        if is_stopped:
            scales = jax.lax.stop_gradient(scales)
        (rows, row_scales), _, routing = ep.dispatch(
            x / scales, given["ids"], None, route, scales=scales
        )
        return ep.combine(rows * row_scales, routing).sum()

    def in_scan(x, is_stopped):
        return jax.lax.scan(lambda s, _: (s + total(x, is_stopped), None), 0.0, None, length=2)[0]

    for function in (total, in_scan):
        gradient = jax.grad(function)
        for call in (gradient, jax.jit(gradient, static_argnums=1)):
            expect(Code.TYPE, "a gradient of scales, of dtype float32", call, given["x"], False)
            assert jnp.isfinite(call(given["x"], True)).all()
    still_works(route, given)


def test_scales_on_some_ranks_only_are_told_on_all(comm, route, given):
    if comm.size == 1:
        pytest.skip("there is no other rank")
    more = {} if comm.rank == 0 else {"scales": given["x"][:, :1]}
    program = jax.jit(lambda x: ep.dispatch(x, given["ids"], None, route, **more)[0])
    expect_run(comm, Code.ARG, "INVALID_ARGUMENT", "rank 0", program, given["x"])
    still_works(route, given)


def test_scales_that_differ_are_told_on_all_ranks(comm, route, given):
    if comm.size == 1:
        pytest.skip("there is no other rank")
    scales = given["x"][:, : 1 if comm.rank == 0 else 2]
    program = jax.jit(lambda x: ep.dispatch(x, given["ids"], None, route, scales=scales)[0])
    expect_run(comm, Code.ARG, "INVALID_ARGUMENT", "rank 0", program, given["x"])
    still_works(route, given)


def test_a_full_slab_is_told_by_its_expert(comm, make_route, given):
    route = make_route(experts=E, top_k=K, max_tokens=MAX, layout="slab", rows_per_expert=1)
    ids = jnp.full_like(given["ids"], E - 1)
    scales = given["x"][:, :1]
    said = f"expert {E - 1} needs room for {comm.size * ids.size} rows, rows_per_expert is 1"
    program = jax.jit(lambda ids: ep.dispatch(given["x"], ids, None, route, scales=scales))
    expect_run(comm, Code.TRUNCATE, "OUT_OF_RANGE", said, program, ids)


def test_vmap_is_refused(route, given):
    x = jnp.stack([given["x"]] * 2)

    def one(x):
        return layer(x, given["ids"], given["weights"], route)

    def gradient(x):
        return jax.grad(lambda x: one(x).sum())(x)

    for call in (jax.vmap(one), jax.vmap(jax.jit(one)), jax.jit(jax.vmap(gradient))):
        expect(Code.UNSUPPORTED, "vmap", call, x)
    still_works(route, given)


def test_group_sizes_are_for_expert_major(make_route, given):
    route = make_route(experts=E, top_k=K, max_tokens=MAX, layout="rank")
    expect(Code.ARG, "expert-major", ep.group_sizes, ep.dispatch(*given.values(), route)[2])


def test_a_bad_id_is_told_on_its_rank(comm, route, given):
    program = jax.jit(lambda ids: ep.dispatch(given["x"], ids, given["weights"], route))
    ids = given["ids"]
    if comm.rank == comm.size - 1:
        ids = ids.at[2, 1].set(E)
        expect_run(comm, Code.ARG, "INVALID_ARGUMENT", f"{E}", program, ids)
    else:
        jax.block_until_ready(program(ids))
    still_works(route, given)


def test_overflow_is_told_on_all_ranks(comm, make_route, given):
    route = make_route(experts=E, top_k=K, max_tokens=MAX, capacity=1 if comm.rank == 0 else None)
    program = jax.jit(lambda ids: layer(given["x"], ids, None, route))
    expect_run(comm, Code.TRUNCATE, "OUT_OF_RANGE", "rank 0", program, given["ids"])
    assert not program(jnp.full_like(given["ids"], -1)).any()


def test_a_mismatch_is_told_on_all_ranks(comm, route, given):
    if comm.size == 1:
        pytest.skip("there is no other rank")
    x = given["x"][:, :3] if comm.rank == 0 else given["x"]
    program = jax.jit(lambda x: ep.dispatch(x, given["ids"], None, route)[0])
    expect_run(comm, Code.ARG, "INVALID_ARGUMENT", "rank 0", program, x)
    still_works(route, given)


def test_a_freed_route_is_told(comm, given):
    route = epx.Route(comm, experts=E, top_k=K, max_tokens=MAX)
    program = jax.jit(lambda x: layer(x, given["ids"], given["weights"], route))
    gradient = jax.jit(jax.grad(lambda x: program(x).sum()))
    rows, _, routing = ep.dispatch(*given.values(), route)
    jax.block_until_ready((program(given["x"]), gradient(given["x"])))
    route.free()
    for call in (program, gradient):
        expect_run(comm, Code.ROUTE, "FAILED_PRECONDITION", "freed", call, given["x"])
    expect(Code.ROUTE, "freed", ep.dispatch, *given.values(), route)
    expect(Code.ROUTE, "freed", ep.combine, rows, routing)
    expect(Code.ROUTE, "freed", ep.group_sizes, routing)


def test_a_closed_communicator_is_told(given):
    comm = epx.Comm()
    route = epx.Route(comm, experts=E, top_k=K, max_tokens=MAX)
    program = jax.jit(lambda x: layer(x, given["ids"], None, route))
    jax.block_until_ready(program(given["x"]))
    comm.close()
    expect_run(comm, Code.ROUTE, "FAILED_PRECONDITION", "freed", program, given["x"])


def test_arrays_elsewhere_are_told(comm, route, given):
    if not comm.on_device:
        pytest.skip("there is no other memory than the host's")
    on_host = jax.device_put(list(given.values()), jax.devices("cpu")[0])
    expect_run(
        comm, Code.BUFFER, "INVALID_ARGUMENT", "arrays on the host", ep.dispatch, *on_host, route
    )


def test_an_error_of_others_has_no_code():
    assert ep.error_code(ValueError("EPX_ERR_: none")) is None
    assert ep.error_code(ValueError("INTERNAL: EPX_ERR_TIMEOUT: late")) == Code.TIMEOUT


def test_a_routing_cannot_be_pickled(route, given):
    rows, row_weights, routing = ep.dispatch(*given.values(), route)
    with pytest.raises(TypeError, match=r"cannot pickle epx\S*: it belongs to this process"):
        pickle.dumps(routing)
    twin = copy.deepcopy(routing)
    wanted = ep.combine(rows, routing, row_weights)
    assert jnp.array_equal(ep.combine(rows, twin, row_weights), wanted)


def test_two_operations_at_a_time_are_told(comm, route, given):
    """On host memory: of two programs in two threads nothing says which is first."""
    if comm.on_device or comm.size == 1:
        pytest.skip("a stream has an order, and a rank alone needs none")
    x, ids, weights = given.values()
    rows = []

    def dispatch(ids):
        rows.append(ep.dispatch(x, ids, weights, route)[0])

    still_works(route, given)  # nothing is to be compiled below
    first = threading.Thread(target=dispatch, args=(ids,))
    if comm.rank > 0:
        time.sleep(1)  # so long rank 0 waits in its first dispatch
    first.start()
    if comm.rank == 0:
        time.sleep(0.5)
        text = "two operations of one communicator"
        expect_run(comm, Code.PENDING, "FAILED_PRECONDITION", text, dispatch, ids)
    first.join()
    assert len(rows) == 1
    still_works(route, given)
