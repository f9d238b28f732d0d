# SPDX-License-Identifier: BSD-3-Clause
"""Ranks that MPI did not start, but torchrun, torch.multiprocessing, a store or jax.distributed."""

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from epx import launch

RANK = str(Path(__file__).parent / "support" / "started.py")
PATIENCE_S = 100
ON_GPU = os.environ.get("EPX_MEMORY", "").startswith("cuda")


def start(*command):
    """A process that mpiexec seems not to have started."""
    clean = {k: v for k, v in os.environ.items() if not re.match("OMPI|PMI|SLURM", k)}
    return subprocess.Popen(
        [sys.executable, *command],
        env=clean,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def expect(processes, ranks, dead=()):
    """Waits for the processes; all ranks but the dead must say "ok", and end with 0."""
    said = [process.communicate(timeout=PATIENCE_S)[0] for process in processes]
    for number, process in enumerate(processes):
        assert process.returncode == (-9 if number in dead else 0), said[number]
    wanted = sorted(set(range(ranks)) - set(dead))
    assert sorted(int(rank) for rank in re.findall(r"ok (\d+)", "".join(said))) == wanted, said


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return str(listener.getsockname()[1])


def by_torchrun(scene, ranks):
    pytest.importorskip("torch")
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks))
    expect([start(*launcher, RANK, scene)], ranks)


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_torchrun(ranks):
    by_torchrun("torchrun", ranks)


def test_closing_is_agreed_on():
    by_torchrun("reserved", 2)


def test_a_late_rank_is_named_and_may_come_again():
    by_torchrun("late", 3)


def test_groups_of_spawned_ranks():
    pytest.importorskip("torch")
    expect([start(RANK, "spawn", "3", free_port())], 3)


def test_a_store(tmp_path):
    pytest.importorskip("torch")
    expect([start(RANK, "by_file", str(tmp_path / "store"), str(r), "3") for r in range(3)], 3)


def test_a_killed_rank_is_named_and_the_others_go_on(tmp_path):
    pytest.importorskip("torch")
    ranks = [start(RANK, "killed", str(tmp_path / "store"), str(r), "3") for r in range(3)]
    expect(ranks, 3, dead=(1,))


@pytest.mark.skipif(ON_GPU, reason="ranks of JAX share no GPU")
def test_jax_distributed():
    pytest.importorskip("jax")
    address = f"127.0.0.1:{free_port()}"
    expect([start(RANK, "by_jax", address, str(r), "2") for r in range(2)], 2)


def test_jax_of_torchrun_meets_behind_its_port(monkeypatch):
    """What jax.distributed.initialize is given there needs no rank to be asked."""
    for name, value in {
        "TORCHELASTIC_RUN_ID": "job",
        "RANK": "3",
        "LOCAL_RANK": "1",
        "WORLD_SIZE": "4",
        "LOCAL_WORLD_SIZE": "2",
        "MASTER_ADDR": "here",
        "MASTER_PORT": "29500",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert launch.jax_arguments() == {
        "coordinator_address": "here:29502",
        "num_processes": 4,
        "process_id": 3,
        "local_device_ids": [1],
    }
