# SPDX-License-Identifier: BSD-3-Clause
"""Compilers of torch drop, merge and repeat no op, also where no result of it is needed."""

import functools
import importlib.util
import itertools

import dense
import pytest
import torch
from functorch.compile import min_cut_rematerialization_partition, nop
from sparse import layer
from torch._dynamo.backends.common import aot_autograd
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

import epx
import epx.torch as ep

H, K, E = 4, 2, 5


def needs_no_result(*given):
    layer(*given)
    return given[0].sum()


def needs_no_combine(x, ids, weights, route):
    ep.dispatch(x, ids, weights, route)
    return x.sum()


def calls_twice(*given):
    return layer(*given).sum() + layer(*given).sum()


def is_summed(*given):
    return layer(*given).square().sum()


def is_checkpointed(*given):
    return checkpoint(layer, *given, use_reentrant=False).sum()


def keeps_nothing(context, op, *arguments, **named):
    return CheckpointPolicy.PREFER_RECOMPUTE


def is_checkpointed_by_a_policy(*given):
    policy = functools.partial(create_selective_checkpoint_contexts, keeps_nothing)
    return checkpoint(layer, *given, use_reentrant=False, context_fn=policy).sum()


def compiled_by(backend, function):
    torch._dynamo.reset()
    return torch.compile(function, fullgraph=True, backend=backend)


def exported(function):
    def run(*given):
        *tensors, route = given

        class Module(torch.nn.Module):
            def forward(self, *tensors):
                return function(*tensors, route)

        program = torch.export.export(Module(), tuple(tensors))
        return program.run_decompositions().module()(*tensors)

    return run


def eager_to_recompute(function):
    """Compiled so that the backward makes again what it can."""
    cut = aot_autograd(fw_compiler=nop, partition_fn=min_cut_rematerialization_partition)
    compiled = compiled_by(cut, function)

    def run(*given):
        with torch._functorch.config.patch(aggressive_recomputation=True):
            return compiled(*given)

    return run


COMPILERS = {
    "aot_eager": functools.partial(compiled_by, "aot_eager"),
    "inductor": functools.partial(compiled_by, "inductor"),
    "recompute": eager_to_recompute,
    "export": exported,
}


def skip_unless_inductor_works(comm):
    """Inductor wants triton on GPUs, on the host a compiler of C++; all ranks decide alike."""
    if comm.on_device:
        works = importlib.util.find_spec("triton") is not None
    else:
        try:
            works = bool(torch._inductor.cpp_builder.get_cpp_compiler())
        except Exception:
            works = False
    if b"-" in epx._core.gather(b"+" if works else b"-", comm.size):
        pytest.skip("inductor finds no compiler")


CHECKPOINTED = [is_checkpointed, is_checkpointed_by_a_policy]
PLAIN = [needs_no_result, needs_no_combine, calls_twice, is_summed]
COMPILED = [
    *itertools.product(["aot_eager", "export"], [*PLAIN, *CHECKPOINTED]),
    *itertools.product(["recompute"], [calls_twice, *CHECKPOINTED]),
    *itertools.product(["inductor"], [is_summed, is_checkpointed]),  # a few: it is slow
]


@pytest.mark.parametrize("wants_gradients", [False, True])
@pytest.mark.parametrize("compiler, function", COMPILED)
def test_all_ranks_make_each_call(comm, make_route, compiler, function, wants_gradients):
    """The last rank has no tokens, and a compiler knows what a sum of no tokens is."""
    if compiler == "inductor":
        skip_unless_inductor_works(comm)
    route = make_route(experts=E, top_k=K, max_tokens=8, zero_unused=True)
    given = dense.tokens_of(comm.rank, (0 if comm.rank == comm.size - 1 else 6, H, K, E))

    def run(called):
        x, weights = given.x.clone(), given.weights.clone()
        for each in (x, weights):
            each.requires_grad_(wants_gradients)
        calls = comm.stats().calls
        out = called(x, given.ids, weights, route)
        forward = comm.stats().calls - calls
        if wants_gradients:
            out.backward()
        return forward, comm.stats().calls - calls, out.detach(), x.grad, weights.grad

    wanted = run(function)
    got = run(COMPILERS[compiler](function))
    assert got[0] == wanted[0]
    keeps_results = wants_gradients and function in CHECKPOINTED  # and then calls nothing again
    assert got[1] == (4 if keeps_results else wanted[1])
    for ours, theirs in zip(got[2:], wanted[2:]):
        torch.testing.assert_close(ours, theirs)
