"""Ranks, sizes and groups. All functions but destroy_group report a call before communication is initialised."""

from __future__ import annotations

from collections.abc import Sequence

from viaduct.rehearsal import limits
from viaduct.rehearsal.tf1_stage import collectives, state

WORLD = collectives.WORLD


def create_group(group: str, rank_num: int, rank_ids: Sequence[int]) -> None:
    """Make a group of some ranks after HCCL's checks."""
    need_communication("create_group")
    if len(rank_ids) != rank_num or len(set(rank_ids)) != rank_num:
        raise ValueError(f"create_group: rank_num is {rank_num}, and rank_ids are {list(rank_ids)}")
    if any(rank not in range(state.size()) for rank in rank_ids):
        raise ValueError(f"create_group: rank_ids {list(rank_ids)} are not all within 0 to {state.size() - 1}")
    if group == WORLD:
        raise ValueError(f"create_group: {WORLD!r} is the group of all ranks, which is always there")
    collectives.groups[group] = sorted(rank_ids)


def destroy_group(group: str) -> None:
    """Remove a group; the group of all ranks cannot be removed."""
    if group == WORLD:
        raise ValueError(f"destroy_group: {WORLD!r} cannot be destroyed")
    collectives.list_members(group)
    del collectives.groups[group]


def get_rank_size(group: str = WORLD) -> int:
    need_communication("get_rank_size")
    return len(collectives.list_members(group))


def get_local_rank_size(group: str = WORLD) -> int:
    """Return the number of a group's ranks on this machine."""
    need_communication("get_local_rank_size")
    return min(state.local_size(), len(collectives.list_members(group)))


def get_rank_id(group: str = WORLD) -> int:
    """Return this process's rank within a group."""
    need_communication("get_rank_id")
    return find_index(group, state.rank())


def get_local_rank_id(group: str = WORLD) -> int:
    """Return this process's rank on its machine; for other groups than the world, its rank in the group."""
    need_communication("get_local_rank_id")
    return state.local_rank() if group == WORLD else find_index(group, state.rank())


def get_world_rank_from_group_rank(group: str, group_rank_id: int) -> int:
    need_communication("get_world_rank_from_group_rank")
    ranks = collectives.list_members(group)
    if not 0 <= group_rank_id < len(ranks):
        raise ValueError(f"group {group!r} has ranks 0 to {len(ranks) - 1}, not {group_rank_id}")
    return ranks[group_rank_id]


def get_group_rank_from_world_rank(world_rank_id: int, group: str) -> int:
    need_communication("get_group_rank_from_world_rank")
    return find_index(group, world_rank_id)


def find_index(group: str, rank: int) -> int:
    """Return a rank's position in a group; raise ValueError if it is not a member."""
    ranks = collectives.list_members(group)
    if rank not in ranks:
        raise ValueError(f"rank {rank} is not in group {group!r}, which holds {ranks}")
    return ranks.index(rank)


def need_communication(name: str) -> None:
    """Report a call of the function `name` before communication is initialised."""
    if not state.has_communication():
        limits.report_violation("rank-before-init", function=name)
