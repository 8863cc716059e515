"""Rules of the user (--rules) that pair operators of the two sides.

    {
      "map": {"resnet/block{n}/conv{m}": "layer{n}.conv{m}", "logits": "fc", "TransData_1": "*"},
      "ignore": {"left": ["*num_batches_tracked"], "right": ["save/*"]},
      "step_offset": 1
    }

A left name is mapped to a right one. `{n}` stands for one part of a name (without `.` and `/`), `{n...}` for any number
of parts; the right name repeats what they stand for in the left one. `*` on the right means that the compiler inserted
the operator. Step s of the left is compared with step s + `step_offset` of the right. msprobe's map (.yaml with a line
`left: right` for each pair) is read too; of its names only operator and call are used.
"""

from __future__ import annotations

import fnmatch
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from viaduct.comparison.readers import msprobe
from viaduct.comparison.readers.listing import load_json
from viaduct.errors import BadData, BadValue, UnknownName

FIELDS = ("map", "ignore", "step_offset")
MAX_RULES = 100_000
MAX_CAPTURES = 8
MAX_BYTES = 64 << 20
_CAPTURE = re.compile(r"\{([A-Za-z_]\w*)(\.\.\.)?\}")
_TENSOR = re.compile(r"(.+)\.(?:input|output|parameters|parameters_grad)(?:\..+)?", re.DOTALL)


@dataclass(frozen=True)
class Pattern:
    """A rule with captures {…}: the pattern that left names match, and the right name with the captures to fill in."""

    left: re.Pattern[str]
    right: str

    def apply(self, name: str) -> str | None:
        """Return the right name for a left one; None if the pattern does not match."""
        match = self.left.fullmatch(name)
        return _CAPTURE.sub(lambda capture: match[capture[1]], self.right) if match else None


@dataclass(frozen=True)
class Rules:
    """Contents of a rules file."""

    path: Path
    names: dict[str, str] = field(default_factory=dict)  # left operator -> right operator, or "*"
    calls: dict[tuple[str, int], tuple[str, int]] = field(default_factory=dict)  # (operator, call), from msprobe's maps
    patterns: tuple[Pattern, ...] = ()
    ignored_left: tuple[re.Pattern[str], ...] = ()
    ignored_right: tuple[re.Pattern[str], ...] = ()
    step_offset: int = 0

    def find_partner(self, op: str, call: int) -> tuple[str, int] | None:
        """Return the right operator ("*": inserted) and call; None if no rule applies."""
        if (op, call) in self.calls:
            return self.calls[op, call]
        if op in self.names:
            return self.names[op], call
        names = (pattern.apply(op) for pattern in self.patterns)
        return next(((right, call) for right in names if right is not None), None)

    def ignores(self, op: str, left: bool) -> bool:
        """Return True if an operator of the left (or right) side is ignored."""
        return any(pattern.fullmatch(op) for pattern in (self.ignored_left if left else self.ignored_right))


def read_rules(path: Path) -> Rules:
    """Read a rules file; raise BadData if it cannot be read, and BadValue for rules of another form."""
    if not path.is_file():
        raise BadData(f"the rules {str(path)!r} cannot be read: there is no such file.")
    if path.suffix in (".yaml", ".yml"):
        return _make_rules(path, _read_flat_yaml(path), {}, 0)
    record = load_json(path)
    if not isinstance(record, dict):
        raise BadValue(f"{path.name} must hold a JSON object.", f"Its fields are: {', '.join(FIELDS)}.")
    for name in record:
        if name not in FIELDS:
            raise UnknownName(f"field of the rules in {path.name}", name, FIELDS)
    offset = record.get("step_offset", 0)
    if type(offset) is not int:
        raise BadValue(f"{path.name}: step_offset is {offset!r}; it must be a whole number.")
    entries, ignored = _read_map(record.get("map", {}), path), _read_ignored(record.get("ignore", {}), path)
    return _make_rules(path, entries, ignored, offset)


def _read_map(names: Any, path: Path) -> list[tuple[str, str]]:
    if not isinstance(names, dict) or not all(isinstance(right, str) and right for right in names.values()):
        raise BadValue(f"{path.name}: map must be an object with a right name, as a text, for each left name.")
    return list(names.items())


