"""The page about weights is executed: its block of commands as it stands, its flags by their names."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from viaduct import cli
from viaduct.recipes import names

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


def test_the_first_block_runs_as_it_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for command in BLOCKS[0]:
        assert run(command, monkeypatch) == 0, f"{command}\n{capsys.readouterr().err}"
    told = capsys.readouterr().err
    assert "Weights from" in told
    assert "without head.bias, head.weight" in told
    assert "Continuing at step 2, with the optimizer's state of" in told
    assert (tmp_path / "runs" / "third" / "report.html").is_file()


def test_every_flag_on_the_page_exists() -> None:
    commands = [shlex.split(line) for block in BLOCKS for line in block if line.startswith("viaduct ")]
    assert len(commands) > 7
    for _, verb, *words in commands:
        command = cli.load_verb(verb)
        if verb == "weights":
            command = command.commands[words[0]]
        known = {option for parameter in command.params for option in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= known
        if verb == "train":
            assert words[0] in names()


def test_the_flags_that_the_page_explains_exist() -> None:
    known = {option for parameter in cli.load_verb("train").params for option in parameter.opts}
    commands = cli.load_verb("weights").commands.values()
    known |= {option for command in commands for parameter in command.params for option in parameter.opts}
    assert set(re.findall(r"`(--[a-z-]+)", PAGE)) <= known
