"""Joins the code cells of a notebook into one Python text, so that names resolve across cells, and splits it again.

A comment before each cell gives its number. A line that only IPython understands (`%matplotlib inline`, `!pip install
x`, `files = !ls`) is replaced by a placeholder, `pass` with a mark, and put back afterwards. So are its continuation
lines, all lines of cells in another language (`%%bash`), and those of a cell that does not parse; such cells are listed
in `Notebook.skipped`. Only the source of a cell that changed is rewritten: every other byte of the file stays as it is.
"""

from __future__ import annotations

import ast
import json
import re
import warnings
from dataclasses import dataclass, field
from json.decoder import JSONDecodeError
from typing import Any

from viaduct.scripts.notebook_spans import Span, find_sources, rewrite_source

OLDEST = 3
"""Oldest nbformat that is read: its cells lie in worksheets and hold `input`. 1 and 2 are from before 2012."""
MARK = "# %% cell {number}"
HELD = "ipython-line"
MAGIC = re.compile(r"^\s*(?:[%!?,;/]|[\w.\[\]'\", ]+?\s*[-+*/]?=\s*(?:!|%\s*[a-zA-Z])\s*\S)")
AFTER_COLON = re.compile(r"^(\s*(?:if|elif|for|while|with|try|else|finally|except)\b[^#'\"]*:\s*)([!%].*)$")
TIMED = re.compile(r"^(\s*)(%(?:time|timeit|prun|memit)(?:\s+-\w+(?:\s+\d+)?)*\s+)(?!-)(\S.*)$")
COMMANDS = (
    *("pip", "pip3", "conda", "mamba", "cd", "ls", "ll", "mkdir", "rm", "rmdir", "cp", "mv", "cat", "pwd", "git"),
    *(
        "wget",
        "curl",
        "unzip",
        "tar",
        "env",
        "matplotlib",
        "load_ext",
        "autoreload",
        "run",
        "python",
        "bash",
        "apt-get",
    ),
)
COMMAND = re.compile(rf"^\s*(?:{'|'.join(COMMANDS)})\s+[^\s=(,.\[]")
"""Commands that IPython takes without a percent sign."""
PYTHON_CELLS = ("%%time", "%%timeit", "%%capture", "%%prun", "%%memit", "%%mprun")


class NotMigrated(Exception):
    """Raised with the reason why a notebook cannot be read or rewritten; `zh` is the reason in Chinese."""

    def __init__(self, reason: str, zh: str) -> None:
        super().__init__(reason)
        self.zh = zh


@dataclass(frozen=True)
class Skipped:
    """A cell that is not analysed: the line of the joined text at which it begins, the reason, and its text."""

    line: int
    reason: str
    zh: str
    text: str


@dataclass
class Notebook:
    """A notebook and the joined text of its code cells; `starts` are the lines of the text at which the cells begin,
    from 1."""

    written: str  # the file's JSON
    spans: list[Span]  # of the code cells that are joined, in their order
    text: str = ""
    cells: list[int] = field(default_factory=list)  # index of each joined cell among all cells
    starts: list[int] = field(default_factory=list)
    held: list[str] = field(default_factory=list)  # original text of the placeholders, by their number
    skipped: list[Skipped] = field(default_factory=list)
    tag: str = ""  # end of the marks, so that they differ from anything in the notebook
    bom: bool = False

    @property
    def mark(self) -> re.Pattern[str]:
        return re.compile(rf"^# %% cell (\d+){re.escape(self.tag)}$", re.MULTILINE)

    @property
    def held_line(self) -> re.Pattern[str]:
        """Return the pattern of a placeholder: for a line or the end of one, a continuation line, or a prefix
        removed."""
        return re.compile(rf"^(.*?)(pass  # |# |  # before )({HELD}) (\d+){re.escape(self.tag)}$")


def read(data: bytes) -> Notebook:
    """Parse a notebook and join its code cells; raise NotMigrated if it is no Python notebook of a known format."""
    try:
        written = data.decode("utf-8-sig")
        content = json.loads(written)
    except (UnicodeDecodeError, ValueError, RecursionError) as error:
        raise NotMigrated(f"is not a notebook: {error}", f"不是 notebook 文件:{error}") from None
    check_form(content)
    check_language(content)
    try:
        spans = find_sources(written)
    except (JSONDecodeError, RecursionError) as error:
        raise NotMigrated(f"is not a notebook: {error}", f"不是 notebook 文件:{error}") from None
    notebook = Notebook(written, spans, bom=data.startswith(b"\xef\xbb\xbf"))
    texts = "\n".join(span.text for span in spans)
    while f"{HELD} " in texts + notebook.tag and f"{notebook.tag}\n" in f"{texts}\n":
        notebook.tag += " of viaduct"
    while notebook.mark.search(texts):
        notebook.tag += " of viaduct"
    join(notebook)
    return notebook