def _read_ignored(ignored: Any, path: Path) -> dict[str, list[str]]:
    sides = {"left": ignored, "right": ignored} if isinstance(ignored, list) else ignored
    if not isinstance(sides, dict) or not set(sides) <= {"left", "right"}:
        raise BadValue(f"{path.name}: ignore must be a list of patterns, or lists named left and right.")
    for patterns in sides.values():
        if not isinstance(patterns, list) or not all(isinstance(pattern, str) for pattern in patterns):
            raise BadValue(f"{path.name}: ignore must hold lists of patterns; it has {str(patterns)[:80]}.")
    return sides


def _make_rules(path: Path, entries: list[tuple[str, str]], ignored: dict[str, list[str]], offset: int) -> Rules:
    if len(entries) > MAX_RULES:
        raise BadValue(f"{path.name} has {len(entries):,} entries; at most {MAX_RULES:,} are read.")
    names, calls, patterns = {}, {}, []
    for left, right in entries:
        if malformed := [name for name in (left, right) if set("{}") & set(_CAPTURE.sub("", name))]:
            raise BadValue(
                f"{path.name}: {malformed[0]!r} has a brace that does not belong to a {{name}}.",
                "Write {n} for one part of a name, {n...} for any number of parts.",
            )
        if _CAPTURE.search(left):
            patterns.append(_make_pattern(left, right, path))
        elif (left_call := _parse_msprobe_call(left)) and (right_call := _parse_msprobe_call(right)):
            calls[left_call] = right_call
        else:
            names[left] = right
    left_globs, right_globs = (
        tuple(re.compile(fnmatch.translate(pattern)) for pattern in ignored.get(side, ())) for side in ("left", "right")
    )
    return Rules(path, names, calls, tuple(patterns), left_globs, right_globs, offset)


def _make_pattern(left: str, right: str, path: Path) -> Pattern:
    captures = [match[1] for match in _CAPTURE.finditer(left)]
    if len(captures) > MAX_CAPTURES or len(set(captures)) < len(captures):
        raise BadValue(f"{path.name}: {left!r} names a part twice, or more than {MAX_CAPTURES} parts.")
    if unknown := [match[1] for match in _CAPTURE.finditer(right) if match[1] not in captures]:
        raise BadValue(f"{path.name}: {right!r} uses {{{unknown[0]}}}, which {left!r} does not define.")
    text, position = "", 0
    for match in _CAPTURE.finditer(left):
        part = ".+" if match[2] else r"[^./]+"
        text += re.escape(left[position : match.start()]) + f"(?P<{match[1]}>{part})"
        position = match.end()
    return Pattern(re.compile(text + re.escape(left[position:]), re.DOTALL), right)


def _parse_msprobe_call(name: str) -> tuple[str, int] | None:
    """Return operator and call of a name such as Module.conv1.Conv2d.forward.0.input.0; None for other names."""
    match = _TENSOR.fullmatch(name)
    parsed = msprobe.parse_entry_name(name) or (msprobe.parse_entry_name(match[1]) if match else None)
    return (parsed.op, parsed.call) if parsed else None


def _read_flat_yaml(path: Path) -> list[tuple[str, str]]:
    """Return the entries of a file with `left: right` on each line; raise BadValue for nested ones."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise BadData(f"{path.name} has more than {MAX_BYTES:,} bytes.")
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BadData(f"{path.name} cannot be read: {error}.") from None
    entries = []
    for number, line in enumerate(lines, 1):
        bare = re.sub(r"\s#.*", "", line).rstrip()
        if not bare.strip() or bare.startswith(("#", "---")):
            continue
        left, colon, right = bare.partition(": ")
        if not colon or not right.strip() or line[:1] in " \t-":
            raise BadValue(
                f"{path.name}, line {number}: {bare[:80]!r} is not of the form `left: right`.",
                "Only the flat form of YAML is read; write nested maps as JSON.",
            )
        entries.append((left.strip().strip("'\""), right.strip().strip("'\"")))
    return entries
