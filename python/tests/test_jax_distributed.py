# SPDX-License-Identifier: BSD-3-Clause
"""jax.distributed: one process a rank, arrays sharded over all of them."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P
from jax_here import (
    K,
    Tokens,
    dense_layer,
    every_rank,
    matrices_of,
    near,
    sparse_layer,
)

import epx
import epx.jax as ep
from epx import launch

NUM = 8  # tokens of a rank


@pytest.fixture(scope="module")
def mesh():
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(**launch.jax_arguments())
    yield jax.make_mesh((jax.process_count(),), ("ep",), axis_types=(AxisType.Auto,))
    jax.distributed.shutdown()


def spread(mesh, every, dtype=None):
    """Arrays of all ranks, one after the other, each rank with its own."""

    def one(name):
        whole = np.concatenate([getattr(tokens, name) for tokens in every])
        if whole.dtype == np.float64:
            whole = whole.astype(np.float32)
        sharding = NamedSharding(mesh, P("ep"))
        return jax.make_array_from_callback(whole.shape, sharding, lambda index: whole[index])

    return [one(name) for name in Tokens._fields]


def mine(array):
    (shard,) = array.addressable_shards
    return np.asarray(shard.data)


@pytest.mark.parametrize("check_vma", [True, False])
def test_gradients_over_processes(mesh, comm, make_route, check_vma):
    assert jax.process_count() == comm.size and jax.local_device_count() == 1
    experts = 2 * comm.size
    route = make_route(experts=experts, top_k=K, max_tokens=NUM)
    every = every_rank(comm, experts, num=NUM)
    over = P("ep")
    whole = matrices_of(experts).astype(np.float32)
    matrices = jax.make_array_from_callback(
        whole.shape, NamedSharding(mesh, over), lambda index: whole[index]
    )

    def layer(x, ids, weights, matrices):
        return sparse_layer(x, ids, weights, route, matrices)

    spread_layer = jax.shard_map(
        layer, mesh=mesh, in_specs=(over,) * 4, out_specs=over, check_vma=check_vma
    )

    def loss(x, weights, matrices, ids, grad):
        out = spread_layer(x, ids, weights, matrices)
        return jnp.vdot(out, grad), out

    x, ids, weights, grad = spread(mesh, every)
    gradients = jax.jit(jax.grad(loss, (0, 1, 2), has_aux=True))
    grads, out = gradients(x, weights, matrices, ids, grad)
    wanted = [dense_layer(tokens, matrices_of(experts)) for tokens in every]
    near(mine(out), wanted[comm.rank].out)
    near(mine(grads[0]), wanted[comm.rank].x)
    near(mine(grads[1]), wanted[comm.rank].weights)
    total = sum(each.matrices for each in wanted)
    near(mine(grads[2]), total[2 * comm.rank : 2 * comm.rank + 2])
    compiled = gradients.lower(x, weights, matrices, ids, grad).compile().as_text()
    assert len(re.findall(r'custom_call_target="epx_\w+"', compiled)) == 4
    for name in ("all-gather", "all-to-all", "collective-permute", "reduce-scatter", "all-reduce"):
        assert name not in compiled


@pytest.mark.parametrize("check_vma", [True, False])
def test_scales_over_processes(mesh, comm, make_route, check_vma):
    """Each rank's rows are fp8, in slabs, with a scale each that says whose they are."""
    experts = 2 * comm.size
    attributes = dict(experts=experts, top_k=K, max_tokens=NUM, layout="slab", zero_unused=True)
    route = make_route(rows_per_expert=comm.size * NUM * K, **attributes)
    every = every_rank(comm, experts, num=NUM)
    over = P("ep")

    def layer(x, ids, weights):
        scales = jnp.abs(x).max(1, keepdims=True) + 1 + jnp.arange(NUM)[:, None]
        narrow = (x / scales).astype(jnp.float8_e4m3fn)
        (rows, row_scales), row_weights, routing = ep.dispatch(
            narrow, ids, weights, route, scales=scales
        )
        return ep.combine(rows.astype(jnp.float32) * row_scales, routing, row_weights)

    program = jax.shard_map(
        layer, mesh=mesh, in_specs=(over,) * 3, out_specs=over, check_vma=check_vma
    )
    x, ids, weights, _ = spread(mesh, every)
    out = mine(jax.jit(program)(x, ids, weights))
    tokens = every[comm.rank]
    scales = abs(tokens.x).max(1, keepdims=True) + 1 + np.arange(NUM)[:, None]
    narrow = np.asarray(jnp.asarray(tokens.x / scales, jnp.float8_e4m3fn), np.float64)
    total = np.where(tokens.ids >= 0, tokens.weights, 0).sum(1, keepdims=True)
    near(out, narrow * scales * total)


def test_outside_of_shard_map_is_refused(mesh, comm, make_route):
    if comm.size == 1:
        pytest.skip("there is no other process")
    route = make_route(experts=4, top_k=K, max_tokens=NUM)
    tokens = every_rank(comm, 4, num=NUM)[comm.rank]
    given = [np.float32(tokens.x), tokens.ids, tokens.weights]
    for call in (ep.dispatch, jax.jit(ep.dispatch, static_argnums=3)):
        with pytest.raises(epx.EPXError, match="inside shard_map") as caught:
            call(*given, route)
        assert caught.value.code == epx.Code.UNSUPPORTED
