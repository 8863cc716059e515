"""The ledger of a migration: for every requirement of the target, the places that need it and the state of each.

It joins two independent sources. The rules report what they changed and what needs manual review. The search of
candidates.py finds the places that need a change in the original, and those that still need one in the result. A place
that still needs a change and has no finding is unresolved: a silent miss becomes a line of the report.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from viaduct.migration.candidates import Candidate, find_candidates
from viaduct.migration.findings import LEFT, Finding, Status
from viaduct.migration.requirements import REQUIREMENTS, by_name, requirement_of

if TYPE_CHECKING:
    from viaduct.migration.engine import Work

State = Literal["changed", "right", "manual", "unresolved"]
STATES: tuple[State, ...] = ("changed", "right", "manual", "unresolved")
TITLES: dict[State, str] = {
    "changed": "changed",
    "right": "already right",
    "manual": "manual review",
    "unresolved": "unresolved",
}
TITLES_ZH: dict[State, str] = {
    "changed": "已修改",
    "right": "原本正确",
    "manual": "需人工检查",
    "unresolved": "未能确定",
}
UNRESOLVED = "engine.unresolved"
MAX_LINES = 100
"""Lines of one place or finding that are indexed: a class of a thousand lines is found by its first ones."""
BESIDE = ("tf1.session_grad_fusion",)
"""Rules that add to a place which another rule of the same requirement changes; their changes are not counted."""
COUNTED: tuple[Status, ...] = ("changed", "manual", "unresolved")


@dataclass(frozen=True, slots=True)
class Place:
    """A place that a requirement of the target concerns. Lines are those of the original."""

    requirement: str
    file: str
    line: int
    state: State
    what: str  # the beginning of its text, or the path of the file
    message: str = ""
    message_zh: str = ""
    is_new: bool = False  # no rule has reported it

    def as_finding(self) -> Finding:
        """Return an unresolved place that no rule has reported as a finding."""
        messages = self.message, self.message_zh
        return Finding(self.file, self.line, self.line, 1, UNRESOLVED, "report", "unresolved", *messages, "high")


@dataclass(frozen=True)
class Row:
    """Numbers of the places of one requirement: all (`needed`), and those in each state."""

    requirement: str
    title: str
    title_zh: str
    needed: int
    changed: int
    right: int
    manual: int
    unresolved: int

    def name(self, language: str) -> str:
        """Return the title in a language."""
        return self.title_zh if language == "zh" else self.title


def audit_file(original: Work, result: Work, findings: Sequence[Finding]) -> tuple[Place, ...]:
    """Return the ledger's places of one file. `findings` are those of the file, with the lines of the original."""
    before = find_candidates(original)
    after = find_candidates(result) if result is not original else before
    right = {(found.requirement, found.line, found.what) for found in before if found.state == "right"}
    unfinished = [found for found in after if found.state != "right" and not was_right(found, right, result.lines)]
    origins = find_origins(before, unfinished, result.lines)
    remaining = set(origins.values())
    claims = Claims(findings)
    entries = [judge_remaining(original.path, before[number], claims) for number in sorted(remaining)]
    entries += [
        judge_changed(original.path, item, claims) for number, item in enumerate(before) if number not in remaining
    ]
    entries += [
        describe_introduced(original.path, result.lines[candidate.line - 1], candidate)
        for number, candidate in enumerate(unfinished)
        if number not in origins
    ]
    entries += [of_finding(entry) for entry in claims.find_unclaimed() if counts(entry)]
    return tuple(sorted(entries, key=lambda entry: (entry.line, entry.requirement, entry.what)))


def was_right(found: Candidate, right: set[tuple[str, int, str]], lines: Sequence[int]) -> bool:
    """Return True for a text that was right in the original and is still there: only the text around it changed."""
    return (found.requirement, lines[found.line - 1], found.what) in right


class ByLine:
    """Numbers of candidates or findings, by requirement and by each line that they span."""

    def __init__(self) -> None:
        self.numbers: dict[tuple[str, int], list[int]] = {}

    def add(self, requirement: str, line: int, end_line: int, number: int) -> None:
        """Record an entry under every line that it spans."""
        for at in range(line, min(end_line, line + MAX_LINES) + 1):
            self.numbers.setdefault((requirement, at), []).append(number)

    def on(self, requirement: str, line: int, end_line: int) -> Iterator[int]:
        """Yield the numbers of a requirement's entries that touch these lines."""
        for at in range(line, min(end_line, line + MAX_LINES) + 1):
            yield from self.numbers.get((requirement, at), ())


