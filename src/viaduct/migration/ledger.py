"""The ledger of a migration: for every requirement of the target, the places that it concerns and the state of each.

It joins two independent sources. Rules report their changes and what needs manual review. candidates.py searches the
original and the result for places that need a change. A place of the result that needs a change and has no finding is
unresolved, so a construct that every rule missed is reported too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

from viaduct.migration.candidates import Candidate, Mark, find_candidates
from viaduct.migration.findings import UNFINISHED_STATUSES, Finding, Status
from viaduct.migration.graphs import group_connected
from viaduct.migration.requirements import REQUIREMENTS, REQUIREMENTS_BY_NAME
from viaduct.migration.rule import all_rules

if TYPE_CHECKING:
    from viaduct.migration.engine import MigratedFile

PlaceState = Literal["changed", "right", "manual", "unresolved"]
STATES: tuple[PlaceState, ...] = ("changed", "right", "manual", "unresolved")
STATE_TITLES = dict(zip(STATES, ("changed", "already right", "manual review", "unresolved"), strict=True))
STATE_TITLES_ZH = dict(zip(STATES, ("已修改", "原本正确", "需人工检查", "未能确定"), strict=True))
UNRESOLVED_RULE = "engine.unresolved"
"""Value of `Finding.rule` in findings that the ledger adds."""
MAX_LINES = 100
"""A place or finding is looked up by its first line and at most this many further lines; a class may have thousands."""
SECONDARY_RULES = ("tf1.session_grad_fusion",)
"""Rules that add to a place which another rule of the same requirement changes; their changes are not counted."""


@dataclass(frozen=True, slots=True)
class Place:
    """Entry of the ledger: lines of the original file that a requirement of the target concerns."""

    requirement: str
    file: str
    line: int
    state: PlaceState
    excerpt: str  # beginning of its first line; for an entry about a whole file or program, a path
    message: str = ""
    message_zh: str = ""
    is_unreported: bool = False  # True: no rule has reported it, so the ledger adds a finding (`make_finding`)

    def make_finding(self) -> Finding:
        messages = self.message, self.message_zh
        return Finding(self.file, self.line, self.line, 1, UNRESOLVED_RULE, "report", "unresolved", *messages, "high")

    def message_in(self, language: str) -> str:
        """Return the message in Chinese for "zh" if it has one, else in English."""
        return self.message_zh if language == "zh" and self.message_zh else self.message


@dataclass(frozen=True)
class LedgerRow:
    """Counts of the places of one requirement: all of them (`needed`), and those in each state."""

    requirement: str
    title: str
    title_zh: str
    needed: int
    changed: int
    right: int
    manual: int
    unresolved: int

    def title_in(self, language: str) -> str:
        return self.title_zh if language == "zh" else self.title


def audit_file(original: MigratedFile, result: MigratedFile, findings: Sequence[Finding]) -> tuple[Place, ...]:
    """Return the ledger's places of one file. Lines of `findings` are those of the original.

    A candidate that was right in the original and still has its text stays right, also if the rules' edits elsewhere
    in the file make the search judge it differently.
    """
    path, lines = original.path, result.original_lines
    before = find_candidates(original)
    after = find_candidates(result) if result is not original else before
    right = {(candidate.requirement, candidate.line, candidate.excerpt) for candidate in before if candidate.is_right}
    unfinished = [
        candidate
        for candidate in after
        if not candidate.is_right and (candidate.requirement, lines[candidate.line - 1], candidate.excerpt) not in right
    ]
    origins = find_origins(before, unfinished, lines)
    remaining = set(origins.values())  # positions in `before` of candidates that still need a change
    claims = Claims(findings)
    places = [judge_remaining(path, before[number], claims) for number in sorted(remaining)]
    finished = [candidate for number, candidate in enumerate(before) if number not in remaining]
    places += [judge_finished(path, candidate, claims) for candidate in finished]
    introduced = [candidate for number, candidate in enumerate(unfinished) if number not in origins]
    places += [make_introduced_place(path, lines[candidate.line - 1], candidate) for candidate in introduced]
    places += [make_place_of_finding(finding) for finding in claims.find_unclaimed() if is_counted(finding)]
    return tuple(sorted(places, key=lambda place: (place.line, place.requirement, place.excerpt)))


def list_indexed_lines(line: int, end_line: int) -> range:
    """Return the lines under which a place or a finding is indexed and looked up."""
    return range(line, min(end_line, line + MAX_LINES) + 1)


class ByLine:
    """Positions of candidates or findings in their list, by requirement and by each line that they span."""

    def __init__(self) -> None:
        self.numbers: dict[tuple[str, int], list[int]] = {}

    def add(self, requirement: str, line: int, end_line: int, number: int) -> None:
        """Record the candidate or finding at position `number` under every line that it spans."""
        for spanned in list_indexed_lines(line, end_line):
            self.numbers.setdefault((requirement, spanned), []).append(number)

    def find(self, requirement: str, line: int, end_line: int) -> Iterator[int]:
        """Yield the positions of the requirement's items that span one of these lines."""
        for spanned in list_indexed_lines(line, end_line):
            yield from self.numbers.get((requirement, spanned), ())


