"""A rule: the names it looks for, and small functions that rewrite a place or report it.

    rule = Rule(__name__, spec="E1", kind="mandatory", zh="…")

    @rule.call("tensorflow.estimator.RunConfig")
    def convert(site: Site) -> None:
        site.rename(site.need("NPURunConfig"))
        site.changed("RunConfig becomes NPURunConfig", zh="…")

Living in `rules/tf1/` or `rules/torch/` is registration; the file's name is the rule's. The docstring's first line is
its summary, its indented diffs are examples that a test replays. Rules run one after the other, each on the text that
the rule before left. `after` names the rules whose edits a rule needs to see. A rule that reports on the result has
`last`.
"""

from __future__ import annotations

import ast
import importlib
import pkgutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache, wraps
from typing import TYPE_CHECKING, Any, TypeVar

from viaduct.cards.limits import Risk
from viaduct.cards.tensorflow_api import HOME
from viaduct.migration import targets
from viaduct.migration.edits import Edits
from viaduct.migration.findings import Finding, Kind, Status
from viaduct.migration.options import Options, Target
from viaduct.migration.source import Source

if TYPE_CHECKING:
    from viaduct.migration.engine import Work
    from viaduct.migration.values import Values

Handler = Callable[["Site"], None]


@dataclass
class Rule:
    """Rule of a migration. `calls`, `references`, `methods`, `nodes` and `whole` hold its handlers, by what they match.

    A rule module makes one and registers handlers with the decorators `call`, `reference`, `method`, `node` and `file`.
    """

    module: str
    title: str = ""  # the rule's name, if its module holds several rules (notices.py)
    text: str = ""  # the rule's documentation, if its module holds several rules
    spec: str = ""  # rows of the specification that it fulfils: "E1 E2"
    kind: Kind = "mandatory"
    targets: tuple[Target, ...] = ("npu",)
    kind_for_any: Kind | None = None  # its kind with --to any, if that differs
    former: tuple[str, ...] = ()  # former names that --only and --skip still accept
    after: tuple[str, ...] = ()  # rules of its family whose edits it needs to see
    last: bool = False  # runs after all rules without `last`, and reports on their result
    on: Callable[[Options], bool] | None = None  # None: it always runs; else if this is True, or with --only
    always: bool = False  # runs with --only of other rules too: their edits need it
    calls: dict[str, Handler] = field(default_factory=dict)
    references: dict[str, Handler] = field(default_factory=dict)
    methods: dict[str, Handler] = field(default_factory=dict)
    nodes: list[tuple[type[ast.AST], Handler]] = field(default_factory=list)
    whole: list[Handler] = field(default_factory=list)
    patch: bool = False  # whether it also runs in --mode patch, where nothing but an import is written
    everywhere: bool = False  # also looks at lines that other rules leave alone, see served.py
    words: tuple[str, ...] = ()  # handlers of nodes and whole files run only if the file holds one of these texts

    @property
    def name(self) -> str:
        """Name of the rule with its family: `torch.backend`."""
        return f"{self.family}.{self.title or self.module.rpartition('.')[2]}"

    @property
    def family(self) -> str:
        """The folder in which it lives: torch or tf1."""
        return self.module.split(".")[-2]

    @property
    def leaves_served(self) -> bool:
        """True for a rule of PyTorch that does not look at lines which are left alone (served.py)."""
        return self.family == "torch" and not self.everywhere

    def kind_of(self, options: Options) -> Kind:
        """Return what kind of change its findings are about."""
        return self.kind_for_any if options.to == "any" and self.kind_for_any else self.kind

    @property
    def doc(self) -> str:
        """Documentation of the rule: the docstring of its module, unless it has its own."""
        return self.text or importlib.import_module(self.module).__doc__ or ""

    def call(self, *names: str) -> Callable[[Handler], Handler]:
        """Register a handler for calls of these qualified names; `tensorflow.data.*` stands for all names below it."""
        return self._register(self.calls, names)

    def reference(self, *names: str) -> Callable[[Handler], Handler]:
        """Register a handler for uses of these qualified names other than calls."""
        return self._register(self.references, names)

    def method(self, *names: str) -> Callable[[Handler], Handler]:
        """Register a handler for calls `x.name(…)` where x is not a known module; the handler finds out what x is."""
        return self._register(self.methods, names)

    def node(self, *types: type[ast.AST], words: Iterable[str] = ()) -> Callable[[Handler], Handler]:
        """Register a handler for every node of these types, in files that hold one of the rule's words.

        A rule without words looks at every file.
        """

        def register(handler: Handler) -> Handler:
            self.nodes += [(kind, handler) for kind in types]
            self.words += tuple(words)
            return handler

        return register

    def file(self, words: Iterable[str] = ()) -> Callable[[Handler], Handler]:
        """Register a handler that runs once a file, with the module as its node; `words` as for `node`."""

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

    def is_wanted(self, options: Options) -> bool:
        """Return True if the rule runs with these options: target, mode, --only, --skip and `on`."""
        if options.only and not self.always and not any(is_named(rule_name, self) for rule_name in options.only):
            return False
        if any(is_named(name, self) for name in options.skip) or (options.mode == "patch" and not self.patch):
            return False
        return options.to in self.targets and (self.on is None or self.on(options) or bool(options.only))


