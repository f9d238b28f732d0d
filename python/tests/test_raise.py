# SPDX-License-Identifier: BSD-3-Clause
"""A rank ends by an uncaught EPXError, or with CASE=exit in the environment by sys.exit. The others
wait for it without a time-out; the launcher ends them."""

import os
import sys

import epx
from epx import _perf


def main():
    comm = epx.Comm(timeout_ms=0)
    layer = _perf.Layer(comm, _perf.host_backend())
    operations = tuple(layer.operations)
    layer.repeat(operations, 3)
    if comm.rank == 1:
        print("about to fail", flush=True)
        if os.environ.get("CASE") == "exit":
            sys.exit(3)
        epx.Comm(group=[comm.rank], window_bytes="many")
    layer.repeat(operations, 1)
    print(" No Errors")


if __name__ == "__main__":
    main()
