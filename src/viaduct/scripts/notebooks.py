"""Join the code cells of a notebook into one Python text, so that names resolve across cells, and split it again.

    notebook = parse_notebook(data)                               the bytes of the file
    new_data = restore_cells(notebook, migrate(notebook.text))    `migrate` returns the text with changed lines

A comment before each cell gives its number. A line of IPython syntax (`%matplotlib inline`, `!pip install x`, `files =
!ls`) becomes a placeholder, `pass` with a numbered comment, until the text is split. Its continuation lines become
numbered comments. In a cell in another language (`%%bash`) or with a syntax error, the first line becomes a placeholder
and all others comments; `Notebook.skipped` lists these cells. Only the sources of cells that changed are rewritten:
every other byte of the file stays as it is.
"""

from __future__ import annotations

import ast
import json
import re
import warnings
from dataclasses import dataclass, field
from typing import Any

from viaduct.scripts.notebook_spans import Span, find_sources, rewrite_source

OLDEST_FORMAT = 3  # oldest nbformat that is read, with `worksheets` and `input`; 1 and 2 are from before 2012
CELL_COMMENT = "# %% cell {number}"
PLACEHOLDER = "ipython-line"  # followed by the index of the original line in `Notebook.originals`
# A line of IPython syntax: `%magic`, `!command`, `?name`, a call without brackets (`,f a`, `;f a`, `/f a`), or an
# assignment of a magic or command, `files = !ls`.
MAGIC = re.compile(r"^\s*(?:[%!?,;/]|[\w.\[\]'\", ]+?\s*[-+*/]?=\s*(?:!|%\s*[a-zA-Z])\s*\S)")
# `if x: !command`: the part after the colon is replaced.
AFTER_COLON = re.compile(r"^(\s*(?:if|elif|for|while|with|try|else|finally|except)\b[^#'\"]*:\s*)([!%].*)$")
# `%time statement`: the magic with its options is removed, the statement stays.
TIMED = re.compile(r"^(\s*)(%(?:time|timeit|prun|memit)(?:\s+-\w+(?:\s+\d+)?)*\s+)(?!-)(\S.*)$")
# Commands that IPython takes without a percent sign.
COMMANDS = (
    "pip pip3 conda mamba cd ls ll mkdir rm rmdir cp mv cat pwd git wget curl unzip tar env matplotlib load_ext "
    "autoreload run python bash apt-get"
)
COMMAND = re.compile(rf"^\s*(?:{COMMANDS.replace(' ', '|')})\s+[^\s=(,.\[]")
# Cell magics that are followed by Python.
PYTHON_CELLS = ("%%time", "%%timeit", "%%capture", "%%prun", "%%memit", "%%mprun")


class NotebookError(Exception):
    """Raised if a notebook cannot be read or rewritten; `zh` is the message in Chinese."""

    def __init__(self, reason: str, zh: str) -> None:
        super().__init__(reason)
        self.zh = zh


@dataclass(frozen=True)
class SkippedCell:
    """A cell that is not analysed: the number of its first line in the joined text, the reason, and its text.

    `zh` is the reason in Chinese.
    """

    line: int
    reason: str
    zh: str
    text: str


@dataclass
class Notebook:
    """A notebook and the joined text of its code cells."""

    json_text: str  # of the file
    spans: list[Span]  # of the code cells, in their order
    text: str = ""  # of the code cells, joined
    cells: list[int] = field(default_factory=list)  # index of each joined cell among all cells
    starts: list[int] = field(default_factory=list)  # the line of `text`, from 1, at which each joined cell begins
    originals: list[str] = field(default_factory=list)  # IPython text of each placeholder, by number
    skipped: list[SkippedCell] = field(default_factory=list)
    tag: str = ""  # end of cell comments and placeholders; lengthened until no line of the notebook looks like one
    bom: bool = False  # the file begins with a byte order mark

    @property
    def cell_comment(self) -> re.Pattern[str]:
        """Return the pattern of the comment before a cell; it captures the cell's number."""
        return re.compile(rf"^# %% cell (\d+){re.escape(self.tag)}$", re.MULTILINE)

    @property
    def placeholder(self) -> re.Pattern[str]:
        """Return the pattern of a line with a placeholder.

        `mark` is `pass` for a line or the end of one, `#` for a continuation line, `before` for a removed prefix.
        """
        marks = "pass  # |# |  # before "
        return re.compile(rf"^(?P<code>.*?)(?P<mark>{marks}){PLACEHOLDER} (?P<number>\d+){re.escape(self.tag)}$")

    def find_placeholder(self, line: str) -> re.Match[str] | None:
        """Return the placeholder in a line of the joined text; None if it has none with a number in `originals`."""
        match = self.placeholder.match(line)
        return match if match and int(match["number"]) < len(self.originals) else None


