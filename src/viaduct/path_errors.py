"""Explain errors of the operating system on paths that the user gave.

A path that may not be entered, is too long, lies on a full disk … is met wherever a file is opened. Code that can say
more about it does; every other such error comes to `explain_os_error`, which names the path, the flag it was given with
and what to try. An error on a path that nobody gave is a bug of ours: it is not explained and keeps its traceback.
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
# Nobody's bug, whether or not the system says which file it was.
NOT_OURS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS, errno.EMFILE, errno.ENFILE, errno.ESTALE)
SYMLINK_LOOP = "Symlink loop from "
OTHER_NAME = "Use a shorter name."
PLAIN = {
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


class Given(NamedTuple):
    """A path on the command line, and the flag before it."""

    path: str
    flag: str


def explain_os_error(error: BaseException, arguments: Sequence[str], flags: Sequence[str] = ()) -> BadPath | None:
    """Return what to tell the user, or None if the error is not about a path of theirs.

    `arguments` is the command line after `viaduct`; `flags` are those of its flags that take a value.
    """
    if isinstance(error, ValueError) and "null byte" in str(error).replace("null character", "null byte"):
        broken = [given for given in given_paths(arguments, flags) if "\0" in given.path]
        return BadPath(f"{spell(broken[0])}: a path cannot contain a NUL byte.") if broken else None
    if isinstance(error, RuntimeError) and str(error).startswith(SYMLINK_LOOP):  # Path.resolve before Python 3.13
        name = ast.literal_eval(str(error).removeprefix(SYMLINK_LOOP))
        error = OSError(errno.ELOOP, os.strerror(errno.ELOOP), name)
    if not isinstance(error, OSError):
        return None
    if is_current_folder_gone():
        return BadPath("the current folder has been removed.", "Change to a folder that exists: cd ~")
    names = [name for name in map(decode_name, (error.filename, error.filename2, name_of_open_file(error))) if name]
    for name in names:
        given = find_given(name, given_paths(arguments, flags))
        if given is not None or is_output_folder(name):
            return BadPath(*describe(error, name, given))
    if error.errno in NOT_OURS and not names:
        what, hint = PLAIN[error.errno]
        return BadPath(f"{what}.", hint)
    return None


def refuse_impossible(flag: str, path: str) -> None:
    """Raise a BadPath for what no file can be called, with the flag it was given with."""
    subject = f"{flag} {shorten(path)}".strip()
    if not path:
        what = f"{flag} is empty." if flag else "a path is empty."
        raise BadPath(what, "Perhaps a variable is not set? The current folder is `.`.")
    if "\0" in path:
        raise BadPath(f"{subject}: a path cannot contain a NUL byte.")
    longest, size = max(len(os.fsencode(part)) for part in path.split("/")), len(os.fsencode(path))
    if longest > NAME_LIMIT or size >= PATH_LIMIT:
        what, hint = describe_length(path)
        raise BadPath(f"{subject}: {what}.", hint)


def decode_name(name: object) -> str | None:
    if isinstance(name, bytes | str | os.PathLike):
        return os.fsdecode(name)
    return None


def name_of_open_file(error: OSError) -> str | None:
    """Return the file that was being read or written, which the system does not name: from the frames that had it."""
    trace, found = error.__traceback__, None
    while trace is not None:
        for value in trace.tb_frame.f_locals.values():
            if isinstance(value, io.IOBase) and isinstance(getattr(value, "name", None), str | bytes):
                found = os.fsdecode(value.name)  # type: ignore[attr-defined]
        trace = trace.tb_next
    return None if found in ("<stdout>", "<stderr>", "<stdin>") else found


def given_paths(arguments: Sequence[str], flags: Sequence[str] = ()) -> Iterator[Given]:
    """Yield every word of the command line that may be a path: alone, after `=`, or one of several between commas."""
    before = ""
    for argument in arguments:
        flag, equals, value = argument.partition("=")
        if argument.startswith("-") and not equals:
            before = argument
            continue
        own = flag if argument.startswith("-") else (before if before in flags else "")
        words = [argument, value, value.partition("=")[2]]
        listed = [part for text in words for part in text.split(",")]
        for text in dict.fromkeys([*words, *listed]):
            if text and not text.startswith("--"):
                yield Given(text, own)
        before = ""


def find_given(name: str, candidates: Iterator[Given]) -> Given | None:
    """Return the given path that is `name`, or else is nearest to it: around it, inside of it, or beside it.

    A file that was given may name others, which lie in its folder.
    """
    wanted = spellings(name)
    best: tuple[int, Given] | None = None
    for given in candidates:
        beside = {os.path.dirname(path) for path in spellings(given.path) if os.path.isfile(path)}
        for path in spellings(given.path) | beside:
            distance = min((steps_between(path, other) for other in wanted), default=PATH_LIMIT)
            if distance < PATH_LIMIT and (best is None or distance < best[0]):
                best = distance, given
    return best[1] if best else None


def spellings(path: str) -> set[str]:
    """Return the absolute forms of a path, with links and resolved."""
    if "\0" in path:
        return set()
    return {os.path.abspath(path), os.path.realpath(path)}


def steps_between(path: str, other: str) -> int:
    """Return how many names one has more than the other, if it lies in it."""
    short, long = sorted((path, other), key=len)
    if short != "/" and (long == short or long.startswith(short + "/")):
        return long.count("/") - short.count("/")
    return PATH_LIMIT


def is_output_folder(name: str) -> bool:
    """Return True for a file of the current or the temporary folder, where output goes by itself; not for our own."""
    absolute, own = os.path.abspath(name), os.path.dirname(__file__)
    folders = [os.getcwd(), os.environ.get("TMPDIR", ""), tempfile.tempdir or "/tmp"]
    inside = any(absolute.startswith(folder + "/") for folder in folders if folder.rstrip("/"))
    return inside and not absolute.startswith(own + "/")


def is_current_folder_gone() -> bool:
    try:
        os.getcwd()
    except OSError:
        return True
    return False


def spell(given: Given) -> str:
    return f"{given.flag} {given.path!r}" if given.flag else repr(given.path)


def shorten(name: str) -> str:
    shown = repr(name)
    return shown if len(shown) <= 120 else f"{shown[:70]} … {shown[-30:]}"


def describe(error: OSError, name: str, given: Given | None) -> tuple[str, str]:
    what, hint = reason_of(error, name)
    flag = f"{given.flag} " if given and given.flag else ""
    same = given is None or spellings(given.path) & spellings(name)
    subject = f"{flag}{shorten(name)}" if same or given is None else f"{flag}{shorten(given.path)}: {shorten(name)}"
    return f"{subject}: {what}.", hint


def reason_of(error: OSError, name: str) -> tuple[str, str]:
    """Return what happened, and what to try."""
    if error.errno == errno.ENAMETOOLONG:
        return describe_length(name)
    if error.errno == errno.EACCES:
        return describe_permission(name)
    if error.errno == errno.ENOTDIR:
        file = next((str(path) for path in parents_from_root(name) if path.exists() and not path.is_dir()), name)
        return f"{shorten(file)} is a file, not a folder", "Give the path of a folder."
    if error.errno == errno.EISDIR:
        return "it is a folder, not a file", "Give the path of a file."
    return PLAIN.get(error.errno or 0) or ((error.strerror or str(error)).lower(), "Check the path, or choose another.")


def describe_length(name: str) -> tuple[str, str]:
    longest = max(len(os.fsencode(part)) for part in name.split("/"))
    if longest > NAME_LIMIT:
        return f"a name of {longest:,} bytes is too long; {NAME_LIMIT} are possible", OTHER_NAME
    size = len(os.fsencode(os.path.abspath(name)))
    return f"a path of {size:,} bytes is too long; {PATH_LIMIT - 1:,} are possible", OTHER_NAME


def describe_permission(name: str) -> tuple[str, str]:
    for folder in parents_from_root(name)[:-1]:
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


def parents_from_root(name: str) -> list[Path]:
    path = Path(name).absolute()
    return [*reversed(path.parents), path]


def refuse_special_file(path: Path | str) -> None:
    """Raise an OSError for a pipe, a socket or a device: reading it may never end.

    What the shell hands over, `<(command)` and /dev/stdin, is read.
    """
    mode = os.stat(path).st_mode
    if stat.S_ISREG(mode) or stat.S_ISDIR(mode) or str(path).startswith(("/dev/stdin", "/dev/fd/", "/proc/")):
        return
    raise OSError(errno.ENXIO, "it is a pipe, socket or device, not a file", str(path))


def refuse_replacing_special_file(path: Path | str) -> None:
    """Raise an OSError where a whole file would take the place of a device, pipe or socket.

    A rename replaces such a node itself: as root, a page written to /dev/null would destroy it for the whole system.
    """
    try:
        mode = os.lstat(path).st_mode
    except OSError:  # nothing there, or the write itself will say what is wrong
        return
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode)):
        raise OSError(errno.ENXIO, "it is a pipe, socket or device, not a file", str(path))
