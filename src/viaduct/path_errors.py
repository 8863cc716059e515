"""Explain errors of the operating system on the user's paths.

Functions that open files catch an OSError only if they can explain it better. All others reach `explain_os_error`,
which returns a message with the path, its flag and a hint. An OSError on a path that is neither near one on the command
line nor in the current or temporary folder is a bug of viaduct and keeps its traceback.
"""

from __future__ import annotations

import ast
import errno
import io
import os
import stat
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from viaduct.errors import ViaductError

NAME_LIMIT, PATH_LIMIT = 255, 4096  # bytes, on Linux
# Errors with a cause outside of viaduct, even if they name no file.
EXTERNAL_CAUSES = (
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EFBIG,
    errno.EIO,
    errno.EROFS,
    errno.EMFILE,
    errno.ENFILE,
    errno.ESTALE,
)
SYMLINK_LOOP = "Symlink loop from "  # beginning of the RuntimeError of Path.resolve before Python 3.13
MESSAGES = {  # error number -> reason, hint
    errno.ENOENT: ("there is no such file or folder", "Check the spelling."),
    errno.EPERM: ("the operation is not permitted", "Ask the owner of the folder, or choose another path."),
    errno.ELOOP: ("its symbolic links lead in a circle", "Give the path of the file or folder itself."),
    errno.EROFS: ("the file system is read-only", "Choose a path on a file system that can be written."),
    errno.ENOSPC: ("no space is left on the disk", "Free some space, or choose a path on another disk."),
    errno.EDQUOT: ("your disk quota is used up", "Free some space, or choose a path on another disk."),
    errno.EFBIG: ("the file would be larger than is allowed", "See `ulimit -f`, or choose a path on another disk."),
    errno.EMLINK: ("it has too many links", "Choose another folder."),
    errno.EIO: ("the device reports an input/output error", "Look at `dmesg`; the disk may be failing."),
    errno.EEXIST: ("there is something of that name already", "Choose another path, or move the old one away."),
    errno.ENOTEMPTY: ("the folder is not empty", "Choose another path, or move the old one away."),
    errno.EBUSY: ("it is in use", "Close what uses it (`fuser -v PATH` shows it), or choose another path."),
    errno.ETXTBSY: ("it is a program that is running", "Choose another path."),
    errno.ENXIO: ("it is a pipe, socket or device, not a file", "Give the path of a file."),
    errno.ENODEV: ("it is a device, not a file", "Give the path of a file."),
    errno.ESPIPE: ("it is a pipe or device, not a file", "Give the path of a file."),
    errno.ESTALE: ("the network file system has lost it", "Mount it again and repeat the command."),
    errno.EMFILE: ("too many files are open", "Allow more with `ulimit -n 4096`."),
    errno.ENFILE: ("too many files are open on this machine", "Close other programs."),
    errno.EILSEQ: ("the file system does not accept the bytes of its name", "Rename it."),
}


class BadPath(ViaductError):
    """A path that the operating system refuses."""


class GivenPath(NamedTuple):
    """Path on the command line, and the flag before it; the flag of a positional argument is empty."""

    path: str
    flag: str


def explain_os_error(error: BaseException, arguments: Sequence[str], flags: Sequence[str] = ()) -> BadPath | None:
    """Return the message for the user; None if viaduct cannot explain `error`.

    `arguments` is the command line after `viaduct`; `flags` are the flags that take a value.
    """
    if isinstance(error, ValueError) and any(text in str(error) for text in ("null byte", "null character")):
        broken = next((given for given in list_given_paths(arguments, flags) if "\0" in given.path), None)
        return BadPath(f"{broken.flag} {broken.path!r}: a path cannot contain a NUL byte.".strip()) if broken else None
    if isinstance(error, RuntimeError) and str(error).startswith(SYMLINK_LOOP):
        name = ast.literal_eval(str(error).removeprefix(SYMLINK_LOOP))
        error = OSError(errno.ELOOP, os.strerror(errno.ELOOP), name)
    if not isinstance(error, OSError):
        return None
    if is_current_folder_gone():
        return BadPath("the current folder has been removed.", "Change to a folder that exists: cd ~")
    names = [name for name in map(decode_name, (error.filename, error.filename2, find_open_file(error))) if name]
    for name in names:
        given = find_nearest(name, list_given_paths(arguments, flags))
        if given is not None or is_users_file(name):
            return BadPath(*describe_error(error, name, given))
    if error.errno in EXTERNAL_CAUSES and not names:
        reason, hint = MESSAGES[error.errno]
        return BadPath(f"{reason}.", hint)
    return None


