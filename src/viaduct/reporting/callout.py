"""The answer of a page, before its evidence: one sentence in large letters, why it is so, what to do next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from viaduct.reporting.links import Link
from viaduct.reporting.tones import SIGNS, Tone


@dataclass(frozen=True)
class Remark:
    """A named paragraph under the headline: `Likely cause`, `What to try`."""

    name: str
    text: str


@dataclass(frozen=True)
class Callout:
    """`remarks` are read in order, those of one name under it together; links follow them."""

    template: ClassVar[str] = "callout.html"

    tone: Tone
    headline: str
    remarks: Sequence[Remark] = ()
    links: Sequence[Link] = ()

    def drawing(self) -> Callout:
        return self

    @property
    def named(self) -> list[tuple[str, list[str]]]:
        """Each name once, with all that is said under it."""
        found: dict[str, list[str]] = {}
        for remark in self.remarks:
            found.setdefault(remark.name, []).append(remark.text)
        return list(found.items())

    @property
    def sign(self) -> str:
        return SIGNS[self.tone]
