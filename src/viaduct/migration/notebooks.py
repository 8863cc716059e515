"""Notebooks: their code cells are joined into one text, so that names resolve across cells, and taken apart again.

Between cells stands a comment that says which follows. A line that only IPython understands (`%matplotlib inline`,
`!pip install x`, `files = !ls`) becomes a `pass` with a mark and is put back afterwards. A cell in another language
(`%%bash`) is not looked at. What cannot be put back together exactly is refused, and the notebook stays as it was.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

FORM = 4
"""The nbformat that is understood; older ones keep their cells elsewhere, or under other names."""
MARK = "# %% cell {number}"
MARKED = re.compile(r"^# %% cell (\d+)$")
HELD = "pass  # ipython-line {number}"
HELD_LINE = re.compile(r"^([ \t]*)pass  # ipython-line (\d+)$")
MAGIC = re.compile(r"^\s*(?:[%!?]|[\w.]+\?\??\s*$|[^#\"'(]*[\w)\]]\s*=\s*[!%]\s*\w)")
PYTHON_CELLS = ("%%time", "%%timeit", "%%capture", "%%prun", "%%memit", "%%mprun")
LAYOUTS: tuple[dict[str, Any], ...] = tuple(
    {"indent": indent, "ensure_ascii": ascii_only, "separators": separators}
    for indent in (1, 2, 4, None, "\t")
    for ascii_only in (False, True)
    for separators in (None, (",", ":"))
)


class NotMigrated(Exception):
    """Why a notebook is left as it is; `zh` says it in Chinese."""

    def __init__(self, reason: str, zh: str) -> None:
        super().__init__(reason)
        self.zh = zh


@dataclass
class Notebook:
    """`text` is what is migrated; `starts` are the lines at which the cells begin, counted from 1."""

    content: dict[str, Any]
    layout: dict[str, Any]
    ending: str
    newline: str = "\n"
    text: str = ""
    cells: list[int] = field(default_factory=list)  # places in content["cells"]
    starts: list[int] = field(default_factory=list)
    held: list[str] = field(default_factory=list)
    bom: bool = False


def read(data: bytes) -> Notebook:
    try:
        written = data.decode("utf-8-sig")
        content = json.loads(written)
    except (UnicodeDecodeError, ValueError, RecursionError) as error:
        raise NotMigrated(f"is not a notebook: {error}", f"不是 notebook 文件:{error}") from None
    check_form(content)
    check_language(content)
    newline, written = plain_lines(written)
    layout, ending = find_layout(content, written)
    notebook = Notebook(content, layout, ending, newline, bom=data.startswith(b"\xef\xbb\xbf"))
    join(notebook)
    return notebook


def check_form(content: Any) -> None:
    form = content.get("nbformat") if isinstance(content, dict) else None
    if isinstance(form, int) and form < FORM:
        raise NotMigrated(
            f"has nbformat {form}; convert it to {FORM} first (jupyter nbconvert --to notebook)",
            f"nbformat 为 {form},请先转换为 {FORM}(jupyter nbconvert --to notebook)",
        )
    if not isinstance(content, dict) or not isinstance(content.get("cells"), list):
        raise NotMigrated("has no cells", "没有单元格")


def plain_lines(written: str) -> tuple[str, str]:
    """How lines end, and the text with plain ends: git may have made all of them CRLF. JSON's strings hold none."""
    if "\n" in written and written.count("\r\n") == written.count("\n"):
        return "\r\n", written.replace("\r\n", "\n")
    return "\n", written


def check_language(content: dict[str, Any]) -> None:
    metadata = content.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    said = [metadata.get("kernelspec"), metadata.get("language_info")]
    names = [one.get("language") or one.get("name") for one in said if isinstance(one, dict)]
    for name in names:
        if isinstance(name, str) and "python" not in name.lower():
            raise NotMigrated(f"is written in {name}, not in Python", f"使用 {name} 编写,不是 Python")


def find_layout(content: dict[str, Any], written: str) -> tuple[dict[str, Any], str]:
    """How the file was written, so that only what changed is written otherwise."""
    body = written.rstrip("\r\n")
    for layout in LAYOUTS:
        if json.dumps(content, **layout) == body:
            return layout, written[len(body) :]
    raise NotMigrated(
        "is laid out as no notebook tool writes it; open it in Jupyter and save it once",
        "排版与 notebook 工具所写不同,请在 Jupyter 中打开并保存一次",
    )