class Claims:
    """The findings of a file. A candidate claims the findings about it; each finding is claimed at most once."""

    def __init__(self, findings: Sequence[Finding]) -> None:
        self.findings = findings
        self.claimed: set[int] = set()
        self.lines = ByLine()
        for number, finding in enumerate(findings):
            self.lines.add(find_requirement(finding), finding.line, finding.end_line, number)
        self.unfinished = {finding.line: finding for finding in findings if finding.status in UNFINISHED_STATUSES}

    def claim(self, candidate: Candidate, status: Status) -> Finding | None:
        """Claim and return a finding with this status on the candidate's lines, about its requirement; else None."""
        for number in self.lines.find(candidate.requirement, candidate.line, candidate.end_line):
            if self.findings[number].status == status and number not in self.claimed:
                self.claimed.add(number)
                return self.findings[number]
        return None

    def find_unfinished(self, candidate: Candidate) -> Finding | None:
        """Return an unfinished finding of any requirement that begins on a line of the candidate; else None."""
        lines = list_indexed_lines(candidate.line, candidate.end_line)
        return next((self.unfinished[line] for line in lines if line in self.unfinished), None)

    def find_unclaimed(self) -> Iterator[Finding]:
        return (finding for number, finding in enumerate(self.findings) if number not in self.claimed)


def find_origins(before: Sequence[Candidate], unfinished: Sequence[Candidate], lines: Sequence[int]) -> dict[int, int]:
    """Match candidates of the result that need a change with the original's: index in `unfinished` -> in `before`.

    A match has the same requirement and lies on the lines that the candidate stems from; the same text is preferred.
    """
    index, unmatched = ByLine(), set[int]()
    for number, candidate in enumerate(before):
        if not candidate.is_right:
            index.add(candidate.requirement, candidate.line, candidate.end_line, number)
            unmatched.add(number)
    origins: dict[int, int] = {}
    for number, candidate in enumerate(unfinished):
        first, last = sorted((lines[candidate.line - 1], lines[min(candidate.end_line, len(lines)) - 1]))
        nearby = [item for item in index.find(candidate.requirement, first, last) if item in unmatched]
        if nearby:
            origins[number] = next((item for item in nearby if before[item].excerpt == candidate.excerpt), nearby[0])
            unmatched.discard(origins[number])
    return origins


def make_place(path: str, candidate: Candidate, state: PlaceState, finding: Finding | None = None) -> Place:
    messages = (finding.message, finding.message_zh) if finding is not None else ()
    return Place(candidate.requirement, path, candidate.line, state, candidate.excerpt, *messages)


def judge_remaining(path: str, candidate: Candidate, claims: Claims) -> Place:
    """Return the entry of a candidate that still needs a change; its state follows from the finding about it.

    Advice counts as right: the rule saw the place and only advises. Without such a finding, any unfinished one that
    begins on its lines makes the place manual; else it is unresolved.
    """
    states: dict[Status, PlaceState] = {"unresolved": "unresolved", "manual": "manual", "advice": "right"}
    for status, state in states.items():
        finding = claims.claim(candidate, status)
        if finding is not None:
            return make_place(path, candidate, state, finding)
    unfinished = claims.find_unfinished(candidate)
    if unfinished is not None:
        return make_place(path, candidate, "manual", unfinished)
    return Place(
        *(candidate.requirement, path, candidate.line, "unresolved", candidate.excerpt),
        f"this may need a change ({find_title(candidate.requirement)}), and the text does not show whether or how",
        f"此处可能需要修改({find_title(candidate.requirement, 'zh')}),但无法由文本确定是否以及如何修改",
        is_unreported=True,
    )


def judge_finished(path: str, candidate: Candidate, claims: Claims) -> Place:
    """Return the entry of a candidate that needs no change in the result: changed or right, or as a finding says."""
    states: tuple[Literal["unresolved", "manual"], ...] = ("unresolved", "manual")
    for state in states if not candidate.is_right else ():
        finding = claims.claim(candidate, state)
        if finding is not None:
            return make_place(path, candidate, state, finding)
    while claims.claim(candidate, "changed") is not None:
        pass  # several rules may have changed it
    return make_place(path, candidate, "right" if candidate.is_right else "changed")


def make_introduced_place(path: str, line: int, candidate: Candidate) -> Place:
    """Return the entry of a candidate that needs a change in the result and that the original does not have."""
    excerpt = candidate.excerpt
    message = f"`{excerpt}` in the result may still need a change for the device: please report this"
    zh = f"结果中的 `{excerpt}` 在设备上可能仍需修改:请反馈此问题"
    return Place(candidate.requirement, path, line, "unresolved", excerpt, message, zh, is_unreported=True)


