"""Flags that are made from the fields of a dataclass."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer
from typer.testing import CliRunner

from viaduct.flags import Flag
from viaduct.verbs._grouped_help import GroupedCommand
from viaduct.verbs._option_flags import Fields, build_parameters, with_option_flags


@dataclass(frozen=True)
class Options:
    """Options of a verb that exists only here."""

    out: Annotated[Path | None, Flag("Folder.", metavar="DIR")] = None
    mode: Annotated[Literal["slow", "fast"], Flag("Speed.", "Speed")] = "fast"
    dry_run: Annotated[bool, Flag("Write nothing.")] = False
    only: Annotated[tuple[str, ...], Flag("Names.")] = ()
    jobs: Annotated[int, Flag("Processes.", default="the cores", minimum=0)] = 0
    hidden: int = 3


received: list[object] = []


@with_option_flags
def everything(source: str, *, options: Options) -> None:
    received.append((source, options))


@with_option_flags
def two_fields(*, options: Annotated[Options, Fields("out", "jobs")]) -> None:
    received.append(options)


def call(verb: object, *arguments: str) -> str:
    received.clear()
    app = typer.Typer(rich_markup_mode=None)
    app.command(cls=GroupedCommand)(verb)  # type: ignore[type-var]
    result = CliRunner().invoke(app, [*arguments])
    return result.output


def test_without_flags_the_fields_have_their_defaults() -> None:
    call(everything, "a")
    assert received == [("a", Options())]


def test_each_flag_sets_its_field() -> None:
    arguments = ["--out", "x", "--mode", "slow", "--dry-run", "--only", "p", "--only", "q", "--jobs", "2"]
    call(everything, "a", *arguments)
    assert received == [("a", Options(Path("x"), "slow", True, ("p", "q"), 2))]


def test_a_field_without_a_flag_cannot_be_given() -> None:
    assert "No such option" in call(everything, "a", "--hidden", "4")
    assert not received


def test_a_verb_may_have_only_some_of_the_flags() -> None:
    call(two_fields, "--jobs", "1")
    assert received == [Options(jobs=1)]
    assert "No such option" in call(two_fields, "--dry-run")


def test_the_help_shows_headings_placeholders_and_defaults() -> None:
    text = call(everything, "--help")
    assert "--out DIR" in text
    assert "--jobs N" in text
    assert "the cores" in text
    assert text.index("\nSpeed:\n") < text.index("--mode")
    assert "--no-dry-run" not in text


def test_a_prefix_and_a_heading_are_given_to_all_flags() -> None:
    (parameter,) = build_parameters(Options, ("mode",), "run_", "Elsewhere")
    assert parameter.name == "run_mode"
    assert parameter.default == "fast"
    assert parameter.annotation.__metadata__[0].rich_help_panel == "Elsewhere"
