"""Migrate one text: run each rule on the result of the rule before it, then insert the imports that rules requested.

A text on which no rule can have an effect (prefilter.py) is only parsed, to report a file that is not Python.
Statements that a rule changed are parsed again before the next rule runs (reparse.py).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from viaduct.cards import NPU
from viaduct.migration import candidates_tf1, candidates_torch
from viaduct.migration.edits import Edits, Overlap
from viaduct.migration.findings import Finding
from viaduct.migration.frameworks import FAMILIES, TORCH
from viaduct.migration.imports import insert_imports
from viaduct.migration.ledger import audit_file
from viaduct.migration.names import Names
from viaduct.migration.options import Options
from viaduct.migration.prefilter import may_match_rule
from viaduct.migration.project import Project
from viaduct.migration.reparse import parse_edited
from viaduct.migration.results import FileResult
from viaduct.migration.rule import Handler, Rule, Site, all_rules
from viaduct.migration.source import LINE_END, Source, UndecodableText, Unparsable, decode, parse
from viaduct.migration.target_code import find_target_code
from viaduct.migration.values import Values

LIBRARIES = ("tensorflow", "torch", "horovod", "keras", *NPU.tensorflow_modules, "numpy", "os")
"""Libraries in which `library.x.f()` calls a function. `project.x.f()` may call a method of the variable x."""

CUDA_OR_NCCL = re.compile(rb"cuda|nccl", re.IGNORECASE)


@dataclass
class MigratedFile:
    """One file while it is migrated: its present text, and what the rules so far have found, requested and edited."""

    path: str
    source: Source
    options: Options
    project: Project
    original_lines: list[int]  # for each line of the present text the line of the original from which it comes
    findings: list[Finding] = field(default_factory=list)  # with lines of the original
    needed_imports: dict[str, str] = field(default_factory=dict)  # names to import: local name -> qualified
    side_effect_imports: set[str] = field(default_factory=set)  # modules to import though no name of them is used
    handled: dict[tuple[object, ...], None] = field(default_factory=dict)  # an ordered set: see lookups.mark_once
    edits: Edits = field(init=False)  # of the rule that runs
    former_index: Index | None = None  # of the text before the last edits; None once `index` was computed
    former_names: Names | None = None  # the same for `names`
    cache: dict[object, Any] = field(default_factory=dict)  # see rule.cache_per_file
    # Lines of the original that rules leave alone, each with the line of a statement:
    target_code_lines: dict[int, int] = field(default_factory=dict)  # the statement already handles the target
    explained_lines: dict[int, int] = field(default_factory=dict)  # the finding at the statement explains them too

    def __post_init__(self) -> None:
        self.edits = Edits(self.source)

    @cached_property
    def names(self) -> Names:
        surveyed = self.project.parsed.get(self.path)
        if surveyed is not None and surveyed.source is self.source:
            return surveyed.copy_without_requested_imports()
        module, package = self.project.module_of(self.path)
        former, self.former_names = self.former_names, None
        names = Names(self.source, module, package, self.needed_imports, former)
        names.exports = self.project.exports
        names.horovod_aliases = self.project.horovod_aliases if self.path in self.project.horovod_alias_files else {}
        return names

    @cached_property
    def values(self) -> Values:
        return Values(self.names, self.project)

    @cached_property
    def index(self) -> Index:
        former, self.former_index = self.former_index, None
        return Index(self, former)

    def import_name(self, module: str, name: str, at: ast.AST | None = None) -> str:
        """Return the local name of a module's member, and request its import if the file does not import it.

        The local name is `npu_NAME` if the file uses NAME for something else. An existing import is not used if a
        parameter or a local variable hides its name at the node `at`.
        """
        qualified = f"{module}.{name}"
        present = self.names.local_name(qualified)
        if present is not None and at is not None and self.names.is_hidden(present, at):
            present = self.names.requested_name(qualified)
        if present is not None:
            return present
        is_unbound = self.names.lookup(name, self.names.scopes[self.source.tree]) is None
        if is_unbound and self.names.resolve_star_name(name) == qualified:
            return name
        local = name if name not in self.names.used_names else self.reserve_name(f"npu_{name}")
        self.request_import(local, qualified)
        return local

    def request_import(self, local: str, qualified: str) -> None:
        """Request that `insert_imports` imports a qualified name as `local`."""
        self.needed_imports[local] = self.names.requested_imports[local] = qualified
        self.names.used_names.add(local)

    def is_left_alone(self, node: ast.AST) -> bool:
        """Return True for a node on a line that rules leave alone, of `target_code_lines` or `explained_lines`."""
        line = getattr(node, "lineno", 0)
        original = self.original_lines[line - 1] if 0 < line <= len(self.original_lines) else 0
        return original in self.target_code_lines or original in self.explained_lines

    def original_line(self, node: ast.expr | ast.stmt) -> int:
        """Return the line of the original from which the first line of a node comes."""
        return self.original_lines[node.lineno - 1]

    def reserve_name(self, stem: str) -> str:
        """Return a name that the file does not use, and reserve it."""
        name, number = stem, 2
        while name in self.names.used_names:
            name, number = f"{stem}_{number}", number + 1
        self.names.used_names.add(name)
        return name

    def apply_edits(self) -> MigratedFile:
        """Apply the edits; return the file with the new text, and the findings and requests so far."""
        text, lines = self.edits.apply(self.original_lines)
        source = parse_edited(self.source, self.edits.made, text)
        known = self.findings, self.needed_imports, self.side_effect_imports
        file = MigratedFile(self.path, source, self.options, self.project, lines, *known)
        file.target_code_lines, file.explained_lines = self.target_code_lines, self.explained_lines
        file.former_index, file.former_names = self.__dict__.get("index"), self.__dict__.get("names")  # if computed
        self.cache.clear()  # they refer to this MigratedFile: a reference cycle would keep its tree in memory
        return file


class Index:
    """Calls and references of a file by qualified name, and method calls by the method's name."""

    def __init__(self, file: MigratedFile, former: Index | None = None) -> None:
        """Resolve the name of every call and reference; those of the former text are kept if `keeps_names` is true."""
        self.top_level, self.source = file.names.resolve_top_level(), file.source
        former_names = former.qualified if former is not None and self.keeps_names(former, file.names) else {}
        self.qualified: dict[ast.AST, str | None] = {}
        self.calls: dict[str, list[ast.Call]] = {}
        self.references: dict[str, list[ast.expr]] = {}
        self.methods: dict[str, list[ast.Call]] = {}
        called: set[ast.AST] = set()
        parents, qualify = file.source.parents, file.names.qualified
        for call in file.source.nodes_of_type(ast.Call):
            called.add(call.func)
            function = call.func
            name = self.qualified[function] = former_names[function] if function in former_names else qualify(function)
            if name:
                self.calls.setdefault(name, []).append(call)
            if call.func.__class__ is ast.Attribute and (name is None or name.partition(".")[0] not in LIBRARIES):
                self.methods.setdefault(call.func.attr, []).append(call)
        read: list[ast.Name | ast.Attribute] = [
            *file.source.nodes_of_type(ast.Name),
            *file.source.nodes_of_type(ast.Attribute),
        ]
        for node in read:
            if node.ctx.__class__ is not ast.Load or parents[node].__class__ is ast.Attribute or node in called:
                continue
            name = self.qualified[node] = former_names[node] if node in former_names else qualify(node)
            if name:
                self.references.setdefault(name, []).append(node)

    def keeps_names(self, former: Index, names: Names) -> bool:
        """Return True if every name in the former text still resolves to the same qualified name."""
        if names.horovod_aliases or former.top_level.stars != self.top_level.stars:
            return False
        changed = self.top_level.find_changes(former.top_level)
        return not changed or not any(node.id in changed for node in former.source.nodes_of_type(ast.Name))


