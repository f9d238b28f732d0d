# SPDX-License-Identifier: BSD-3-Clause
"""usage: mpiexec -n RANKS python transformers_moe.py [--device cuda] [MODEL ...]
       torchrun --nproc-per-node RANKS transformers_moe.py [--device cuda] [MODEL ...]

Runs models of Hugging Face transformers with their experts spread over the ranks. ``epx_experts``
and ``spread`` are what a program of your own takes from here; the rest tries them.

Each model is small and has random weights, and every rank has sequences of its own. The program
fails if logits or gradients differ from those of the same model in one process, which transformers
computes without EPX from the sequences of all ranks.
"""

from __future__ import annotations

import argparse
import copy
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
import transformers  # type: ignore[import-not-found,unused-ignore]
from torch import Tensor
from transformers.integrations.moe import (  # type: ignore[import-not-found,unused-ignore]
    ExpertsInterface,
)

import epx
import epx.launch
import epx.torch as ep

SEQUENCES, LENGTH, CHARACTERS, EXPERTS, TOP_K = 2, 16, 128, 8, 2
BOUND = 1e-4
"""How far a tensor may be from one process's, as a part of its largest element."""

SHAPE = {
    "vocab_size": CHARACTERS,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_experts_per_tok": TOP_K,
    "initializer_range": 0.3,  # else what experts add is small beside what goes past them
}
MODELS = {
    "mixtral": {"num_local_experts": EXPERTS},
    "qwen3_moe": {"num_experts": EXPERTS, "moe_intermediate_size": 48, "head_dim": 8},
    "deepseek_v3": {
        "n_routed_experts": EXPERTS,
        "moe_intermediate_size": 48,
        "num_hidden_layers": 3,
        "num_key_value_heads": 4,
        "first_k_dense_replace": 1,
        "n_group": 4,
        "topk_group": 2,
        "q_lora_rank": 16,
        "kv_lora_rank": 16,
        "qk_rope_head_dim": 8,
        "qk_nope_head_dim": 8,
        "v_head_dim": 8,
    },
    "gpt_oss": {"num_local_experts": EXPERTS, "head_dim": 8},
}


def product(experts: Any, name: str, rows: Tensor, routing: ep.Routing) -> Tensor:
    """Each row times the matrix of its expert, and the expert's bias if the model has biases."""
    weight: Tensor = getattr(experts, name)
    weight = weight if experts.is_transposed else weight.mT
    y = F.grouped_mm(rows, weight, offs=routing.offsets[1:])
    if not experts.has_bias:
        return y
    # Rows that belong to no expert hold anything: the gradient of a bias must not see them.
    bias: Tensor = getattr(experts, f"{name}_bias")
    expert = routing.row_expert()
    return (y + bias[expert.clamp(min=0)]).masked_fill((expert < 0)[:, None], 0)


def epx_experts(experts: Any, x: Tensor, ids: Tensor, weights: Tensor) -> Tensor:
    """What transformers calls as the forward of the experts of a layer."""
    rows, row_weights, routing = ep.dispatch(x, ids, weights.float(), experts.route)
    if experts.has_gate:
        hidden = experts._apply_gate(product(experts, "gate_up_proj", rows, routing))
    else:
        hidden = experts.act_fn(product(experts, "up_proj", rows, routing))
    return ep.combine(product(experts, "down_proj", hidden, routing), routing, row_weights)


def spread(model: Any, comm: epx.Comm, max_tokens: int) -> None:
    """Leave this rank its part of the experts of every layer; max_tokens of a call, on any rank.

    A layer has a route of its own, so that its backward need not route again.
    """
    top_k = model.config.num_experts_per_tok
    # use_experts_implementation of transformers sets is_transposed.
    layers: list[Any] = [m for m in model.modules() if hasattr(m, "is_transposed")]
    if not layers or any(getattr(experts, "has_post_expert_norm", False) for experts in layers):
        raise ValueError(f"epx_experts cannot compute the experts of {type(model).__name__}")
    for experts in layers:
        route = epx.Route(comm, experts.num_experts, top_k, max_tokens, alignment=16, distinct=True)
        local = slice(route.first_expert, route.first_expert + route.local_experts)
        for name, whole in list(experts.named_parameters(recurse=False)):
            setattr(experts, name, torch.nn.Parameter(whole.detach()[local].clone()))
        experts.route = route
    ExpertsInterface.register("epx", epx_experts)
    model.set_experts_implementation("epx")


