# SPDX-License-Identifier: BSD-3-Clause
"""Communicators, routes and errors, without a framework."""

import copy
import os
import pickle
import re
import subprocess
import sys
import time
import traceback
from pathlib import Path

import pytest

import epx
import epx.launch
from epx import Code, EPXError, _core

TOP = Path(__file__).resolve().parents[2]
TIMEOUT_MS, PATIENCE_MS = 1000, 30000
several = pytest.mark.skipif(_core.world()[1] == 1, reason="there is no other rank")


def test_codes_are_those_of_the_header():
    header = (TOP / "include/epx.h").read_text()
    found = dict(re.findall(r"#define EPX_ERR_([A-Z_]+) (\d+)", header))
    del found["LASTCODE"]
    assert {code.name: code.value for code in Code} == {k: int(v) for k, v in found.items()}


def test_the_version_is_that_of_the_library():
    (version,) = re.findall(r"AC_INIT\(\[epx\], \[([^]]*)\]", (TOP / "configure.ac").read_text())
    assert epx.__version__ == version


def test_a_glue_of_another_version_is_refused():
    for name, members in ("operation", 57), ("look", 12), ("route_attr", 11), ("exchange", 28):
        assert len(_core._packer(name, members)(*range(members))) == 8 * members
        with pytest.raises(ImportError, match=f"another version: its {name} has {8 * members} b"):
            _core._packer(name, members + 1)


def test_public_names_are_those_of_the_package():
    for name in epx.__all__:
        assert getattr(epx, name).__module__ == "epx"
    told = traceback.format_exception_only(EPXError, EPXError(Code.ARG, "no such thing"))
    assert told == ["epx.EPXError: no such thing\n"]


