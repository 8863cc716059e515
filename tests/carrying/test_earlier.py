"""`--earlier OUT` counts the edits that another command executed, for the same files and only where they agreed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from carrying.carry_scripts import CarryResult
from carrying.forked_carry import carry_with_forks
from viaduct.carrying.coverage import Edit
from viaduct.carrying.earlier import EarlierCarry, mark_executed_earlier, read_earlier, refuse_changed_files
from viaduct.errors import BadValue

SOURCE = """\
import sys
import torch
from torch import nn
torch.set_num_threads(1)
net = nn.Linear(4, 2).cuda()
if len(sys.argv) > 1:
    x = torch.ones(3, 4).cuda()
else:
    x = torch.zeros(3, 4).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(3):
    loss = (net(x) - 1).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def carry(folder: Path, out: str, *words: str) -> CarryResult:
    return CarryResult(carry_with_forks(folder, "train.py", "--out", out, *words), folder / out)


def test_two_commands_that_reach_all_edits_together_agree_and_a_changed_file_ends_that(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SOURCE)
    first = carry(tmp_path, "first")
    assert first.record["verdict"] == "not proved", first.stdout + first.stderr
    assert "--earlier first" in first.stdout

    second = carry(tmp_path, "second", "--earlier", "first", "--", "ones")
    assert (second.code, second.record["verdict"]) == (0, "agrees"), second.stdout + second.stderr
    assert "Earlier: 1 edit not executed here ran in first, where what ran agrees." in second.stdout
    elsewhere = [edit["text"] for edit in second.record["edits"] if edit.get("executed_in") == "first"]
    assert elsewhere == ["x = torch.zeros(3, 4).npu()"]
    assert "in first" in (second.out / "report.html").read_text()

    (tmp_path / "train.py").write_text(SOURCE.replace("lr=0.1", "lr=0.2"))
    third = carry(tmp_path, "third", "--earlier", "first", "--", "ones")
    assert third.code == 2
    assert "train.py of the original side is not the file that ran there" in third.stderr
    assert not third.out.exists()


def record_of(**changed: object) -> dict[str, object]:
    edit = {"side": "migrated", "file": "train.py", "line": 3, "text": "x.npu()", "executed": 2}
    runs = {side: {"modules": [{"position": "train.py", "sha256": "0"}]} for side in ("original", "migrated")}
    record = {"verdict": "not proved", "not_proved": [{"kind": "never executed"}], "to": "npu", "limits_mode": "error"}
    return {**record, "arguments": [], "edits": [edit, {**edit, "line": 9, "executed": 0}], "runs": runs, **changed}


def write_record(folder: Path, **changed: object) -> Path:
    (folder / "carry.json").write_text(json.dumps(record_of(**changed)))
    return folder


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"verdict": "differs"}, "its verdict is 'differs'"),
        ({"verdict": "could not run"}, "its verdict is 'could not run'"),
        ({"not_proved": [{"kind": "never executed"}, {"kind": "printed"}]}, "its verdict is 'not proved'"),
        ({"to": "mlu"}, "was carried to mlu"),
        ({"limits_mode": "off"}, "was carried with --limits off"),
        ({"edits": None}, "was written by another version of carry"),
        ({"verdict": []}, "was written by another version of carry"),
    ],
)
def test_a_carry_that_proves_nothing_of_its_edits_is_refused(
    changed: dict[str, object], words: str, tmp_path: Path
) -> None:
    with pytest.raises(BadValue, match="--earlier") as refused:
        read_earlier(write_record(tmp_path, **changed), tmp_path / "out", "npu", "error")
    assert words in str(refused.value)


def test_a_folder_that_is_no_carry_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadValue, match="No such file"):
        read_earlier(tmp_path, tmp_path / "out", "npu", "error")
    for text in ("[1]", "[" * 100_000):
        (tmp_path / "carry.json").write_text(text)
        with pytest.raises(BadValue, match="was written by another version"):
            read_earlier(tmp_path, tmp_path / "out", "npu", "error")


def test_the_folder_that_is_written_to_is_no_earlier_one(tmp_path: Path) -> None:
    with pytest.raises(BadValue, match="is also --out"):
        read_earlier(write_record(tmp_path), tmp_path / "x" / "..", "npu", "error")


def test_a_migrated_file_of_other_content_is_refused(tmp_path: Path) -> None:
    earlier = read_earlier(write_record(tmp_path), tmp_path / "out", "npu", "error")
    (tmp_path / "train.py").write_text("x.npu()\n")
    with pytest.raises(BadValue, match=r"train\.py of the original side"):
        refuse_changed_files([earlier], tmp_path, tmp_path)


def test_only_the_same_edit_of_the_same_side_counts() -> None:
    earlier = EarlierCarry("first", [], {("migrated", "train.py", 3, "x.npu()"): [2]}, {})
    edits = [
        Edit("migrated", "train.py", 3, "x.npu()", 0),
        Edit("original", "train.py", 3, "x.npu()", 0),
        Edit("migrated", "train.py", 4, "x.npu()", 0),
        Edit("migrated", "other.py", 3, "x.npu()", 0),
    ]
    assert [edit.is_executed for edit in mark_executed_earlier(edits, [earlier])] == [True, False, False, False]


def test_the_two_arms_of_a_conditional_may_be_executed_by_two_commands() -> None:
    key = ("migrated", "train.py", 3, "a() if b else c()")
    edit = Edit(*key, 0, "", (2, 0))  # type: ignore[arg-type]
    other, same = EarlierCarry("other", [], {key: [0, 1]}, {}), EarlierCarry("same", [], {key: [5, 0]}, {})
    assert [edit.earlier for edit in mark_executed_earlier([edit], [same, other])] == ["other"]
    assert not mark_executed_earlier([edit], [same])[0].is_executed