def iterate_sites(rule: Rule, file: MigratedFile) -> Iterator[tuple[Site, Handler]]:
    """Yield the sites at which a rule's handlers are to be called, in the order of the text."""
    pairs: list[tuple[Site, Handler]] = []
    for table, index in ((rule.call_handlers, file.index.calls), (rule.reference_handlers, file.index.references)):
        for pattern, handler in table.items():
            for name in match_names(pattern, index):
                pairs += [(Site(rule, file, node, name), handler) for node in index[name]]
    for name, handler in rule.method_handlers.items():
        pairs += [(Site(rule, file, node, name), handler) for node in file.index.methods.get(name, [])]
    if not rule.only_if_file_contains or any(text in file.source.text for text in rule.only_if_file_contains):
        for node_type, handler in rule.node_handlers:
            pairs += [(Site(rule, file, node), handler) for node in file.source.nodes_of_type(node_type)]
        pairs += [(Site(rule, file, file.source.tree), handler) for handler in rule.file_handlers]
    if (file.target_code_lines or file.explained_lines) and rule.skips_lines_left_alone:
        pairs = [(site, handler) for site, handler in pairs if not file.is_left_alone(site.node)]
    order = file.source.positions if len(pairs) > 1 else {}  # node -> its position in the text
    yield from sorted(pairs, key=lambda pair: order.get(pair[0].node, 0))


def match_names(pattern: str, index: dict[str, list[ast.Call]] | dict[str, list[ast.expr]]) -> list[str]:
    """Return the names of an index that a pattern matches: a name, or `prefix.*`."""
    if not pattern.endswith(".*"):
        return [pattern] if pattern in index else []
    return [name for name in index if name.startswith(pattern[:-1])]


