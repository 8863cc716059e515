"""A rule: the names that it looks for, and handlers that edit or report each site at which one is used.

    rule = Rule(__name__, after=("imports",))

    @rule.call("tensorflow.estimator.RunConfig")
    def convert(site: Site) -> None:
        site.rename(site.import_npu_name("NPURunConfig"))
        site.report_change("RunConfig becomes NPURunConfig", zh="…")

Every module of `rules/tf1/` and `rules/torch/` whose name has no leading underscore defines its Rule as `rule`, or
several as a tuple `rules`. The first line of a rule's docstring is its summary; a test replays the indented diffs.
"""

from __future__ import annotations

import ast
import importlib
import pkgutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache, wraps
from typing import TYPE_CHECKING, Any, TypeVar

from viaduct.cards import Card
from viaduct.cards.limits import Risk
from viaduct.cards.tensorflow_api import DEFINING_MODULE
from viaduct.migration import targets
from viaduct.migration.edits import Edits
from viaduct.migration.findings import Category, Finding, Status
from viaduct.migration.options import Mode, Options, TargetName
from viaduct.migration.predicates import find_argument
from viaduct.migration.source import Source

if TYPE_CHECKING:
    from viaduct.migration.engine import MigratedFile
    from viaduct.migration.values import Values

Handler = Callable[["Site"], None]
ALL_CARDS: tuple[TargetName, ...] = ("npu", "mlu")
ALL_TARGETS: tuple[TargetName, ...] = (*ALL_CARDS, "any")
ALL_MODES: tuple[Mode, ...] = ("rewrite", "patch")


