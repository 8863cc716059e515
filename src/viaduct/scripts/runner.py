"""Run a Python script or module as `__main__` in this process.

    result = run_script(load_script("train.py", ["--epochs", "1"]))

Arguments, `sys.path[0]`, `__file__` and the exit code are as if Python itself had started it. A traceback begins with
the script's own frames. Code of viaduct that is called while the script runs, such as a hook, raises `StopScript` to
end it cleanly: its `finally` blocks run, and its `atexit` functions when the process ends. A script may catch the
exception with a bare `except:`; then the next call of a hook has to raise it again.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import io
import os
import sys
import traceback
import types
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from viaduct.errors import BadValue, ViaductError
from viaduct.path_errors import refuse_special_file
from viaduct.scripts.notebook_runs import is_notebook, locate_line, read_source
from viaduct.terminal import stop_escaping_output

_main_modules: list[types.ModuleType] = []  # of scripts that ran: their atexit functions still need the globals


class StopScript(BaseException):
    """Ends the script; a BaseException, so that `except Exception` in the script does not catch it."""


@dataclass(frozen=True)
class Script:
    """A compiled script and its arguments."""

    name: str  # the path or module as the user gave it
    file: Path
    code: types.CodeType
    arguments: tuple[str, ...]
    import_folder: str  # sys.path[0] while it runs
    spec: importlib.machinery.ModuleSpec | None = None


@dataclass(frozen=True)
class ScriptResult:
    """How a script ended."""

    code: int  # exit code
    stopped: bool = False  # by StopScript
    failure: str = ""  # last line of the traceback if an exception ended it, but not SystemExit


def load_script(target: str, arguments: Sequence[str] = (), module: bool = False) -> Script:
    """Find and compile a script, or the module called `target`; raise BadValue if there is none or it is not Python."""
    return load_module(target, arguments) if module else load_file(Path(target), arguments)


def load_file(path: Path, arguments: Sequence[str]) -> Script:
    """Compile a script, or the `__main__.py` of a folder; raise BadValue if there is none."""
    if path.is_dir():
        path = path / "__main__.py"
    if not path.exists():
        raise BadValue(f"there is no script {str(path)!r}.", *suggest_scripts(path))
    return Script(str(path), path, compile_script(path), tuple(arguments), str(path.resolve().parent))


def suggest_scripts(path: Path) -> list[str]:
    """Return a hint that names the scripts in the folder of a missing one; [] if it has none."""
    beside = sorted(other.name for other in path.parent.glob("*.py")) if path.parent.is_dir() else []
    shown = [*beside[:10], "…"] if len(beside) > 10 else beside
    return [f"In {str(path.parent)!r} there are: {', '.join(shown)}."] if beside else []


def load_module(name: str, arguments: Sequence[str]) -> Script:
    """Compile the module that `python -m NAME` would run; raise BadValue if there is none."""
    with put_first_on_path(os.getcwd()):
        named = find_spec(name)  # of a module or a package
        is_package = named is not None and named.submodule_search_locations is not None
        spec = find_spec(f"{name}.__main__") if is_package else named
    if spec is None or not spec.origin or not spec.origin.endswith(".py"):
        remark = " It has no Python source." if named is not None else ""
        remark = " It is a package without __main__.py." if is_package else remark
        raise BadValue(f"there is no module {name!r} to run.{remark}", "It is searched for as by `python -m`.")
    path = Path(spec.origin)
    return Script(name, path, compile_script(path), tuple(arguments), os.getcwd(), spec)


def import_packages(name: str) -> ScriptResult | None:
    """Import the packages around a module, and the module if it is a package, as `python -m` does first.

    Return None, or how the script has ended if an import ended it: its `__init__.py` exited or raised an exception.
    """
    with put_first_on_path(os.getcwd()):
        try:
            if parent := name.rpartition(".")[0]:
                importlib.import_module(parent)
            spec = find_spec(name)
            if spec is not None and spec.submodule_search_locations is not None:
                importlib.import_module(name)
        except SystemExit as error:
            return ScriptResult(report_exit(error))
        except ViaductError:
            raise
        except Exception as error:
            missing = error.name if isinstance(error, ModuleNotFoundError) else None
            if missing and (name == missing or name.startswith(f"{missing}.")):
                return None  # the module itself is missing: load_module reports that
            return ScriptResult(1, failure=print_failure(error))
    return None


def find_spec(name: str) -> importlib.machinery.ModuleSpec | None:
    """Return a module's spec; None if there is no such module, or a package around it cannot be imported."""
    try:
        return importlib.util.find_spec(name)
    except (ImportError, ValueError, AttributeError):
        return None


