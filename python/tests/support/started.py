# SPDX-License-Identifier: BSD-3-Clause
"""One rank that MPI did not start: started.py SCENE [ARGUMENT...], as test_start.py starts it.

A scene prints "ok RANK" at its end; an assertion that fails ends it.
"""

import os
import signal
import sys
import time

import epx
from epx import Code, EPXError, _core, _start

PATIENT_MS, SHORT_MS = 60000, 1500
ON_GPU = os.environ.get("EPX_MEMORY", "").startswith("cuda")


def take_gpu(number):
    if ON_GPU:
        import torch

        torch.cuda.set_device(number % torch.cuda.device_count())
        torch.set_default_device("cuda")
        if os.environ.get("EPX_TRANSPORT") in ("nccl", "ucx"):
            torch.cuda.set_stream(torch.cuda.Stream())


def check(comm, seed=0):
    """A token goes to the expert of one choice and comes home, and so does its gradient."""
    import torch

    import epx.torch as ep

    tokens = 5 + comm.rank
    route = epx.Route(comm, experts=2 * comm.size, top_k=1, max_tokens=5 + comm.size)
    torch.manual_seed(seed + comm.rank)
    x = torch.randn((tokens, 16), requires_grad=True)
    ids = torch.randint(0, 2 * comm.size, (tokens, 1))
    rows, row_weights, routing = ep.dispatch(x, ids, torch.ones((tokens, 1)), route)
    out = ep.combine(rows, routing, row_weights)
    grad = torch.randn_like(out)
    out.backward(grad)
    if ON_GPU:
        torch.cuda.synchronize()
    comm.check()
    assert torch.equal(out, x) and torch.equal(x.grad, grad)
    route.free()


def expect(code, text, call):
    try:
        call()
    except EPXError as error:
        assert error.code == code and text in str(error), (error.code, str(error))
    else:
        raise AssertionError(f"want {code.name}: {text}")


def told(rank):
    assert not _core.is_mpi_running()
    print(f"ok {rank}\n", end="", flush=True)


def torchrun():
    """By the variables of torchrun; torch.distributed takes the same port afterwards."""
    import torch.distributed as dist

    take_gpu(epx.launch.local_rank())
    assert epx.launch.environment()["RANK"] == os.environ["RANK"]
    with epx.Comm(timeout_ms=PATIENT_MS) as comm:
        assert comm.hint("control") == "sockets"
        assert (str(comm.rank), str(comm.size)) == (os.environ["RANK"], os.environ["WORLD_SIZE"])
        check(comm)
        dist.init_process_group("gloo")
        with epx.Comm(dist.group.WORLD, timeout_ms=PATIENT_MS) as other:
            check(other)
            check(comm)
        dist.destroy_process_group()
    arguments = epx.launch.jax_arguments()
    assert arguments["process_id"] == int(os.environ["RANK"]), arguments
    assert arguments["num_processes"] == int(os.environ["WORLD_SIZE"]), arguments
    told(comm.rank)


def reserved():
    """Ranks agree on closing by the store, too."""
    import torch

    import epx.torch as ep

    take_gpu(epx.launch.local_rank())
    comm = epx.Comm(timeout_ms=PATIENT_MS)
    comm.reserve(8 << 20)  # torch takes 2 MiB at a time on GPUs
    route = epx.Route(comm, experts=comm.size, top_k=1, max_tokens=4)
    ids = torch.zeros((4, 1), dtype=torch.int64)
    rows, _, _ = ep.dispatch(torch.ones((4, 8)), ids, torch.ones((4, 1)), route)
    if comm.rank:
        del rows
    expect(Code.PENDING, "on rank 0", comm.close)
    rows = None
    comm.close()
    told(comm.rank)


def of_groups(rank, size, port):
    """Groups of torch.distributed, whose ranks torch.multiprocessing.spawn started."""
    import torch.distributed as dist

    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    take_gpu(rank)
    dist.init_process_group("gloo", rank=rank, world_size=size)
    some = list(range(1, size))
    group = dist.new_group(some)
    backwards = list(range(size))[::-1]
    with epx.Comm(timeout_ms=PATIENT_MS) as all_ranks:
        check(all_ranks)
        if rank in some:
            with epx.Comm(group, timeout_ms=PATIENT_MS) as part:
                assert (part.rank, part.size) == (rank - 1, size - 1)
                check(part)
        else:
            expect(Code.ARG, "is not one of the", lambda: epx.Comm(some))
        with epx.Comm(backwards, timeout_ms=PATIENT_MS) as turned:
            assert turned.rank == size - 1 - rank
            check(turned)
        expect(Code.ARG, f"ranks[1] is {size}", lambda: epx.Comm([0, size]))
        expect(Code.ARG, "are both 0", lambda: epx.Comm([0, 0]))
        check(all_ranks)
    dist.destroy_process_group()
    told(rank)


def spawn(size, port):
    import torch.multiprocessing

    torch.multiprocessing.spawn(of_groups, (int(size), port), int(size))


