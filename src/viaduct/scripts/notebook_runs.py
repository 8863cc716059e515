"""Prepare notebooks to be run as scripts: join their code cells, and name the cell of a joined line in messages.

Lines of IPython syntax are skipped if they only display, measure, configure or install something (`%matplotlib inline`,
`!pip install`). Any other such line is refused, because the rest of the notebook may depend on it.
"""

from __future__ import annotations

import ast
import linecache
import re
from pathlib import Path

from viaduct.errors import BadValue
from viaduct.scripts.notebooks import PYTHON_CELLS, Notebook, NotebookError, parse_notebook

SUFFIX = ".ipynb"
# Magics that can be skipped, without their first %.
HARMLESS_MAGICS = {
    "matplotlib", "load_ext", "reload_ext", "autoreload", "config", "precision", "time", "timeit", "prun",
    "memit", "pip", "conda", "mamba", "who", "whos", "lsmagic", "pwd", "ls", "pdb", "xmode", "colors",
    "history", "tensorboard", "%time", "%timeit", "%capture", "%prun", "%memit", "%mprun", "%html",
    "%javascript", "%js", "%latex", "%svg", "%markdown",
}  # fmt: skip
# Shell commands that can be skipped.
HARMLESS_COMMANDS = {
    "pip", "pip3", "conda", "mamba", "apt", "apt-get", "nvidia-smi", "nvcc", "npu-smi", "cnmon", "ls", "ll",
    "pwd", "whoami", "uname", "lscpu", "free", "df", "du", "date", "which", "head", "tail", "cat", "tree",
    "echo", "grep", "sort", "wc",
}  # fmt: skip
COMMAND_PREFIXES = re.compile(r"^(?:sudo\s+|python3?\s+-m\s+|\{sys\.executable\}\s+-m\s+)+")


def is_notebook(path: str | Path) -> bool:
    """Return True if the file is a Jupyter notebook, by its suffix."""
    return str(path).endswith(SUFFIX)


def read_source(path: str | Path, data: bytes) -> bytes:
    """Return the Python source of a script, or the joined code cells of a notebook.

    The joined text is put into `linecache`, so that tracebacks show its lines.
    Raise BadValue for a damaged notebook, or one with a line that a run cannot skip.
    """
    if not is_notebook(path):
        return data
    try:
        notebook = parse_notebook(data)
    except NotebookError as error:
        raise BadValue(f"{Path(path).name} {error}.") from None
    refuse_unrunnable_lines(Path(path).name, notebook)
    linecache.cache[str(path)] = (len(notebook.text), None, notebook.text.splitlines(keepends=True), str(path))
    return notebook.text.encode()


def parse_source(path: str | Path) -> ast.Module:
    """Return the syntax tree of a script or notebook; bytes that are not UTF-8 are replaced."""
    data = read_source(path, Path(path).read_bytes())
    return ast.parse(data.decode("utf-8", errors="replace"))


def refuse_unrunnable_lines(name: str, notebook: Notebook) -> None:
    """Raise BadValue for the first cell, or else the first line, that Python cannot run and that cannot be skipped.

    In `notebook.text` each line of IPython syntax is replaced by a placeholder with its number in `originals`.
    """
    skipped_cells = {cell.line: cell for cell in notebook.skipped}
    for number, start in zip(notebook.cells, notebook.starts, strict=True):
        cell = skipped_cells.get(start)
        if cell is not None and not is_harmless_cell(cell.text.strip()):
            advice = "Rewrite it in Python, or remove it."
            raise BadValue(f"{name} cell {number + 1} cannot be run: {cell.reason}.", advice)
    skipped_lines = {
        line for cell in notebook.skipped for line in range(cell.line, cell.line + cell.text.count("\n") + 1)
    }
    for line, text in enumerate(notebook.text.split("\n"), start=1):
        placeholder = notebook.find_placeholder(text)
        # The placeholder of a complete line is `pass`. Others continue a line, or stand for `%time` before a statement.
        if placeholder is None or not placeholder["mark"].startswith("pass") or line in skipped_lines:
            continue
        magic = notebook.originals[int(placeholder["number"])]
        if not is_harmless(magic):
            raise BadValue(
                f"{name} {describe_line(notebook, line)} cannot be run: {magic.strip()!r} is IPython syntax.",
                "Run it in a shell beforehand and remove the line, or rewrite it in Python.",
            )


def is_harmless_cell(text: str) -> bool:
    """Return True for a cell in another language that can be skipped; False for Python with a syntax error."""
    return text.startswith("%%") and not text.startswith(PYTHON_CELLS) and is_harmless(text.partition("\n")[0])


def is_harmless(magic: str) -> bool:
    """Return True for a magic, a command or a help query (`?name`) that can be skipped."""
    text = magic.strip()
    if text.startswith("?") or text.endswith("?"):
        return True
    if text.startswith("%"):
        return (text[1:].split() or [""])[0] in HARMLESS_MAGICS
    if ">" in text or (re.match(r"[\w.\[\], ]+=", text) and not text.startswith("!")):  # writes a file; `files = !ls`
        return False
    commands = re.split(r"[;&|]+", text.lstrip("!"))  # `pip install x && python prepare.py` is two commands
    first_words = (COMMAND_PREFIXES.sub("", command.strip()).partition(" ")[0] for command in commands)
    return all(word in HARMLESS_COMMANDS for word in first_words)


def describe_line(notebook: Notebook, line: int) -> str:
    """Return `cell 3, line 2` for a line of the joined text; cells of all kinds count, from 1."""
    for number, start in zip(reversed(notebook.cells), reversed(notebook.starts), strict=True):
        if line >= start:
            return f"cell {number + 1}, line {line - start + 1}"
    return f"line {line}"


def locate_line(path: str | Path, line: int) -> str:
    """Return `train.py:12`, or `train.ipynb cell 3, line 2` for a notebook."""
    if is_notebook(path):
        try:
            return f"{path} {describe_line(parse_notebook(Path(path).read_bytes()), line)}"
        except (OSError, NotebookError):
            pass
    return f"{path}:{line}"