def refuse_impossible(flag: str, path: str) -> None:
    """Raise BadPath if no file can have this path: it is empty, too long or contains a NUL byte.

    `flag` is the flag that the path follows, empty for a positional argument.
    """
    subject = f"{flag} {shorten(path)}".strip()
    if not path:
        message = f"{flag} is empty." if flag else "a path is empty."
        raise BadPath(message, "Perhaps a variable is not set? The current folder is `.`.")
    if "\0" in path:
        raise BadPath(f"{subject}: a path cannot contain a NUL byte.")
    longest, size = max(len(os.fsencode(part)) for part in path.split("/")), len(os.fsencode(path))
    if longest > NAME_LIMIT or size >= PATH_LIMIT:
        reason, hint = describe_length(path)
        raise BadPath(f"{subject}: {reason}.", hint)


def decode_name(name: object) -> str | None:
    return os.fsdecode(name) if isinstance(name, bytes | str | os.PathLike) else None


def find_open_file(error: OSError) -> str | None:
    """Return the name of the file that was read or written: errors of read() and write() do not name it.

    It is taken to be the innermost open file among the local variables of the functions that the error passed through.
    """
    trace, name = error.__traceback__, None
    while trace is not None:
        for value in trace.tb_frame.f_locals.values():
            if isinstance(value, io.IOBase) and isinstance(getattr(value, "name", None), str | bytes):
                name = os.fsdecode(value.name)  # type: ignore[attr-defined]
        trace = trace.tb_next
    return None if name in ("<stdout>", "<stderr>", "<stdin>") else name


def list_given_paths(arguments: Sequence[str], flags: Sequence[str] = ()) -> Iterator[GivenPath]:
    """Yield all parts of the command line that may be a path.

    These are arguments, values after `=` (`--out=PATH`, `--set data=PATH`), and items of lists with commas.
    """
    previous = ""
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if argument.startswith("-") and not equals:
            previous = argument
            continue
        flag = name if argument.startswith("-") else (previous if previous in flags else "")
        values = [argument, value, value.partition("=")[2]]
        items = [item for text in values for item in text.split(",")]
        for text in dict.fromkeys([*values, *items]):
            if text and not text.startswith("--"):
                yield GivenPath(text, flag)
        previous = ""


def find_nearest(name: str, candidates: Iterator[GivenPath]) -> GivenPath | None:
    """Return the candidate that is `name`, or the nearest one above or below `name`; None if there is none.

    A file is also a candidate for paths in its folder, because it may refer to other files there.
    """
    targets = list_absolute_forms(name)
    nearest, nearest_distance = None, PATH_LIMIT
    for given in candidates:
        folders = {os.path.dirname(path) for path in list_absolute_forms(given.path) if os.path.isfile(path)}
        for path in list_absolute_forms(given.path) | folders:
            distance = min((count_levels(path, target) for target in targets), default=PATH_LIMIT)
            if distance < nearest_distance:
                nearest, nearest_distance = given, distance
    return nearest


def list_absolute_forms(path: str) -> set[str]:
    """Return the absolute path with unresolved and with resolved symbolic links; empty if it contains a NUL byte."""
    if "\0" in path:
        return set()
    return {os.path.abspath(path), os.path.realpath(path)}


def count_levels(path: str, other: str) -> int:
    """Return the number of levels between two paths; PATH_LIMIT if neither contains the other."""
    short, long = sorted((path, other), key=len)
    if short != "/" and (long == short or long.startswith(short + "/")):
        return long.count("/") - short.count("/")
    return PATH_LIMIT


def is_users_file(name: str) -> bool:
    """Return True for a file in the current or the temporary folder that does not belong to viaduct."""
    absolute, package = os.path.abspath(name), os.path.dirname(__file__)
    folders = [os.getcwd(), os.environ.get("TMPDIR", ""), tempfile.tempdir or "/tmp"]
    is_inside = any(absolute.startswith(folder + "/") for folder in folders if folder.rstrip("/"))
    return is_inside and not absolute.startswith(package + "/")


