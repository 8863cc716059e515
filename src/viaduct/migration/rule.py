"""A rule: what it looks for, and a small function that rewrites, advises or leaves to a person.

    rule = Rule(__name__, spec="E1", kind="mandatory", zh="…")

    @rule.call("tensorflow.estimator.RunConfig")
    def convert(site: Site) -> None:
        site.rename(site.need("NPURunConfig"))
        site.changed("RunConfig becomes NPURunConfig", zh="…")

Living in `rules/tf1/` or `rules/torch/` is registration; the file's name is the rule's. The docstring's first line is
its summary, its indented diff an example that a test replays. Rules run one after the other in the order of `order`,
each on the text that the one before left, so none needs to know of another's edits.
"""

from __future__ import annotations

import ast
import importlib
import pkgutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import lru_cache, wraps
from typing import TYPE_CHECKING, Any, TypeVar

from viaduct.migration.edits import Edits
from viaduct.migration.findings import Finding, Kind, Risk, Status
from viaduct.migration.options import Options, Target
from viaduct.migration.source import Source
from viaduct.migration.surface import HOME

if TYPE_CHECKING:
    from viaduct.migration.engine import Work
    from viaduct.migration.values import Values

Handler = Callable[["Site"], None]


@dataclass
class Rule:
    """names and methods say when a file is worth a look; handlers are called for each place."""

    module: str
    spec: str = ""  # ids of the rows it fulfils: "E1 E2"
    kind: Kind = "mandatory"
    targets: tuple[Target, ...] = ("npu",)
    order: int = 50
    on: Callable[[Options], bool] | None = None  # None: always; else only when asked for
    always: bool = False  # also with --only: what another rule has written needs it
    calls: dict[str, Handler] = field(default_factory=dict)
    references: dict[str, Handler] = field(default_factory=dict)
    methods: dict[str, Handler] = field(default_factory=dict)
    nodes: list[tuple[type[ast.AST], Handler]] = field(default_factory=list)
    whole: list[Handler] = field(default_factory=list)
    patch: bool = False  # whether it also runs in --mode patch, where nothing but an import is written
    everywhere: bool = False  # also speaks of places that are left alone, see served.py
    words: tuple[str, ...] = ()  # for nodes and whole: the file must hold one of these texts

    @property
    def name(self) -> str:
        return ".".join(self.module.split(".")[-2:])

    @property
    def family(self) -> str:
        """The folder in which it lives: torch or tf1."""
        return self.module.split(".")[-2]

    @property
    def leaves_served(self) -> bool:
        """Return True for a rule of PyTorch that does not look at places which are left alone."""
        return self.family == "torch" and not self.everywhere

    @property
    def doc(self) -> str:
        return importlib.import_module(self.module).__doc__ or ""

    def call(self, *names: str) -> Callable[[Handler], Handler]:
        """A call of one of these; `tensorflow.data.*` stands for all below."""
        return self._register(self.calls, names)

    def reference(self, *names: str) -> Callable[[Handler], Handler]:
        """One of these mentioned otherwise than by calling it."""
        return self._register(self.references, names)

    def method(self, *names: str) -> Callable[[Handler], Handler]:
        """A call `x.name(…)` where x is not a module: the handler asks what x is."""
        return self._register(self.methods, names)

    def node(self, *types: type[ast.AST], words: Iterable[str] = ()) -> Callable[[Handler], Handler]:
        """Every node of a type, in files that hold one of the words."""

        def register(handler: Handler) -> Handler:
            self.nodes += [(kind, handler) for kind in types]
            self.words += tuple(words)
            return handler

        return register

    def file(self, words: Iterable[str] = ()) -> Callable[[Handler], Handler]:
        """Once a file; the site's node is the module."""

        def register(handler: Handler) -> Handler:
            self.whole.append(handler)
            self.words += tuple(words)
            return handler

        return register

    @staticmethod
    def _register(table: dict[str, Handler], names: tuple[str, ...]) -> Callable[[Handler], Handler]:
        def register(handler: Handler) -> Handler:
            table.update(dict.fromkeys(names, handler))
            return handler

        return register

    def wanted(self, options: Options) -> bool:
        if options.only and not self.always and not any(named(word, self) for word in options.only):
            return False
        if any(named(word, self) for word in options.skip) or (options.mode == "patch" and not self.patch):
            return False
        return options.to in self.targets and (self.on is None or self.on(options) or bool(options.only))


def named(word: str, rule: Rule) -> bool:
    return word in (rule.name, rule.name.partition(".")[2], *rule.spec.split())


