# SPDX-License-Identifier: BSD-3-Clause
"""Which row each rank receives in which slot, by lists alone."""

from typing import Any


def num_tokens(rank: int) -> int:
    """T differs by rank, and is 0 on rank 1."""
    return 0 if rank == 1 else 5 + 3 * rank


def first_expert(rank: int, experts: int, ranks: int) -> int:
    return rank * experts // ranks


def expert_rows(every: list[Any], local: range, alignment: int) -> tuple[list, list, list]:
    """What a rank receives in expert-major: a list of (rank, token, choice) or None for padding;
    counts; offsets."""
    rows, counts, offsets = [], [], []
    for expert in local:
        slab = [
            (rank, token, choice)
            for rank, tokens in enumerate(every)
            for token, row in enumerate(tokens.ids.tolist())
            for choice, named in enumerate(row)
            if named == expert
        ]
        offsets.append(len(rows))
        counts.append(len(slab))
        rows += slab + [None] * (-len(slab) % alignment)
    return rows, counts, [*offsets, len(rows)]


def slab_rows(every: list[Any], local: range, room: int) -> tuple[list, list]:
    """What a rank receives in slabs: for each expert a list of as many (rank, token, choice) as
    there is room for; how many each expert would need."""
    rows, counts, offsets = expert_rows(every, local, 1)
    slabs = [rows[first:end][:room] for first, end in zip(offsets, offsets[1:])]
    return slabs, counts


def rank_rows(every: list[Any], local: range) -> tuple[list, list, list]:
    """The same in rank-major: a list of (rank, token, local experts); counts; offsets by rank."""
    rows, offsets = [], [0]
    counts = [0] * len(local)
    for rank, tokens in enumerate(every):
        for token, row in enumerate(tokens.ids.tolist()):
            experts = [local.index(named) if named in local else -1 for named in row]
            for expert in experts:
                if expert >= 0:
                    counts[expert] += 1
            if any(expert >= 0 for expert in experts):
                rows.append((rank, token, experts))
        offsets.append(len(rows))
    return rows, counts, offsets