def run_rule(rule: Rule, file: MigratedFile, rounds_left: int = 8) -> MigratedFile:
    """Run one rule over one file. If edits overlap, as in nested blocks, the rule runs again on the new text.

    What still overlaps after `rounds_left` further runs, or without any other edit, is reported for manual review.
    """
    overlapping: list[Site] = []
    for site, handler in iterate_sites(rule, file):
        edit_count, finding_count = len(file.edits.made), len(file.findings)
        try:
            handler(site)
        except Overlap:
            file.edits.undo_after(edit_count)
            del file.findings[finding_count:]
            overlapping.append(site)
    if overlapping and file.edits.made and rounds_left:
        return run_rule(rule, file.apply_edits(), rounds_left - 1)
    for site in overlapping:
        site.request_review(
            "two changes overlap in this expression; make this one manually", zh="两处改动在此表达式中重叠,请手工修改"
        )
    return file.apply_edits() if file.edits.made else file


def migrate_bytes(path: str, data: bytes, options: Options, project: Project | None = None) -> FileResult:
    """Migrate the content of one Python file: run all rules, insert imports, fill the ledger."""
    project = project or Project()
    try:
        text, encoding = decode(data)
        if path not in project.parsed and not may_match_rule(text, options):
            parse(text)  # raises Unparsable: a file that is not Python is reported in any case
            return FileResult(path, data, data)
        surveyed = project.parsed.get(path)
        source = surveyed.source if surveyed is not None and surveyed.source.text == text else Source(text)
        file = original = MigratedFile(path, source, options, project, list(range(1, len(source.line_starts) + 1)))
        if project.uses_rules_of(TORCH, path) and options.mode == "rewrite":
            file.target_code_lines = find_target_code(file)
        for rule in all_rules():
            if rule.is_wanted(options) and project.uses_rules_of(FAMILIES[rule.family], path):
                file = run_rule(rule, file)
        file = insert_imports(file)
    except Unparsable as error:
        unread = FileResult(path, data, data, unread_reason=str(error), unread_reason_zh=error.zh, remedy=error.remedy)
        return replace(unread, findings=(make_unparsable_finding(path, error),))
    after = data if file.source.text == text else file.source.text.encode(encoding)
    findings = list(complete_findings(file, text))
    places = audit_file(original, file, findings)
    marks = candidates_tf1.find_marks(file) | candidates_torch.find_marks(file)
    if any(place.is_unreported for place in places):
        file.findings = [*findings, *(place.make_finding() for place in places if place.is_unreported)]
        findings = list(complete_findings(file, text))
    original.cache.clear()
    file.cache.clear()
    return FileResult(path, data, after, tuple(findings), places, marks, original_lines=tuple(file.original_lines))


def make_unparsable_finding(path: str, error: Unparsable) -> Finding:
    message = f"{error.prefix}{error}. It is copied as it is; {error.remedy}"
    zh = f"{error.prefix_zh}{error.zh}。文件原样复制;{error.remedy_zh}"
    return Finding(path, 1, 1, 1, "engine.unparsable", "report", "manual", message, zh, "high")


def leave_undecodable(path: str, data: bytes, error: UnicodeDecodeError) -> FileResult:
    """Leave a shell script or settings file that is not UTF-8 unchanged; report it if it names CUDA or NCCL."""
    reason = UndecodableText(f"cannot be decoded: {error}", f"无法解码:{error}")
    finding = replace(make_unparsable_finding(path, reason), risk="low")
    return FileResult(path, data, data, (finding,) if CUDA_OR_NCCL.search(data) else ())


def complete_findings(file: MigratedFile, original: str) -> Iterator[Finding]:
    """Yield the findings with the text of their lines before and, for changes, after; sorted, without duplicates.

    `original`: the text before all rules.
    """
    old = LINE_END.split(original)  # str.splitlines would also split at form feeds
    new = LINE_END.split(file.source.text)
    by_origin: dict[int, list[int]] = {}  # original line -> positions in `new` of the lines that stem from it
    for position, line in enumerate(file.original_lines[: len(new)]):
        by_origin.setdefault(line, []).append(position)
    keys = set()
    for finding in sorted(file.findings, key=lambda finding: finding.order):
        key = (finding.line, finding.end_line, finding.rule, finding.message)
        if key not in keys:
            keys.add(key)
            lines = range(finding.line, finding.end_line + 1)
            before = "\n".join(old[finding.line - 1 : finding.end_line])
            positions = sorted(position for line in lines for position in by_origin.get(line, ()))
            after = "\n".join(new[position] for position in positions) if finding.status == "changed" else ""
            yield replace(finding, before=before, after=after)
