"""Text of a command-line flag, written beside the field that the flag sets.

    @dataclass(frozen=True)
    class Options:
        loop: Annotated[int, Flag("Steps on the device per return to the host.")] = 1

`verbs/_option_flags.py` makes the flag `--loop` of it. A field without a Flag has no flag.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Flag:
    """Text of one flag in --help."""

    help: str
    heading: str = ""  # the group of flags in --help
    metavar: str = ""  # placeholder of the value; empty: chosen by the type
    default: str = ""  # description of the default; empty: the default itself is shown
    name: str = ""  # the flag, if it is not the field's name
    minimum: int | None = None  # of a number