@dataclass
class Rule:
    """Rule of a migration. The decorators `call`, `reference`, `use`, `method`, `node` and `file` register handlers."""

    module: str
    short_name: str = ""  # given if the module has several rules (notices.py); empty: the module's name
    text: str = ""  # documentation, given if the module has several rules; empty: the module's docstring
    category: Category = "mandatory"  # of its findings, also with --to any unless `category_for_any` is given
    targets: tuple[TargetName, ...] = ("npu",)
    category_for_any: Category | None = None
    target_needs: str = "other"  # the requirement (requirements.py) under which the ledger counts the rule's findings
    spec_rows: tuple[str, ...] = ()  # rows of the specification that it implements: docs/rules.md
    former_names: tuple[str, ...] = ()  # older names, without the family, that --only and --skip still accept
    after: tuple[str, ...] = ()  # rules of the same family that must run before this one
    runs_first: bool = False  # runs before all other rules, to keep them from lines
    runs_last: bool = False  # runs after all rules without `runs_last`, to see their result
    when: Callable[[Options], bool] | None = None  # runs if this is true or --only is given; None: always
    completes_other_rules: bool = False  # runs also if --only names other rules, whose edits may need this one
    modes: tuple[Mode, ...] = ("rewrite",)  # values of --mode with which the rule runs
    # Rules for PyTorch leave some lines alone, such as code for the target: `elif device.type == "npu":`. This one
    # visits them too. See MigratedFile.is_left_alone.
    visits_lines_left_alone: bool = False
    call_handlers: dict[str, Handler] = field(default_factory=dict)  # by qualified name
    reference_handlers: dict[str, Handler] = field(default_factory=dict)  # by qualified name
    method_handlers: dict[str, Handler] = field(default_factory=dict)  # by the method's name
    node_handlers: list[tuple[type[ast.AST], Handler]] = field(default_factory=list)
    file_handlers: list[Handler] = field(default_factory=list)  # run once for each file
    # All node and file handlers of the rule run only in files with one of these texts; empty: in all files.
    only_if_file_contains: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Name of the rule with its family: `torch.backend`."""
        return f"{self.family}.{self.short_name or self.module.rpartition('.')[2]}"

    @property
    def family(self) -> str:
        """Folder of the rule's module: torch or tf1."""
        return self.module.split(".")[-2]

    @property
    def skips_lines_left_alone(self) -> bool:
        return self.family == "torch" and not self.visits_lines_left_alone

    def category_of_findings(self, options: Options) -> Category:
        """Return the category of the rule's findings for the target of these options."""
        return self.category_for_any if options.to == "any" and self.category_for_any else self.category

    @property
    def doc(self) -> str:
        """Documentation of the rule: `text`, else the docstring of its module."""
        return self.text or importlib.import_module(self.module).__doc__ or ""

    def call(self, *names: str) -> Callable[[Handler], Handler]:
        """Register a handler for calls of these qualified names; `tensorflow.data.*` stands for all names within it."""
        return self._register(self.call_handlers, names)

    def reference(self, *names: str) -> Callable[[Handler], Handler]:
        """Register a handler for uses of these qualified names other than calls."""
        return self._register(self.reference_handlers, names)

    def use(self, *names: str) -> Callable[[Handler], Handler]:
        """Register a handler for calls and all other uses of these qualified names."""
        return lambda handler: self.call(*names)(self.reference(*names)(handler))

    def method(self, *names: str) -> Callable[[Handler], Handler]:
        """Register a handler for calls `x.name(…)` where x is not a known module; the handler finds out what x is."""
        return self._register(self.method_handlers, names)

    def node(self, *types: type[ast.AST], only_if_file_contains: Iterable[str] = ()) -> Callable[[Handler], Handler]:
        """Register a handler for every node of these types; the texts are added to `Rule.only_if_file_contains`."""

        def register(handler: Handler) -> Handler:
            self.node_handlers += [(node_type, handler) for node_type in types]
            self.only_if_file_contains += tuple(only_if_file_contains)
            return handler

        return register

    def file(self, only_if_file_contains: Iterable[str] = ()) -> Callable[[Handler], Handler]:
        """Register a handler that runs once for each file, with the ast.Module as its site's node."""

        def register(handler: Handler) -> Handler:
            self.file_handlers.append(handler)
            self.only_if_file_contains += tuple(only_if_file_contains)
            return handler

        return register

    @staticmethod
    def _register(table: dict[str, Handler], names: tuple[str, ...]) -> Callable[[Handler], Handler]:
        def register(handler: Handler) -> Handler:
            table.update(dict.fromkeys(names, handler))
            return handler

        return register

    def is_wanted(self, options: Options) -> bool:
        """Return True if the rule runs with these options: target, mode, --only, --skip and `when`."""
        if options.only and not self.completes_other_rules and not any(map(self.has_name, options.only)):
            return False
        if any(map(self.has_name, options.skip)) or options.mode not in self.modes:
            return False
        return options.to in self.targets and (self.when is None or self.when(options) or bool(options.only))

    def has_name(self, name: str) -> bool:
        """Return True for the rule's name and its former names, with or without the family, and for its rows."""
        short = name.removeprefix("torch.").removeprefix("tf1.")
        return name in (self.name, self.name.partition(".")[2], *self.spec_rows) or short in self.former_names


def make_rule_on_migrated_code(module: str, category: Category = "report", **fields: Any) -> Rule:
    """Return a rule for all targets and modes that runs after all others and reports on the migrated code."""
    return Rule(module, category=category, targets=ALL_TARGETS, modes=ALL_MODES, runs_last=True, **fields)