def by_file(name, rank, size):
    """A store alone; two communicators, and what is refused."""
    import torch.distributed as dist

    rank, size = int(rank), int(size)
    take_gpu(rank)
    store = dist.FileStore(name, size)
    with (
        epx.Comm(store=store, rank=rank, size=size, timeout_ms=PATIENT_MS) as one,
        epx.Comm(store=store, rank=rank, size=size, timeout_ms=PATIENT_MS) as two,
    ):
        check(one)
        check(two)
    expect(Code.ARG, "want 0 <= rank < size", lambda: epx.Comm(store=store, rank=size, size=size))
    for wrong in ({"store": store}, {"store": 3, "rank": 0, "size": 1}, {"rank": 1}):
        try:
            epx.Comm(**wrong)
        except TypeError:
            continue
        raise AssertionError(f"want a TypeError for {wrong}")
    told(rank)


def late():
    """The last rank comes too late, which the others are told of by its number; then all come.

    Rank 0 tries again, and the last rank comes, while rank 1 has not given up yet.
    """
    take_gpu(epx.launch.local_rank())
    store, rank, size = _start._world_of_torch()
    if rank < size - 1:
        start = time.monotonic()
        bound_ms = (1 + 2 * rank) * SHORT_MS
        text = f"missing: {size - 1}"
        expect(Code.TIMEOUT, text, lambda: epx.Comm(timeout_ms=bound_ms))
        assert time.monotonic() - start < 10 * SHORT_MS / 1000
        store.set(f"gave up {rank}", "")
    store.wait(["gave up 0"])
    with epx.Comm(timeout_ms=PATIENT_MS) as comm:
        check(comm)
    told(rank)


def killed(name, rank, size):
    """Rank 1 is killed; the others are told which one, soon, and by the library, and go on."""
    import torch
    import torch.distributed as dist

    rank, size = int(rank), int(size)
    take_gpu(rank)
    store = dist.FileStore(name, size)
    comm = epx.Comm(store=store, rank=rank, size=size, timeout_ms=PATIENT_MS)
    comm.reserve(8 << 20)
    kept = [comm.empty(16, torch.float32).fill_(rank)]
    check(comm)
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    start = time.monotonic()
    expect(Code.TIMEOUT, "rank 1 is gone", lambda: check(comm))
    assert time.monotonic() - start < PATIENT_MS / 4000
    go_on(comm, kept)
    told(rank)


def go_on(comm, kept):
    """Without rank 1, of three; the tensor in the list lies in what comm reserved."""
    import torch

    rank = comm.rank
    smaller = comm.shrink()
    assert (smaller.size, smaller.rank, smaller.ranks) == (2, rank // 2, (0, 2))
    assert (comm.size, comm.ranks) == (3, (0, 1, 2))
    assert smaller.hint("timeout_ms") == str(PATIENT_MS)
    check(smaller)
    expect(Code.TIMEOUT, "rank 1 is gone", lambda: check(comm))
    assert (kept[0] == rank).all()
    expect(Code.PENDING, f"1 on rank {rank}", comm.close)
    check(smaller)
    kept.clear()
    comm.close()
    assert smaller.largest(rank) == 2
    smaller.reserve(1 << 16)
    kept = smaller.empty(16, torch.float32) if rank else None
    expect(Code.PENDING, "1 on rank 1", smaller.close)
    del kept
    check(smaller)
    smaller.close()


def by_jax(address, rank, size):
    """jax.distributed is initialized, and nothing of torch."""
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax.sharding import NamedSharding
    from jax.sharding import PartitionSpec as P

    import epx.jax as ep

    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(address, int(size), int(rank))
    mesh = jax.make_mesh((int(size),), ("ep",))
    whole = np.arange(64.0 * int(size), dtype=np.float32).reshape(-1, 8)
    x = jax.make_array_from_callback(
        whole.shape, NamedSharding(mesh, P("ep")), lambda index: whole[index]
    )

    def layer(x, route):
        ids = jnp.arange(8, dtype=jnp.int32).reshape(8, 1) % route.experts
        rows, row_weights, routing = ep.dispatch(x, ids, jnp.ones((8, 1)), route)
        return ep.combine(rows, routing, row_weights)

    with epx.Comm(timeout_ms=PATIENT_MS) as comm, epx.Comm(timeout_ms=PATIENT_MS) as other:
        assert (comm.rank, comm.size) == (int(rank), int(size)) == (other.rank, other.size)
        route = epx.Route(comm, experts=2 * comm.size, top_k=1, max_tokens=8)
        spread = jax.shard_map(
            lambda x: layer(x, route),
            mesh=mesh,
            in_specs=P("ep"),
            out_specs=P("ep"),
            check_vma=False,
        )
        (mine,) = spread(x).addressable_shards
        assert (np.asarray(mine.data) == whole[mine.index]).all()
    told(rank)


if __name__ == "__main__":
    scene = sys.argv[1]
    {
        "torchrun": torchrun,
        "reserved": reserved,
        "spawn": spawn,
        "by_file": by_file,
        "late": late,
        "killed": killed,
        "by_jax": by_jax,
    }[scene](*sys.argv[2:])