def is_named(name: str, rule: Rule) -> bool:
    """Return True if a name means this rule: its name with or without the family, a former name, or a row of `spec`."""
    short = name.removeprefix("torch.").removeprefix("tf1.")
    return name in (rule.name, rule.name.partition(".")[2], *rule.spec.split()) or short in rule.former


@dataclass
class Site:
    """One place that a rule looks at, with what its handler may ask, change and report."""

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
        """Present text of the file."""
        return self.work.source

    @property
    def options(self) -> Options:
        """Options of the migration."""
        return self.work.options

    @property
    def target(self) -> targets.Target:
        """Target that `--to` names: it renders devices, backends and imports."""
        return targets.target_of(self.options)

    @property
    def values(self) -> Values:
        """Kinds of values in the file."""
        return self.work.values

    def qualified(self, node: ast.AST) -> str | None:
        """Return the qualified name of an expression; None if it is not known."""
        return self.work.names.qualified(node)

    def text(self, node: ast.AST) -> str:
        """Return the text of a node."""
        return self.source.text_of(node)

    def keyword(self, name: str) -> ast.keyword | None:
        """Return a keyword argument of the call, if it is given."""
        return next((keyword for keyword in self.node.keywords if keyword.arg == name), None)

    def argument(self, name: str, position: int = -1) -> ast.expr | None:
        """Return an argument given by keyword or position; None if absent or hidden behind * or **."""
        keyword = self.keyword(name)
        if keyword is not None:
            return keyword.value
        before = self.node.args[: position + 1]
        if position < 0 or len(before) <= position or any(isinstance(value, ast.Starred) for value in before):
            return None
        value: ast.expr = before[position]
        return value

    @property
    def has_unpacked(self) -> bool:
        """True if the call has * or ** arguments, so that not all arguments are visible."""
        return any(isinstance(value, ast.Starred) for value in self.node.args) or any(
            keyword.arg is None for keyword in self.node.keywords
        )

    @property
    def editable(self) -> bool:
        """False within an f-string, where edits are not safe."""
        return not self.source.in_f_string(self.node)

    # ---- changing

    def rename(self, text: str) -> None:
        """Replace the function of a call, or a reference itself."""
        self.edit.node(self.node.func if isinstance(self.node, ast.Call) else self.node, text)

    def set_argument(self, name: str, text: str, position: int = -1) -> None:
        """Replace the value of an argument, given by keyword or position; add a keyword argument if there is none."""
        value = self.argument(name, position)
        if value is None:
            self.edit.add_argument(self.node, f"{name}={text}")
        else:
            self.edit.node(value, text)

    def remove_argument(self, value: ast.expr | ast.keyword) -> None:
        """Remove one argument of the call."""
        slots, _ = self.source.slots(self.source.opening(self.node))
        self.edit.remove_slot(slots, self.argument_index(value))

    def remove_arguments(self, values: list[ast.expr | ast.keyword], add: str = "") -> None:
        """Remove several arguments, and add `name=value`, in one edit: separate edits could overlap at a comma."""
        self.edit.change_arguments(self.node, {self.argument_index(value) for value in values}, add)

    def argument_index(self, value: ast.expr | ast.keyword) -> int:
        """Return the position of an argument among all of the call, as written."""
        written = sorted([*self.node.args, *self.node.keywords], key=lambda node: (node.lineno, node.col_offset))
        return written.index(value)

    def name_positions(self, order: tuple[str, ...]) -> None:
        """Turn positional arguments into keyword arguments named in `order`; must not be called with * among them."""
        slots, _ = self.source.slots(self.source.opening(self.node))
        for value, name in zip(self.node.args, order, strict=False):
            self.edit.insert(slots[self.argument_index(value)].start, f"{name}=")

    def need(self, name: str) -> str:
        """Return the local name of a member of the NPU's TensorFlow adapter; ask for its import if there is none."""
        return self.work.need(HOME[name], name, self.node)

    def free_name(self, wanted: str) -> str:
        """Return this name, or a similar one, that the file does not use yet, and reserve it."""
        return self.work.free_name(wanted)

    # ---- reporting

    def changed(self, message: str, zh: str = "", risk: Risk = "low", node: ast.AST | None = None) -> None:
        """Report a change that was made."""
        self._report("changed", message, zh, risk, node)

    def advice(self, message: str, zh: str = "", risk: Risk = "low", node: ast.AST | None = None) -> None:
        """Report something that may be improved."""
        self._report("advice", message, zh, risk, node)

    def manual(self, message: str, zh: str = "", risk: Risk = "medium", node: ast.AST | None = None) -> None:
        """Report something that needs manual review."""
        self._report("manual", message, zh, risk, node)

    def unresolved(self, message: str, zh: str = "", risk: Risk = "high", node: ast.AST | None = None) -> None:
        """Report a place that may need a change: the text does not show whether."""
        self._report("unresolved", message, zh, risk, node)

    def _report(self, status: Status, message: str, zh: str, risk: Risk, node: ast.AST | None) -> None:
        at: Any = node or self.node
        if status != "advice" and self.rule.leaves_served and self.work.is_served(at):
            return  # this line is left alone, see Work.is_served
        line, end, column = getattr(at, "lineno", 1), getattr(at, "end_lineno", 1), getattr(at, "col_offset", 0)
        stems = self.work.lines
        self.work.findings.append(
            Finding(
                *(self.work.path, stems[line - 1], max(stems[end - 1], stems[line - 1]), column + 1, self.rule.name),
                *(self.rule.kind_of(self.options), status, message, zh, risk),
            )
        )


