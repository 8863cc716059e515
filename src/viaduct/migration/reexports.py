"""Names that modules of a project re-export: `from utils import *` may bind `tf`, `from pkg import make` a function.

Before any file is migrated, the names that each module offers are recorded as strings. A qualified name such as
`utils.tf` is then followed to its origin, `tensorflow`.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from viaduct.cards.tensorflow_api import VENDOR_MODULES

if TYPE_CHECKING:
    from viaduct.migration.names import Names

FRAMEWORK_ROOTS = ("tensorflow", "torch", "keras", "horovod", *VENDOR_MODULES, "tf_slim")
MAX_STEPS = 100
"""Maximum number of modules through which a name is followed."""


def find_nearest_module(
    name: str, package: str, modules: Container[str], by_last_name: Mapping[str, list[str]]
) -> str | None:
    """Return the module to which a name in a file of `package` refers; None if it is none of `modules`.

    It is looked up in the package, then in each package around it. Else it is the only module with this ending.
    """
    parts = package.split(".") if package else []
    for count in range(len(parts), -1, -1):
        full = ".".join([*parts[:count], name])
        if full in modules:
            return full
    return find_by_ending(name, by_last_name)


def find_by_ending(name: str, by_last_name: Mapping[str, list[str]]) -> str | None:
    """Return the only dotted name that ends with `.name`; None if there are several or none.

    `by_last_name`: last part of a dotted name -> the names with it.
    """
    matches = [full for full in by_last_name.get(name.rpartition(".")[2], ()) if full.endswith(f".{name}")]
    return matches[0] if len(matches) == 1 else None


@dataclass
class Exports:
    """Names that the modules of a project offer to files that import them. Modules are dotted names."""

    modules: dict[str, dict[str, str]] = field(default_factory=dict)  # module -> name -> qualified name
    stars: dict[str, tuple[str, ...]] = field(default_factory=dict)  # module -> modules it imports with a star
    by_last_name: dict[str, list[str]] = field(default_factory=dict)  # last part of a module's name -> modules
    _sources: dict[str, list[str]] = field(default_factory=dict)  # results of `follow_stars`

    def record(self, names: Names) -> None:
        """Record the names that a file offers, its functions, classes and imports, and its star imports."""
        self._sources.clear()
        origins = {name: names.common_name(bound) for name, bound in names.scopes[names.source.tree].bindings.items()}
        self.modules[names.module] = {name: origin for name, origin in origins.items() if origin is not None}
        self.stars[names.module] = tuple(names.stars)
        self.by_last_name.setdefault(names.module.rpartition(".")[2], []).append(names.module)

    def find_module(self, name: str, package: str) -> str | None:
        """Return the module to which a name in a file of `package` refers; None if it is not one of the project."""
        return find_nearest_module(name, package, self.modules, self.by_last_name)

    def follow(self, name: str, package: str) -> str:
        """Return the origin of a qualified name; the name itself if no module of the project re-exports it."""
        for _ in range(MAX_STEPS):
            step = self.follow_once(name, package) if name.partition(".")[0] not in FRAMEWORK_ROOTS else None
            if step is None or step == name:
                return name
            name, package = step, ""  # `step` is an absolute name
        return name

    def follow_once(self, name: str, package: str) -> str | None:
        """Follow a qualified name through one module; None if no prefix of the name is a module of the project."""
        head, _, remainder = name.rpartition(".")
        suffix = ""
        while head:
            module = self.find_module(head, package)
            if module is not None:
                offered = self.find_offered(module, remainder)
                return f"{offered}{suffix}" if offered else f"{module}.{remainder}{suffix}"
            suffix = f".{remainder}{suffix}"
            head, _, remainder = head.rpartition(".")
        return None

    def find_offered(self, module: str, name: str) -> str | None:
        """Return the qualified name of a name that a module binds or imports with a star; else None."""
        for source in self.follow_stars(module):
            if name in self.modules[source]:
                return self.modules[source][name]
        return None

    def follow_stars(self, module: str) -> list[str]:
        """Return a module and all modules of the project that it imports with a star, also through each other."""
        if module not in self._sources:
            sources, waiting = dict[str, None](), [module]
            while waiting:
                source = waiting.pop()
                if source in sources:
                    continue
                sources[source] = None
                package = source.rpartition(".")[0]
                found = (
                    self.find_module(star, package) or self.find_module(star, source) for star in self.stars[source]
                )
                waiting += reversed([star for star in found if star is not None])
            self._sources[module] = list(sources)
        return self._sources[module]

    def find_in_stars(self, name: str, stars: Iterable[str], package: str) -> str | None:
        """Return the qualified name of a name that `from module import *` of one of these modules binds; else None."""
        for star in stars:
            module = self.find_module(star, package)
            if module is not None and self.find_offered(module, name):
                return f"{module}.{name}"
        return None

    def offers_framework(self, module: str) -> bool:
        """Return True if a module offers a name of a framework, or imports a module of the project with a star."""
        return any(origin.partition(".")[0] in FRAMEWORK_ROOTS for origin in self.modules[module].values()) or any(
            self.find_module(star, module.rpartition(".")[0]) for star in self.stars[module]
        )

    def find_own_modules(self, imported: Iterable[str], package: str) -> Iterator[str]:
        """Yield the modules of the project among imported names."""
        for name in imported:
            module = self.find_module(name.lstrip("."), package)
            if module is not None:
                yield module