def make_model(name: str) -> Any:
    """A model of random weights, the same on all ranks, whose experts transformers computes."""
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(name, **{**SHAPE, **MODELS[name]})
    make: Any = transformers.AutoModelForCausalLM.from_config
    return make(config, experts_implementation="eager")


def run(model: Any, sequences: Tensor) -> Tensor:
    """The logits; leaves the gradients of the mean loss of these sequences in the parameters."""
    logits: Tensor = model(input_ids=sequences, use_cache=False).logits
    loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), sequences[:, 1:].flatten())
    loss.backward()  # type: ignore[no-untyped-call]
    return logits.detach()


def difference(found: Tensor, wanted: Tensor) -> float:
    """How far two tensors are from each other, as a part of the largest element wanted."""
    if not found.numel():
        return 0.0
    return ((found - wanted).abs().max() / wanted.abs().max()).nan_to_num(nan=torch.inf).item()


def gradient_differences(model: Any, whole: Any, ranks: int) -> dict[str, float]:
    """For each parameter how far its gradient is from one process's."""
    modules, wanted = dict(model.named_modules()), dict(whole.named_parameters())
    found = {}
    for name, parameter in model.named_parameters():
        gradient = wanted[name].grad
        route = getattr(modules[name.rpartition(".")[0]], "route", None)
        if route is None:
            dist.all_reduce(parameter.grad)
        else:  # the experts have computed the tokens of all ranks: their gradients are sums already
            gradient = gradient[route.first_expert :][: route.local_experts]
        found[name] = difference(parameter.grad / ranks, gradient)
    return found


def is_right(name: str, comm: epx.Comm, device: torch.device) -> bool:
    """Whether a model whose experts are spread computes what it computes in one process."""
    whole = make_model(name).to(device)
    model = copy.deepcopy(whole)
    spread(model, comm, max_tokens=SEQUENCES * LENGTH)
    every = torch.randint(CHARACTERS, (comm.size, SEQUENCES, LENGTH), device=device)
    dist.broadcast(every, 0)
    wanted = run(whole, every.flatten(0, 1)).chunk(comm.size)[comm.rank]
    logits = difference(run(model, every[comm.rank]), wanted)
    comm.check()  # raises an error that a GPU found after the call had returned
    gradients = gradient_differences(model, whole, comm.size)
    worst = torch.tensor([logits, max(gradients.values())], device=device)
    dist.all_reduce(worst, dist.ReduceOp.MAX)
    if comm.rank == 0:
        print(f"{name}: logits differ by {worst[0]:.1e}, gradients by {worst[1]:.1e}", flush=True)
    return bool((worst <= BOUND).all())


def main() -> int:
    parser = argparse.ArgumentParser(description="see the top of this file")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--backend", help="of torch.distributed; gloo, if ranks share a GPU")
    parser.add_argument("models", metavar="MODEL", nargs="*", help=f"of {', '.join(MODELS)}")
    options = parser.parse_args()

    epx.launch.environment()  # what init_process_group wants: from MPI, or as torchrun set it
    device = torch.device(options.device)
    if device.type == "cuda":  # before the communicator
        torch.cuda.set_device(epx.launch.local_rank() % torch.cuda.device_count())
    dist.init_process_group(options.backend or ("nccl" if device.type == "cuda" else "gloo"))
    memory = "cuda:device" if device.type == "cuda" else "system"
    with epx.Comm(group=dist.group.WORLD, memory=memory, timeout_ms=60000) as comm:
        passed = all([is_right(name, comm, device) for name in options.models or MODELS])
        if comm.rank == 0:
            print(" No Errors" if passed else "Found errors")
    dist.destroy_process_group()
    return 0 if passed else 1


if __name__ == "__main__":
    raise SystemExit(main())