def is_current_folder_gone() -> bool:
    try:
        os.getcwd()
    except OSError:
        return True
    return False


def shorten(name: str) -> str:
    """Return a name in quotes, shortened in the middle if it is long."""
    shown = repr(name)
    return shown if len(shown) <= 120 else f"{shown[:70]} … {shown[-30:]}"


def describe_error(error: OSError, name: str, given: GivenPath | None) -> tuple[str, str]:
    """Return message and hint for an error on the file `name`, for which the user gave the path `given`."""
    reason, hint = explain_reason(error, name)
    subject = shorten(name)
    if given and not list_absolute_forms(given.path) & list_absolute_forms(name):
        subject = f"{shorten(given.path)}: {subject}"
    return f"{given.flag if given else ''} {subject}: {reason}.".lstrip(), hint


def explain_reason(error: OSError, name: str) -> tuple[str, str]:
    """Return reason and hint for an error."""
    if error.errno == errno.ENAMETOOLONG:
        return describe_length(name)
    if error.errno == errno.EACCES:
        return describe_permission(name)
    if error.errno == errno.ENOTDIR:
        file = next((str(path) for path in list_parents_from_root(name) if path.exists() and not path.is_dir()), name)
        return f"{shorten(file)} is a file, not a folder", "Give the path of a folder."
    if error.errno == errno.EISDIR:
        return "it is a folder, not a file", "Give the path of a file."
    other = (error.strerror or str(error)).lower(), "Check the path, or choose another."
    return MESSAGES.get(error.errno or 0, other)


def describe_length(name: str) -> tuple[str, str]:
    longest = max(len(os.fsencode(part)) for part in name.split("/"))
    if longest > NAME_LIMIT:
        return f"a name of {longest:,} bytes is too long; {NAME_LIMIT} are possible", "Use a shorter name."
    size = len(os.fsencode(os.path.abspath(name)))
    return f"a path of {size:,} bytes is too long; {PATH_LIMIT - 1:,} are possible", "Use a shorter path."


def describe_permission(name: str) -> tuple[str, str]:
    """Find the folder or file without permission; return reason and hint."""
    for folder in list_parents_from_root(name)[:-1]:
        if not os.access(folder, os.X_OK):
            return (
                f"the folder {shorten(str(folder))} may not be entered (permission denied)",
                f"`ls -ld {folder}` shows who may; choose another path, or ask its owner.",
            )
    path = Path(name)
    if os.path.lexists(name):
        kind = "folder" if path.is_dir() else "file"
        denied = "read" if not os.access(name, os.R_OK) else "written"
        return (
            f"the {kind} may not be {denied} (permission denied)",
            f"`ls -ld {name}` shows who may; choose another, or ask its owner.",
        )
    return (
        f"the folder {shorten(str(path.absolute().parent))} may not be written to (permission denied)",
        "Choose another path, or ask its owner.",
    )


def list_parents_from_root(name: str) -> list[Path]:
    """Return the folders above a path, outermost first, and the path itself."""
    path = Path(name).absolute()
    return [*reversed(path.parents), path]


def refuse_special_file(path: Path | str) -> None:
    """Raise an OSError for a pipe, socket or device: reading it may never end. Pipes of the shell are allowed."""
    mode = os.stat(path).st_mode
    if stat.S_ISREG(mode) or stat.S_ISDIR(mode) or str(path).startswith(("/dev/stdin", "/dev/fd/", "/proc/")):
        return
    raise OSError(errno.ENXIO, "it is a pipe, socket or device, not a file", str(path))


def refuse_replacing_special_file(path: Path | str) -> None:
    """Raise an OSError if `path` is a device, pipe or socket, which an atomic write would replace by a file.

    As root, an atomic write to /dev/null would destroy it for the whole system.
    """
    try:
        mode = os.lstat(path).st_mode
    except OSError:  # no such file, or an error that the write also raises
        return
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode)):
        raise OSError(errno.ENXIO, "it is a pipe, socket or device, not a file", str(path))
