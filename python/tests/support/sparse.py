# SPDX-License-Identifier: BSD-3-Clause
"""A layer by the ops of torch whose experts are one function, and a step of it with gradients."""

import torch

import epx.torch as ep


def leaf(tensor):
    return tensor.detach().clone().requires_grad_()


def shown(routing):
    return routing.offsets, routing.counts, routing.row_experts


def layer(x, ids, weights, route):
    rows, row_weights, routing = ep.dispatch(x, ids, weights, route)
    return ep.combine(torch.tanh(rows / 8), routing, row_weights)


def step(given, route, function=layer):
    """The layer's output and the gradients of the tokens and of their weights."""
    x, weights = leaf(given.x), leaf(given.weights)
    out = function(x, given.ids, weights, route)
    out.backward(given.grad)
    return out.detach(), x.grad, weights.grad