def parse_notebook(data: bytes) -> Notebook:
    """Parse a notebook and join its code cells; raise NotebookError for any other file."""
    try:
        json_text = data.decode("utf-8-sig")
        content = json.loads(json_text)
        check_format(content)
        check_language(content)
        spans = find_sources(json_text)
    except (ValueError, RecursionError) as error:
        raise NotebookError(f"is not a notebook: {error}", f"不是 notebook 文件:{error}") from None
    notebook = Notebook(json_text, spans, bom=data.startswith(b"\xef\xbb\xbf"))
    texts = "\n".join(span.source for span in spans)
    while notebook.cell_comment.search(texts) or any(map(notebook.placeholder.match, texts.split("\n"))):
        notebook.tag += " of viaduct"
    join_cells(notebook)
    return notebook


def check_format(content: Any) -> None:
    """Raise NotebookError for a format that is too old, and for JSON that has no cells."""
    content = content if isinstance(content, dict) else {}
    version = content.get("nbformat")
    if isinstance(version, int) and version < OLDEST_FORMAT:
        raise NotebookError(
            f"has nbformat {version}; convert it to 4 first (jupyter nbconvert --to notebook)",
            f"nbformat 为 {version},请先转换为 4(jupyter nbconvert --to notebook)",
        )
    if not any(isinstance(content.get(key), list) for key in ("cells", "worksheets")):
        raise NotebookError("has no cells", "没有单元格")


def check_language(content: dict[str, Any]) -> None:
    """Raise NotebookError if the notebook's metadata name another language than Python."""
    metadata = content.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    kernel, language = metadata.get("kernelspec"), metadata.get("language_info")
    names = [kernel.get("language")] if isinstance(kernel, dict) else []
    names += [language.get("name")] if isinstance(language, dict) else []
    for name in names:
        if isinstance(name, str) and "python" not in name.lower():
            raise NotebookError(f"is written in {name}, not in Python", f"使用 {name} 编写,不是 Python")


# ---- one cell


@dataclass
class OpenSyntax:
    """Brackets, a string or a backslash that a line leaves open: the next line is then Python, even if it is `% x`."""

    depth: int = 0  # of brackets
    string: str = ""  # the quotes that end the open string
    continues: bool = False  # the line ends with a backslash

    def __bool__(self) -> bool:
        return self.depth > 0 or bool(self.string) or self.continues

    def read(self, line: str) -> None:
        """Update the state with a line."""
        position = 0
        while position < len(line):
            position = self.read_token(line, position)
        if len(self.string) == 1 and not line.endswith("\\"):  # a short string ends with its line
            self.string = ""
        self.continues = line.endswith("\\")

    def read_token(self, line: str, position: int) -> int:
        """Read a character, a quote or a comment; return the position after it."""
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
    """Return True if the first line of a statement is IPython syntax."""
    if MAGIC.match(line):
        return True
    is_question = line.rstrip().endswith("?") and not set(line) & set("#\"'")  # not in a comment or string
    return (is_question or COMMAND.match(line) is not None) and bool(find_syntax_error(line.strip()))


def join_cells(notebook: Notebook) -> None:
    """Set the joined text of a notebook, with its cells, originals and skipped cells."""
    lines: list[str] = []
    for span in notebook.spans:
        lines.append(CELL_COMMENT.format(number=span.cell + 1) + notebook.tag)
        notebook.cells.append(span.cell)
        notebook.starts.append(len(lines) + 1)
        lines += convert_cell(notebook, span.source, len(lines) + 1)
    notebook.text = "\n".join(lines) + "\n" if lines else ""


def convert_cell(notebook: Notebook, text: str, start: int) -> list[str]:
    """Return the lines of a cell as Python; placeholders for all lines if the cell is not Python.

    `start` is the number of its first line in the joined text.
    """
    first_line = text.lstrip().partition("\n")[0]
    if first_line.startswith("%%") and not first_line.startswith(PYTHON_CELLS):
        magic = first_line.split()[0]
        skipped = SkippedCell(start, f"cells of {magic} are not analysed", f"未分析 {magic} 单元格", text)
    else:
        count = len(notebook.originals)
        lines = replace_magics(notebook, text)
        if not (problem := find_syntax_error("\n".join(lines))):
            return lines
        del notebook.originals[count:]
        reason = f"this cell cannot be read as Python 3 ({problem}) and is left as it is"
        skipped = SkippedCell(start, reason, f"该单元格无法按 Python 3 解析({problem}),原样保留", text)
    notebook.skipped.append(skipped)
    return [make_placeholder(notebook, line, continued=index > 0) for index, line in enumerate(text.split("\n"))]