@dataclass
class Site:
    """One place that a rule looks at, with all that it may ask and do."""

    rule: Rule
    work: Work
    node: Any
    name: str = ""  # the qualified name, for calls and references
    edit: Edits = field(init=False)

    def __post_init__(self) -> None:
        self.edit = self.work.edits

    # ---- asking

    @property
    def source(self) -> Source:
        return self.work.source

    @property
    def options(self) -> Options:
        return self.work.options

    @property
    def values(self) -> Values:
        return self.work.values

    def qualified(self, node: ast.AST) -> str | None:
        return self.work.names.qualified(node)

    def text(self, node: ast.AST) -> str:
        return self.source.text_of(node)

    def keyword(self, name: str) -> ast.keyword | None:
        return next((word for word in self.node.keywords if word.arg == name), None)

    def argument(self, name: str, position: int = -1) -> ast.expr | None:
        """By keyword, else by position; None if absent or hidden behind * or **."""
        word = self.keyword(name)
        if word is not None:
            return word.value
        before = self.node.args[: position + 1]
        if position < 0 or len(before) <= position or any(isinstance(value, ast.Starred) for value in before):
            return None
        value: ast.expr = before[position]
        return value

    @property
    def unpacked(self) -> bool:
        """Whether arguments come by * or **, so that not all are seen."""
        return any(isinstance(value, ast.Starred) for value in self.node.args) or any(
            word.arg is None for word in self.node.keywords
        )

    @property
    def editable(self) -> bool:
        return not self.source.in_f_string(self.node)

    # ---- changing

    def rename(self, text: str) -> None:
        """Of a call: the function; of a reference: itself."""
        self.edit.node(self.node.func if isinstance(self.node, ast.Call) else self.node, text)

    def set_argument(self, name: str, text: str, position: int = -1) -> None:
        """Its value if it is there, by keyword or position; a new keyword if not."""
        value = self.argument(name, position)
        if value is None:
            self.edit.add_argument(self.node, f"{name}={text}")
        else:
            self.edit.node(value, text)

    def remove_argument(self, value: ast.expr | ast.keyword) -> None:
        slots, _ = self.source.slots(self.source.opening(self.node))
        self.edit.remove_slot(slots, self.place(value))

    def remove_arguments(self, values: list[ast.expr | ast.keyword], add: str = "") -> None:
        """Several at once, and `name=value` added in the same stroke: one by one they would meet at a comma."""
        self.edit.change_arguments(self.node, {self.place(value) for value in values}, add)

    def place(self, value: ast.expr | ast.keyword) -> int:
        """The how-manieth argument it is, as written."""
        written = sorted([*self.node.args, *self.node.keywords], key=lambda one: (one.lineno, one.col_offset))
        return written.index(value)

    def name_positions(self, order: tuple[str, ...]) -> None:
        """Positional arguments become keywords; must not be called with * among them."""
        slots, _ = self.source.slots(self.source.opening(self.node))
        for value, name in zip(self.node.args, order, strict=False):
            self.edit.insert(slots[self.place(value)].start, f"{name}=")

    def need(self, name: str) -> str:
        """The local name of something of npu_bridge, hccl …; it will be imported if it is not yet."""
        return self.work.need(HOME[name], name, self.node)

    def free_name(self, wanted: str) -> str:
        """This name, or one like it that the file does not use."""
        return self.work.free_name(wanted)

    # ---- saying

    def changed(self, message: str, zh: str = "", risk: Risk = "low", node: ast.AST | None = None) -> None:
        self._say("changed", message, zh, risk, node)

    def advice(self, message: str, zh: str = "", risk: Risk = "low", node: ast.AST | None = None) -> None:
        self._say("advice", message, zh, risk, node)

    def manual(self, message: str, zh: str = "", risk: Risk = "medium", node: ast.AST | None = None) -> None:
        self._say("manual", message, zh, risk, node)

    def unresolved(self, message: str, zh: str = "", risk: Risk = "high", node: ast.AST | None = None) -> None:
        """Say of something that may need a change that the text does not show enough to decide."""
        self._say("unresolved", message, zh, risk, node)

    def _say(self, status: Status, message: str, zh: str, risk: Risk, node: ast.AST | None) -> None:
        at: Any = node or self.node
        if status != "advice" and self.rule.leaves_served and self.work.is_served(at):
            return  # the other branch of this place is the target's
        line, end, column = getattr(at, "lineno", 1), getattr(at, "end_lineno", 1), getattr(at, "col_offset", 0)
        stems = self.work.lines
        self.work.findings.append(
            Finding(
                *(self.work.path, stems[line - 1], max(stems[end - 1], stems[line - 1]), column + 1, self.rule.name),
                *(self.rule.kind, status, message, zh, risk),
            )
        )


Asked = TypeVar("Asked")


def once(function: Callable[[Site], Asked]) -> Callable[[Site], Asked]:
    """Decorate a question about the whole file: it is answered once for a text, however many places ask it."""

    @wraps(function)
    def answer(site: Site) -> Asked:
        if function not in site.work.answers:
            site.work.answers[function] = function(site)
        return site.work.answers[function]  # type: ignore[no-any-return]

    return answer


@lru_cache(maxsize=1)
def all_rules() -> tuple[Rule, ...]:
    """Every rule file there is, in the order in which they run."""
    import viaduct.migration.rules as home

    found = []
    for family in pkgutil.iter_modules(home.__path__, f"{home.__name__}."):
        package = importlib.import_module(family.name)
        for entry in pkgutil.iter_modules(package.__path__, f"{family.name}."):
            if not entry.name.rpartition(".")[2].startswith("_"):
                found.append(importlib.import_module(entry.name).rule)
    return tuple(sorted(found, key=lambda rule: (rule.order, rule.name)))