def check_form(content: Any) -> None:
    form = content.get("nbformat") if isinstance(content, dict) else None
    if isinstance(form, int) and form < OLDEST:
        raise NotMigrated(
            f"has nbformat {form}; convert it to 4 first (jupyter nbconvert --to notebook)",
            f"nbformat 为 {form},请先转换为 4(jupyter nbconvert --to notebook)",
        )
    cells = isinstance(content, dict) and isinstance(content.get("cells"), list)
    sheets = isinstance(content, dict) and isinstance(content.get("worksheets"), list)
    if not cells and not sheets:
        raise NotMigrated("has no cells", "没有单元格")


def check_language(content: dict[str, Any]) -> None:
    metadata = content.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    kernel, language = metadata.get("kernelspec"), metadata.get("language_info")
    names = [kernel.get("language")] if isinstance(kernel, dict) else []
    names += [language.get("name")] if isinstance(language, dict) else []
    for name in names:
        if isinstance(name, str) and "python" not in name.lower():
            raise NotMigrated(f"is written in {name}, not in Python", f"使用 {name} 编写,不是 Python")


# ---- one cell


def is_other_language(text: str) -> bool:
    first = text.lstrip().partition("\n")[0]
    return first.startswith("%%") and not first.startswith(PYTHON_CELLS)


@dataclass
class Open:
    """What is still open at the end of a line: brackets, a long string, a backslash. Then a `% x` that follows is
    Python."""

    depth: int = 0
    string: str = ""
    carried: bool = False

    @property
    def within(self) -> bool:
        return self.depth > 0 or bool(self.string) or self.carried

    def read(self, line: str) -> None:
        position = 0
        while position < len(line):
            position = self.step(line, position)
        if len(self.string) == 1 and not line.endswith("\\"):  # a short string ends with its line
            self.string = ""
        self.carried = line.endswith("\\")

    def step(self, line: str, position: int) -> int:
        if self.string:
            if line[position] == "\\":
                return position + 2
            ends = line.startswith(self.string, position)
            position += len(self.string) if ends else 1
            self.string = "" if ends else self.string
            return position
        letter = line[position]
        if letter == "#":
            return len(line)
        if letter in "\"'":
            self.string = letter * 3 if line.startswith(letter * 3, position) else letter
            return position + len(self.string)
        self.depth += (letter in "([{") - (letter in ")]}")
        return position + 1


def is_magic(line: str) -> bool:
    """Return True if a line with which a statement begins is IPython syntax and not Python."""
    if MAGIC.match(line):
        return True
    asks = line.rstrip().endswith("?") and not set(line) & set("#\"'")
    return (asks or COMMAND.match(line) is not None) and not parses(line.strip())


def parses(text: str) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def join(notebook: Notebook) -> None:
    lines: list[str] = []
    for span in notebook.spans:
        lines.append(MARK.format(number=span.place + 1) + notebook.tag)
        notebook.cells.append(span.place)
        notebook.starts.append(len(lines) + 1)
        lines += cell_lines(notebook, span.text, len(lines) + 1)
    notebook.text = "\n".join(lines) + "\n" if lines else ""


def cell_lines(notebook: Notebook, text: str, start: int) -> list[str]:
    """Return the lines of a cell as Python; placeholders for all lines if the cell is not Python."""
    if is_other_language(text):
        first = text.strip().partition("\n")[0]
        reason = f"a cell of {first.split()[0]} is not looked into"
        notebook.skipped.append(Skipped(start, reason, f"未查看 {first.split()[0]} 单元格", text))
        return [hold(notebook, line, continued=index > 0) for index, line in enumerate(text.split("\n"))]
    held = len(notebook.held)
    lines = python_lines(notebook, text)
    problem = syntax_problem("\n".join(lines))
    if not problem:
        return lines
    del notebook.held[held:]
    reason = f"this cell cannot be read as Python 3 ({problem}) and is left as it is"
    notebook.skipped.append(Skipped(start, reason, f"该单元格无法按 Python 3 解析({problem}),原样保留", text))
    return [hold(notebook, line, continued=index > 0) for index, line in enumerate(text.split("\n"))]