@lru_cache(maxsize=1)
def map_rules_to_requirements() -> dict[str, str]:
    """Return the name of each rule, and of each message of the engine about a whole file -> its requirement."""
    engine_messages = ("engine.unparsable", "engine.left_alone", "engine.helper", "engine.gpu_mention")
    return {**dict.fromkeys(engine_messages, "files"), **{rule.name: rule.target_needs for rule in all_rules()}}


def find_requirement(finding: Finding) -> str:
    """Return the requirement of a finding's rule; "amp" for a device call whose message names a module `amp`."""
    requirement = map_rules_to_requirements().get(finding.rule, "other")
    return "amp" if requirement == "device_calls" and ".amp" in finding.message else requirement


def is_counted(finding: Finding) -> bool:
    """Return True if the ledger counts a finding: advice and optional changes are not counted."""
    if finding.status == "changed":
        return finding.category not in ("performance", "advice") and finding.rule not in SECONDARY_RULES
    return finding.status in UNFINISHED_STATUSES


def make_place_of_finding(finding: Finding) -> Place:
    """Return the entry of a finding for which `is_counted` is true."""
    location = find_requirement(finding), finding.file, finding.line
    excerpt = finding.before.strip().split("\n", 1)[0][:60]
    return Place(*location, finding.status, excerpt, finding.message, finding.message_zh)  # type: ignore[arg-type]


RANK_REQUIREMENTS = (
    (
        "broadcast", "broadcasts",
        "this program trains on several ranks, and nothing seen here makes them start from the same values",
        "该程序在多个 rank 上训练,但未见各 rank 以相同初值开始",
    ),
    (
        "communication", "communicates",
        "this program trains on several ranks, and nothing seen here starts their communication",
        "该程序在多个 rank 上训练,但未见启动集合通信",
    ),
)  # fmt: skip
"""(requirement, mark of a file that fulfils it, message if no file of a program has the mark, the same in Chinese)."""
NO_PLUGIN = (
    "this program uses the card, and no import of the plug-in that makes it known to torch was found in its files",
    "该程序使用了加速卡,但在其文件中未见导入使 torch 识别它的插件",
)


def audit_programs(
    marks: Mapping[str, frozenset[Mark]],
    imports: Mapping[str, set[str]],
    places: Iterable[Place],
    is_set_outside: bool = False,
) -> list[Place]:
    """Return entries for programs that lack a plug-in import, a broadcast of variables or communication.

    A program here is a group of files that imports connect, in either direction.

    `is_set_outside`: a settings file or shell script of the project was changed, so the card may be named there.
    """
    reported = {(place.requirement, place.file) for place in places}
    lacking: list[Place] = []
    for group in group_connected(sorted(marks), imports):
        files = [path for path in group if path in marks]
        program_marks = frozenset[Mark]().union(*(marks[path] for path in files))
        lacking += find_missing_communication(files, marks, program_marks, reported)
        if lacks_plugin(program_marks, is_set_outside):
            first = next(path for path in files if "torch" in marks[path])
            lacking.append(Place("plugin", first, 1, "unresolved", first, *NO_PLUGIN, is_unreported=True))
    return lacking


def lacks_plugin(program_marks: frozenset[Mark], is_set_outside: bool) -> bool:
    """Return True if a PyTorch program with these marks names the card and does not import its plug-in."""
    names_card = "names card" in program_marks or (is_set_outside and "takes device" in program_marks)
    return "torch" in program_marks and names_card and "imports plug-in" not in program_marks


def find_missing_communication(
    files: list[str],
    marks: Mapping[str, frozenset[Mark]],
    program_marks: frozenset[Mark],
    reported: set[tuple[str, str]],
) -> Iterator[Place]:
    """Yield entries for the needs of a program on several ranks that none of its files fulfils or has reported."""
    if "trains" not in program_marks or "delegates" in program_marks:
        return
    first = next(path for path in files if "trains" in marks[path])
    for requirement, mark, message, zh in RANK_REQUIREMENTS:
        if mark not in program_marks and not any((requirement, path) in reported for path in files):
            yield Place(requirement, first, 1, "unresolved", first, message, zh, is_unreported=True)


def count_places(places: Iterable[Place]) -> list[LedgerRow]:
    """Count the places of each requirement; requirements without a place are left out."""
    counted = Counter((entry.requirement, entry.state) for entry in places)
    rows = []
    for requirement in REQUIREMENTS:
        numbers = [counted[requirement.name, state] for state in STATES]
        if sum(numbers):
            rows.append(LedgerRow(requirement.name, requirement.title, requirement.title_zh, sum(numbers), *numbers))
    return rows


def list_column_titles(language: str) -> list[str]:
    """Return the titles of the columns of figures: all places of a requirement, then those in each state."""
    return ["需要", *STATE_TITLES_ZH.values()] if language == "zh" else ["needed", *STATE_TITLES.values()]


def find_title(requirement: str, language: str = "en") -> str:
    entry = REQUIREMENTS_BY_NAME[requirement]
    return entry.title_zh if language == "zh" else entry.title