def find_syntax_error(text: str) -> str:
    """Return the reason why a text is not Python, or ""."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(text)
    except SyntaxError as error:
        return f"line {error.lineno}: {error.msg}"
    except (ValueError, RecursionError, MemoryError) as error:
        return str(error) or type(error).__name__
    return ""


def replace_magics(notebook: Notebook, text: str) -> list[str]:
    """Return the lines of a cell with placeholders for IPython lines."""
    lines: list[str] = []
    open_syntax, magic_continues = OpenSyntax(), False
    for line in text.split("\n"):
        if magic_continues:
            lines.append(make_placeholder(notebook, line, continued=True))
            magic_continues = line.rstrip("\r").endswith("\\")
            continue
        replacement = None if open_syntax else replace_magic(notebook, line)
        magic_continues = replacement is not None and line.rstrip("\r").endswith("\\")
        lines.append(line if replacement is None else replacement)
        open_syntax.read(lines[-1])
    return lines


def replace_magic(notebook: Notebook, line: str) -> str | None:
    """Return the Python line that replaces an IPython line; None if it is Python already."""
    timed = TIMED.match(line)
    if timed is not None and not find_syntax_error(timed[3]) and "#" not in timed[3]:
        notebook.originals.append(timed[2])
        return f"{timed[1]}{timed[3]}  # before {PLACEHOLDER} {len(notebook.originals) - 1}{notebook.tag}"
    branch = AFTER_COLON.match(line)
    if branch is not None and find_syntax_error(f"{line.strip()}\n"):
        notebook.originals.append(branch[2])
        return f"{branch[1]}pass  # {PLACEHOLDER} {len(notebook.originals) - 1}{notebook.tag}"
    return make_placeholder(notebook, line) if is_magic(line) else None


def make_placeholder(notebook: Notebook, line: str, continued: bool = False) -> str:
    """Store a line and return its placeholder; `continued` lines are comments."""
    indent = "" if continued else line[: len(line) - len(line.lstrip())]
    notebook.originals.append(line[len(indent) :])
    return f"{indent}{'# ' if continued else 'pass  # '}{PLACEHOLDER} {len(notebook.originals) - 1}{notebook.tag}"


# ---- putting the cells back


def restore_cells(notebook: Notebook, text: str) -> bytes:
    """Return the bytes of the file with the changed `text` in its cells; raise NotebookError if it cannot be split."""
    pieces, copied = [], 0  # parts of the new JSON; the number of characters of the old JSON that they stand for
    sources = split_cells(notebook, notebook.text), split_cells(notebook, text)
    for span, old, new in zip(notebook.spans, *sources, strict=True):
        if new != old:
            pieces += [notebook.json_text[copied : span.start], rewrite_source(notebook.json_text, span, new)]
            copied = span.end
    json_text = "".join([*pieces, notebook.json_text[copied:]])
    return (b"\xef\xbb\xbf" if notebook.bom else b"") + json_text.encode()


def split_cells(notebook: Notebook, text: str) -> list[str]:
    """Return the sources of the cells of a joined text, with the original IPython lines.

    Raise NotebookError unless the text has all cells and all placeholders in their order.
    """
    pieces: list[list[str]] = []
    cells: list[int] = []
    restored: list[int] = []  # numbers of placeholders
    for line in text.split("\n")[:-1]:
        if cell_comment := notebook.cell_comment.match(line):
            cells.append(int(cell_comment[1]) - 1)
            pieces.append([])
            continue
        if not pieces:
            raise NotebookError("a change landed before its first cell", "有改动落在第一个单元格之前")
        if placeholder := notebook.find_placeholder(line):
            restored.append(int(placeholder["number"]))
            line = restore_line(notebook, placeholder)
        pieces[-1].append(line)
    if cells != notebook.cells or restored != list(range(len(notebook.originals))):
        raise NotebookError(
            "a change reaches across its cells; migrate it as a script (jupyter nbconvert --to script)",
            "有改动跨越单元格,请转换为脚本后迁移(jupyter nbconvert --to script)",
        )
    return ["\n".join(piece) for piece in pieces]


def restore_line(notebook: Notebook, placeholder: re.Match[str]) -> str:
    """Return the original line of a placeholder, with the code around it."""
    code, original = placeholder["code"], notebook.originals[int(placeholder["number"])]
    if "before" in placeholder["mark"]:
        statement = code.lstrip()
        return code.removesuffix(statement) + original + statement
    return code + original


def restore_magics(notebook: Notebook, text: str) -> str:
    """Return the joined text with the original IPython lines; the number of lines stays the same."""
    lines = text.split("\n")
    for index, line in enumerate(lines):
        if placeholder := notebook.find_placeholder(line):
            lines[index] = restore_line(notebook, placeholder)
    return "\n".join(lines)
