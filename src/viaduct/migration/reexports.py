"""Names that the modules of a project hand on: `from utils import *` may bring `tf`, `from pkg import make` a function.

A script gets TensorFlow without ever writing its name, and a package's `__init__` gathers what its modules define. What
a module offers is noted in the survey as plain strings; a qualified name is then followed to where it comes from.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from viaduct.cards.tensorflow_api import VENDOR_MODULES

if TYPE_CHECKING:
    from viaduct.migration.names import Names

ROOTS = ("tensorflow", "torch", "keras", "horovod", *VENDOR_MODULES, "tf_slim")
STEPS = 100
"""Modules through which a name is followed."""


@dataclass
class Exports:
    """modules: dotted name -> what it offers, name -> where that comes from; tails: the same by the end of the name."""

    modules: dict[str, dict[str, str]] = field(default_factory=dict)
    stars: dict[str, tuple[str, ...]] = field(default_factory=dict)  # module -> modules it imports with a star
    tails: dict[str, list[str]] = field(default_factory=dict)  # last part -> modules

    def note(self, names: Names) -> None:
        """Take down what a file offers: its functions and classes, and what it imports."""
        top = names.scopes[names.source.tree]
        offered = {}
        for name, bound in top.bound.items():
            home = names.common_name(bound)
            if home is not None:
                offered[name] = home
        self.add(names.own, offered, tuple(names.stars))

    def add(self, module: str, offered: dict[str, str], stars: tuple[str, ...] = ()) -> None:
        """Record what a module offers and which modules it stars."""
        self.modules[module] = offered
        self.stars[module] = stars
        self.tails.setdefault(module.rpartition(".")[2], []).append(module)

    def module(self, name: str, package: str) -> str | None:
        """Return the project's module of a name, as seen from a package: beside it, above it, or the only one."""
        parts = package.split(".") if package else []
        for count in range(len(parts), -1, -1):
            full = ".".join([*parts[:count], name])
            if full in self.modules:
                return full
        found = [owner for owner in self.tails.get(name.rpartition(".")[2], []) if owner.endswith(f".{name}")]
        return found[0] if len(found) == 1 else None

    def follow(self, name: str, package: str) -> str:
        """Return where a qualified name comes from; itself, if no module of the project hands it on.

        A folder of the project that is called tensorflow does not take the name away from the framework.
        """
        for _ in range(STEPS):
            step = self.step(name, package) if name.partition(".")[0] not in ROOTS else None
            if step is None or step == name:
                return name
            name = step
            package = ""
        return name

    def step(self, name: str, package: str) -> str | None:
        head, _, remainder = name.rpartition(".")
        more = ""
        while head:
            module = self.module(head, package)
            if module is not None:
                offered = self.find_offered(module, remainder)
                return f"{offered}{more}" if offered else f"{module}.{remainder}{more}"
            more = f".{remainder}{more}"
            head, _, remainder = head.rpartition(".")
        return None

    def find_offered(self, module: str, name: str, seen: tuple[str, ...] = ()) -> str | None:
        """Return where a module has a name from, itself or by its star imports."""
        found = self.modules[module].get(name)
        if found is not None or len(seen) > STEPS:
            return found
        package = module.rpartition(".")[0]
        for star in self.stars[module]:
            source = self.module(star, package) or self.module(star, module)
            if source is not None and source not in seen:
                found = self.find_offered(source, name, (*seen, module))
                if found is not None:
                    return found
        return None

    def from_stars(self, name: str, stars: Iterable[str], package: str) -> str | None:
        """Return which module's name it is among those that a file imports with stars."""
        for star in stars:
            module = self.module(star, package)
            if module is not None and self.find_offered(module, name):
                return f"{module}.{name}"
        return None

    def offers_framework(self, module: str) -> bool:
        """Return True if a framework is among what a module hands on, or may be by a star import."""
        return any(home.partition(".")[0] in ROOTS for home in self.modules[module].values()) or any(
            self.module(star, module.rpartition(".")[0]) for star in self.stars[module]
        )

    def givers(self, imported: Iterable[str], package: str) -> Iterator[str]:
        """Yield the modules of the project among imported names."""
        for name in imported:
            module = self.module(name.lstrip("."), package)
            if module is not None:
                yield module
