"""The commands for the machine with the card."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from carrying.sample_carries import make_request, make_sides
from viaduct.carrying.commands import list_commands


def commands(folder: Path, entry: str = "train.py", framework: Any = "torch", **options: Any) -> dict[str, str]:
    return dict(list_commands(make_request(folder, **options), make_sides(folder, entry=entry), framework))


def add_start_script(folder: Path, name: str) -> None:
    (folder / "migrated" / "npu_scripts").mkdir(parents=True, exist_ok=True)
    (folder / "migrated" / "npu_scripts" / name).write_text("")


def test_a_carry_of_one_rank_has_no_command_for_eight_cards(tmp_path: Path) -> None:
    assert "All cards of a machine" not in commands(tmp_path)


def test_names_and_arguments_with_spaces_are_quoted(tmp_path: Path) -> None:
    folder = tmp_path / "my project"
    folder.mkdir()
    found = commands(folder, "my train.py", arguments=("--data", "a b"))
    assert found["One card"] == "cd migrated && python3 'my train.py' --data 'a b'"
    assert found["Bring it over"] == f"scp -r '{folder}/migrated' USER@MACHINE:"
    dump = found["If its numbers are off: dump the original's, on this machine"]
    assert dump == f"viaduct dump '{folder}/my train.py' --steps 0 --out golden -- --data 'a b'"


def test_the_name_of_the_migrated_folder_is_quoted(tmp_path: Path) -> None:
    sides = replace(make_sides(tmp_path), migrated_root=tmp_path / "my copy")
    found = dict(list_commands(make_request(tmp_path, ranks=2), sides, "torch"))
    assert found["One card"] == "cd 'my copy' && python3 train.py"
    assert found["All cards of a machine"] == "cd 'my copy' && torchrun --nproc_per_node=8 train.py"


def test_a_generated_start_script_is_used(tmp_path: Path) -> None:
    assert commands(tmp_path)["One card"] == "cd migrated && python3 train.py"
    add_start_script(tmp_path, "run_1p.sh")
    add_start_script(tmp_path, "run_8p.sh")
    found = commands(tmp_path, ranks=2, arguments=("--lr", "1"))
    assert found["One card"] == "cd migrated && bash npu_scripts/run_1p.sh --lr 1"
    assert found["All cards of a machine"] == "cd migrated && bash npu_scripts/run_8p.sh --lr 1"


def test_eight_cards_are_started_as_the_framework_wants_it(tmp_path: Path) -> None:
    torch, tf1 = (
        commands(tmp_path, framework=framework, ranks=2)["All cards of a machine"] for framework in ("torch", "tf1")
    )
    assert torch == "cd migrated && torchrun --nproc_per_node=8 train.py"
    assert tf1 == "cd migrated && viaduct launch --ranks 8 -- python3 train.py"


def test_a_module_is_started_by_its_name(tmp_path: Path) -> None:
    found = commands(tmp_path, module="digits.train", ranks=2)
    assert found["One card"] == "cd migrated && python3 -m digits.train"
    assert "-m digits.train" in found["All cards of a machine"]
    assert "viaduct dump -m digits.train" in found["dump the card's, on its machine"]


def test_a_notebook_is_executed_and_not_dumped(tmp_path: Path) -> None:
    found = commands(tmp_path, "train.ipynb")
    assert found["One card"] == "cd migrated && jupyter nbconvert --to notebook --execute train.ipynb"
    assert not any("viaduct dump" in command for command in found.values())


def test_a_tensorflow_script_is_dumped_by_a_migration_of_its_own(tmp_path: Path) -> None:
    command = commands(tmp_path, framework="tf1")["dump the card's, on its machine"]
    assert command.startswith(f"viaduct migrate {tmp_path} --to npu --dump card")
