"""Results of a migration, before anything is written: of one file, and of a project."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from viaduct.migration.candidates import Mark
from viaduct.migration.findings import RISK_ORDER, UNFINISHED_STATUSES, Finding
from viaduct.migration.ledger import Place, is_counted, make_place_of_finding
from viaduct.migration.options import Options
from viaduct.migration.walk import SkippedPath, Walk


@dataclass(frozen=True)
class FileResult:
    """Result of migrating one file.

    In an `Outcome`, `before` and `after` are empty unless the file was changed; `old_text`, `new_text` and
    `original_lines` are empty without a change or a finding.
    """

    path: str
    before: bytes = b""  # content of the file; empty for a new file
    after: bytes = b""  # its new content
    findings: tuple[Finding, ...] = ()
    places: tuple[Place, ...] = ()  # lines that a requirement of the target concerns (ledger.py): see counted_places
    marks: frozenset[Mark] = frozenset()  # what the file does that matters for the program to which it belongs
    old_text: str = ""  # `before` as text; of a notebook only the code
    new_text: str = ""  # `after` as text; of a notebook only the code
    original_lines: tuple[int, ...] = ()  # for each line of `new_text` its line in `old_text`; 0: it is new
    unread_reason: str = ""  # why it was not analysed; empty if it was
    unread_reason_zh: str = ""
    remedy: str = ""  # what the user can do about it
    cells: tuple[tuple[int, int], ...] = ()  # of a notebook: (number of a code cell, its first line in `old_text`)
    size: int = 0  # bytes
    line_count: int = 0
    seconds: float = 0.0  # processor time
    mentions_main: bool = False  # the text contains `__main__`
    traceback: str = ""  # of an exception in viaduct; the file was then not analysed

    @property
    def changed(self) -> bool:
        return self.before != self.after

    @property
    def counted_places(self) -> tuple[Place, ...]:
        """The places; for a file of which the ledger recorded none, one for each finding that counts as a place."""
        return self.places or tuple(make_place_of_finding(finding) for finding in self.findings if is_counted(finding))

    def add_findings(self, findings: Iterable[Finding]) -> FileResult:
        """Return the result with further findings, sorted with the others, and with the places of those that count."""
        findings = list(findings)
        places = [make_place_of_finding(finding) for finding in findings if is_counted(finding)]
        ordered = sorted([*self.findings, *findings], key=lambda finding: finding.order)
        return replace(self, findings=tuple(ordered), places=(*self.counted_places, *places))

    def reason_in(self, language: str) -> str:
        return self.unread_reason_zh if language == "zh" and self.unread_reason_zh else self.unread_reason

    def locate(self, line: int) -> str:
        """Return the file and line, as shown to the user: `train.py:12`; in a notebook `train.ipynb cell 3:2`."""
        for number, first_line in reversed(self.cells):
            if first_line <= line:
                return f"{self.path} cell {number}:{line - first_line + 1}"
        return f"{self.path}:{line}"


@dataclass
class Outcome:
    """Result of migrating a project, before anything is written."""

    root: Path
    options: Options
    walk: Walk
    files: list[FileResult]
    command: str = ""
    seconds: float = 0.0
    entry: str = ""  # the script that is started; empty if that is not known
    frameworks: dict[str, frozenset[str]] = field(default_factory=dict)  # see Project
    other_packages: list[str] = field(default_factory=list)  # see Project
    helper_files: list[FileResult] = field(default_factory=list)  # helper files of --to any: new, extended or unchanged
    by_path: dict[str, FileResult] = field(init=False)

    def __post_init__(self) -> None:
        self.by_path = {file.path: file for file in self.files}

    @property
    def changed_files(self) -> list[FileResult]:
        return [file for file in self.files if file.changed]

    @property
    def files_to_write(self) -> list[FileResult]:
        """Files that changed, and new or extended helper files."""
        return [*self.changed_files, *(file for file in self.helper_files if file.changed)]

    @property
    def findings(self) -> list[Finding]:
        return [finding for file in self.files for finding in file.findings]

    @property
    def unread(self) -> list[SkippedPath | FileResult]:
        """Files and folders that could not be read or analysed, without those that are left out deliberately."""
        left_out = [skipped for skipped in self.walk.skipped if not skipped.is_deliberate]
        return sorted([*left_out, *(file for file in self.files if file.unread_reason)], key=lambda entry: entry.path)

    @property
    def unfinished_findings(self) -> list[Finding]:
        """Findings that need manual review or are unresolved, the riskiest first."""
        unfinished = [finding for finding in self.findings if finding.status in UNFINISHED_STATUSES]
        return sorted(unfinished, key=lambda finding: (RISK_ORDER[finding.risk], finding.order))

    @property
    def places(self) -> list[Place]:
        """Places of all files, and one for each file or folder that could not be read and has no finding."""
        places = [place for file in self.files for place in file.counted_places]
        for unread in self.unread:
            if not (isinstance(unread, FileResult) and unread.findings):
                reasons = unread.reason_in("en"), unread.reason_in("zh")
                places.append(Place("files", unread.path, 1, "unresolved", unread.path, *reasons))
        return places

    def locate(self, finding: Finding | Place) -> str:
        return self.by_path[finding.file].locate(finding.line)