def compile_script(path: Path) -> types.CodeType:
    """Compile the source of a script or notebook; raise BadValue if it cannot be read or is not Python."""
    try:
        refuse_special_file(path)
        with io.open_code(str(path)) as file:
            return compile(read_source(path, file.read()), str(path), "exec", dont_inherit=True)
    except OSError as error:
        raise BadValue(f"{str(path)!r} cannot be read: {error.strerror}.") from None
    except SyntaxError as error:
        raise BadValue(f"{str(path)!r} is not Python: line {error.lineno}: {error.msg}.") from None
    except ValueError as error:  # NUL bytes
        raise BadValue(f"{str(path)!r} is not Python: {error}.") from None


def run_script(script: Script) -> ScriptResult:
    """Run a script until it ends or a hook raises StopScript. The traceback of an exception is printed.

    A ViaductError, which a hook raises if it cannot continue, is passed on.
    """
    main = types.ModuleType("__main__")
    main.__file__ = str(script.file.absolute())
    main.__dict__.update(__builtins__=__builtins__, __spec__=script.spec, __cached__=None)
    if is_notebook(script.file):
        main.__dict__.update(display=print)  # in place of IPython's display()
        del main.__file__  # Jupyter sets none
    if script.spec is not None:
        main.__package__ = script.spec.parent
        main.__loader__ = script.spec.loader
    _main_modules.append(main)
    stop_escaping_output()  # the script may print colours and bars
    with replace_main(script, main):
        try:
            exec(script.code, main.__dict__)
            return ScriptResult(0)
        except StopScript:
            return ScriptResult(0, stopped=True)
        except SystemExit as error:
            return ScriptResult(report_exit(error))
        except KeyboardInterrupt:
            return ScriptResult(130, failure="KeyboardInterrupt")
        except ViaductError:
            raise
        except Exception as error:
            return ScriptResult(1, failure=print_failure(error))


@contextmanager
def replace_main(script: Script, main: types.ModuleType) -> Iterator[None]:
    """Set sys.argv, sys.path[0] and `__main__` to the script's within the block."""
    former_arguments, former_main = sys.argv, sys.modules.get("__main__")
    sys.argv = [str(script.file) if script.spec is None else str(script.file.absolute()), *script.arguments]
    sys.modules["__main__"] = main
    try:
        with put_first_on_path(script.import_folder):
            yield
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    finally:
        sys.argv = former_arguments
        if former_main is not None:
            sys.modules["__main__"] = former_main


@contextmanager
def put_first_on_path(folder: str) -> Iterator[None]:
    """Put a folder first in sys.path within the block."""
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        if folder in sys.path:
            sys.path.remove(folder)


def report_exit(error: SystemExit) -> int:
    """Print the message of `sys.exit(message)` as Python would, and return the exit code that Python would use."""
    if error.code is None:
        return 0
    if isinstance(error.code, int):
        return error.code & 0xFF
    print(error.code, file=sys.stderr)
    return 1


def print_failure(error: Exception) -> str:
    """Print the traceback without this module's frames, and the notebook's cell if it is one; return the last line."""
    trace: Any = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    lines = traceback.format_exception(type(error), error, trace)
    print("".join(lines), end="", file=sys.stderr)
    frames = [frame for frame in traceback.extract_tb(trace) if is_notebook(frame.filename) and frame.lineno]
    if frames:
        print(f"In {locate_line(frames[-1].filename, frames[-1].lineno or 0)}.", file=sys.stderr)
    return lines[-1].strip()
