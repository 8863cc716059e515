"""Errors that viaduct reports without a traceback: the command prints the message and ends with `exit_code`.

The first line of a message says what happened, with the value received; the next lines are hints. Other modules have
further ones, such as BadPath (path_errors.py) and MissingExtra (extras.py).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class ViaductError(Exception):
    """Base of all errors for which `cli.main` prints the message and exits with `exit_code`."""

    exit_code = 2
    is_silent = False  # True: this rank prints no message, because another rank prints it

    def __init__(self, message: str, *hints: str) -> None:
        self.message = message
        self.hints = hints
        super().__init__("\n  ".join((message, *hints)))


class UnknownName(ViaductError):
    """A name that does not exist; the message suggests the closest known name, or lists all if none is similar."""

    def __init__(self, kind: str, name: str, known: Iterable[str], *hints: str) -> None:
        known = list(known)
        closest = find_closest(name, known)
        suggestion = f"Closest is {closest!r}." if closest else f"There are: {', '.join(known)}."
        super().__init__(f"no {kind} called {name!r}.", suggestion, *hints)


class BadValue(ViaductError):
    """A value of the wrong type or out of range."""


class MetricFails(BadValue):
    """A metric function of the recipe that raises an error or returns no number."""


class BadData(ViaductError):
    """A data file that is missing, truncated or mislabelled."""


class TooLarge(BadData):
    """An image whose header declares more pixels than viaduct decodes."""


class BadRun(ViaductError):
    """A run directory or a checkpoint that cannot be used here."""


class MissingDevice(ViaductError):
    """An accelerator that this machine does not have."""


class Diverged(ViaductError):
    """The loss became NaN or infinite."""


class LostRank(ViaductError):
    """Another rank of the run is gone or hangs; the launcher may restart the ranks."""

    exit_code = 75  # sysexits.h: a temporary failure


class OutOfMemory(ViaductError):
    """The memory of the host or of the device does not suffice."""


def is_out_of_memory(error: BaseException) -> bool:
    """Return True if an error of torch or Python means that memory ran out."""
    signs = ("out of memory", "can't allocate memory", "not enough memory")
    return isinstance(error, MemoryError) or any(sign in str(error).lower() for sign in signs)


class DiskFull(ViaductError):
    """A file could not be written, usually because the disk is full."""


def find_closest(name: str, known: Iterable[str]) -> str:
    """Return the most similar known name; empty if none is similar. Leading dashes of flags are ignored."""
    folded = {fold_lookalikes(candidate.lstrip("-")): candidate for candidate in known}
    close = difflib.get_close_matches(fold_lookalikes(name.lstrip("-")), folded, n=1, cutoff=0.5)
    return folded[close[0]] if close else ""


def fold_lookalikes(name: str) -> str:
    """Return the name with lookalikes made equal: upper and lower case, O and 0, l, I and 1, - and _."""
    return name.lower().translate(str.maketrans("oli-", "011_"))
