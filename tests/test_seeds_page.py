"""docs/seeds.md names commands, files and tests: the commands must parse, the files and tests must exist."""

from __future__ import annotations

import ast
import re
import shlex
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from viaduct import cli
from viaduct.migration.catalogue import find_rules
from viaduct.recipes import load
from viaduct.recipes._fields import override
from viaduct.verbs import train

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "seeds.md"
STATES = ("works", "partly", "not here")


@dataclass(frozen=True)
class Row:
    """One line of a table: an item of a document, what fulfils it, and the state."""

    line: int
    item: str
    answer: str
    state: str

    def __str__(self) -> str:
        return f"line {self.line}, {self.item!r}"


def read_rows(text: str) -> list[Row]:
    """Return the rows of all tables, without headings."""
    rows = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.startswith("| ") or line.startswith(("| item |", "| --- |")):
            continue
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        assert len(cells) == 3, f"line {number} has {len(cells)} cells"
        rows.append(Row(number, *cells))
    return rows


def list_quoted(text: str) -> list[str]:
    """Return what stands in backticks."""
    return [span.replace("\\|", "|") for span in re.findall(r"`([^`]+)`", text)]


@cache
def load_verb(name: str) -> Any:
    return cli.load_verb(name)


def parse_command(command: str) -> None:
    """Parse a command line as viaduct does, without executing it; an unknown name or value is an exception."""
    verb, *words = shlex.split(command)[1:]
    assert verb in cli.VERBS, f"no verb called {verb!r}"
    parsed = load_verb(verb)
    while inner := getattr(parsed, "commands", None):
        words = parsed.prepend_subcommand(words) if hasattr(parsed, "prepend_subcommand") else words
        parsed, words = inner[words[0]], words[1:]
    context = parsed.make_context(verb, words)
    if verb == "train":
        with patch.object(train, "train_or_launch"), context:  # resolves recipe, fields and ranks, and would train then
            context.invoke(parsed.callback, **context.params)
    check_values(verb, context.params)


def check_values(verb: str, given: dict[str, Any]) -> None:
    """Check recipes, fields of recipes, rules, and the command that `launch` starts."""
    if verb == "launch" and given.get("command"):
        if given["command"][0] in cli.VERBS:
            parse_command(shlex.join(["viaduct", *given["command"]]))
    elif verb != "train" and (recipe := given.get("recipe")):
        changed = load(recipe).recipe
        for setting in given.get("settings") or []:
            changed = override(changed, *setting.split("=", 1))
    for rule in [given.get("explain"), *(given.get("only") or [])] if verb == "migrate" else []:
        assert not rule or find_rules(rule)


@cache
def all_flags() -> set[str]:
    """Return the flags of every command."""

    def walk(command: Any) -> Iterator[str]:
        for inner in getattr(command, "commands", {}).values():
            yield from walk(inner)
        for parameter in command.params:
            yield from (*parameter.opts, *parameter.secondary_opts)

    return {flag for verb in cli.VERBS for flag in walk(load_verb(verb))}


@cache
def defined_names(path: Path) -> set[str]:
    kinds = (ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef)
    return {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, kinds)}


def check_claim(claim: str) -> str:
    """Check one quoted text of an answer or a reason; return its kind, or '' for mere words."""
    if claim.startswith("viaduct "):
        parse_command(claim)
        return "command"
    if claim.startswith("--"):
        flag = claim.split()[0].split("=")[0]
        assert flag in all_flags(), f"no command has {flag}"
        return ""
    if "/" not in claim:
        return ""
    name, _, function = claim.partition("::")
    path = ROOT / name
    assert path.exists(), f"{name} does not exist"
    assert not function or function in defined_names(path), f"{name} has no {function}"
    return "file"


def find_mistakes(rows: list[Row]) -> list[str]:
    """Return what is wrong with the claims of these rows, a line each."""
    mistakes = []
    for row in rows:
        kinds = set()
        for claim in list_quoted(f"{row.answer} {row.state}"):
            try:
                kinds.add(check_claim(claim))
            except Exception as error:
                mistakes.append(f"{row}: `{claim}`: {type(error).__name__}: {error}")
        state, _, reason = row.state.partition(":")
        if state not in STATES:
            mistakes.append(f"{row}: the state is {row.state!r}")
        elif state == "works" and (reason or not kinds & {"command", "file"}):
            mistakes.append(f"{row}: `works` needs a command, file or test, and no reason")
        elif state != "works" and len(reason.split()) < 3:
            mistakes.append(f"{row}: what is missing, and why?")
    return mistakes


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return read_rows(PAGE.read_text())


def test_every_claim_of_the_page_holds(rows: list[Row], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert "\n".join(find_mistakes(rows)) == ""


def test_the_counts_at_its_head_are_those_of_its_rows(rows: list[Row]) -> None:
    head = PAGE.read_text().split("\n## ")[0]
    counts = Counter(row.state.partition(":")[0] for row in rows)
    numbers = re.search(r"(\d+) items: (\d+) work, (\d+) partly, (\d+) not here", " ".join(head.split()))
    assert numbers is not None
    assert list(map(int, numbers.groups())) == [len(rows), *(counts[state] for state in STATES)]


def test_no_item_stands_twice_under_a_heading() -> None:
    for section in PAGE.read_text().split("\n## ")[1:]:
        items = [row.item for row in read_rows(section)]
        assert [item for item, count in Counter(items).items() if count > 1] == []


@pytest.mark.parametrize(
    ("answer", "state", "mistake"),
    [
        ("`viaduct train resnet50_imagenet --quickly`", "works", "No such option: --quickly"),
        ("`viaduct train resnet5O_imagenet`", "works", "no recipe called 'resnet5O_imagenet'"),
        ("`viaduct train resnet50_imagenet --set optimizer.rate=1`", "works", "no field called 'optimizer.rate'"),
        ("`viaduct evaluate a.pth --recipe resnet50_imagnet`", "works", "no recipe called"),
        ("`viaduct launch --ranks 2 -- train resnet50_imagenet --fast`", "works", "No such option: --fast"),
        ("`viaduct migrate --explain tf1.dropuot`", "works", "no rule called 'tf1.dropuot'"),
        ("`viaduct weights list a`", "works", "KeyError: 'list'"),
        ("`viaduct compare left`", "works", "Missing parameter: right"),
        ("`viaduct convert a`", "works", "no verb called 'convert'"),
        ("`--fine-tune`", "works", "no command has --fine-tune"),
        ("`docs/seedlings.md`", "works", "docs/seedlings.md does not exist"),
        ("`tests/test_seeds_page.py::test_nothing`", "works", "tests/test_seeds_page.py has no test_nothing"),
        ("as everybody knows", "works", "`works` needs a command, file or test"),
        ("`docs/seeds.md`", "works: mostly", "`works` needs a command, file or test"),
        ("`docs/seeds.md`", "done", "the state is 'done'"),
        ("`docs/seeds.md`", "partly:", "what is missing"),
        ("nothing", "not here", "what is missing"),
    ],
)
def test_a_claim_that_does_not_hold_is_found(answer: str, state: str, mistake: str) -> None:
    [found, *_] = find_mistakes(read_rows(f"| something | {answer} | {state} |"))
    assert mistake in found
