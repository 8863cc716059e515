"""The page about weights is executed: its block of commands as it stands, its flags by their names."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from viaduct import cli
from viaduct.recipes import Recipe, load, names
from viaduct.recipes._classes import match_classes
from viaduct.recipes._fields import override

PAGE = (Path(__file__).parents[2] / "docs" / "weights.md").read_text()
FENCED = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
BLOCKS = [block.strip().splitlines() for language, block in FENCED if not language]


def run(command: str, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr("sys.argv", shlex.split(command))
    try:
        cli.main()
    except SystemExit as end:
        return int(end.code or 0)
    return 0


@pytest.mark.lengthy
def test_the_first_block_of_commands_runs_unchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for command in BLOCKS[0]:
        assert run(command, monkeypatch) == 0, f"{command}\n{capsys.readouterr().err}"
    printed = capsys.readouterr().err
    assert "Weights from" in printed
    assert "without head.bias, head.weight" in printed
    assert "Continuing at step 2, with the optimizer's state of" in printed
    assert (tmp_path / "runs" / "third" / "report.html").is_file()


def test_ten_classes_fit_the_outputs_that_the_page_gives_them(tmp_path: Path) -> None:
    for name in "abcdefghij":
        (tmp_path / name).mkdir()
        for number in range(2):
            (tmp_path / name / f"{number}.jpg").write_bytes(b"\xff\xd8\xff")  # labels are of folders, not of images
    (words,) = (shlex.split(line) for block in BLOCKS[1:] for line in block if "--classes" in line)
    loaded = load(words[2])
    recipe, outputs = loaded.recipe, words[words.index("--classes") + 1]
    asked, note = match_classes(
        replace(loaded, recipe=override(recipe, "data.classes", outputs)), tmp_path, {"data.classes"}
    )
    assert (outputs, asked.recipe.data.classes) == ("10", 10)
    assert "counted from 0" in note
    assert seen_labels(asked.recipe, tmp_path) == set(range(10))
    assert seen_labels(override(recipe, "data.classes", "11"), tmp_path) == set(range(1, 11))
    shifted = override(override(recipe, "data.classes", "10"), "data.label_shift", "-1")
    assert seen_labels(shifted, tmp_path) == set(range(10))
    assert "--classes 10 --set data.label_shift=-1" in PAGE
    for name in ("resnet50_v15_imagenet", "resnet50_thor_imagenet"):
        assert seen_labels(override(load(name).recipe, "data.classes", "10"), tmp_path) == set(range(10))


def seen_labels(recipe: Recipe, folder: Path) -> set[int]:
    images: Any = recipe.data.load(folder)
    return {int(label) for label in images.train.labels}


def test_every_flag_on_the_page_exists() -> None:
    commands = [shlex.split(line) for block in BLOCKS for line in block if line.startswith("viaduct ")]
    assert len(commands) > 7
    for _, verb, *words in commands:
        command = cli.load_verb(verb)
        if verb == "weights":
            command = command.commands[words[0]]
        known = {option for parameter in command.params for option in parameter.opts}
        assert {argument for argument in words if argument.startswith("--")} <= known
        if verb == "train":
            assert words[0] in names()


def test_the_flags_that_the_page_explains_exist() -> None:
    verbs = (cli.load_verb("train"), cli.load_verb("evaluate"))
    known = {
        option for verb in verbs for parameter in verb.params for option in (*parameter.opts, *parameter.secondary_opts)
    }
    commands = cli.load_verb("weights").commands.values()
    known |= {option for command in commands for parameter in command.params for option in parameter.opts}
    assert set(re.findall(r"`(--[a-z-]+)", PAGE)) <= known
