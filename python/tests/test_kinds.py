# SPDX-License-Identifier: BSD-3-Clause
"""Tensors that are more than memory, or less: the right result or an error, and no wrong bytes."""

import re

import dense
import pytest
import torch
from sparse import leaf
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import make_fx

import epx.torch as ep
from epx import Code, EPXError

H, K, E = 4, 2, 5
HOW = ["call", "start"]


@pytest.fixture
def route(make_route):
    return make_route(experts=E, top_k=K, max_tokens=8, zero_unused=True)


@pytest.fixture
def given(comm):
    return dense.tokens_of(comm.rank, (6, H, K, E), 1)


def negative(tensor):
    """The same values, of which the memory has the opposite: as the imag of a conjugate."""
    view = torch._neg_view(-tensor)
    assert view.is_neg()
    return view


def zero(tensor):
    """Zeros without memory, as autograd makes them."""
    view = torch._efficientzerotensor(tensor.shape, dtype=tensor.dtype, device=tensor.device)
    assert view.data_ptr() == 0
    return view


def run(how, x, ids, weights, route, change=None):
    """A layer whose experts do nothing; change makes another tensor of y, and of its weights."""
    if how == "start":
        rows, row_weights, routing = ep.dispatch_start(x, ids, weights, route).wait()
    else:
        rows, row_weights, routing = ep.dispatch(x, ids, weights, route)
    y, y_weights = change(rows, row_weights) if change else (rows, row_weights)
    if how == "start":
        return ep.combine_start(y, routing, y_weights).wait()
    return ep.combine(y, routing, y_weights)


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("name", ["x", "ids", "weights", "y", "row_weights"])
@pytest.mark.parametrize("kind", [negative, zero])
def test_a_tensor_with_other_memory_arrives_as_it_is(route, given, kind, name, how):
    arguments = {"x": given.x, "ids": given.ids, "weights": given.weights}
    plain = dict(arguments)
    if name in arguments:
        arguments[name] = kind(arguments[name])
        plain[name] = arguments[name].clone() + 0
        assert not plain[name].is_neg()
    changed = {
        "y": lambda y, weights: (kind(y), weights),
        "row_weights": lambda y, weights: (y, kind(weights)),
    }.get(name)
    copied = {
        "y": lambda y, weights: (kind(y).clone() + 0, weights),
        "row_weights": lambda y, weights: (y, kind(weights).clone() + 0),
    }.get(name)
    wanted = run("call", *plain.values(), route, copied)
    assert torch.equal(run(how, *arguments.values(), route, changed), wanted)


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("name", ["grad", "y", "row_weights"])
@pytest.mark.parametrize("kind", [negative, zero])
def test_gradients_with_other_memory_arrive_as_they_are(route, given, kind, name, how):
    def step(kind):
        x, weights = leaf(given.x), leaf(given.weights)
        change = {
            "y": lambda y, weights: (kind(y), weights),
            "row_weights": lambda y, weights: (y, kind(weights)),
        }.get(name)
        out = run(how, x, given.ids, weights, route, change)
        out.backward(kind(given.grad) if name == "grad" else given.grad)
        return out.detach(), x.grad, weights.grad

    for ours, wanted in zip(step(kind), step(lambda tensor: kind(tensor) + 0)):
        assert torch.equal(ours, wanted) if wanted is not None else ours is None


def test_scales_with_other_memory_arrive_as_they_are(route, given):
    scales = given.x[:, :2].float()
    (_, wanted), _, _ = ep.dispatch(given.x, given.ids, None, route, scales=scales)
    (_, ours), _, _ = ep.dispatch(given.x, given.ids, None, route, scales=negative(scales))
    assert torch.equal(ours, wanted)


def refused(code, text, call, *arguments):
    """The call is an error of EPX, or, where a mode has PyTorch see it first, one of PyTorch."""
    with pytest.raises((EPXError, NotImplementedError)) as caught:
        call(*arguments)
    if isinstance(caught.value, EPXError):
        assert caught.value.code == code
        assert re.search(text, str(caught.value))
    else:
        assert torch._C._len_torch_function_stack() > 0


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("name", ["x", "ids", "weights"])
def test_sparse_tensors_are_refused(route, given, name, how):
    arguments = given._asdict()
    del arguments["grad"]
    arguments[name] = arguments[name].to_sparse()
    refused(Code.BUFFER, f"{name} is no dense tensor", run, how, *arguments.values(), route)
    run(how, given.x, given.ids, given.weights, route)


@pytest.mark.parametrize("how", HOW)
def test_other_tensors_without_memory_are_refused(comm, route, given, how):
    freed = given.x.clone()
    freed.untyped_storage().resize_(0)
    refused(Code.BUFFER, "x has no memory", run, how, freed, given.ids, given.weights, route)
    nested = torch.nested.nested_tensor([given.x, given.x[:1]])
    refused(Code.COUNT, "3 dimensions", run, how, nested, given.ids, given.weights, route)
    meta = [each.to("meta") for each in (given.x, given.ids, given.weights)]
    refused(Code.UNSUPPORTED, "tensors on meta", run, how, *meta, route)
    if not comm.on_device:
        quantized = torch.quantize_per_tensor(given.x.float(), 0.1, 0, torch.quint8)
        refused(Code.TYPE, "x is of type", run, how, quantized, given.ids, given.weights, route)
    run(how, given.x, given.ids, given.weights, route)


