# SPDX-License-Identifier: BSD-3-Clause
"""usage: mpiexec -n RANKS python decode_torch.py [--device cuda] [--tokens N] ... [FILE]

Decodes with a small mixture-of-experts model whose experts are spread over the ranks. A step names
the next character of each of a rank's sequences, which begin with parts of a text. Rows go to the
experts as fp8 with a float32 scale for every 128 values, and lie there in slabs, a slab for each
expert, of which a masked grouped matrix product takes the rows that are used: a kernel of Triton,
or torch.bmm over all rows where that kernel cannot run. On GPUs a step is a CUDA graph.

The same steps are made with torch.distributed.all_to_all_single in the place of EPX, in two forms:
see ExactSizes and Padded. The model, the tokens and the experts' product are the same, so that the
tokens per second, which the program prints for each, differ by how rows get to the experts and
back, and by whether a graph can hold that. With the kernel one more contender is EPX with
torch.bmm. The program fails if the logits differ.
"""

from __future__ import annotations

import argparse
import copy
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Protocol

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor

import epx
import epx.launch
import epx.torch as ep

try:
    import masked_product as masked
except ImportError:  # Triton is missing
    masked = None  # type: ignore[assignment]

CONTEXT, CHARACTERS = 4, 256
BLOCK = 128
"""Values of a row that have a scale in common."""
LARGEST = torch.finfo(torch.float8_e4m3fn).max
COMPARED, ROUNDS = 5, 3
"""Steps that are compared, and how often each contender's steps are timed; the best counts."""
BOUND = {torch.float32: 1e-5, torch.bfloat16: 1e-2}
"""How far logits may be from EPX's, as a part of the largest one, by the type of the experts."""


class Shape(NamedTuple):
    """What all ranks know of the model and its tokens."""

    tokens: int
    hidden: int
    experts: int
    top_k: int
    ranks: int
    rank: int

    @property
    def local(self) -> int:
        """Experts of this rank."""
        return self.experts // self.ranks

    @property
    def room(self) -> int:
        """Rows of a slab. No token names an expert twice, so this is always enough."""
        return self.tokens * self.ranks


class Tokens(NamedTuple):
    """The tokens of a rank and their experts."""

    values: Tensor  # [tokens, hidden] float8_e4m3fn
    scales: Tensor  # [tokens, hidden / BLOCK] float32
    ids: Tensor  # [tokens, top_k] int64
    weights: Tensor  # [tokens, top_k] float32


class Slabs(NamedTuple):
    """The rows that a rank's experts got, and how their outputs get back."""

    values: Tensor  # [local * room, hidden] float8_e4m3fn
    scales: Tensor  # [local * room, hidden / BLOCK] float32
    counts: Tensor  # [local]: rows of each slab that are used, from its first on
    collect: Callable[[Tensor], Tensor]  # from [local * room, hidden] to sums [tokens, hidden]


class Exchange(Protocol):
    """A way to get tokens to their experts and back. Collective."""

    def __call__(self, tokens: Tokens) -> Slabs: ...


class ByEPX:
    """Rows and scales go in one operation, and no size is told to the host."""

    def __init__(self, comm: epx.Comm, shape: Shape) -> None:
        self.route = epx.Route(
            comm,
            shape.experts,
            shape.top_k,
            max_tokens=shape.tokens,
            layout="slab",
            rows_per_expert=shape.room,
        )

    def __call__(self, tokens: Tokens) -> Slabs:
        (values, scales), row_weights, routing = ep.dispatch(
            tokens.values, tokens.ids, tokens.weights, self.route, scales=tokens.scales
        )
        return Slabs(values, scales, routing.counts, lambda y: ep.combine(y, routing, row_weights))


def pack(*parts: Tensor) -> Tensor:
    """The parts of each row side by side, as bytes: one collective takes them all."""
    return torch.cat([part.view(torch.uint8) for part in parts], 1)