class Claims:
    """The findings of a file; each is claimed by at most one place."""

    def __init__(self, findings: Sequence[Finding]) -> None:
        self.findings = findings
        self.claimed: set[int] = set()
        self.lines = ByLine()
        for number, finding in enumerate(findings):
            self.lines.add(subject_of(finding), finding.line, finding.end_line, number)
        self.unfinished = {finding.line: finding for finding in findings if finding.status in LEFT}

    def claim(self, found: Candidate, status: Status) -> Finding | None:
        """Claim and return a finding of this status and the place's requirement on its lines; None if there is none."""
        for number in self.lines.on(found.requirement, found.line, found.end_line):
            if self.findings[number].status == status and number not in self.claimed:
                self.claimed.add(number)
                return self.findings[number]
        return None

    def find_unfinished(self, found: Candidate) -> Finding | None:
        """Return a finding for a person that begins on a line of a place, whatever its requirement; else None."""
        for line in range(found.line, min(found.end_line, found.line + MAX_LINES) + 1):
            if line in self.unfinished:
                return self.unfinished[line]
        return None

    def find_unclaimed(self) -> Iterator[Finding]:
        """Return the findings that no place has claimed."""
        return (finding for number, finding in enumerate(self.findings) if number not in self.claimed)


def find_origins(before: Sequence[Candidate], unfinished: Sequence[Candidate], lines: Sequence[int]) -> dict[int, int]:
    """Return, for each place of the result that needs a change, the place of the original that it was, by number.

    It is one of the same requirement on the lines that the place stems from, with the same text if there is such a one.
    """
    index, free = ByLine(), set[int]()
    for number, found in enumerate(before):
        if found.state != "right":
            index.add(found.requirement, found.line, found.end_line, number)
            free.add(number)
    origins: dict[int, int] = {}
    for number, found in enumerate(unfinished):
        first, last = lines[found.line - 1], lines[min(found.end_line, len(lines)) - 1]
        near = [item for item in index.on(found.requirement, min(first, last), max(first, last)) if item in free]
        same = next((item for item in near if before[item].what == found.what), None)
        origin = same if same is not None else next(iter(near), None)
        if origin is not None:
            origins[number] = origin
            free.discard(origin)
    return origins


def judge_remaining(path: str, found: Candidate, claims: Claims) -> Place:
    """Return the entry of a place that still needs a change: its state is that of a finding, else unresolved."""
    reported: tuple[tuple[Status, State], ...]
    reported = (("unresolved", "unresolved"), ("manual", "manual"), ("advice", "right"))
    for status, state in reported:
        finding = claims.claim(found, status)
        if finding is not None:
            return Place(
                *(found.requirement, path, found.line, state, found.what),
                *(finding.message, finding.message_zh),
            )
    other = claims.find_unfinished(found)
    if other is not None:
        return Place(found.requirement, path, found.line, "manual", found.what, other.message, other.message_zh)
    return Place(
        *(found.requirement, path, found.line, "unresolved", found.what),
        f"this may need a change ({title_of(found.requirement)}), and the text does not show whether or how",
        f"此处可能需要修改({title_of(found.requirement, 'zh')}),但无法由文本确定是否以及如何修改",
        is_new=True,
    )


def judge_changed(path: str, found: Candidate, claims: Claims) -> Place:
    """Return the entry of a place that needs no change in the result: changed or right, unless a finding is open."""
    reported: tuple[tuple[Status, State], ...] = (("unresolved", "unresolved"), ("manual", "manual"))
    for status, state in reported if found.state != "right" else ():
        finding = claims.claim(found, status)
        if finding is not None:
            return Place(
                *(found.requirement, path, found.line, state, found.what),
                *(finding.message, finding.message_zh),
            )
    while claims.claim(found, "changed") is not None:
        pass  # several rules may have changed it
    return Place(found.requirement, path, found.line, "right" if found.state == "right" else "changed", found.what)


def describe_introduced(path: str, line: int, found: Candidate) -> Place:
    """Return the entry for something that the migration itself wrote wrongly."""
    message = f"the migration itself wrote `{found.what}`, which needs a change for the device: please report this"
    zh = f"迁移写入的 `{found.what}` 在设备上仍需修改:请反馈此问题"
    return Place(found.requirement, path, line, "unresolved", found.what, message, zh, is_new=True)


