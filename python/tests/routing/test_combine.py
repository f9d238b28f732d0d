# SPDX-License-Identifier: BSD-3-Clause
"""Combines that start from rows of the home rank, have their weights there, or write where told."""

import pytest
import torch
from dense import num_tokens, tokens_of

import epx
import epx.torch as ep
from epx import Code

MAX_TOKENS, H, K, E = 16, 6, 3, 5


@pytest.fixture
def given(comm):
    return tokens_of(comm.rank, (num_tokens(comm.rank), H, K, E))


@pytest.fixture
def route(make_route):
    return make_route(experts=E, top_k=K, max_tokens=MAX_TOKENS)


def rows_of(given, route, dtype=torch.float32):
    return ep.dispatch(given.x.to(dtype), given.ids, given.weights, route)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("num_biases", [1, 2])
def test_sums_start_from_biases(given, route, dtype, num_biases):
    rows, row_weights, routing = rows_of(given, route, dtype)
    bias = tuple((3 * given.grad + each).to(dtype) for each in range(num_biases))
    made = ep.combine(rows, routing, row_weights, bias=bias if num_biases > 1 else bias[0])
    weights = torch.where(given.ids >= 0, given.weights, 0).double().sum(1, keepdim=True)
    exact = sum(each.double() for each in bias) + weights * given.x  # small multiples of 1/4
    assert made.dtype == dtype and torch.equal(made, exact.to(dtype))
    work = ep.combine_start(rows, routing, row_weights, bias=bias)
    assert torch.equal(work.wait(), made)


def test_there_is_one_rounding(given, route):
    """Two biases and a sum, of which two alone would be rounded down to the first bias."""
    rows, _, routing = ep.dispatch(given.x.bfloat16(), given.ids, None, route)
    bias = torch.ones_like(given.x).bfloat16(), torch.full_like(given.x, 2**-8).bfloat16()
    made = ep.combine(torch.full_like(rows, 2**-9), routing, bias=bias)
    has_rows = (given.ids >= 0).any(1, keepdim=True)
    wanted = torch.where(has_rows, 1 + 2**-7, 1.0).expand_as(given.x)
    assert torch.equal(made.double(), wanted.double())


def test_weights_of_tokens_are_those_of_rows(given, route, make_route):
    rows, row_weights, routing = rows_of(given, route)
    wanted = ep.combine(rows, routing, row_weights)
    assert torch.equal(ep.combine(rows, routing, token_weights=given.weights), wanted)
    work = ep.combine_start(rows, routing, token_weights=given.weights, bias=given.x.float())
    started = work.wait()
    assert torch.equal(started, ep.combine(rows, routing, row_weights, bias=given.x.float()))
    slabs = make_route(experts=E, top_k=K, max_tokens=MAX_TOKENS, layout="slab", rows_per_expert=64)
    rows, _, routing = rows_of(given, slabs)
    assert torch.equal(ep.combine(rows, routing, token_weights=given.weights), wanted)


def test_out_is_written(given, route):
    rows, row_weights, routing = rows_of(given, route)
    wanted = ep.combine(rows, routing, row_weights)
    out = torch.full_like(wanted, 7)
    assert ep.combine(rows, routing, row_weights, out=out) is out
    assert torch.equal(out, wanted)
    out.fill_(7)
    assert ep.combine_start(rows, routing, row_weights, out=out).wait() is out
    assert torch.equal(out, wanted)


def test_biases_have_gradients(given, route):
    x, bias = given.x.clone().requires_grad_(), given.grad.clone().requires_grad_()
    rows, row_weights, routing = ep.dispatch(x, given.ids, given.weights, route)
    ep.combine(rows, routing, row_weights, bias=(bias, given.x)).backward(given.grad)
    assert torch.equal(bias.grad, given.grad)
    alone = given.x.clone().requires_grad_()
    rows, row_weights, routing = ep.dispatch(alone, given.ids, given.weights, route)
    ep.combine(rows, routing, row_weights).backward(given.grad)
    assert torch.equal(x.grad, alone.grad)


def test_what_is_refused(comm, given, route):
    rows, row_weights, routing = rows_of(given, route)
    home = given.x.float()
    for code, text, more in (
        (
            Code.COUNT,
            "bias is",
            {"bias": torch.cat([home, home[:1], home[:1], home.new_ones(1, H)])},
        ),
        (Code.TYPE, r"bias\[1\] is of type float64", {"bias": (home, given.x)}),
        (Code.ARG, "3 biases", {"bias": (home, home, home)}),
        (Code.ARG, "either", {"token_weights": given.weights, "row_weights": row_weights}),
        (Code.TYPE, "token_weights is of type", {"token_weights": given.weights.double()}),
        (Code.COUNT, "out is", {"out": torch.empty(len(home) + 1, H)}),
        (Code.BUFFER, "gaps", {"out": torch.empty(len(home) + 2, 2 * H)[:, ::2]}),
    ):
        with pytest.raises(epx.EPXError, match=text) as caught:
            ep.combine(rows, routing, **more)
        assert caught.value.code == code
    y = rows.clone().requires_grad_()
    for more in {"out": torch.empty_like(home)}, {"token_weights": given.weights}:
        with pytest.raises(epx.EPXError, match="no_grad") as caught:
            ep.combine(y, routing, **more)
        assert caught.value.code == Code.UNSUPPORTED
    with torch.no_grad():
        assert len(ep.combine(y, routing, token_weights=given.weights)) == len(home)


def test_a_bias_on_some_ranks_only_is_told_on_all(comm, given, route, told):
    if comm.size == 1:
        pytest.skip("one rank is all")
    rows, _, routing = rows_of(given, route)
    bias = given.x.float() if comm.rank == 0 else None
    told(Code.ARG, "bias", lambda: ep.combine(rows, routing, bias=bias))
    assert len(ep.combine(rows, routing)) == len(given.x)
