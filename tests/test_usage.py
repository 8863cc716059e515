"""Mistakes on the command line, in the words of every other message."""

from __future__ import annotations

import subprocess

import pytest

from forked_viaduct import viaduct

CASES = {
    "an unknown verb": (
        ["trian"],
        "viaduct: no verb called 'trian'.\n  Closest is 'train'; `viaduct --help` shows all",
    ),
    "an unknown inner verb": (["data", "bild"], "viaduct data: no verb called 'bild'.\n  Closest is 'build'; "),
    "an unknown flag": (
        ["weights", "show", "a", "--jsno"],
        "viaduct weights show: no option called '--jsno'.\n  Closest is '--json'; `viaduct weights show --help` shows",
    ),
    "an argument as a flag": (
        ["train", "--recpie", "x"],
        "viaduct train: no option called '--recpie'.\n  The recipe is given without a flag. It is `viaduct train [RE",
    ),
    "a network for a verb without --model": (
        ["tune", "run", "x", "--model", "y"],
        "viaduct tune run: no option called '--model'.\n  The network is a field of the recipe: --set model=",
    ),
    "a network for bench": (
        ["bench", "x", "--model", "y"],
        "viaduct bench: no option called '--model'.\n  The network is a field of the recipe: --set model=",
    ),
    "a missing argument": (
        ["compare", "a"],
        "viaduct compare: RIGHT is missing: Reference (golden): a dump, or a run.\n"
        "  It is `viaduct compare LEFT RIGHT`; ",
    ),
    "a missing flag": (["weights", "import", "a"], "viaduct weights import: --out is missing: The .safetensors file"),
    "too many arguments": (["compare", "a", "b", "c"], "viaduct compare: too many arguments: 'c' is not expected.\n"),
    "no value": (["train", "--epochs"], "viaduct train: --epochs needs a value.\n  Write it as --epochs VALUE.\n"),
    "one value of two": (["data", "build", "--idx", "a"], "viaduct data build: --idx needs 2 values.\n"),
    "a value for a switch": (["train", "--json=3"], "viaduct train: --json takes no value.\n"),
    "no number": (
        ["bench", "x", "--batch", "abc"],
        "viaduct bench: --batch is 'abc'; it must be a whole number.\n",
    ),
    "too small": (["bench", "x", "--batch=0"], "viaduct bench: --batch is '0'; it must be 1 or more.\n"),
    "another choice": (
        ["train", "--resume", "sometimes"],
        "viaduct train: --resume is 'sometimes'; it must be auto, never or must.\n",
    ),
    "a variant that does not exist": (
        ["compare", "a", "b", "--kld", "x"],
        "viaduct compare: --kld is 'x'; it must be book or floored.\n",
    ),
    "no process": (
        ["compare", "a", "b", "--workers", "0"],
        "viaduct compare: --workers is '0'; it must be 1 or more.\n",
    ),
    "an empty path": (["data", "check", ""], "viaduct data check: a path is empty.\n  Perhaps a variable is not set?"),
    "an empty flag": (["train", "x", "--run="], "viaduct train: --run is empty.\n  Perhaps a variable is not set?"),
    "no finite number": (
        ["compare", "a", "b", "--cosine=nan"],
        "viaduct compare: --cosine is nan; it must be a",
    ),
    "an infinite number": (["launch", "--timeout", "inf"], "viaduct launch: --timeout is inf; it must be a finite"),
    "of the command that is launched": (
        ["launch", "--ranks", "2", "--", "train", "--recpie", "x"],
        "viaduct train: no option called '--recpie'.\n",
    ),
}


def answer(words: list[str]) -> subprocess.CompletedProcess[str]:
    return viaduct(*words)


@pytest.mark.parametrize("name", CASES)
def test_a_mistake_is_reported_in_two_lines_without_usage(name: str) -> None:
    words, expected = CASES[name]
    made = answer(words)
    assert made.returncode == 2
    assert made.stderr.startswith(expected)
    assert made.stderr.count("\n") <= 3
    assert "Usage:" not in made.stderr
    assert "Try '" not in made.stderr


def test_no_verb_at_all_shows_the_help() -> None:
    for words in ([], ["data"]):
        made = answer(words)
        assert made.returncode == 2
        assert "Commands:" in made.stderr
        assert "Error" not in made.stderr