def syntax_problem(text: str) -> str:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(text)
    except SyntaxError as error:
        return f"line {error.lineno}: {error.msg}"
    except (ValueError, RecursionError, MemoryError) as error:
        return str(error) or type(error).__name__
    return ""


def python_lines(notebook: Notebook, text: str) -> list[str]:
    lines: list[str] = []
    state, goes_on = Open(), False
    for line in text.split("\n"):
        if goes_on:
            lines.append(hold(notebook, line, continued=True))
            goes_on = line.rstrip("\r").endswith("\\")
            continue
        rewritten = None if state.within else without_magic(notebook, line)
        goes_on = rewritten is not None and line.rstrip("\r").endswith("\\")
        state.read(line if rewritten is None else rewritten)
        lines.append(line if rewritten is None else rewritten)
    return lines


def without_magic(notebook: Notebook, line: str) -> str | None:
    """Return the Python line that replaces an IPython line; None if it is Python already."""
    timed = TIMED.match(line)
    if timed is not None and parses(timed[3]) and "#" not in timed[3]:
        notebook.held.append(timed[2])
        return f"{timed[1]}{timed[3]}  # before {HELD} {len(notebook.held) - 1}{notebook.tag}"
    branch = AFTER_COLON.match(line)
    if branch is not None and not parses(f"{line.strip()}\n"):
        notebook.held.append(branch[2])
        return f"{branch[1]}pass  # {HELD} {len(notebook.held) - 1}{notebook.tag}"
    return hold(notebook, line) if is_magic(line) else None


def hold(notebook: Notebook, line: str, continued: bool = False) -> str:
    indent = "" if continued else line[: len(line) - len(line.lstrip())]
    notebook.held.append(line[len(indent) :])
    return f"{indent}{'# ' if continued else 'pass  # '}{HELD} {len(notebook.held) - 1}{notebook.tag}"


# ---- putting it back


def put_back(notebook: Notebook, text: str) -> bytes:
    """Return the notebook with the migrated text in its cells."""
    pieces, at = [], 0
    for span, old, new in zip(notebook.spans, split(notebook, notebook.text), split(notebook, text), strict=True):
        if new != old:
            pieces += [notebook.written[at : span.start], rewrite_source(notebook.written, span, new)]
            at = span.end
    written = "".join([*pieces, notebook.written[at:]])
    return (b"\xef\xbb\xbf" if notebook.bom else b"") + written.encode()


def split(notebook: Notebook, text: str) -> list[str]:
    pieces: list[list[str]] = []
    seen: list[int] = []
    back: list[int] = []
    for line in text.split("\n")[:-1]:
        mark, kept = notebook.mark.match(line), notebook.held_line.match(line)
        if mark:
            seen.append(int(mark[1]) - 1)
            pieces.append([])
            continue
        if not pieces:
            raise NotMigrated("a change landed before its first cell", "有改动落在第一个单元格之前")
        if kept and int(kept[4]) < len(notebook.held):
            back.append(int(kept[4]))
            line = release_lines(notebook, kept)
        pieces[-1].append(line)
    if seen != notebook.cells or back != list(range(len(notebook.held))):
        raise NotMigrated(
            "a change reaches across its cells; migrate it as a script (jupyter nbconvert --to script)",
            "有改动跨越单元格,请转换为脚本后迁移(jupyter nbconvert --to script)",
        )
    return ["\n".join(piece) for piece in pieces]


def release_lines(notebook: Notebook, kept: re.Match[str]) -> str:
    """Return the line as IPython has it."""
    text = notebook.held[int(kept[4])]
    if "before" in kept[2]:
        code = kept[1].lstrip()
        return kept[1][: len(kept[1]) - len(code)] + text + code
    return kept[1] + text


def readable(notebook: Notebook, text: str) -> str:
    """Return the joined text for display, with the original IPython lines; the number of lines stays the same."""
    lines = []
    for line in text.split("\n"):
        kept = notebook.held_line.match(line)
        lines.append(release_lines(notebook, kept) if kept and int(kept[4]) < len(notebook.held) else line)
    return "\n".join(lines)