@dataclass
class Site:
    """One place of a file that a rule matched. Handlers use it to query the code, edit it and report findings."""

    rule: Rule
    file: MigratedFile
    node: Any  # a node of `ast`: the ast.Call for handlers of calls and methods, the name itself for references
    name: str = ""  # qualified name of the called or referenced object; bare name of a method; else empty
    edit: Edits = field(init=False)

    def __post_init__(self) -> None:
        self.edit = self.file.edits

    # ---- queries

    @property
    def source(self) -> Source:
        """The file as the rules before this one left it."""
        return self.file.source

    @property
    def options(self) -> Options:
        return self.file.options

    @property
    def target(self) -> targets.Target:
        """Target that `--to` names: it renders devices, backends and imports."""
        return targets.target_of(self.options)

    @property
    def cards(self) -> tuple[Card, ...]:
        """The NPU, the MLU, or both with `--to any`: the cards on which the result is to run."""
        return targets.target_cards(self.options)

    @property
    def values(self) -> Values:
        return self.file.values

    def qualified_name(self, node: ast.AST) -> str | None:
        """Return the qualified name of an expression; None if it is not known."""
        return self.file.names.qualified(node)

    def text_of(self, node: ast.AST) -> str:
        return self.source.text_of(node)

    @property
    def name_node(self) -> ast.expr:
        """Expression that `name` is the qualified name of: the function of a call, or the reference itself."""
        node: ast.expr = self.node.func if isinstance(self.node, ast.Call) else self.node
        return node

    def keyword(self, name: str) -> ast.keyword | None:
        """Return a keyword argument of the call; None if it is absent or passed through **."""
        return next((keyword for keyword in self.node.keywords if keyword.arg == name), None)

    def argument(self, name: str, position: int = -1) -> ast.expr | None:
        return find_argument(self.node, name, position)

    @property
    def has_starred_arguments(self) -> bool:
        """True if the call has * arguments."""
        return any(isinstance(value, ast.Starred) for value in self.node.args)

    @property
    def has_unpacked_arguments(self) -> bool:
        """True if the call has * or ** arguments, so that not all arguments are visible."""
        return self.has_starred_arguments or any(keyword.arg is None for keyword in self.node.keywords)

    @property
    def is_editable(self) -> bool:
        """False within an f-string, where edits are not safe."""
        return not self.source.is_in_f_string(self.node)

    # ---- changing

    def rename(self, text: str) -> None:
        """Replace the function's name in a call, or the complete reference."""
        self.edit.replace_node(self.name_node, text)

    def set_argument(self, name: str, text: str, position: int = -1) -> None:
        """Replace the value of an argument, given by keyword or position; add a keyword argument if there is none."""
        value = self.argument(name, position)
        if value is None:
            self.edit.add_argument(self.node, f"{name}={text}")
        else:
            self.edit.replace_node(value, text)

    def remove_argument(self, value: ast.expr | ast.keyword) -> None:
        self.edit.remove_items(self.source.argument_items(self.node), {self.argument_index(value)})

    def remove_arguments(self, values: list[ast.expr | ast.keyword], add: str = "") -> None:
        """Remove several arguments and add the code `add`, such as "x=1", in one edit: two could overlap at a comma."""
        self.edit.change_arguments(self.node, {self.argument_index(value) for value in values}, add)

    def argument_index(self, value: ast.expr | ast.keyword) -> int:
        """Return the position of an argument in the text of the call, where `*args` may follow keyword arguments."""
        written = sorted([*self.node.args, *self.node.keywords], key=lambda node: (node.lineno, node.col_offset))
        return written.index(value)

    def pass_by_keyword(self, value: ast.expr, name: str) -> None:
        """Turn a positional argument into a keyword argument."""
        self.edit.insert(self.source.argument_items(self.node)[self.argument_index(value)].start, f"{name}=")

    def pass_all_by_keyword(self, parameters: tuple[str, ...]) -> None:
        """Turn the positional arguments into keyword arguments; `parameters` are their names in order."""
        for value, name in zip(self.node.args, parameters, strict=False):
            self.pass_by_keyword(value, name)

    def import_npu_name(self, name: str) -> str:
        """Return the local name of an object of the NPU's TensorFlow adapter; import it if the file does not."""
        return self.file.import_name(DEFINING_MODULE[name], name, self.node)

    def reserve_name(self, stem: str) -> str:
        """Reserve and return a name that the file does not use: `stem`, or `stem` with a number."""
        return self.file.reserve_name(stem)

    # ---- reporting

    def report_change(self, message: str, zh: str, risk: Risk = "low", node: ast.AST | None = None) -> None:
        self._report("changed", message, zh, risk, node)

    def advise(self, message: str, zh: str = "", risk: Risk = "low", node: ast.AST | None = None) -> None:
        self._report("advice", message, zh, risk, node)

    def request_review(self, message: str, zh: str, risk: Risk = "medium", node: ast.AST | None = None) -> None:
        self._report("manual", message, zh, risk, node)

    def report_unresolved(self, message: str, zh: str, risk: Risk = "high", node: ast.AST | None = None) -> None:
        """Report code for which the text does not show whether it needs a change."""
        self._report("unresolved", message, zh, risk, node)

    def _report(self, status: Status, message: str, zh: str, risk: Risk, node: ast.AST | None) -> None:
        """Add a finding at a node, by default the site's; on lines that the rule leaves alone add only advice."""
        reported: Any = node or self.node
        if status != "advice" and self.rule.skips_lines_left_alone and self.file.is_left_alone(reported):
            return
        line, end_line = getattr(reported, "lineno", 1), getattr(reported, "end_lineno", 1)  # ast.Module has none
        first, last = self.file.original_lines[line - 1], self.file.original_lines[end_line - 1]
        location = self.file.path, first, max(last, first), getattr(reported, "col_offset", 0) + 1
        category = self.rule.category_of_findings(self.options)
        self.file.findings.append(Finding(*location, self.rule.name, category, status, message, zh, risk))