def subject_of(finding: Finding) -> str:
    """Return the requirement of a finding: its rule's; for a finding about torch.cuda.amp, mixed precision."""
    requirement = requirement_of(finding.rule)
    return "amp" if requirement == "device_calls" and ".amp" in finding.message else requirement


def counts(finding: Finding) -> bool:
    """Return True if the ledger counts a finding: not advice, nor a change that is not mandatory."""
    optional = finding.status == "changed" and (finding.kind in ("performance", "advice") or finding.rule in BESIDE)
    return finding.status in COUNTED and not optional


def of_finding(finding: Finding) -> Place:
    """Return the entry of a finding."""
    what = finding.before.strip().split("\n", 1)[0][:60]
    return Place(
        *(subject_of(finding), finding.file, finding.line, finding.status, what),  # type: ignore[arg-type]
        *(finding.message, finding.message_zh),
    )


NEEDED_BY_RANKS = (
    (
        *("broadcast", "broadcasts"),
        "this program trains on several ranks, and nothing seen here makes them start from the same values",
        "该程序在多个 rank 上训练,但未见各 rank 以相同初值开始",
    ),
    (
        *("communication", "communicates"),
        "this program trains on several ranks, and nothing seen here starts their communication",
        "该程序在多个 rank 上训练,但未见启动集合通信",
    ),
)


NO_PLUGIN = (
    "this program names the card, and none of its files imports the plug-in that makes it known to torch",
    "该程序使用了加速卡,但没有任何文件导入使 torch 识别它的插件",
)


def audit_programs(
    marks: Mapping[str, frozenset[str]],
    imports: Mapping[str, set[str]],
    places: Iterable[Place],
    is_set_outside: bool = False,
) -> list[Place]:
    """Return the entries for what programs as a whole lack. `marks`: file -> what it does (`marks_of`).

    `is_set_outside`: a settings file or shell script of the project was changed, so the card may be named there.
    """
    reported = {(entry.requirement, entry.file) for entry in places}
    found: list[Place] = []
    for files in programs(marks, imports):
        done = frozenset[str]().union(*(marks[path] for path in files))
        found += find_missing_communication(files, marks, done, reported)
        names_card = "names card" in done or (is_set_outside and "takes device" in done)
        if "torch" in done and names_card and "imports plug-in" not in done:
            first = next(path for path in files if "torch" in marks[path])
            found.append(Place("plugin", first, 1, "unresolved", first, *NO_PLUGIN, is_new=True))
    return found


def find_missing_communication(
    files: list[str], marks: Mapping[str, frozenset[str]], done: frozenset[str], reported: set[tuple[str, str]]
) -> Iterator[Place]:
    """Yield what a program that trains on several ranks needs and none of its files does or reports."""
    if "trains" not in done or "delegates" in done:
        return
    first = next(path for path in files if "trains" in marks[path])
    for requirement, mark, message, zh in NEEDED_BY_RANKS:
        if mark not in done and not any((requirement, path) in reported for path in files):
            yield Place(requirement, first, 1, "unresolved", first, message, zh, is_new=True)


def programs(marks: Mapping[str, frozenset[str]], imports: Mapping[str, set[str]]) -> list[list[str]]:
    """Group the files with marks that import each other, directly or by way of others."""
    beside: dict[str, set[str]] = {}
    for path, others in imports.items():
        for other in others:
            beside.setdefault(path, set()).add(other)
            beside.setdefault(other, set()).add(path)
    groups, seen = [], set[str]()
    for path in sorted(marks):
        group, pending = [], [path]
        while pending:
            item = pending.pop()
            if item not in seen:
                seen.add(item)
                group.append(item)
                pending += beside.get(item, ())
        if group:
            groups.append(sorted(node for node in group if node in marks))
    return groups


def rows_of(places: Iterable[Place]) -> list[Row]:
    """Count the places of each requirement; requirements without a place are left out."""
    counted = Counter((entry.requirement, entry.state) for entry in places)
    rows = []
    for requirement in REQUIREMENTS:
        numbers = [counted[requirement.name, state] for state in STATES]
        if sum(numbers):
            rows.append(Row(requirement.name, requirement.title, requirement.title_zh, sum(numbers), *numbers))
    return rows


def is_complete(rows: Iterable[Row]) -> bool:
    """Return True if nothing needs manual review or is unresolved."""
    return all(row.manual == row.unresolved == 0 for row in rows)


def title_of(requirement: str, language: str = "en") -> str:
    """Return the title of a requirement in a language."""
    known = by_name()[requirement]
    return known.title_zh if language == "zh" else known.title
