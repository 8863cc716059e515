"""Names that modules of a project re-export: `from utils import *` may give `tf`, `from pkg import make` a function.

A script gets TensorFlow without ever writing its name, and a package's `__init__` gathers what its modules define. What
a module offers is recorded in the survey as plain strings; a qualified name is then followed to where it comes from.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from viaduct.cards.tensorflow_api import VENDOR_MODULES

if TYPE_CHECKING:
    from viaduct.migration.names import Names

FRAMEWORK_ROOTS = ("tensorflow", "torch", "keras", "horovod", *VENDOR_MODULES, "tf_slim")
MAX_STEPS = 100
"""Largest number of modules through which a name is followed."""


@dataclass
class Exports:
    """What the modules of a project offer to files that import them. Modules are dotted names."""

    modules: dict[str, dict[str, str]] = field(default_factory=dict)  # module -> name -> where that comes from
    stars: dict[str, tuple[str, ...]] = field(default_factory=dict)  # module -> modules it imports with a star
    tails: dict[str, list[str]] = field(default_factory=dict)  # last part -> modules

    def note(self, names: Names) -> None:
        """Record what a file offers: its functions and classes, and what it imports."""
        top = names.scopes[names.source.tree]
        offered = {}
        for name, bound in top.bound.items():
            home = names.common_name(bound)
            if home is not None:
                offered[name] = home
        self.add(names.own, offered, tuple(names.stars))

    def add(self, module: str, offered: dict[str, str], stars: tuple[str, ...] = ()) -> None:
        """Record what a module offers, and the modules that it imports with a star."""
        self.modules[module] = offered
        self.stars[module] = stars
        self.tails.setdefault(module.rpartition(".")[2], []).append(module)

    def module(self, name: str, package: str) -> str | None:
        """Return the project's module of a name used in a package: in it, above it, or the only one that ends so."""
        parts = package.split(".") if package else []
        for count in range(len(parts), -1, -1):
            full = ".".join([*parts[:count], name])
            if full in self.modules:
                return full
        found = [owner for owner in self.tails.get(name.rpartition(".")[2], []) if owner.endswith(f".{name}")]
        return found[0] if len(found) == 1 else None

    def follow(self, name: str, package: str) -> str:
        """Return where a qualified name comes from; itself if no module of the project re-exports it.

        A folder of the project that is called tensorflow does not take the name away from the framework.
        """
        for _ in range(MAX_STEPS):
            step = self.step(name, package) if name.partition(".")[0] not in FRAMEWORK_ROOTS else None
            if step is None or step == name:
                return name
            name = step
            package = ""
        return name

    def step(self, name: str, package: str) -> str | None:
        """Return where the module of a name has it from; None if no prefix of the name is a module of the project."""
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
        """Return where a module has a name from, by itself or by its star imports; None if it does not have it."""
        found = self.modules[module].get(name)
        if found is not None or len(seen) > MAX_STEPS:
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
        """Return the qualified name of a name that the project's modules among `stars` offer; None if none does."""
        for star in stars:
            module = self.module(star, package)
            if module is not None and self.find_offered(module, name):
                return f"{module}.{name}"
        return None

    def offers_framework(self, module: str) -> bool:
        """Return True if a module offers something of a framework, or imports a module of the project with a star."""
        return any(home.partition(".")[0] in FRAMEWORK_ROOTS for home in self.modules[module].values()) or any(
            self.module(star, module.rpartition(".")[0]) for star in self.stars[module]
        )

    def find_own_modules(self, imported: Iterable[str], package: str) -> Iterator[str]:
        """Yield the modules of the project among imported names."""
        for name in imported:
            module = self.module(name.lstrip("."), package)
            if module is not None:
                yield module