Asked = TypeVar("Asked")


def answer_once(function: Callable[[Site], Asked]) -> Callable[[Site], Asked]:
    """Decorate a function of a site whose result depends on the whole file: it is computed once for each text."""

    @wraps(function)
    def answer(site: Site) -> Asked:
        if function not in site.work.answers:
            site.work.answers[function] = function(site)
        return site.work.answers[function]  # type: ignore[no-any-return]

    return answer


@lru_cache(maxsize=1)
def all_rules() -> tuple[Rule, ...]:
    """Return every rule of every rule file, in the order in which they run."""
    import viaduct.migration.rules as home

    found: list[Rule] = []
    for family in pkgutil.iter_modules(home.__path__, f"{home.__name__}."):
        package = importlib.import_module(family.name)
        for entry in pkgutil.iter_modules(package.__path__, f"{family.name}."):
            if not entry.name.rpartition(".")[2].startswith("_"):
                module = importlib.import_module(entry.name)
                found += getattr(module, "rules", None) or (module.rule,)
    return tuple(sort_rules(found))


def sort_rules(rules: Iterable[Rule]) -> Iterator[Rule]:
    """Yield every rule after those that it names in `after`, else by name, `last` ones after all others.

    Raises ValueError if rules wait for each other.
    """
    waiting = sorted(rules, key=lambda rule: (rule.last, rule.name))
    done: set[str] = set()
    while waiting:
        ready = (rule for rule in waiting if all(f"{rule.family}.{name}" in done for name in rule.after))
        following = next(ready, None)
        if following is None:
            raise ValueError(f"rules that wait for each other: {', '.join(rule.name for rule in waiting)}")
        waiting.remove(following)
        done.add(following.name)
        yield following