Result = TypeVar("Result")


def cache_per_file(function: Callable[[Site], Result]) -> Callable[[Site], Result]:
    """Decorate a function whose result is the same for all sites of a file: it is cached until edits are applied."""

    @wraps(function)
    def get_answer(site: Site) -> Result:
        if function not in site.file.cache:
            site.file.cache[function] = function(site)
        return site.file.cache[function]  # type: ignore[no-any-return]

    return get_answer


@lru_cache(maxsize=1)
def all_rules() -> tuple[Rule, ...]:
    """Return every rule of every rule module, in the order in which they run."""
    import viaduct.migration.rules as root

    rules: list[Rule] = []
    for family in pkgutil.iter_modules(root.__path__, f"{root.__name__}."):
        path = importlib.import_module(family.name).__path__ if family.ispkg else []  # _entry.py holds no rules
        for entry in pkgutil.iter_modules(path, f"{family.name}."):
            if not entry.name.rpartition(".")[2].startswith("_"):
                module = importlib.import_module(entry.name)
                rules += getattr(module, "rules", None) or (module.rule,)
    return tuple(sort_rules(rules))


@lru_cache(maxsize=1)
def rules_by_name() -> dict[str, Rule]:
    return {rule.name: rule for rule in all_rules()}


def is_rule_wanted(name: str, options: Options) -> bool:
    """Return True if the rule with this name, such as `torch.backend`, runs with these options."""
    return rules_by_name()[name].is_wanted(options)


def sort_rules(rules: Iterable[Rule]) -> Iterator[Rule]:
    """Yield the rules in the order of their names, each after the rules in its `after`.

    Those with `runs_first` come at the beginning, those with `runs_last` at the end. Raises ValueError if rules wait
    for each other.
    """
    waiting = sorted(rules, key=lambda rule: (not rule.runs_first, rule.runs_last, rule.name))
    finished: set[str] = set()
    while waiting:
        ready = (rule for rule in waiting if all(f"{rule.family}.{name}" in finished for name in rule.after))
        next_rule = next(ready, None)
        if next_rule is None:
            raise ValueError(f"rules that wait for each other: {', '.join(rule.name for rule in waiting)}")
        waiting.remove(next_rule)
        finished.add(next_rule.name)
        yield next_rule
