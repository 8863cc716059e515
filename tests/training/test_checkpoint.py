"""Checkpoints are whole or not there at all, and loading one runs no code of anybody's."""

from __future__ import annotations

import errno
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from training.tiny_runs import build_normed_network, build_plain_network
from viaduct.errors import BadRun, DiskFull
from viaduct.training import checkpoint
from viaduct.training.checkpoint import (
    SavedCheckpoint,
    Snapshot,
    discard,
    find_newest_intact,
    list_checkpoints,
    load_model,
    prune,
    remove_leftovers,
    save,
)


def network() -> nn.Module:
    torch.manual_seed(1)
    return build_normed_network(4)


def saved_at(folder: Path, *steps: int) -> list[SavedCheckpoint]:
    states = [{"step": step, "random": torch.arange(9)} for step in steps]
    return [save(folder, state["step"], Snapshot(network().state_dict(), state), {"note": "x"}) for state in states]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_nothing_but_the_checkpoint_is_left_after_saving(tmp_path: Path) -> None:
    [saved] = saved_at(tmp_path, 7)
    assert names(tmp_path) == ["step-7"]
    assert names(saved.path) == ["manifest.json", "model.safetensors", "state.pt"]


def test_what_was_saved_is_whole_and_comes_back(tmp_path: Path) -> None:
    [saved] = saved_at(tmp_path, 7)
    assert saved.find_damage() is None
    assert (saved.step, saved.read_manifest()["step"], saved.read_manifest()["note"]) == (7, 7, "x")
    assert saved.read_state()["step"] == 7
    assert torch.equal(saved.read_state()["random"], torch.arange(9))
    other = build_normed_network(4)
    load_model(other, saved.read_model(), saved.path)
    assert all(torch.equal(tensor, other.state_dict()[name]) for name, tensor in network().state_dict().items())


def test_the_same_state_gives_the_same_bytes(tmp_path: Path) -> None:
    [path] = saved_at(tmp_path / "a", 7)
    [other] = saved_at(tmp_path / "b", 7)
    for name in names(path.path):
        assert (path.path / name).read_bytes() == (other.path / name).read_bytes()


def test_saving_a_step_again_replaces_it(tmp_path: Path) -> None:
    [saved] = saved_at(tmp_path, 7)
    (saved.path / "state.pt").write_bytes(b"damaged")
    saved_at(tmp_path, 7)
    assert saved.find_damage() is None
    assert names(tmp_path) == ["step-7"]