def test_a_fake_tensor_makes_fake_results(comm, route, given):
    mode = FakeTensorMode()
    fakes = [mode.from_tensor(each) for each in given[:3]]
    calls = comm.stats().calls
    assert type(run("call", *fakes, route)) is FakeTensor
    refused(Code.BUFFER, "no memory", run, "start", *fakes, route)
    assert comm.stats().calls == calls


def test_transforms_give_the_right_result_or_an_error(route, given):
    def layer(x, how="call"):
        return run(how, x, given.ids, given.weights, route)

    wanted = layer(given.x)
    assert torch.equal(torch.func.functionalize(layer)(given.x), wanted)
    both = torch.stack([given.x, 2 * given.x])
    assert torch.equal(torch.vmap(layer)(both), torch.stack([wanted, 2 * wanted]))
    assert torch.equal(make_fx(lambda x: layer(x))(given.x)(2 * given.x), 2 * wanted)
    for transform, x in (torch.func.functionalize, given.x), (torch.vmap, both):
        started = transform(lambda x: layer(x, "start"))
        refused(Code.BUFFER, "x (has no memory|is no dense)", started, x)
    refused(Code.UNSUPPORTED, "traced", make_fx(lambda x: layer(x, "start")), given.x)
    with pytest.raises(RuntimeError, match="setup_context"):
        torch.func.grad(lambda x: layer(x).sum())(given.x)
    assert torch.equal(layer(given.x), wanted)


def with_tangent(tensor):
    return forward_ad.make_dual(tensor, torch.ones_like(tensor))


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("name", ["x", "weights", "y", "row_weights", "grad"])
def test_forward_mode_derivatives_are_refused(route, given, name, how):
    def step():
        x, weights = given.x, given.weights
        if name == "grad":
            x, weights = leaf(x), leaf(weights)
        x = with_tangent(x) if name == "x" else x
        weights = with_tangent(weights) if name == "weights" else weights
        change = {
            "y": lambda y, weights: (with_tangent(y), weights),
            "row_weights": lambda y, weights: (y, with_tangent(weights)),
        }.get(name)
        out = run(how, x, given.ids, weights, route, change)
        torch.autograd.grad(out, x, with_tangent(given.grad))

    with forward_ad.dual_level():
        refused(Code.UNSUPPORTED, "forward-mode", step)
        assert forward_ad.unpack_dual(run(how, *given[:3], route)).tangent is None


def test_transforms_by_forward_mode_are_refused(route, given):
    def layer(x):
        return run("call", x, given.ids, given.weights, route)

    def jacobian():
        torch.autograd.functional.jacobian(layer, given.x, vectorize=True, strategy="forward-mode")

    for call in (
        lambda: torch.func.jvp(layer, (given.x,), (given.grad,)),
        lambda: torch.func.jacfwd(layer)(given.x),
        jacobian,
    ):
        refused(Code.UNSUPPORTED, "forward-mode", call)
    layer(given.x)


def test_what_is_no_tensor_is_refused(route, given):
    numpy = pytest.importorskip("numpy")
    rows, row_weights, routing = ep.dispatch(given.x, given.ids, given.weights, route)
    array = numpy.zeros((6, H))
    for call, text in (
        (lambda: ep.dispatch(array, given.ids, None, route), "x is a ndarray"),
        (lambda: ep.dispatch(given.x, array, None, route), "ids is a ndarray"),
        (lambda: ep.dispatch(given.x, None, None, route), "ids is a NoneType"),
        (lambda: ep.dispatch(given.x, given.ids, array, route), "weights is a ndarray"),
        (lambda: ep.dispatch_start(given.x, given.ids, [], route), "weights is a list"),
        (lambda: ep.dispatch(given.x, given.ids, None, route, scales=array), "scales is a ndarray"),
        (lambda: ep.dispatch(given.x, given.ids, None, 0), "route is a int"),
        (lambda: ep.combine(array, routing), "y is a ndarray"),
        (lambda: ep.combine(rows, routing, array), "row_weights is a ndarray"),
        (lambda: ep.combine_start(array, routing), "y is a ndarray"),
        (lambda: ep.combine(rows, tuple(routing)), "routing is a tuple"),
        (lambda: ep.combine_start(rows, tuple(routing)), "routing is a tuple"),
    ):
        with pytest.raises(TypeError, match=text):
            call()
    ep.combine(rows, routing, row_weights)


def test_experts_that_are_trained_on_some_ranks_only_are_refused(comm, route, given, told):
    trained = comm.rank == 0

    def layer(x, trained):
        rows, row_weights, routing = ep.dispatch(x, given.ids, given.weights, route)
        factor = torch.ones(1, dtype=rows.dtype, requires_grad=trained)
        return ep.combine(rows * factor, routing, row_weights), factor

    if comm.size > 1:
        told(Code.ARG, "EPX_Combine_backward", layer, given.x, trained)
    for x, everywhere in ((leaf(given.x), trained), (given.x, True)):
        out, factor = layer(x, everywhere)
        out.sum().backward()
        assert (factor.grad is not None) == everywhere
        if x.requires_grad:
            assert x.grad is not None
    assert not layer(given.x, False)[0].requires_grad