def unpack(packed: Tensor, hidden: int) -> tuple[Tensor, Tensor]:
    """The values and the scales of packed rows."""
    scales = packed[:, hidden : hidden + 4 * (hidden // BLOCK)]
    return packed[:, :hidden].view(torch.float8_e4m3fn), scales.view(torch.float32)


def weighted_sum(rows: Tensor, weights: Tensor) -> Tensor:
    """From [N, top_k, hidden] to [N, hidden], added in float32 and rounded once."""
    return (rows.float() * weights[:, :, None]).sum(1).to(rows.dtype)


class ExactSizes:
    """all_to_all_single of the rows that there are, a row for each token and choice.

    It wants the sizes on the host. So the ranks exchange counts first, and on a GPU the host waits
    for them in every step: a CUDA graph cannot hold this.
    """

    def __init__(self, shape: Shape) -> None:
        self.shape = shape

    def __call__(self, tokens: Tokens) -> Slabs:
        s = self.shape
        experts = torch.arange(s.experts, device=tokens.ids.device)
        counts = (tokens.ids.flatten()[:, None] == experts).sum(0)
        counts_here = torch.empty_like(counts)
        dist.all_to_all_single(counts_here, counts)
        table = counts_here.view(s.ranks, s.local)
        # The host waits here.
        sent, received = torch.stack([counts.view_as(table).sum(1), table.sum(1)]).tolist()
        order = tokens.ids.flatten().argsort(stable=True)  # by expert, and so by rank
        rows = pack(tokens.values, tokens.scales)[order // s.top_k]
        arrived = rows.new_empty(sum(received), rows.shape[1])
        dist.all_to_all_single(arrived, rows, received, sent)
        slots = self.slots_of(table, len(arrived))
        slabs = rows.new_empty(s.local * s.room, rows.shape[1])
        slabs[slots] = arrived

        def collect(y: Tensor) -> Tensor:
            home = y.new_empty(len(order), s.hidden)
            dist.all_to_all_single(home, y[slots], sent, received)
            pairs = torch.empty_like(home)
            pairs[order] = home
            return weighted_sum(pairs.view(s.tokens, s.top_k, s.hidden), tokens.weights)

        return Slabs(*unpack(slabs, s.hidden), table.sum(0), collect)

    def slots_of(self, table: Tensor, num_rows: int) -> Tensor:
        """Where arrived rows belong: they are in the order of ranks, of each by expert."""
        experts = torch.arange(self.shape.local, device=table.device)
        first_slots = experts * self.shape.room + table.cumsum(0) - table
        arrivals = table.flatten().cumsum(0) - table.flatten()
        shifts = first_slots.flatten() - arrivals
        every = shifts.repeat_interleave(table.flatten(), output_size=num_rows)
        return every + torch.arange(num_rows, device=table.device)


class Padded:
    """all_to_all_single of blocks that have one size always, so that a CUDA graph can hold it.

    A rank may get all tokens of another, each once, whichever experts it has there, and its block
    has room for as many: a smaller one may be too small. So every token goes to every rank, with
    its ids and weights, and each rank returns one sum for it.
    """

    def __init__(self, shape: Shape) -> None:
        self.shape = shape

    def __call__(self, tokens: Tokens) -> Slabs:
        s = self.shape
        packed = pack(tokens.values, tokens.scales, tokens.weights, tokens.ids.int())
        blocks = packed.repeat(s.ranks, 1)
        arrived = torch.empty_like(blocks)
        dist.all_to_all_single(arrived, blocks)
        weights, ids = arrived[:, -8 * s.top_k :].view(torch.int32).chunk(2, 1)
        slots, counts = self.slots_of(ids.long() - s.rank * s.local)
        width = arrived.shape[1] - 8 * s.top_k
        slabs = arrived.new_empty(s.local * s.room + 1, width)
        slabs[slots.flatten()] = arrived[:, :width].repeat_interleave(s.top_k, 0)

        def collect(y: Tensor) -> Tensor:
            is_here = slots < s.local * s.room
            rows = y[slots.clamp(max=len(y) - 1).flatten()].view(*slots.shape, s.hidden)
            rows = torch.where(is_here[:, :, None], rows, 0)
            sums = weighted_sum(rows, weights.view(torch.float32))
            home = torch.empty_like(sums)
            dist.all_to_all_single(home, sums)
            return home.view(s.ranks, s.tokens, s.hidden).float().sum(0).to(y.dtype)

        return Slabs(*unpack(slabs[:-1], s.hidden), counts, collect)

    def slots_of(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """The slot of every choice, behind all slabs if it is of another rank; the counts."""
        s = self.shape
        is_here = (ids >= 0) & (ids < s.local)
        experts = torch.arange(s.local, device=ids.device)
        before = (ids.flatten()[:, None] == experts).int().cumsum(0)
        expert = ids.clamp(0, s.local - 1)
        number = before.gather(1, expert.flatten()[:, None]).view_as(ids) - 1
        slots = torch.where(is_here, expert * s.room + number, s.local * s.room)
        return slots, before[-1]


def quantize(x: Tensor) -> tuple[Tensor, Tensor]:
    """fp8 values, and the scale of each BLOCK of them."""
    blocks = x.view(len(x), -1, BLOCK)
    scales = blocks.abs().amax(2).clamp(min=1e-12) / LARGEST
    values = (blocks / scales[:, :, None]).to(torch.float8_e4m3fn)
    return values.view_as(x), scales


class Model:
    """Embeds CONTEXT characters, adds what the experts make of them, and scores the next one.

    The experts' products are of ``dtype``, the rest is float32.
    """

    def __init__(self, shape: Shape, device: torch.device, dtype: torch.dtype) -> None:
        hidden, wide = shape.hidden, shape.hidden // 2
        self.shape, self.dtype = shape, dtype
        self.is_masked = masked is not None and masked.is_for(device)

        def random(*size: int, dtype: torch.dtype = torch.float32) -> Tensor:
            return torch.randn(size, device=device, dtype=dtype)

        torch.manual_seed(0)  # what all ranks have alike
        self.embedding = random(CHARACTERS, hidden // CONTEXT)
        self.router = random(hidden, shape.experts) / hidden**0.5
        self.head = random(hidden, CHARACTERS) / hidden**0.5
        torch.manual_seed(1 + shape.rank)
        self.up = random(shape.local, hidden, wide, dtype=dtype) / hidden**0.5
        self.down = random(shape.local, wide, hidden, dtype=dtype) / wide**0.5

    def with_bmm(self) -> Model:
        """The same model, whose experts are computed by torch.bmm."""
        twin = copy.copy(self)
        twin.is_masked = False
        return twin

    def experts(self, slabs: Slabs) -> Tensor:
        """[local * room, hidden], of which rows that are not used have any values."""
        if not self.is_masked:
            return self.experts_by_bmm(slabs)
        inner = masked.masked_product(
            slabs.values, slabs.counts, self.up, scales=slabs.scales, has_silu=True
        )
        return masked.masked_product(inner, slabs.counts, self.down)

    def experts_by_bmm(self, slabs: Slabs) -> Tensor:
        """The same by operations of torch. Unused rows are made zero and computed too."""
        local, room, hidden = self.shape.local, self.shape.room, self.shape.hidden
        values = slabs.values.view(local, room, -1, BLOCK).float()
        scaled = values * slabs.scales.view(local, room, -1, 1)
        is_used = torch.arange(room, device=values.device) < slabs.counts[:, None]
        rows = torch.where(is_used[:, :, None], scaled.flatten(2), 0).to(self.dtype)
        y = torch.bmm(F.silu(torch.bmm(rows, self.up)), self.down)
        return y.view(local * room, hidden)

    def __call__(self, windows: Tensor, exchange: Exchange) -> Tensor:
        """The logits of the character behind each window."""
        x = self.embedding[windows].flatten(1)
        weights, ids = (x @ self.router).softmax(-1).topk(self.shape.top_k)
        slabs = exchange(Tokens(*quantize(x), ids, weights))
        logits: Tensor = (x + slabs.collect(self.experts(slabs)).float()) @ self.head
        return logits


class Decoder:
    """A contender: the model with one exchange, step by step or as a captured graph."""

    def __init__(self, name: str, model: Model, exchange: Exchange, prompts: Tensor) -> None:
        self.name, self.model, self.exchange = name, model, exchange
        self.windows = prompts.clone()
        self.logits = torch.empty(0)
        self.graph: torch.cuda.CUDAGraph | None = None

    def run(self) -> None:
        """Score the next characters and take the best."""
        self.logits = self.model(self.windows, self.exchange)
        named = self.logits.argmax(1, keepdim=True)
        self.windows.copy_(torch.cat([self.windows[:, 1:], named], 1))

    def capture(self) -> None:
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            self.run()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.run()
        self.graph = graph

    def step(self) -> None:
        if self.graph is None:
            self.run()
        else:
            self.graph.replay()


def make_decoders(
    comm: epx.Comm, model: Model, prompts: Tensor, device: torch.device
) -> list[Decoder]:
    """EPX first. On GPUs every exchange that a graph can hold is there in a graph and without.

    A kernel that is wrong is so for all exchanges. So one contender computes experts by torch.bmm.
    """
    shape, on_gpu = model.shape, device.type == "cuda"
    others = [Decoder("all_to_all_single, exact sizes", model, ExactSizes(shape), prompts)]
    if model.is_masked:
        how = " in a graph" if on_gpu else ""
        bmm = Decoder(f"EPX{how}, torch.bmm", model.with_bmm(), ByEPX(comm, shape), prompts)
        if on_gpu:
            bmm.capture()
        others.append(bmm)
    made = []
    for is_captured in (True, False) if on_gpu else (False,):
        how = " in a graph" if is_captured else ""
        # A route for each: a routing of a graph is none of the operations outside.
        ours = Decoder(f"EPX{how}", model, ByEPX(comm, shape), prompts)
        padded = Decoder(f"all_to_all_single, padded{how}", model, Padded(shape), prompts)
        if is_captured:
            ours.capture()
            padded.capture()
        made += [ours, padded]
    return [*made, *others]


def largest_differences(decoders: list[Decoder], prompts: Tensor) -> list[float]:
    """How far the logits of each are from the first one's, which all follow, on any rank."""
    first, *others = decoders
    first.windows.copy_(prompts)
    worst = torch.zeros(len(others), device=prompts.device)
    for _ in range(COMPARED):
        for other in others:
            other.windows.copy_(first.windows)
        for decoder in decoders:
            decoder.step()
        largest = first.logits.abs().max()
        differences = [(other.logits - first.logits).abs().max() / largest for other in others]
        worst = worst.maximum(torch.stack(differences).nan_to_num(nan=torch.inf))
    dist.all_reduce(worst, dist.ReduceOp.MAX)
    return worst.tolist()


def seconds(decoder: Decoder, prompts: Tensor, steps: int) -> float:
    """How long the steps take, on the slowest rank."""
    decoder.windows.copy_(prompts)
    if prompts.is_cuda:
        torch.cuda.synchronize()
    dist.barrier()
    start = time.perf_counter()
    for _ in range(steps):
        decoder.step()
    if prompts.is_cuda:
        torch.cuda.synchronize()
    taken = torch.tensor(time.perf_counter() - start, device=prompts.device)
    dist.all_reduce(taken, dist.ReduceOp.MAX)
    return taken.item()


def make_prompts(file: Path, shape: Shape, device: torch.device) -> Tensor:
    """Parts of the text, from anywhere: [tokens, CONTEXT], other ones on each rank."""
    text = torch.tensor(list(file.read_bytes()))
    windows = text.unfold(0, CONTEXT, 1)
    made = torch.Generator().manual_seed(shape.rank)
    return windows[torch.randint(len(windows), (shape.tokens,), generator=made)].to(device)


def is_right(comm: epx.Comm, shape: Shape, options: argparse.Namespace) -> bool:
    """Whether all contenders have EPX's logits. Prints the tokens per second of each."""
    device = torch.device(options.device)
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    model = Model(shape, device, dtype)
    prompts = make_prompts(options.file, shape, device)
    decoders = make_decoders(comm, model, prompts, device)
    differences = largest_differences(decoders, prompts)
    comm.check()  # raises an error that a GPU found after the call had returned
    best = [float("inf")] * len(decoders)
    for _ in range(ROUNDS):
        for at, decoder in enumerate(decoders):
            best[at] = min(best[at], seconds(decoder, prompts, options.steps))
    comm.check()
    if comm.rank == 0:
        print(f"{'':40}{'tokens/s':>12}{'logits differ by':>20}")
        for decoder, taken, difference in zip(decoders, best, [0.0, *differences]):
            rate = shape.ranks * shape.tokens * options.steps / taken
            print(f"{decoder.name:40}{rate:12.0f}{difference:20.1e}")
        print(f"logits may differ from EPX's by {BOUND[dtype]:.0e} of the largest one")
    return all(difference <= BOUND[dtype] for difference in differences)


def read_options() -> tuple[argparse.Namespace, Shape]:
    """The options, and what they mean on as many ranks as there are."""
    parser = argparse.ArgumentParser(description="see the top of this file")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--tokens", type=int, default=32, help="sequences of a rank")
    parser.add_argument("--hidden", type=int, default=256, help="values of a row")
    parser.add_argument("--experts", type=int, default=8, help="of all ranks")
    parser.add_argument("--top-k", type=int, default=2, help="experts of a token")
    parser.add_argument("--steps", type=int, default=10, help="that are timed, a round")
    harbour = Path(__file__).resolve().parent.parent / "harbour.txt"
    parser.add_argument("file", type=Path, nargs="?", default=harbour)
    o = parser.parse_args()
    epx.launch.environment()  # what init_process_group wants, from MPI
    ranks, rank = int(os.environ["WORLD_SIZE"]), int(os.environ["RANK"])
    if min(o.tokens, o.hidden, o.experts, o.top_k, o.steps) < 1:
        parser.error("tokens, hidden, experts, top-k and steps are at least 1")
    if o.hidden % BLOCK:
        parser.error(f"--hidden {o.hidden}: want a multiple of {BLOCK}, which have a scale each")
    if o.experts % ranks:
        parser.error(f"--experts {o.experts}: want a multiple of {ranks}, the number of ranks")
    if o.top_k > o.experts:
        parser.error(f"--top-k {o.top_k}: there are {o.experts} experts")
    if not o.file.is_file() or o.file.stat().st_size < CONTEXT:
        parser.error(f"{o.file}: want a file of {CONTEXT} characters or more")
    return o, Shape(o.tokens, o.hidden, o.experts, o.top_k, ranks, rank)


def main() -> int:
    options, shape = read_options()
    on_gpu = options.device == "cuda"
    if on_gpu:
        torch.cuda.set_device(epx.launch.local_rank())  # before the communicator
    dist.init_process_group("nccl" if on_gpu else "gloo")
    memory = "cuda:device" if on_gpu else "system"
    torch.set_grad_enabled(False)
    with epx.Comm(group=dist.group.WORLD, memory=memory, timeout_ms=60000) as comm:
        passed = is_right(comm, shape, options)
        if comm.rank == 0:
            print(" No Errors" if passed else "Found errors")
    dist.destroy_process_group()
    return 0 if passed else 1


if __name__ == "__main__":
    raise SystemExit(main())
