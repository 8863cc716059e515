"""Changed lines that may cause a difference."""

from __future__ import annotations

from pathlib import Path

import pytest

from carrying.sample_carries import diff, make_sides
from viaduct.carrying.causes import Explanation
from viaduct.carrying.suspects import MAX_SUSPECTS, Change, find_suspects, is_harmless, iterate_changes, score_change


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("x = x.cuda()", "x = x.npu()"),
        ("device = 'cuda:0'", "device = 'mlu:0'"),
        ('dist.init_process_group("nccl")', 'dist.init_process_group("hccl")'),
        ("", "import torch_npu"),
    ],
)
def test_a_renamed_device_or_an_added_adapter_is_not_suspected(old: str, new: str) -> None:
    assert is_harmless(Change(1, old, new, ""))


@pytest.mark.parametrize(("old", "new"), [("x = x.cuda()", "x = 2 * x.npu()"), ("", "import torch"), ("lr = 1", "")])
def test_anything_else_is_suspected(old: str, new: str) -> None:
    assert not is_harmless(Change(1, old, new, ""))


def test_a_removed_line_belongs_to_the_one_that_replaces_it_or_to_the_line_before() -> None:
    old = "a = 1\nb = 2\nc = 3\n"
    assert [(c.line, c.old, c.new) for c in iterate_changes(diff(old, "a = 1\nc = 3\n"))] == [(1, "b = 2", "")]
    assert [(c.line, c.old, c.new) for c in iterate_changes(diff(old, "a = 1\nb = 2\n"))] == [(2, "c = 3", "")]
    (change,) = iterate_changes(diff(old, "a = 1\nb = 5\nc = 3\n"))
    assert (change.line, change.old, change.new, change.marked) == (2, "b = 2", "b = 5", "2 5")
    assert not list(iterate_changes(diff(old, old)))


def test_what_is_known_of_the_difference_adds_up() -> None:
    change = Change(10, "opt = SGD(lr=0.1)", "opt = SGD(lr=0.2)", "0.1 0.2")
    assert score_change(change, [], set(), ()) == (15, "a number changed")
    assert score_change(change, [10], set(), ())[0] == 55
    assert score_change(change, [13], set(), ())[0] == 32
    assert score_change(change, [19], set(), ())[0] == 15, "too far away"
    assert score_change(change, [], {10}, ())[0] == 75
    assert score_change(change, [], set(), ("lr", "loss")) == (19, "a number changed; it contains 'lr'")
    assert score_change(change, [], set(), ("0.2",))[0] == 25, "the keyword is in the part that changed"


def test_the_line_that_created_what_differs_comes_first_and_hardly_suspected_ones_are_left_out(tmp_path: Path) -> None:
    filler = "".join(f"pass  # {number}\n" for number in range(20))
    old = f"net = Net(4)\n{filler}loss = loss + x\nopt = SGD(0.1)\n"
    new = f"net = Net(8)\n{filler}loss = loss - x\nopt = SGD(0.2)\n"
    sides = make_sides(tmp_path, old, new)
    script = str(tmp_path / "migrated" / "train.py")
    found = find_suspects(sides, Explanation("", suspected_lines=[(script, 23), ("/elsewhere/train.py", 1)]))
    assert [(suspect.place, suspect.score) for suspect in found] == [
        ("train.py:23", 55),
        ("train.py:22", 19),
        ("train.py:1", 15),
    ]
    assert found[0].old == "opt = SGD(0.1)"
    sides.deviating_lines = {"train.py": {23}}
    assert [suspect.line for suspect in find_suspects(sides, Explanation("", suspected_lines=[(script, 23)]))] == [23]


def test_of_many_suspects_only_the_first_are_returned_and_none_without_a_reason(tmp_path: Path) -> None:
    many = make_sides(tmp_path, *("".join(f"a{n} = {n + add}\n" for n in range(20)) for add in (0, 100)))
    assert len(find_suspects(many, Explanation(""))) == MAX_SUSPECTS
    assert not find_suspects(make_sides(tmp_path, "a = b\n", "a = c\n"), Explanation(""))
