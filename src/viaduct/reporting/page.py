"""A page as a dataclass, and functions that render it to HTML and write it to a file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import groupby
from pathlib import Path
from typing import ClassVar, Protocol

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from viaduct import __version__
from viaduct.atomic_files import write_file
from viaduct.path_errors import refuse_replacing_special_file
from viaduct.reporting.links import data_uri
from viaduct.reporting.texts import allow_breaks, dump_json, escape_invisible
from viaduct.reporting.tones import SIGNS

MIN_SECTIONS_OF_CONTENTS = 4  # number of sections from which on a page has a table of contents

ICON = (
    b'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32">'
    b'<rect width="32" height="32" rx="7" fill="#1f6feb"/>'
    b'<path fill="#fff" d="M4 9h24v4H4zM5 13h3v11H5zM14.5 13h3v11h-3zM24 13h3v11h-3z"/>'
    b'<path fill="none" stroke="#fff" stroke-width="2" '
    b'd="M8 19a3.2 4 0 0 1 6.5 0M17.5 19a3.2 4 0 0 1 6.5 0"/>'
    b"</svg>"
)


class Part(Protocol):
    """Anything that a section can hold.

    Its template reads `part`, the object itself, and `drawing`, the result of the part's method `drawing()` if it has
    one. A part may also have a class attribute `beside` (see `Section.groups`) and a script with the template's name.
    """

    template: ClassVar[str]


@dataclass(frozen=True)
class Tile:
    """A headline number; `good` is True or False for a good or bad value, None for a neutral one."""

    label: str
    value: str
    note: str = ""
    good: bool | None = None


@dataclass(frozen=True)
class Section:
    """A heading, an optional text under it, and parts."""

    title: str
    text: str = ""
    parts: Sequence[Part] = ()

    @property
    def groups(self) -> list[list[Part]]:
        """Return groups of neighbouring parts that may be laid side by side: of one template or one `beside`."""
        return [list(group) for _, group in groupby(self.parts, lambda part: getattr(part, "beside", part.template))]


@dataclass(frozen=True)
class Page:
    """Everything on one page."""

    title: str
    subtitle: str = ""
    tiles: Sequence[Tile] = ()
    sections: Sequence[Section] = ()
    lead: Sequence[Part] = ()  # parts above the tiles: the answer of the page
    language: str = "en"
    # The verb that made the page, written into its `generator` tag; some verbs replace only their own pages.
    verb: str = ""
    kind: str = ""  # kind of page, shown beside the title: `training report`
    # Version of a page that is served while it changes; its script (live.js) asks for newer ones. Empty: a file.
    version: str = ""
    ended: bool = False  # True for the last version of a served page

    @property
    def full_title(self) -> str:
        """Return the title as the browser's tab shows it."""
        return f"{self.title}: {self.kind}" if self.kind else self.title

    @property
    def parts(self) -> list[Part]:
        return [*self.lead, *(part for section in self.sections for part in section.parts)]


def render_page(page: Page) -> str:
    """Return the page as HTML."""
    return (
        make_environment()
        .get_template("page.html")
        .render(
            page=page,
            contents=len(page.sections) >= MIN_SECTIONS_OF_CONTENTS,
            icon=data_uri(ICON, "image/svg+xml"),
            style=read_asset("page.css"),
            script=join_scripts(page),
            version=__version__,
        )
    )


def write_page(page: Page, path: str | os.PathLike[str]) -> None:
    """Write the page atomically: readers see the old or the new page, and a failure leaves the old one."""
    target = Path(path)
    refuse_replacing_special_file(target)
    html = render_page(page)
    target.parent.mkdir(parents=True, exist_ok=True)
    write_file(target, html.encode("utf-8", errors="backslashreplace"), durable=False)


@cache
def make_environment() -> Environment:
    """Return the jinja environment of the templates in this package."""
    environment = Environment(
        loader=PackageLoader("viaduct.reporting", "."),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=escape_invisible,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    # A browser refuses NaN in JSON, and thousands of rows need no blanks between their numbers.
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
    environment.policies["json.dumps_function"] = dump_json
    environment.filters["breaks"] = allow_breaks
    environment.globals |= {"read_asset": read_asset, "signs": SIGNS}
    return environment


def join_scripts(page: Page) -> Markup:
    """Return the common script, those of the parts on the page, and live.js for a served page."""
    names = dict.fromkeys(part.template.removesuffix(".html") for part in page.parts)
    part_scripts = [f"{name}.js" for name in names if files("viaduct.reporting").joinpath(f"{name}.js").is_file()]
    live = ["live.js"] if page.version else []
    return Markup("").join(map(read_asset, ["page.js", *part_scripts, *live]))


def read_asset(name: str) -> Markup:
    """Return a style or script of this package as Markup, which is not escaped."""
    return Markup(files("viaduct.reporting").joinpath(name).read_text(encoding="utf-8"))
