"""Text that can lie gets executed."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from command import viaduct
from viaduct import cli
from viaduct.errors import BadData
from viaduct.recipes import as_page, load, names
from viaduct.reporting.results import read_results, render

ROOT = Path(__file__).parents[1]
WITH_VERBS_OF_THEIR_OWN = ("data", "weights", "ranktable", "profile", "runs")
README = (ROOT / "README.md").read_text()


def test_every_figure_in_the_results_has_its_file() -> None:
    results = read_results(ROOT / "docs" / "results")
    page = (ROOT / "docs" / "results.md").read_text()
    assert page == render(results), "docs/results.md is not what the JSON files say: run `make results`"
    assert set(re.findall(r"\(results/([^)]+\.json)\)", page)) == set(results)


@pytest.mark.parametrize("lost", ["command", "commit", "machine", "date", "samples"])
def test_a_figure_without_its_proof_is_refused(lost: str, tmp_path: Path) -> None:
    proof = dict.fromkeys(("kind", "command", "commit", "machine", "date", "samples"), "there")
    (tmp_path / "x.json").write_text(json.dumps({**proof, lost: None}))
    with pytest.raises(BadData, match=f"has no {lost}"):
        read_results(tmp_path)


def test_every_command_in_the_readme_is_understood() -> None:
    commands = re.findall(r"^    (viaduct .*?)(?:\s+#.*)?$", README, re.MULTILINE)
    assert len(commands) >= 8
    for command in commands:
        verb, *words = shlex.split(command)[1:]
        assert verb in cli.VERBS
        words = words[: words.index("--")] if "--" in words else words  # what launch starts is somebody else's
        called = [verb, *words[: verb in WITH_VERBS_OF_THEIR_OWN]]
        help_text = viaduct(*called, "--help")
        for word in words:
            if word.startswith("--"):
                assert word in help_text.stdout, f"{word} of `{command}`"
        if verb == "train" and words and not words[0].startswith("-"):
            load(str(ROOT / words[0]) if words[0].endswith(".py") else words[0])


def test_the_readme_names_every_verb() -> None:
    for name in cli.VERBS:
        assert f"| `{name}` |" in README, name


def test_the_page_of_installing_gives_a_reason_for_every_dependency() -> None:
    project = (ROOT / "pyproject.toml").read_text()
    page = (ROOT / "docs" / "install.md").read_text()
    for layer, table in (("core", "dependencies = ["), ("train", "train = [")):
        for name in re.findall(r'"([a-z0-9_-]+)[><=~]', project.split(table)[1].split("]")[0]):
            assert f"| {name} | {layer} |" in page, name


def test_the_index_of_the_documentation_names_every_page_once() -> None:
    linked = re.findall(r"^- \[([^]]+)\]\(([^)]+)\): .+\.$", (ROOT / "docs" / "README.md").read_text(), re.MULTILINE)
    pages = {path.name for path in (ROOT / "docs").glob("*.md")} - {"README.md"}
    assert all(title == target for title, target in linked)
    assert sorted(target for _, target in linked) == sorted(pages)


def test_the_page_of_installing_names_every_extra_and_what_it_brings() -> None:
    page = (ROOT / "docs" / "install.md").read_text()
    extras = (ROOT / "pyproject.toml").read_text().split("[project.optional-dependencies]")[1].split("\n[")[0]
    for extra in re.findall(r"^(\w+) = ", extras, re.MULTILINE):
        assert f"| `pip install '.[{extra}]'` |" in page, extra


def test_the_page_of_recipes_is_made_from_their_docstrings() -> None:
    page = (ROOT / "docs" / "recipes.md").read_text()
    assert page == as_page(), "run `make results`"
    assert all(f"## {name}\n" in page for name in names())
