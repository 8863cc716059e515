"""Checks of one migration rule: its edits, its findings, and the text that it leaves alone.

A result always parses, its comments survive, and a second run changes nothing.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from textwrap import dedent
from typing import Any

from viaduct.migration.engine import migrate_bytes
from viaduct.migration.options import Options
from viaduct.migration.project import survey
from viaduct.migration.results import FileResult


def migrate_source(
    source: str, rule: str = "", path: str = "script.py", others: dict[str, str] | None = None, **options: Any
) -> FileResult:
    """Migrate one file of a project by one rule, or by all."""
    asked = Options(only=(rule,) if rule else (), **options)
    files = {path: source} | (others or {})
    project = survey((name, text.encode()) for name, text in files.items())
    result = migrate_bytes(path, source.encode(), asked, project)
    after = result.after.decode()
    ast.parse(after)
    assert comments(source) <= comments(after), f"comments lost: {comments(source) - comments(after)}"
    once_more = {**files, path: after}
    project = survey((name, text.encode()) for name, text in once_more.items())
    again = migrate_bytes(path, result.after, asked, project)
    assert again.after == result.after, "a second run changes the text again"
    return result


def migrate_text(source: str, rule: str = "", **options: Any) -> str:
    """Return the text of one file after its migration by one rule, or by all."""
    return migrate_source(dedent(source), rule, **options).after.decode()


def check_rewrite(rule: str, before: str, after: str, **options: Any) -> FileResult:
    result = migrate_source(dedent(before), rule, **options)
    assert result.after.decode() == dedent(after), result.after.decode()
    assert any(finding.status == "changed" for finding in result.findings), "a change without a finding"
    return result


def check_noop(rule: str, source: str, **options: Any) -> FileResult:
    """Check that nothing is changed or reported."""
    result = migrate_source(dedent(source), rule, **options)
    assert result.after.decode() == dedent(source), result.after.decode()
    assert not result.findings, result.findings
    return result


def check_says(rule: str, source: str, status: str, word: str, **options: Any) -> FileResult:
    """Check that nothing is changed, and that one finding of this status contains the word."""
    result = migrate_source(dedent(source), rule, **options)
    assert result.after.decode() == dedent(source), result.after.decode()
    output = [(finding.status, finding.message) for finding in result.findings]
    assert any(found == status and word in message for found, message in output), output
    return result


def list_findings(text: str, rule: str, **options: Any) -> list[tuple[int, str]]:
    """Return (line, status) of the findings of one rule for PyTorch."""
    findings = migrate_source(text, rule, **options).findings
    return [(finding.line, finding.status) for finding in findings if finding.rule == f"torch.{rule}"]


def comments(text: str) -> set[str]:
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return {token.string for token in tokens if token.type == tokenize.COMMENT}


def examples(doc: str) -> list[tuple[dict[str, Any], str, str]]:
    """Return the indented diffs of a docstring as (options, text before, text after).

    The options of a diff are the flags that the paragraph before it begins with: "With `--to any`".
    """
    blocks: list[tuple[dict[str, Any], list[str]]] = []
    paragraph: list[str] = []
    inside = ended = False
    for line in doc.splitlines():
        if line.startswith("    ") and line[4:5] in (" ", "+", "-"):
            if not inside:
                blocks.append((options_of("\n".join(paragraph)), []))
            inside = ended = True
            blocks[-1][1].append(line[4:])
        elif not line.strip():
            ended = True
            if inside:
                blocks[-1][1].append(" ")
        else:
            paragraph = [line] if ended else [*paragraph, line]
            inside = ended = False
    return [(options, *sides_of(lines)) for options, lines in blocks]


def options_of(paragraph: str) -> dict[str, Any]:
    """Return the options that a paragraph begins with: {"loop": 100, "distributed": True}."""
    flags = re.match(r"With `([^`]+)`", paragraph)
    options: dict[str, Any] = {}
    for flag, value in re.findall(r"--([\w-]+)(?: ([^-\s]\S*))?", flags[1] if flags else ""):
        options[flag.replace("-", "_")] = (int(value) if value.isdigit() else value) if value else True
    return options


def sides_of(lines: list[str]) -> tuple[str, str]:
    while lines and not lines[-1].strip():
        lines.pop()
    before = "\n".join(line[1:] for line in lines if line[0] in " -") + "\n"
    after = "\n".join(line[1:] for line in lines if line[0] in " +") + "\n"
    return before, after


def first_example(doc: str) -> tuple[str, str]:
    """Return the first indented diff of a docstring as the text before and the text after; empty if there is none."""
    found = examples(doc)
    return found[0][1:] if found else ("", "")
