"""Ranks and groups, and the checks that HCCL makes of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from viaduct.rehearsal.limits import CardRefuses
from viaduct.rehearsal.tf1_stage import collectives, state
from viaduct.rehearsal.tf1_stage.site.hccl.manage import api


@pytest.fixture(autouse=True)
def rank_2_of_4(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name, value in (("RANK_ID", "2"), ("RANK_SIZE", "4"), ("LOCAL_RANK", "0"), ("LOCAL_WORLD_SIZE", "2")):
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("VIADUCT_LIMITS", "error")
    monkeypatch.setattr(collectives, "groups", {})
    state.set_communication(True)
    yield
    state.set_communication(False)


def test_before_communication_has_started_nothing_is_answered() -> None:
    state.set_communication(False)
    for call in (api.get_rank_size, api.get_rank_id, api.get_local_rank_id, api.get_local_rank_size):
        with pytest.raises(CardRefuses):
            call()


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("pair", 3, [0, 2]), "rank_num is 3"),
        (("pair", 2, [2, 2]), "rank_num is 2"),
        (("pair", 2, [2, 4]), "not all within 0 to 3"),
        ((api.WORLD, 2, [0, 2]), "always there"),
    ],
)
def test_groups_that_hccl_refuses_are_not_made(arguments: tuple[str, int, list[int]], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        api.create_group(*arguments)
    assert collectives.groups == {}


def test_ranks_are_translated_between_a_group_and_the_world() -> None:
    api.create_group("pair", 2, [3, 2])
    assert (api.get_rank_size(), api.get_rank_id(), api.get_local_rank_id(), api.get_local_rank_size()) == (4, 2, 0, 2)
    assert (api.get_rank_size("pair"), api.get_rank_id("pair"), api.get_local_rank_size("pair")) == (2, 0, 2)
    assert api.get_world_rank_from_group_rank("pair", 1) == 3
    assert api.get_group_rank_from_world_rank(3, "pair") == 1
    with pytest.raises(ValueError, match="rank 1 is not in group"):
        api.get_group_rank_from_world_rank(1, "pair")
    with pytest.raises(ValueError, match="ranks 0 to 1"):
        api.get_world_rank_from_group_rank("pair", 2)


def test_a_group_that_is_destroyed_is_gone_and_the_world_cannot_be() -> None:
    api.create_group("pair", 2, [2, 3])
    api.destroy_group("pair")
    with pytest.raises(ValueError, match="no group 'pair'"):
        api.get_rank_size("pair")
    with pytest.raises(ValueError, match="cannot be destroyed"):
        api.destroy_group(api.WORLD)
