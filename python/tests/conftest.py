# SPDX-License-Identifier: BSD-3-Clause
"""A test fails on every rank if it fails on any, so that the ranks stay together."""

import sys
import traceback

import pytest

import epx
from epx import _core


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem):
    failed = None
    try:
        result = yield
    except Exception as error:
        failed, result = error, None
    rank, size = _core.world()
    verdicts = _core.gather(b"F" if failed else b".", size)
    if failed:
        text = "".join(traceback.format_exception(failed))
        print(f"[{rank}] {pyfuncitem.nodeid}\n{text}", file=sys.stderr, flush=True)
        raise failed
    bad = [other for other in range(size) if verdicts[other] == b"F"]
    if bad:
        pytest.fail(f"failed on ranks {bad}", pytrace=False)
    return result


@pytest.fixture(scope="session")
def comm():
    with epx.Comm() as made:
        yield made


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