def test_the_frameworks_are_not_imported():
    said = subprocess.run(
        [sys.executable, "-c", "import epx, sys; print({'torch', 'jax'} & set(sys.modules))"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout.strip() == "set()"


@pytest.mark.parametrize("name", ["torch", "jax"])
def test_what_is_missing_is_told_when_asked_for(name):
    hide = f"import sys; sys.modules['{name}'] = None; import epx; epx.{name}"
    said = subprocess.run([sys.executable, "-c", hide], capture_output=True, text=True)
    assert said.returncode != 0
    assert f"ImportError: epx.{name} cannot be had" in said.stderr


def test_a_communicator_knows_its_place(comm):
    rank, size = _core.world()
    assert (comm.rank, comm.size) == (rank, size)
    assert comm.hint("memory") == "system"
    assert comm.hint("no_such_hint") == ""
    comm.check()
    assert comm.stats().timeouts == 0


def test_hints_are_taken():
    with epx.Comm(timeout_ms=12345) as made:
        assert made.hint("timeout_ms") == "12345"


@pytest.mark.parametrize(("asked", "taken"), [("all", "large"), ("none", "none")])
def test_routings_are_kept_whole(asked, taken):
    with epx.Comm(split_phases=asked) as made:
        assert made.hint("split_phases") == taken


@pytest.mark.parametrize(
    "key, value, text",
    [
        ("network", "", "0 characters, want 1 to"),
        ("network", "n" * 5000, "5000 characters"),
        ("a" * 300, "1", "no hint epx_aaa"),
        ("network", "l\0o", "NUL"),
    ],
)
def test_hints_that_mpi_cannot_take_are_refused(key, value, text):
    with pytest.raises(EPXError, match=text) as caught:
        epx.Comm(**{key: value})
    assert caught.value.code == Code.INFO


def test_ranks_that_are_none_are_refused(comm):
    for ranks, text in (([0, 0], "are both 0"), ([0, 2**32], "has"), ([-1], r"ranks\[0\] is -1")):
        with pytest.raises(EPXError, match=text) as caught:
            epx.Comm(ranks)
        assert caught.value.code == Code.ARG
    assert comm.hint("a" * 300) == ""


def test_an_unknown_hint_is_refused():
    with pytest.raises(TypeError, match="colour"):
        epx.Comm(colour="green")


def test_a_wrong_hint_is_an_error():
    with pytest.raises(EPXError) as caught:
        epx.Comm(timeout_ms="soon")
    assert caught.value.code == Code.INFO
    assert re.search("EPX_Comm_create: .*epx_timeout_ms.*soon", str(caught.value))


def test_a_gpu_that_is_not_there_is_refused():
    with pytest.raises(EPXError) as caught:
        epx.Comm(memory="cuda:device", device=4711)
    assert caught.value.code in (Code.ARG, Code.CUDA)  # no such GPU, or no CUDA at all
    assert re.search("no GPU 4711|libcuda|cuInit", str(caught.value))


def test_a_group_of_ranks(comm):
    mine = [rank for rank in range(comm.size) if rank % 2 == comm.rank % 2]
    with epx.Comm(group=mine) as made:
        assert (made.rank, made.size) == (mine.index(comm.rank), len(mine))


def test_a_communicator_of_mpi4py(comm, monkeypatch):
    maps = Path("/proc/self/maps").read_text()
    ours = re.search(r"/\S*/libmpi(?:ch)?\.so\S*", maps)
    if not ours:
        pytest.skip("which MPI is loaded cannot be told")
    monkeypatch.setenv("MPI4PY_LIBMPI", ours.group())
    mpi4py = pytest.importorskip("mpi4py.MPI")
    half = mpi4py.COMM_WORLD.Split(comm.rank % 2, -comm.rank)
    with epx.Comm(group=half) as made:
        assert (made.rank, made.size) == (half.rank, (comm.size + 1 - comm.rank % 2) // 2)
    for other in half.Get_group(), mpi4py.INFO_NULL, mpi4py.INT:
        with pytest.raises(TypeError, match=f"group is a {type(other).__name__}, want"):
            epx.Comm(group=other)
    half.Free()
    with pytest.raises(EPXError) as caught:
        epx.Comm(group=mpi4py.COMM_NULL)
    assert caught.value.code == Code.COMM


@pytest.mark.parametrize("group", [[], [10000], [-1]])
def test_a_wrong_group_is_an_error(group):
    with pytest.raises(EPXError) as caught:
        epx.Comm(group=group)
    assert caught.value.code == Code.ARG


def test_a_group_without_this_rank_is_an_error(comm):
    if comm.size == 1:
        pytest.skip("there is no other rank")
    with pytest.raises(EPXError, match="not one of"):
        epx.Comm(group=[(comm.rank + 1) % comm.size])


def expect_timeout(ranks):
    begin = time.monotonic()
    with pytest.raises(EPXError, match=r"not all|in time") as caught:
        epx.Comm(ranks, timeout_ms=TIMEOUT_MS)
    spent = time.monotonic() - begin
    assert caught.value.code == Code.TIMEOUT
    assert 0.9e-3 * TIMEOUT_MS < spent < 5e-3 * TIMEOUT_MS


def meet(comm):
    _core.gather(b".", comm.size)


def make_all(comm):
    with epx.Comm(range(comm.size), timeout_ms=PATIENCE_MS) as made:
        assert made.size == comm.size


@several
def test_a_late_rank_has_its_own_time_out(comm):
    if comm.rank == comm.size - 1:
        time.sleep(2e-3 * TIMEOUT_MS)
    expect_timeout(range(comm.size))
    meet(comm)
    make_all(comm)


@several
def test_who_asks_again_meets_the_late_rank(comm):
    for _ in range(2):
        if comm.rank < comm.size - 1:
            expect_timeout(range(comm.size))
    meet(comm)
    make_all(comm)


@several
def test_who_asks_again_a_little_later_finds_what_was_made(comm):
    if comm.rank < comm.size - 1:
        expect_timeout(range(comm.size))
    meet(comm)
    if comm.rank == 0:  # the last rank has come by then
        time.sleep(0.05e-3 * TIMEOUT_MS)
    make_all(comm)


@several
def test_another_group_is_made_meanwhile(comm):
    if comm.rank < comm.size - 1:
        expect_timeout(range(comm.size))
        with epx.Comm(range(comm.size - 1), timeout_ms=PATIENCE_MS) as made:
            assert made.size == comm.size - 1
    meet(comm)
    make_all(comm)


@several
def test_the_hint_and_its_variable_are_heeded(comm, monkeypatch):
    monkeypatch.setenv("EPX_TIMEOUT_MS", str(TIMEOUT_MS))
    begin = time.monotonic()
    if comm.rank < comm.size - 1:
        with pytest.raises(EPXError, match=f"within {TIMEOUT_MS} ms") as caught:
            epx.Comm(range(comm.size))
        assert caught.value.code == Code.TIMEOUT
        assert time.monotonic() - begin < 5e-3 * TIMEOUT_MS
    meet(comm)
    make_all(comm)


def test_the_time_out_without_a_hint_is_that_of_the_library():
    (library,) = re.findall(r'"epx_timeout_ms", "(\d+)"', (TOP / "src/base/param.c").read_text())
    (here,) = re.findall(r"DEFAULT_MS = (\d+)", (TOP / "python/glue_comm.c").read_text())
    assert here == library


def test_a_group_of_another_type_is_refused():
    with pytest.raises(TypeError, match="group is a object"):
        epx.Comm(group=object())
    for ranks in "0", [0.0], ["0"]:
        with pytest.raises(TypeError, match="cannot be interpreted as an integer"):
            epx.Comm(group=ranks)


def test_numbers_of_numpy_are_taken(comm):
    numpy = pytest.importorskip("numpy")
    with epx.Comm(numpy.arange(comm.size), timeout_ms=numpy.int64(4711)) as made:
        assert made.size == comm.size and made.hint("timeout_ms") == "4711"
        made.reserve(numpy.int64(512))
    with pytest.raises(EPXError, match=r"no GPU 4711|libcuda|cuInit"):
        epx.Comm(memory="cuda:device", device=numpy.int64(4711))


def test_closing_frees_the_routes():
    made = epx.Comm()
    routes = [epx.Route(made, experts=4, top_k=1, max_tokens=8) for _ in range(3)]
    made.close()
    made.close()
    assert all(route.is_freed for route in routes)
    for call in (made.check, made.stats, lambda: epx.Route(made, 4, 1, 8)):
        with pytest.raises(EPXError) as caught:
            call()
        assert caught.value.code == Code.COMM


def test_a_route_tells_its_shape(comm, make_route):
    route = make_route(experts=5, top_k=2, max_tokens=8, alignment=4)
    first, last = comm.rank * 5 // comm.size, (comm.rank + 1) * 5 // comm.size
    assert (route.first_expert, route.local_experts) == (first, last - first)
    assert route.capacity == comm.size * 16 + 3 * route.local_experts
    route.set_capacity(3)
    assert route.capacity == 3
    for wrong in (-1, route.max_capacity + 1):
        with pytest.raises(EPXError) as caught:
            route.set_capacity(wrong)
        assert caught.value.code == Code.ARG


def test_slabs_stay_as_they_are(comm, make_route):
    route = make_route(experts=5, top_k=2, max_tokens=8, layout="slab", rows_per_expert=3)
    assert route.rows_per_expert == 3 and route.capacity == 3 * route.local_experts
    route.set_capacity(route.capacity)
    with pytest.raises(EPXError) as caught:
        route.set_capacity(route.capacity - 1)
    assert caught.value.code == Code.ARG


@pytest.mark.parametrize(
    "attributes, code",
    [
        ({"experts": 0}, Code.ARG),
        ({"top_k": 65}, Code.ARG),
        ({"max_tokens": 0}, Code.COUNT),
        ({"alignment": 3}, Code.ARG),
        ({"capacity": -1}, Code.COUNT),
        ({"experts": 2**40}, Code.ARG),
        ({"layout": "token"}, Code.ARG),
        ({"overflow": "wait"}, Code.ARG),
        ({"layout": "rank", "alignment": 2}, Code.ARG),
        ({"layout": "slab"}, Code.ARG),
        ({"layout": "slab", "rows_per_expert": 4, "capacity": 4}, Code.ARG),
        ({"layout": "slab", "rows_per_expert": 2**40}, Code.COUNT),
        ({"rows_per_expert": 4}, Code.ARG),
        ({"max_row_bytes": -1}, Code.COUNT),
    ],
)
def test_wrong_attributes_are_errors(comm, attributes, code):
    with pytest.raises(EPXError) as caught:
        epx.Route(comm, **({"experts": 4, "top_k": 2, "max_tokens": 8} | attributes))
    assert caught.value.code == code
    assert str(caught.value)


def test_a_copy_is_the_same_object(comm, make_route):
    for one in (comm, make_route(experts=4, top_k=2, max_tokens=8)):
        assert copy.copy(one) is one and copy.deepcopy(one) is one
        with pytest.raises(TypeError, match=r"cannot pickle epx\S*: it belongs to this process"):
            pickle.dumps(one)


def test_an_error_is_pickled():
    twin = pickle.loads(pickle.dumps(EPXError(9, "no room")))
    assert (twin.code, str(twin)) == (Code.TRUNCATE, "no room")


def test_the_environment_is_alike(comm):
    saved = dict(os.environ)
    try:
        values = epx.launch.environment()
        assert values["RANK"] == str(comm.rank) and values["WORLD_SIZE"] == str(comm.size)
        assert os.environ["MASTER_PORT"] == values["MASTER_PORT"]
        shared = f"{values['MASTER_ADDR']} {values['MASTER_PORT']}".encode().ljust(300)
        assert len(set(_core.gather(shared, comm.size))) == 1
        assert 0 <= epx.launch.local_rank() < comm.size
    finally:
        os.environ.clear()
        os.environ.update(saved)


def test_waits_are_a_matrix_of_a_column_a_rank():
    with epx.Comm() as comm:
        waits = comm.waits()
        assert (waits.shape, waits.format) == ((2, comm.size), "Q")
        assert [waits[0, comm.rank], waits[1, comm.rank]] == [0, 0]
