# SPDX-License-Identifier: BSD-3-Clause
"""A test fails on every rank if it fails on any, so that the ranks stay together.

With EPX_MEMORY=cuda:device all tensors are on this rank's GPU unless a test says otherwise.
"""

import contextlib
import os
import re
import sys
import traceback
from collections import Counter
from pathlib import Path

import pytest

import epx
from epx import _core, launch

sys.path.insert(0, str(Path(__file__).parent / "support"))


def pytest_configure(config):
    config.addinivalue_line("markers", "slow: each choice of parameters takes long, see below")


def pytest_collection_modifyitems(items):
    """With PYTHON_EVERY=3 a slow test runs with the last choice of its parameters, and with every
    third before it. So each test still runs."""
    every = int(os.environ.get("PYTHON_EVERY", 1))
    seen = Counter()
    taken = []
    for item in reversed(items):
        if item.get_closest_marker("slow") is None or seen[item.originalname] % every == 0:
            taken.append(item)
        seen[item.originalname] += 1
    items[:] = reversed(taken)


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem):
    failed = None
    try:
        result = yield
    except Exception as error:
        failed, result = error, None
    rank, size = _core.world()
    if failed:  # told before the other ranks are waited for, of which one may hang
        text = "".join(traceback.format_exception(failed))
        print(f"[{rank}] {pyfuncitem.nodeid}\n{text}", file=sys.__stderr__, flush=True)
    verdicts = _core.gather(b"F" if failed else b".", size)
    if failed:
        raise failed
    bad = [other for other in range(size) if verdicts[other] == b"F"]
    if bad:
        pytest.fail(f"failed on ranks {bad}", pytrace=False)
    return result


def pretend_hosts():
    """Tells NCCL that pretended nodes are hosts, between which it then uses the network."""
    per_node = int(os.environ.get("EPX_RANKS_PER_NODE", 0))
    if per_node > 0:
        os.environ.setdefault("NCCL_HOSTID", f"node{_core.world()[0] // per_node}")


def take_gpu():
    """Makes a GPU of the node this rank's, and torch's default, if the run is about GPUs.

    Returns the number of JAX's GPU, which is not the current device of the thread.
    """
    torch, jax = sys.modules.get("torch"), sys.modules.get("jax")
    if not os.environ.get("EPX_MEMORY", "").startswith("cuda"):
        return None
    pretend_hosts()
    if jax is not None:
        return jax.local_devices()[0].local_hardware_id
    if torch is not None:
        torch.cuda.set_device(launch.local_rank() % torch.cuda.device_count())
        torch.set_default_device("cuda")
        if os.environ.get("EPX_TRANSPORT") in ("nccl", "ucx"):  # whose messages the host launches
            torch.cuda.set_stream(torch.cuda.Stream())
    return None


def wait_for_gpu():
    if "torch" in sys.modules and sys.modules["torch"].cuda.is_available():
        sys.modules["torch"].cuda.synchronize()


@pytest.fixture(scope="session")
def comm():
    with epx.Comm(device=take_gpu()) as made:
        yield made


@pytest.fixture
def told(comm):
    """Expects an error of a call: at once, or on a GPU by Comm.check() if it is found there."""

    def expect_told(code, text, call, *arguments, by=comm):
        with pytest.raises(epx.EPXError) as caught:
            call(*arguments)
            if comm.on_device:
                wait_for_gpu()
                by.check()
        assert caught.value.code == code
        assert re.search(text, str(caught.value))
        with contextlib.suppress(epx.EPXError):  # of the operations behind
            wait_for_gpu()
            by.check()

    return expect_told


@pytest.fixture
def make_route(comm):
    """Makes routes that are freed after the test, in one order on all ranks."""
    made = []

    def make(**attributes):
        route = epx.Route(comm, **attributes)
        made.append(route)
        return route

    yield make
    for route in made:
        route.free()


@pytest.fixture
def make_comm():
    """Makes communicators, with so many bytes reserved, that are closed after the test."""
    made = []

    def make(bytes, **hints):
        comm = epx.Comm(**hints)
        made.append(comm)
        if bytes is not None:
            comm.reserve(bytes)
        return comm

    yield make
    for comm in made:
        comm.close()


@pytest.fixture(scope="session")
def group(comm):
    """A group of torch.distributed over all ranks."""
    import torch.distributed as dist

    launch.environment()
    dist.init_process_group("gloo")
    yield dist.group.WORLD
    dist.destroy_process_group()
