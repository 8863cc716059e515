"""The order in which fields of a recipe are compared."""

from __future__ import annotations

import pytest

from viaduct.runs.importance import is_bookkeeping, rank_importance


@pytest.mark.parametrize("field", ["seed", "data.classes", "optimizer.lr", "a_new_field", "loss", "data.something_new"])
def test_what_may_change_the_weights_is_no_bookkeeping(field: str) -> None:
    assert not is_bookkeeping(field)


@pytest.mark.parametrize("field", ["log", "log.every_steps", "data.workers", "checkpoint.keep", "expects.percent"])
def test_bookkeeping_comes_last(field: str) -> None:
    assert is_bookkeeping(field)
    assert rank_importance(field) > rank_importance("a_new_field")


def test_the_network_comes_before_its_optimizer_and_a_name_before_its_pattern() -> None:
    fields = ["anything", "data.pad", "seed", "optimizer.momentum", "optimizer.lr", "data.size", "model"]
    assert sorted(fields, key=rank_importance) == [
        *("model", "data.size", "optimizer.lr", "optimizer.momentum", "seed", "data.pad", "anything")
    ]