def flip_a_byte(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


DAMAGES: dict[str, tuple[Any, str]] = {
    "a missing model": (lambda folder: (folder / "model.safetensors").unlink(), r"model.safetensors is missing"),
    "a missing state": (lambda folder: (folder / "state.pt").unlink(), r"state.pt is missing"),
    "a short file": (lambda folder: os.truncate(folder / "state.pt", 100), r"state.pt has 100 bytes, expected [\d,]+"),
    "an empty file": (lambda folder: (folder / "state.pt").write_bytes(b""), r"state.pt has 0 bytes, expected"),
    "a flipped bit": (lambda folder: flip_a_byte(folder / "model.safetensors"), r"model.safetensors .*\(checksum\)"),
    "a flipped bit of the state": (lambda folder: flip_a_byte(folder / "state.pt"), r"state.pt .*\(checksum\)"),
    "no manifest": (
        lambda folder: (folder / "manifest.json").unlink(),
        r"manifest.json cannot be read",
    ),
    "half a manifest": (lambda folder: os.truncate(folder / "manifest.json", 50), r"manifest.json is damaged: Unt"),
    "a manifest of zeros": (lambda folder: (folder / "manifest.json").write_bytes(b"\0" * 90), r"manifest.json"),
    "another kind of manifest": (lambda folder: (folder / "manifest.json").write_text("[]"), r"manifest.json"),
    "a manifest without files": (lambda folder: (folder / "manifest.json").write_text("{}"), r"manifest.json"),
    "a manifest without sizes": (
        lambda folder: (folder / "manifest.json").write_text('{"files": {"state.pt": {}}}'),
        r"manifest.json",
    ),
    "a manifest of nothing": (lambda folder: (folder / "manifest.json").write_text('{"files": {}}'), r"manifest.json"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_found_and_reported(tmp_path: Path, damage: str) -> None:
    harm, message = DAMAGES[damage]
    older, newer = saved_at(tmp_path, 5, 10)
    harm(newer.path)
    with pytest.raises(AssertionError, match=message):
        assert newer.find_damage() is None, newer.find_damage()
    found, damaged = find_newest_intact(tmp_path)
    assert found == older
    assert len(damaged) == 1


def test_a_whole_checkpoint_is_never_skipped(tmp_path: Path) -> None:
    *_, newest = saved_at(tmp_path, 9, 10, 100)
    assert find_newest_intact(tmp_path) == (newest, [])  # by number, not by name


def test_the_newest_whole_one_is_found_behind_two_damaged_ones(tmp_path: Path) -> None:
    good, bad, worse = saved_at(tmp_path, 1, 2, 3)
    flip_a_byte(bad.path / "model.safetensors")
    (worse.path / "manifest.json").unlink()
    found, damaged = find_newest_intact(tmp_path)
    assert found == good
    assert ["step-3" in damaged[0], "step-2" in damaged[1]] == [True, True]


def test_where_nothing_is_whole_nothing_is_found(tmp_path: Path) -> None:
    assert find_newest_intact(tmp_path / "not there") == (None, [])
    [saved] = saved_at(tmp_path, 1)
    (saved.path / "state.pt").unlink()
    assert find_newest_intact(tmp_path)[0] is None


def test_other_files_are_no_checkpoints(tmp_path: Path) -> None:
    saved_at(tmp_path, 4)
    for name in (".step-5.123.tmp", ".step-3.trash", "step-old", "notes"):
        (tmp_path / name).mkdir()
    assert [saved.step for saved in list_checkpoints(tmp_path)] == [4]


def test_pruning_keeps_the_last_few_and_the_best(tmp_path: Path) -> None:
    saved_at(tmp_path, 1, 2, 3, 9, 10, 11)
    prune(tmp_path, keep=2, best=2, newest=11)
    assert names(tmp_path) == ["step-10", "step-11", "step-2"]
    prune(tmp_path, keep=2, best=None, newest=11)
    assert names(tmp_path) == ["step-10", "step-11"]


def test_the_best_among_the_last_does_not_buy_another_one_its_place(tmp_path: Path) -> None:
    saved_at(tmp_path, 1, 2, 3)
    prune(tmp_path, keep=1, best=3, newest=3)
    assert names(tmp_path) == ["step-3"]


def test_a_damaged_one_ahead_of_the_run_never_costs_the_one_just_written(tmp_path: Path) -> None:
    *_, ahead = saved_at(tmp_path, 10, 20, 50)
    flip_a_byte(ahead.path / "state.pt")
    prune(tmp_path, keep=1, best=None, newest=20)
    assert names(tmp_path) == ["step-20", "step-50"]


def test_nothing_is_left_of_what_was_discarded_or_cut_short(tmp_path: Path) -> None:
    kept, gone = saved_at(tmp_path, 1, 2)
    discard(gone)
    assert names(tmp_path) == ["step-1"]
    (tmp_path / ".step-3.99.part").mkdir()
    (tmp_path / ".step-3.99.part" / "state.pt").write_bytes(b"half")
    (tmp_path / ".step-2.7.part" / "deep").mkdir(parents=True)
    (tmp_path / ".step-3.99.tmp").mkdir()  # of early versions
    (tmp_path / ".step-1.trash").mkdir()
    remove_leftovers(tmp_path)
    assert names(tmp_path) == ["step-1"]
    assert kept.find_damage() is None
    remove_leftovers(tmp_path / "not there")


def test_a_checkpoint_of_another_model_changes_nothing_and_is_refused_by_name(tmp_path: Path) -> None:
    [saved] = saved_at(tmp_path, 1)
    other = build_plain_network(4)
    before = {name: tensor.clone() for name, tensor in other.state_dict().items()}
    with pytest.raises(BadRun, match="is a checkpoint of another model") as caught:
        load_model(other, saved.read_model(), saved.path)
    assert "missing there: 0.bias, 4.weight, 4.bias" in str(caught.value)
    assert "not in this model: 1.bias, 1.num_batches_tracked, 1.running_mean, 1.running_var" in str(caught.value)
    assert all(torch.equal(tensor, before[name]) for name, tensor in other.state_dict().items())


def test_another_number_of_classes_is_refused_with_both_shapes(tmp_path: Path) -> None:
    [saved] = saved_at(tmp_path, 1)
    with pytest.raises(BadRun, match=r"of another shape: 5.weight is \(4, 6\), here \(7, 6\), 5.bias is"):
        load_model(build_normed_network(7), saved.read_model(), saved.path)


class Bomb:
    def __init__(self, trigger: Path) -> None:
        self.trigger = trigger

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.trigger),)


@pytest.mark.parametrize("zipped", [True, False], ids=["torch.save", "bare pickle"])
def test_code_in_a_state_file_is_never_run(tmp_path: Path, zipped: bool) -> None:
    [saved] = saved_at(tmp_path, 1)
    trigger = tmp_path / "it ran"
    if zipped:
        torch.save({"step": 1, "random": Bomb(trigger)}, saved.path / "state.pt")
    else:
        (saved.path / "state.pt").write_bytes(pickle.dumps(Bomb(trigger), protocol=2))
    with pytest.raises(BadRun, match=r"state.pt cannot be loaded"):
        saved.read_state()
    assert not trigger.exists()
    torch.load(saved.path / "state.pt", weights_only=False) if zipped else pickle.loads(pickle.dumps(Bomb(trigger)))
    assert trigger.exists()  # the bomb is live: a careless loader would have set it off


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04 not a zip file", b"\x00" * 200])
def test_a_state_or_model_that_is_none_is_refused(tmp_path: Path, data: bytes) -> None:
    [saved] = saved_at(tmp_path, 1)
    for name, read in (("state.pt", saved.read_state), ("model.safetensors", saved.read_model)):
        (saved.path / name).write_bytes(data)
        with pytest.raises(BadRun, match=f"{name} cannot be loaded"):
            read()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("when", [1, 2, 3])
def test_a_full_disk_costs_no_older_checkpoint_and_leaves_no_rubbish(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, when: int
) -> None:
    older = saved_at(tmp_path, 1, 2)
    calls = iter(range(1, 100))

    def no_room(descriptor: int) -> None:
        if next(calls) == when:
            raise OSError(number, os.strerror(number))

    monkeypatch.setattr(checkpoint.os, "fsync", no_room)
    with pytest.raises(DiskFull, match=r"the checkpoint of step 3 does not fit: it needs 0.0 MiB, .* free.") as caught:
        saved_at(tmp_path, 3)
    assert "Older checkpoints are kept (step-1, step-2)" in str(caught.value)
    assert names(tmp_path) == ["step-1", "step-2"]
    assert all(saved.find_damage() is None for saved in older)


def test_a_disk_too_full_for_the_first_folder_is_reported_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_room(self: Path, *arguments: object, **options: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "mkdir", no_room)
    with pytest.raises(DiskFull, match=r"step 3 does not fit(.|\n)*none yet"):
        saved_at(tmp_path / "checkpoints", 3)


def test_a_folder_that_may_not_be_written_is_not_called_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(descriptor: int) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(checkpoint.os, "fsync", forbidden)
    with pytest.raises(BadRun, match=r"cannot write the checkpoint .*step-3: Permission denied"):
        saved_at(tmp_path, 3)
    assert names(tmp_path) == []


LIMITED = """
import resource, signal, sys
from pathlib import Path
from torch import nn
from viaduct.errors import DiskFull
from viaduct.training.checkpoint import Snapshot, list_checkpoints, save

folder = Path(sys.argv[1])
save(folder, 1, Snapshot(nn.Linear(4, 4).state_dict(), {}), {})
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    save(folder, 2, Snapshot(nn.Linear(400, 400).state_dict(), {}), {})
except DiskFull as error:
    print(error)
print([saved.find_damage() for saved in list_checkpoints(folder)], [path.name for path in folder.iterdir()])
"""


def test_a_real_write_that_stops_halfway_leaves_only_whole_checkpoints(tmp_path: Path) -> None:
    command = [sys.executable, "-c", LIMITED, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    message, _, state = done.stdout.strip().splitlines()
    assert message.startswith("the checkpoint of step 2 does not fit: it needs 0.6 MiB")
    assert state == "[None] ['step-1']"


def test_a_file_written_whole_is_the_old_one_or_the_new_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "summary.json"
    checkpoint.replace_contents(path, b"old")

    def no_room(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint.os, "fsync", no_room)
        with pytest.raises(DiskFull, match=r"cannot write .*summary.json: No space left on device"):
            checkpoint.replace_contents(path, b"new")
    assert (path.read_bytes(), names(tmp_path)) == (b"old", ["summary.json"])
    checkpoint.replace_contents(path, b"new")
    assert (path.read_bytes(), names(tmp_path)) == (b"new", ["summary.json"])


def test_the_manifest_says_what_the_user_wants_to_know(tmp_path: Path) -> None:
    [saved] = saved_at(tmp_path, 12)
    manifest = json.loads((saved.path / "manifest.json").read_text())
    assert manifest["step"] == 12
    assert set(manifest["files"]) == {"model.safetensors", "state.pt"}
    assert manifest["files"]["state.pt"]["size"] == (saved.path / "state.pt").stat().st_size