def source_of(cell: Any) -> str | None:
    """The text of a code cell; None for anything else, and for cells in another language."""
    if not isinstance(cell, dict) or cell.get("cell_type") != "code":
        return None
    source = cell.get("source", "")
    text = "".join(source) if isinstance(source, list) and all(isinstance(line, str) for line in source) else source
    if not isinstance(text, str):
        return None
    first = text.lstrip().partition("\n")[0]
    return None if first.startswith("%%") and not first.startswith(PYTHON_CELLS) else text


@dataclass
class Open:
    """What a line has left open for the next: brackets, a long string, a backslash. There `% x` is no magic."""

    depth: int = 0
    string: str = ""
    carried: bool = False

    @property
    def within(self) -> bool:
        return self.depth > 0 or bool(self.string) or self.carried

    def read(self, line: str) -> None:
        place = 0
        while place < len(line):
            place = self.step(line, place)
        if len(self.string) == 1:  # a short string ends with its line
            self.string = ""
        self.carried = line.endswith("\\")

    def step(self, line: str, place: int) -> int:
        if self.string:
            if line[place] == "\\":
                return place + 2
            ends = line.startswith(self.string, place)
            place += len(self.string) if ends else 1
            self.string = "" if ends else self.string
            return place
        letter = line[place]
        if letter == "#":
            return len(line)
        if letter in "\"'":
            self.string = letter * 3 if line.startswith(letter * 3, place) else letter
            return place + len(self.string)
        self.depth += (letter in "([{") - (letter in ")]}")
        return place + 1


def join(notebook: Notebook) -> None:
    lines: list[str] = []
    for place, cell in enumerate(notebook.content["cells"]):
        text = source_of(cell)
        if text is None:
            continue
        lines.append(MARK.format(number=place + 1))
        notebook.cells.append(place)
        notebook.starts.append(len(lines) + 1)
        state = Open()
        for line in text.split("\n"):
            if not state.within and MAGIC.match(line):
                line = hold(notebook, line)
            state.read(line)
            lines.append(line)
    notebook.text = "\n".join(lines) + "\n" if lines else ""


def hold(notebook: Notebook, line: str) -> str:
    indent = line[: len(line) - len(line.lstrip())]
    notebook.held.append(line)
    return indent + HELD.format(number=len(notebook.held) - 1)


def put_back(notebook: Notebook, text: str) -> bytes:
    """The file with the migrated text in its cells."""
    sources = split(notebook, text)
    before = split(notebook, notebook.text)
    for place, old, new in zip(notebook.cells, before, sources, strict=True):
        if new != old:
            cell = notebook.content["cells"][place]
            as_list = isinstance(cell.get("source"), list)
            cell["source"] = new.splitlines(keepends=True) if as_list else new
    written = json.dumps(notebook.content, **notebook.layout) + notebook.ending
    return (b"\xef\xbb\xbf" if notebook.bom else b"") + written.replace("\n", notebook.newline).encode()


def split(notebook: Notebook, text: str) -> list[str]:
    pieces: list[list[str]] = []
    seen: list[int] = []
    back: list[int] = []
    for line in text.split("\n")[:-1]:
        mark, kept = MARKED.match(line), HELD_LINE.match(line)
        if mark:
            seen.append(int(mark[1]) - 1)
            pieces.append([])
            continue
        if not pieces:
            raise NotMigrated("a change landed before its first cell", "有改动落在第一个单元格之前")
        if kept:
            back.append(int(kept[2]))
            line = kept[1] + notebook.held[back[-1]].lstrip()
        pieces[-1].append(line)
    if seen != notebook.cells or back != list(range(len(notebook.held))):
        raise NotMigrated(
            "a change reaches across its cells; migrate it as a script (jupyter nbconvert --to script)",
            "有改动跨越单元格,请转换为脚本后迁移(jupyter nbconvert --to script)",
        )
    return ["\n".join(piece) for piece in pieces]


def readable(notebook: Notebook, text: str) -> str:
    """The joined text with IPython's lines in their places, for showing; as many lines as it has."""
    lines = []
    for line in text.split("\n"):
        kept = HELD_LINE.match(line)
        lines.append(kept[1] + notebook.held[int(kept[2])].lstrip() if kept else line)
    return "\n".join(lines)
