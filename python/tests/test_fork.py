# SPDX-License-Identifier: BSD-3-Clause
"""Processes that a rank forks end as Python programs do, by returning, by sys.exit, or by os._exit.
They leave MPI and EPX alone, and the rank goes on.

A program without pytest, which would take what the children raise for its own.
"""

import contextlib
import multiprocessing
import os
import sys
import time

import epx
import epx.launch
from epx import Code, EPXError, _perf

PATIENCE_S = 10


def expect(code, call):
    try:
        call()
    except EPXError as error:
        assert error.code == code and "forked" in str(error), error
    else:
        raise AssertionError(f"want {code.name}")


def stay_away(comm, layer, operations):
    """What a child does and must not: everything of EPX is refused, or does nothing."""
    expect(Code.COMM, comm.check)
    expect(Code.COMM, lambda: comm.reserve(512))
    expect(Code.COMM, lambda: epx.Route(comm, 4, 2, 8))
    expect(Code.ROUTE, lambda: layer.repeat(operations, 1))
    expect(Code.NOT_INITIALIZED, epx.Comm)
    expect(Code.NOT_INITIALIZED, epx.launch.environment)
    for route in list(comm._routes):
        route.free()
    comm.close()


def await_child(child):
    """Its exit status; a child that hangs fails the test at once, not the run by its time-out."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    raise AssertionError("the child does not end")


def fork(end, *arguments):
    child = os.fork()
    if child:
        return child
    try:
        stay_away(*arguments)
    except BaseException as error:
        sys.stderr.write(f"in the child: {error!r}\n")
        os._exit(1)
    end()  # what this raises leaves main()
    return 0


def main():
    comm = epx.Comm(timeout_ms=10000)
    layer = _perf.Layer(comm, _perf.host_backend())
    operations = tuple(layer.operations)
    layer.repeat(operations, 1)
    with contextlib.suppress(ImportError):
        pool = multiprocessing.get_context("fork").Pool(2)
        assert pool.map(abs, [-1, -2]) == [1, 2]
        pool.close()
        pool.join()
    for end, wanted in ((lambda: None, 0), (lambda: sys.exit(7), 7), (lambda: os._exit(3), 3)):
        child = fork(end, comm, layer, operations)
        if not child:
            return
        status = await_child(child)
        assert status == wanted, f"the child ended with {status}, want {wanted}"
        layer.repeat(operations, 1)
    comm.close()
    epx._core.gather(b".", comm.size)
    if comm.rank == 0:
        print(" No Errors", flush=True)


if __name__ == "__main__":
    main()
