"""Text that can lie gets executed."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from forked_viaduct import viaduct
from viaduct import cli
from viaduct.errors import BadData
from viaduct.recipes import load, names, render_page
from viaduct.reporting.results import read_results, render

ROOT = Path(__file__).parents[1]
WITH_VERBS_OF_THEIR_OWN = ("data", "weights", "ranktable", "profile", "runs")
README = (ROOT / "README.md").read_text()
README_ZH = (ROOT / "README.zh.md").read_text()


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


def find_commands(page: str) -> list[str]:
    """Return the commands of a page: lines after a `$`, and lines of `pip` and `make` without their comments."""
    return re.findall(r"^    (\$ viaduct .*|(?:pip|make) .*?)(?:\s+#.*)?$", page, re.MULTILINE)


def find_output(page: str) -> list[str]:
    """Return the lines of output that a page shows under its commands."""
    blocks = re.findall(r"(?:^    .*\n)+", page, re.MULTILINE)
    shown = [line for block in blocks if block.startswith("    $") for line in block.splitlines()]
    return [line for line in shown if not line.startswith("    $")]


def test_every_command_in_the_readme_is_understood() -> None:
    commands = [command for command in find_commands(README) if command.startswith("$")]
    assert len(commands) >= 8
    for command in commands:
        verb, *arguments = shlex.split(command)[2:]
        assert verb in cli.VERBS
        arguments = arguments[: arguments.index("--")] if "--" in arguments else arguments  # the script's own
        called = [verb, *arguments[: verb in WITH_VERBS_OF_THEIR_OWN]]
        help_text = viaduct(*called, "--help")
        for argument in arguments:
            if argument.startswith("--"):
                assert argument in help_text.stdout, f"{argument} of `{command}`"
            if argument.startswith("examples/"):
                assert (ROOT / argument).is_file(), command
        if verb == "train":
            load(arguments[0])


def find_blocks(page: str) -> list[list[str]]:
    """Return the blocks of a page that show commands with their output, as lines without the indentation."""
    blocks = [block.replace("    ", "", 1) for block in re.findall(r"(?:^    .*\n)+", page, re.MULTILINE)]
    return [re.split(r"\n {4}|\n", block.rstrip()) for block in blocks if block.startswith("$")]


def normalise_line(line: str) -> str:
    """Replace numbers, which differ from run to run, and runs of spaces."""
    return " ".join(re.sub(r"\d[\d.,:-]*", "#", line).split())


@pytest.mark.parametrize(
    "block",
    [
        pytest.param(
            block,
            marks=pytest.mark.slow if any("--epochs" in line for line in block) else pytest.mark.process,
            id=block[0].split()[2],
        )
        for block in find_blocks(README)
    ],
)
def test_the_commands_of_the_readme_print_what_it_shows(block: list[str], tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    printed: set[str] = set()
    for line in block:
        if line.startswith("$ viaduct "):
            result = viaduct(*shlex.split(line)[2:], cwd=tmp_path)
            assert result.returncode in (0, 1), result.stderr
            printed = {normalise_line(text) for text in (result.stdout + result.stderr).splitlines()}
        else:
            assert normalise_line(line) in printed, f"`{line}` in README.md"


def test_the_chinese_readme_shows_the_same_commands_and_output() -> None:
    assert find_commands(README_ZH) == find_commands(README)
    assert find_output(README_ZH) == find_output(README)


def test_the_chinese_readme_has_the_same_verbs_links_and_figures() -> None:
    def read_verbs(page: str) -> list[str]:
        return [
            verb for row in re.findall(r"^\| (`.*?`) \|", page, re.MULTILINE) for verb in re.findall(r"`(\w+)`", row)
        ]

    def read_links(page: str) -> set[str]:
        return set(re.findall(r"\]\(([^)]+)\)", page)) - {"README.md", "README.zh.md"}

    assert read_verbs(README_ZH) == read_verbs(README)
    assert read_links(README_ZH) == read_links(README)
    assert sorted(re.findall(r"[\d.]+ ms", README_ZH)) == sorted(re.findall(r"[\d.]+ ms", README))


def test_the_readme_lists_the_verbs_in_the_order_of_the_help() -> None:
    rows = "".join(re.findall(r"^\| (`.*?`) \|", README, re.MULTILINE))
    assert re.findall(r"`(\w+)`", rows) == list(cli.VERBS)


def test_the_readme_fits_a_hundred_lines() -> None:
    assert len(README.splitlines()) <= 100


@pytest.mark.parametrize(
    "page", ["README.md", "README.zh.md", "CONTRIBUTING.md", "docs/architecture.md", "docs/README.md"]
)
def test_every_file_that_a_page_names_exists(page: str) -> None:
    text = (ROOT / page).read_text()
    links = [(ROOT / page).parent / link for link in re.findall(r"\]\((?!http)([^)#]+)", text)]
    named = [
        name
        for name in re.findall(r"(?<![\w/])[\w/]+/\w+\.(?:py|json)\b", text)
        if not re.search(r"NAME|\ba/|^ported/", name)
    ]
    for path in links:
        assert path.exists(), path
    for name in named:
        assert (ROOT / name).exists() or (ROOT / "src/viaduct" / name).exists(), name


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
    assert page == render_page(), "run `make results`"
    assert all(f"## {name}\n" in page for name in names())
