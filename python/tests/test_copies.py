# SPDX-License-Identifier: BSD-3-Clause
"""Copies of layers, routings and works have the route and the operation of the original, and none
of them can be pickled."""

import copy
import io
import pickle

import pytest
import torch

import epx.torch as ep

E, K = 4, 2


class Layer(torch.nn.Module):
    def __init__(self, route):
        super().__init__()
        self.route = route
        self.scale = torch.nn.Parameter(torch.ones(()))

    def forward(self, x, ids):
        rows, _, routing = ep.dispatch(x, ids, None, self.route)
        return ep.combine(rows * self.scale, routing)


@pytest.fixture
def route(make_route):
    return make_route(experts=E, top_k=K, max_tokens=8)


@pytest.fixture
def given(comm):
    torch.manual_seed(comm.rank)
    return torch.randn(8, 16), torch.randint(0, E, (8, K))


def refused(what):
    with pytest.raises(TypeError, match=r"cannot pickle epx\S*: it belongs to this process"):
        pickle.dumps(what)
    with pytest.raises(TypeError, match=r"cannot pickle epx\S*: it belongs to this process"):
        torch.save(what, io.BytesIO())


def test_a_copied_layer_has_the_same_route(comm, route, given):
    layer = Layer(route)
    twin = copy.deepcopy(layer)
    assert twin.route is route and twin.route.comm is comm and twin.scale is not layer.scale
    assert torch.allclose(twin(*given), K * given[0])
    refused(layer)
    twin.load_state_dict(layer.state_dict())


def test_a_copied_routing_is_of_the_same_route(comm, route, given):
    rows, _, routing = ep.dispatch(*given, None, route)
    twin = copy.deepcopy(routing)
    assert twin.route is route and twin.ids is not routing.ids
    assert torch.equal(ep.combine(rows, twin), ep.combine(rows, routing))
    refused(routing)


def test_a_copied_work_is_waited_for_once(comm, route, given):
    work = ep.dispatch_start(*given, None, route)
    twin = copy.deepcopy(work)
    assert twin is work and copy.copy(work) is work
    refused(work)
    assert twin.wait()[0] is work.wait()[0]
