# SPDX-License-Identifier: BSD-3-Clause
"""usage: mpiexec -n RANKS python train_torch.py [--device cuda] [--steps N] [FILE]
       torchrun --nproc-per-node RANKS train_torch.py [--device cuda] [--steps N] [FILE]
       mpiexec --enable-recovery -n RANKS python train_torch.py --lose-rank R [--device cuda]

Trains a small model with a mixture-of-experts layer to name the next character of a text. Every
rank has tokens of its own (data parallel) and experts of its own (expert parallel).

At the end the first batch is run again. The program fails if the loss of that batch did not go
down, or if a gradient differs from that of a dense layer, which one rank computes without EPX from
the tokens and experts of all ranks.

With --lose-rank R, from 1 on, rank R is killed after a third of the steps. The others go on from
the last step that all of them know, with the experts of R, which the next rank has kept. After two
thirds a new rank joins, which rank 0 starts. The loss must go on falling. Rank 0 serves the store
by which ranks meet: it cannot be lost. torchrun ends the ranks that it has started itself when one
of them dies, so each rank wants a torchrun of its own, as docs/python.md shows it. With --device
cuda all ranks are on one node, and may share a GPU.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import keep_experts
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor
from torch.distributed.rendezvous import rendezvous

import epx
import epx.launch
import epx.torch as ep

CONTEXT, HIDDEN, FFN, CHARACTERS = 4, 64, 128, 256
TOKENS, EXPERTS_PER_RANK, TOP_K = 256, 4, 2
TIMEOUT_MS = 60000
PREFIX = "train"
"""Of keys in the store, which belongs to others, too."""
BOUND = {torch.float32: 1e-4, torch.bfloat16: 3e-2}
"""How far a gradient may be from the dense layer's, as a part of the parameter's largest one."""


Adam = torch.optim.Adam


def keys(name: str, store: Any) -> Any:
    """The keys of a store that begin with the name."""
    return dist.PrefixStore(name, store)  # type: ignore[attr-defined]


class MoE(torch.nn.Module):
    """The layer. The experts' rows and products are of ``dtype``, the rest is float32."""

    def __init__(self, route: epx.Route, dtype: torch.dtype) -> None:
        super().__init__()
        local = route.local_experts
        self.route, self.dtype = route, dtype
        self.router = torch.nn.Linear(HIDDEN, route.experts, bias=False)
        self.up = torch.nn.Parameter(torch.randn(local, HIDDEN, FFN) / HIDDEN**0.5)
        self.down = torch.nn.Parameter(torch.randn(local, FFN, HIDDEN) / FFN**0.5)

    def choose(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The weights and the ids of each token's experts."""
        weights, ids = self.router(x).softmax(-1).topk(TOP_K)
        return weights, ids

    def forward(self, x: Tensor) -> Tensor:
        weights, ids = self.choose(x)
        rows, row_weights, routing = ep.dispatch(x.to(self.dtype), ids, weights, self.route)
        # Rows from ends[-1] on hold anything: grouped_mm skips them, and combine does not read
        # them. What mixes rows, such as the gradient of a bias, masks them: switch_from_deepep.md.
        ends = routing.offsets[1:]
        hidden = F.silu(F.grouped_mm(rows, self.up.to(self.dtype), offs=ends))
        y = F.grouped_mm(hidden, self.down.to(self.dtype), offs=ends)
        return ep.combine(y, routing, row_weights).to(x.dtype)


class Model(torch.nn.Module):
    """Embeds CONTEXT characters, adds what the layer makes of them, and scores the next one."""

    def __init__(self, moe: MoE) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(CHARACTERS, HIDDEN // CONTEXT)
        self.moe = moe
        self.head = torch.nn.Linear(HIDDEN, CHARACTERS)

    def hidden(self, windows: Tensor) -> Tensor:
        """A token for each window, whose last character is the one to name."""
        embedded: Tensor = self.embed(windows[:, :-1])
        return embedded.flatten(1)

    def forward(self, windows: Tensor) -> Tensor:
        x = self.hidden(windows)
        return F.cross_entropy(self.head(x + self.moe(x)), windows[:, -1])


def is_experts(name: str) -> bool:
    """Whether each rank has its own part of this parameter."""
    return name in ("moe.up", "moe.down")


def gradients(model: Model, windows: Tensor, forward: Callable[[Tensor], Tensor]) -> Tensor:
    """Leave the gradients of the mean loss of all ranks in the parameters, and return that loss."""
    ranks = dist.get_world_size()
    model.zero_grad()
    loss = forward(windows)
    loss.backward()  # type: ignore[no-untyped-call]
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None
        # The experts have computed the tokens of all ranks: their gradients are sums already.
        if not is_experts(name):
            dist.all_reduce(parameter.grad)
        parameter.grad /= ranks
    mean = loss.detach() / ranks
    dist.all_reduce(mean)
    return mean


def gather(tensor: Tensor) -> Tensor:
    """The parts of all ranks, one after the other."""
    parts = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, tensor)
    return torch.cat(parts)


def dense_loss(p: dict[str, Tensor], windows: Tensor, ids: Tensor) -> Tensor:
    """The loss without EPX: every expert computes every token, then the chosen ones are added."""
    x = p["embed.weight"][windows[:, :-1]].flatten(1)
    weights = (x @ p["moe.router.weight"].T).softmax(-1).gather(1, ids)
    hidden = F.silu(torch.einsum("th,ehf->tef", x, p["moe.up"]))
    every = torch.einsum("tef,efh->teh", hidden, p["moe.down"])
    chosen = every.take_along_dim(ids[:, :, None], 1)
    y = (chosen * weights[:, :, None]).sum(1)
    return F.cross_entropy((x + y) @ p["head.weight"].T + p["head.bias"], windows[:, -1])


def largest_difference(model: Model, windows: Tensor) -> float:
    """How far the model's gradients are from those of dense_loss, in float64, on any rank."""
    route = model.moe.route
    local = slice(route.first_expert, route.first_expert + route.local_experts)
    dense = {}
    for name, parameter in model.named_parameters():
        whole = gather(parameter.detach()) if is_experts(name) else parameter.detach()
        dense[name] = whole.double().requires_grad_()
    with torch.no_grad():
        ids = model.moe.choose(model.hidden(windows))[1]
    torch.autograd.backward(dense_loss(dense, gather(windows), gather(ids)))
    differences = []
    for name, parameter in model.named_parameters():
        wanted, found = dense[name].grad, parameter.grad
        assert wanted is not None and found is not None
        difference = found - (wanted[local] if is_experts(name) else wanted)
        differences.append(difference.abs().max() / wanted.abs().max())
    worst = torch.stack(differences).max().nan_to_num(nan=torch.inf)
    dist.all_reduce(worst, dist.ReduceOp.MAX)
    return worst.item()


def make_model(route: epx.Route, device: torch.device, dtype: torch.dtype) -> Model:
    """A model whose experts differ by rank, and whose other parameters are those of rank 0."""
    torch.manual_seed(route.comm.rank)
    model = Model(MoE(route, dtype)).to(device)
    for name, parameter in model.named_parameters():
        if not is_experts(name):
            dist.broadcast(parameter.data, 0)
    return model


def make_batches(file: Path, steps: int, device: torch.device) -> list[Tensor]:
    """For each step the windows of this rank, taken from anywhere in the text."""
    text = torch.tensor(list(file.read_bytes()), device=device)
    windows = text.unfold(0, CONTEXT + 1, 1)
    return [windows[torch.randint(len(windows), (TOKENS,))] for _ in range(steps)]


def train_step(
    step: int, model: Model, batch: Tensor, forward: Callable[[Tensor], Tensor], adam: Adam
) -> float:
    """The loss before the step."""
    comm = model.moe.route.comm
    loss = gradients(model, batch, forward)
    adam.step()
    comm.check()  # raises an error that a GPU found after the call had returned
    if comm.rank == 0:
        print(f"step {step}: loss {loss.item():.4f}")  # the host waits for the GPU here
    return loss.item()


def make_adam(model: Model) -> Adam:
    return torch.optim.Adam(model.parameters(), lr=3e-3)


def train(model: Model, batches: list[Tensor], forward: Callable[[Tensor], Tensor]) -> float:
    """The loss of the first step."""
    adam = make_adam(model)
    losses = [train_step(k, model, batch, forward, adam) for k, batch in enumerate(batches)]
    return losses[0]


def is_right(model: Model, batch: Tensor, first_loss: float) -> bool:
    """Whether the loss of the batch went down and its gradients are those of the dense layer."""
    loss = gradients(model, batch, model).item()
    difference = largest_difference(model, batch)
    bound = BOUND[model.moe.dtype]
    if model.moe.route.comm.rank == 0:
        print(f"first batch: loss {first_loss:.4f} before, {loss:.4f} after")
        print(f"gradients differ from the dense layer's by {difference:.1e}, bound {bound:.0e}")
    return loss < first_loss and difference <= bound


def dtype_on(device: torch.device, *, compiles: bool = False) -> torch.dtype:
    """Without bfloat16 grouped_mm has no kernel on GPUs, and torch.compile refuses it."""
    return torch.float32 if device.type == "cpu" and not compiles else torch.bfloat16


def close_after_loss(*comms: epx.Comm) -> None:
    """Close communicators that may have lost a rank again: an error tells of it, and frees them."""
    for comm in comms:
        with contextlib.suppress(epx.EPXError):
            comm.close()


class Comms(NamedTuple):
    """Two communicators of the same ranks: by one they train, by the other they keep experts.

    Experts are kept on the host. On the CPU it is one communicator.
    """

    train: epx.Comm
    host: epx.Comm

    def shrunk(self) -> Comms:
        """Those of the ranks that live: both, or an error on all ranks and none is left open."""
        train = self.train.shrink()
        if self.host is self.train:
            return Comms(train, train)
        try:
            host = self.host.shrink()
        except epx.EPXError:
            close_after_loss(train)
            raise
        if train.ranks != host.ranks:
            close_after_loss(train, host)
            raise RuntimeError("a rank died between two calls")
        return Comms(train, host)

    def close(self) -> None:
        self.train.close()
        self.host.close()  # again, on the CPU, which does nothing


class Job:
    """What --lose-rank trains: the model of a communicator, made anew in each."""

    def __init__(
        self, comms: Comms, experts: int, name: str, store: Any, device: torch.device
    ) -> None:
        """Collective over the ranks, which those of torch.distributed are, too."""
        comm = comms.train
        dist.init_process_group(
            "gloo",
            store=keys(name, store),
            rank=comm.rank,
            world_size=comm.size,
            timeout=timedelta(milliseconds=TIMEOUT_MS),
        )
        self.comms, self.comm, self.host = comms, comm, comms.host
        self.store, self.experts, self.device = store, experts, device
        self.route = epx.Route(comm, experts, TOP_K, max_tokens=TOKENS, alignment=16)
        self.ring = keep_experts.ring(self.host)
        self.model = make_model(self.route, device, dtype_on(device))
        self.adam = make_adam(self.model)
        named = list(self.model.named_parameters())
        self.parts = [[p for n, p in named if is_experts(n) == kind] for kind in (False, True)]
        self.saved: list[keep_experts.Saved] = []
        self.losses: dict[int, float] = {}

    def rows(self) -> Tensor:
        return keep_experts.rows_of(self.parts[1], self.adam, self.route.first_expert)

    def dense(self) -> Tensor:
        return keep_experts.dense_part(self.parts[0], self.adam)

    def save(self, step: int) -> None:
        """Keep what is known after so many steps. A rank may be one step behind: keep two."""
        own = self.rows()
        kept = keep_experts.Saved(step, self.dense(), own, keep_experts.keep(own, self.ring))
        self.saved = [*self.saved[-1:], kept]

    def take_over(self, rows: Tensor, dense: Tensor, step: int) -> None:
        """Go on after so many steps: experts from who brings them, the rest from rank 0."""
        rows = keep_experts.deal(rows, self.host, self.experts)
        dist.broadcast(dense, 0)
        keep_experts.load(self.parts[0], self.parts[1], self.adam, (dense, rows), step)
        self.save(step)

    def run(self, batches: list[Tensor], begin: int, end: int) -> None:
        for step in range(begin, end):
            loss = train_step(step, self.model, batches[step], self.model, self.adam)
            self.losses[step] = loss
            self.save(step + 1)

    def shrunk(self) -> Job:
        """The job of the ranks that live; where its steps go on, its ``saved`` tells."""
        dist.destroy_process_group()  # who waits for this rank there is told so
        comms = self.comms.shrunk()
        comm = comms.train
        if comm.size == self.comm.size:
            close_after_loss(*comms)
            raise RuntimeError("an operation failed, and no rank is dead")
        if comm.rank == 0:
            print(f"ranks {[*comm.ranks]} of {self.comm.size} go on")
        step = -comm.largest(-self.saved[-1].step)  # the last one that all know
        saved = next(kept for kept in self.saved if kept.step == step)
        smaller = Job(comms, self.experts, "survivors", self.store, self.device)
        smaller.take_over(keep_experts.brought(saved, self.comm, comm), saved.dense, step)
        smaller.losses = {k: loss for k, loss in self.losses.items() if k < step}
        self.comms.close()
        return smaller

    def joined(self, step: int) -> Job:
        """The job of these ranks and a new one."""
        rows, dense, size = self.rows(), self.dense(), self.comm.size + 1
        dist.destroy_process_group()
        if self.comm.rank == 0:
            self.store.set("size", str(size))
            print(f"a new rank, {size - 1}, joins")
        comms = meet("join", self.store, self.comm.rank, size, self.device)
        larger = Job(comms, self.experts, "joined", self.store, self.device)
        larger.take_over(rows, dense, step)
        larger.losses = self.losses
        self.comms.close()
        return larger


def take_gpu(device: torch.device, rank: int) -> None:
    """Before the first communicator. A rank keeps its GPU, also if it has another number later."""
    if device.type == "cuda":
        torch.cuda.set_device(rank % torch.cuda.device_count())


def meet(name: str, store: Any, rank: int, size: int, device: torch.device) -> Comms:
    """The communicators of ranks that come to the store with the same name. Collective."""
    place: dict[str, Any] = {"rank": rank, "size": size, "timeout_ms": TIMEOUT_MS}
    named = keys(name, store)
    if device.type == "cpu":
        comm = epx.Comm(store=named, memory="system", **place)
        return Comms(comm, comm)
    host = epx.Comm(store=keys("host", named), memory="system", transport="auto", **place)
    try:
        # The transport by which a communicator that has lost ranks gives its memory back, and a
        # thread that hears of a dead rank while the host waits for kernels that wait for that rank.
        place["memory"] = "cuda:device"
        train = epx.Comm(store=named, transport="ipc", progress="thread", **place)
    except epx.EPXError:
        close_after_loss(host)
        raise
    return Comms(train, host)


def join(options: argparse.Namespace) -> int:
    """A new rank, which waits for the others to come."""
    place = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    served = dist.TCPStore(*place, wait_for_workers=False)  # type: ignore[attr-defined]
    store = keys(PREFIX, served)
    size, device = int(store.get("size")), torch.device(options.device)
    take_gpu(device, options.lose_rank)  # of the rank that was lost
    job = Job(meet("join", store, size - 1, size, device), options.join, "joined", store, device)
    step = 2 * options.steps // 3
    job.take_over(job.rows()[:0], job.dense(), step)
    batches = make_batches(options.file, options.steps, device)
    job.run(batches, step, options.steps)
    is_right(job.model, batches[0], torch.inf)
    dist.destroy_process_group()
    job.comms.close()
    return 0


def start_new_rank(options: argparse.Namespace, experts: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, __file__, "--join", experts, "--steps", options.steps]
    command += ["--lose-rank", options.lose_rank, "--device", options.device, options.file]
    return subprocess.Popen([str(word) for word in command])


def run_and_lose(options: argparse.Namespace, store: Any, rank: int, size: int) -> int:
    """A rank is killed after a third of the steps, and a new one joins after two."""
    death, birth = options.steps // 3, 2 * options.steps // 3
    device = torch.device(options.device)
    take_gpu(device, rank)
    comms = meet("begin", store, rank, size, device)
    job = Job(comms, EXPERTS_PER_RANK * size, "whole", store, device)
    batches = make_batches(options.file, options.steps, device)
    try:
        job.run(batches, 0, death)
        if rank == options.lose_rank:
            os.kill(os.getpid(), signal.SIGKILL)
        job.run(batches, death, birth)
    except RuntimeError as error:  # of EPX or of gloo, by what a rank was waiting for
        print(f"rank {rank}: {error}")
        job = job.shrunk()
    new_rank = start_new_rank(options, job.experts) if job.comm.rank == 0 else None
    job.run(batches, job.saved[-1].step, birth)
    job = job.joined(birth)
    job.run(batches, birth, options.steps)
    passed = is_right(job.model, batches[0], job.losses[0])
    passed = passed and job.losses[options.steps - 1] < job.losses[death - 1]
    dist.destroy_process_group()
    job.comms.close()
    if new_rank is not None:
        passed = new_rank.wait() == 0 and passed
        print(" No Errors" if passed else "Found errors", flush=True)
    return 0 if passed else 1


def main() -> int:
    parser = argparse.ArgumentParser(description="see the top of this file")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--compile", metavar="BACKEND", help="of torch.compile: inductor, ...")
    parser.add_argument("--backend", help="of torch.distributed; gloo, if ranks share a GPU")
    harbour = Path(__file__).resolve().parent.parent / "harbour.txt"
    parser.add_argument("--lose-rank", type=int, metavar="R", help="from 1 on: R is killed")
    parser.add_argument("--join", type=int, help=argparse.SUPPRESS)  # rank 0 says so to a new rank
    parser.add_argument("file", type=Path, nargs="?", default=harbour)
    options = parser.parse_args()
    if options.join:
        return join(options)

    epx.launch.environment()  # what init_process_group wants: from MPI, or as torchrun set it
    if options.lose_rank is not None:
        whole, rank, size = next(iter(rendezvous("env://")))
        unlike = options.compile or options.backend
        if unlike or not 0 < options.lose_rank < size or options.steps < 6:
            parser.error(
                f"--lose-rank is for ranks 1 to {size - 1} and 6 steps or more, by gloo and "
                "not compiled"
            )
        return run_and_lose(options, keys(PREFIX, whole), rank, size)
    device = torch.device(options.device)
    take_gpu(device, epx.launch.local_rank())
    dist.init_process_group(options.backend or ("nccl" if device.type == "cuda" else "gloo"))
    dtype = dtype_on(device, compiles=bool(options.compile))
    memory = "cuda:device" if device.type == "cuda" else "system"
    with epx.Comm(group=dist.group.WORLD, memory=memory, timeout_ms=TIMEOUT_MS) as comm:
        experts = EXPERTS_PER_RANK * comm.size
        route = epx.Route(comm, experts, TOP_K, max_tokens=TOKENS, alignment=16)
        model = make_model(route, device, dtype)
        batches = make_batches(options.file, options.steps, device)
        forward: Callable[[Tensor], Tensor] = model
        if options.compile:
            forward = torch.compile(model, backend=options.compile, fullgraph=True)
        first_loss = train(model, batches, forward)
        passed = is_right(model, batches[0], first_loss)
        if comm.rank == 0:
            print(" No Errors" if passed else "Found errors")
    dist.destroy_process_group()
    return 0 if passed else 1


if __name__ == "__main__":
    raise SystemExit(main())
