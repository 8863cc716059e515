"""Shell scripts of a PyTorch project: the variables, options and commands in them that speak of CUDA.

    CUDA_VISIBLE_DEVICES=0,1 python train.py --device cuda     becomes
    ASCEND_RT_VISIBLE_DEVICES=0,1 python train.py --device npu

CUDA_VISIBLE_DEVICES is renamed where it is set, used or unset, never in comments or messages; if one list of devices
cannot be kept, it is renamed nowhere in the script. Other variables are reported. Values of options are changed if the
project itself declares the option as a device or a backend; else they are reported. Findings have the names of the
rules that do the same to Python.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from viaduct.cards import CARDS, Card
from viaduct.cards.environment import NCCL, OTHERS, VISIBLE, can_be_carried, on_nccl, on_other, why_not
from viaduct.cards.limits import Risk
from viaduct.migration.engine import Migrated
from viaduct.migration.findings import Finding, Status
from viaduct.migration.options import Options
from viaduct.migration.project import Project
from viaduct.migration.rule import Rule
from viaduct.migration.rules.torch import backend, device_argparse, launch_commands, nccl_variables, visible_devices
from viaduct.migration.rules.torch._device_texts import EXACT, device_like, head
from viaduct.migration.shell_words import Script, Word, read, uses
from viaduct.migration.source import Undecodable, lines_of
from viaduct.migration.walk import Walk

SUFFIXES = (".sh", ".bash")
SAYS = ("echo", "printf", "logger", ":")
ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\+?=)(.*)", re.DOTALL)
OPTION = re.compile(r"(--?[A-Za-z][\w.-]*)(?:=(.*))?", re.DOTALL)
LAUNCHERS = ("torchrun", "torch.distributed.launch", "torch.distributed.run")
CUDA_IN_PYTHON = re.compile(r"torch\.cuda|\.cuda\(|[\"']cuda")
PYTHON = re.compile(r"(?:.*/)?python[\d.]*")


@dataclass(frozen=True)
class Declared:
    """The options of the project's command lines that take a device, or a backend."""

    devices: frozenset[str] = frozenset()
    backends: frozenset[str] = frozenset()


def note_options(project: Project) -> None:
    """Record in the project which options of its command lines take a device, and which a backend."""
    devices, backends = project.device_options, project.backend_options
    for path in project.torch_files & project.parsed.keys():
        for node in project.parsed[path].source.of_kind(ast.Call):
            if called_name(node) in ("add_argument", "option"):
                names = [
                    argument.value
                    for argument in node.args
                    if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
                ]
                values = [keyword.value for keyword in node.keywords if keyword.arg in ("default", "choices")]
                texts = [
                    element for value in values for element in (value.elts if isinstance(value, ast.List) else [value])
                ]
                if any(map(device_like, names)) or any(head(text) for text in texts):
                    devices.update(map(plain, names))
                if any("backend" in name for name in names) or any(is_nccl(text) for text in texts):
                    backends.update(map(plain, names))


def declared_options(project: Project) -> Declared:
    note_options(project)
    return Declared(frozenset(project.device_options), frozenset(project.backend_options))


def called_name(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def is_nccl(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value == "nccl"


def plain(name: str) -> str:
    return name.lstrip("-").replace("-", "_")


def migrate_all(found: Walk, options: Options, project: Project) -> Iterator[Migrated]:
    """Yield the migrated shell scripts of a project, those with changes or findings; none with --mode patch."""
    scripts = [path for path in found.others if path.endswith(SUFFIXES)]
    if not scripts or options.mode == "patch":
        return
    known = declared_options(project)
    for path in scripts:
        data = found.read(path)
        if data is None:
            continue
        made = migrate(path, data, options, known)
        if made.changed or made.findings:
            yield made


def migrate(path: str, data: bytes, options: Options, known: Declared) -> Migrated:
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        return Migrated(path, data, data, (unread(path, error),) if b"CUDA" in data else ())
    made = kind_of(options)(path, text, options, known)
    made.run()
    lines = tuple(range(1, len(text.split("\n")) + 1))
    return Migrated(path, data, made.after().encode(), tuple(made.sorted_findings()), lines=lines)


def kind_of(options: Options) -> type[Migration]:
    if options.to != "any":
        return Migration
    from viaduct.migration.shell_any import NeutralMigration

    return NeutralMigration


def unread(path: str, error: UnicodeDecodeError) -> Finding:
    message = f"cannot be decoded: {error}. It is copied as it is; {Undecodable.remedy}"
    zh = f"无法解码:{error}。文件原样复制;{Undecodable.remedy_zh}"
    return Finding(path, 1, 1, 1, "engine.unparsable", "report", "manual", message, zh, "low")


@dataclass
class Migration:
    path: str
    text: str
    options: Options
    known: Declared
    edits: dict[int, tuple[int, str]] = field(default_factory=dict)  # start -> (end, new text)
    findings: list[Finding] = field(default_factory=list)
    script: Script = field(init=False)
    card: Card = field(init=False)

    def __post_init__(self) -> None:
        self.script = read(self.text)
        self.card = CARDS.get(self.options.to, CARDS["npu"])  # with --to any the NPU: the strictest on lists of devices

    @property
    def root(self) -> str:
        """Name below which a script finds set_device."""
        return self.card.root

    def run(self) -> None:
        for command in self.script.commands:
            if command[0].plain not in SAYS:
                self.look_at_variables(command)
                self.look_at_options(command)
                self.look_at_words(command)
        self.look_at_documents()
        if VISIBLE in self.text:
            self.look_at_visible()

    # ---- CUDA_VISIBLE_DEVICES

    def look_at_visible(self) -> None:
        assigned = [token for command in self.script.commands for token in self.assignments(command)]
        if visible_devices.rule.is_wanted(self.options) and self.all_fit(visible_devices.rule, assigned):
            self.rename_visible(assigned)

    def all_fit(self, rule: Rule, assigned: list[tuple[Word, str]]) -> bool:
        bad = [(node, value) for node, value in assigned if not self.fits(value)]
        for item, value in bad:
            english, chinese = why_not(value.strip("\"'"), self.card)
            self.report(rule, "manual", item.start, english, chinese, "high")
        return not bad

    def rename_visible(self, assigned: list[tuple[Word, str]]) -> None:
        position = {*(inner.start for inner, _ in assigned), *self.mentions(), *uses(self.script, VISIBLE)}
        for entry in sorted(position):
            self.change(entry, entry + len(VISIBLE), self.card.visible)
            self.report(
                visible_devices.rule,
                "changed",
                entry,
                f"{VISIBLE} becomes {self.card.visible}",
                f"{VISIBLE} 改为 {self.card.visible}",
                "low",
            )
        for node, value in assigned:
            if self.card.name == "npu" and "$" in value and VISIBLE not in value:
                self.warn_of_order(node)

    def warn_of_order(self, token: Word) -> None:
        self.report(
            visible_devices.rule,
            "advice",
            token.start,
            "make sure that the list ascends strictly (0,1,3; not 1,0): else the NPU's runtime sees no device",
            "请确保列表严格升序(如 0,1,3,不能是 1,0),否则看不到任何昇腾设备",
            "low",
        )

    def assignments(self, command: list[Word]) -> Iterator[tuple[Word, str]]:
        """Yield the words that set CUDA_VISIBLE_DEVICES, with the value: before a command, behind export or env."""
        if command[0].plain in SAYS:
            return
        for token in command:
            match = ASSIGNMENT.fullmatch(token.text)
            if match is not None and match[1] == VISIBLE:
                yield token, match[3]

    def fits(self, value: str) -> bool:
        if any(sign in value for sign in "$`{"):
            return True  # put together at run time
        return can_be_carried(value.strip("\"'"), self.card)

    def mentions(self) -> Iterator[int]:
        """Yield where the variable's name is a word of its own: `export NAME`, `unset NAME`, `env -u NAME`."""
        for command in self.script.commands:
            if command[0].plain in SAYS:
                continue
            yield from (token.start for token in command if token.text == VISIBLE)
            yield from (part.start + 1 for part in command if part.text in (f'"{VISIBLE}"', f"'{VISIBLE}'"))

    # ---- the rest

    def look_at_variables(self, command: list[Word]) -> None:
        for token in command:
            match = ASSIGNMENT.fullmatch(token.text)
            if match is None:
                continue
            if NCCL.fullmatch(match[1]):
                english, chinese = on_nccl(match[1], self.card)
                self.report(nccl_variables.rule, "manual", token.start, english, chinese, "medium")
            elif match[1] in OTHERS:
                english, chinese = on_other(match[1], self.card)
                self.report(nccl_variables.rule, "advice", token.start, english, chinese, "low")

    def look_at_options(self, command: list[Word]) -> None:
        for index, token in enumerate(command):
            match = OPTION.fullmatch(token.text)
            if match is None:
                continue
            if match[2] is not None:
                self.look_at_value(match[1], Word(token.start + match.start(2), match[2]))
            elif index + 1 < len(command):
                self.look_at_value(match[1], command[index + 1])

    def look_at_value(self, option: str, value: Word) -> None:
        text = value.plain
        name = plain(option)
        if EXACT.fullmatch(text):
            self.carry(device_argparse.rule, name in self.known.devices, value, "cuda", self.card.device, option)
        elif text == "nccl":
            self.carry(backend.rule, name in self.known.backends, value, "nccl", self.card.backend, option)

    def carry(self, rule: Rule, known: bool, value: Word, old: str, new: str, option: str) -> None:
        start = value.start + value.text.index(old)
        if known:
            if rule.is_wanted(self.options):
                self.change(start, start + len(old), new)
            self.report(
                rule, "changed", start, f"{option} {old} becomes {new}", f"{option} 的值 {old} 改为 {new}", "low"
            )
        else:
            message = f"{option} {value.plain}: no script of the project declares it; if it means the card, write {new}"
            zh = f"{option} {value.plain}:项目中没有声明此选项;若指加速卡,请改为 {new}"
            self.report(rule, "advice", start, message, zh, "low")

    def look_at_words(self, command: list[Word]) -> None:
        rule = launch_commands.rule
        for token in command:
            if token.plain.rpartition("/")[2] == launch_commands.MONITOR:
                english, chinese = launch_commands.on_monitor(self.options.to)
                self.report(rule, "advice", token.start, english, chinese, "low")
            elif token.plain.rpartition("/")[2] in LAUNCHERS:
                english, chinese = launch_commands.on_launcher(self.root)
                self.report(rule, "advice", token.start, english, chinese, "low")
            elif token.text[:1] in "\"'" and CUDA_IN_PYTHON.search(token.text) and runs_python(command):
                self.say_python(token.start)
            elif launch_commands.MONITOR in token.text and "$(" in token.text:
                english, chinese = launch_commands.on_monitor(self.options.to)
                self.report(rule, "advice", token.start, english, chinese, "low")

    def look_at_documents(self) -> None:
        for start, end in self.script.documents:
            match = CUDA_IN_PYTHON.search(self.text, start, end)
            if match is not None:
                self.say_python(match.start())

    def say_python(self, start: int) -> None:
        self.report(
            launch_commands.rule,
            "manual",
            start,
            f"Python code within a shell script is not migrated: it uses CUDA; write {self.card.device}",
            f"shell 脚本中的 Python 代码不会被迁移:其中使用了 CUDA,请改为 {self.card.device}",
            "medium",
        )

    # ---- edits and findings

    def change(self, start: int, end: int, text: str) -> None:
        self.edits[start] = (end, text)

    def report(self, rule: Rule, status: Status, start: int, english: str, chinese: str, risk: Risk) -> None:
        if rule.is_wanted(self.options):
            line = self.script.line_of(start)
            column = start - (self.text.rfind("\n", 0, start) + 1) + 1
            self.findings.append(
                Finding(self.path, line, line, column, rule.name, rule.kind, status, english, chinese, risk)
            )

    def after(self) -> str:
        pieces, location = [], 0
        for start, (end, text) in sorted(self.edits.items()):
            pieces += [self.text[location:start], text]
            location = end
        return "".join([*pieces, self.text[location:]])

    def sorted_findings(self) -> Iterator[Finding]:
        old, new = lines_of(self.text), lines_of(self.after())
        seen = set()
        for finding in sorted(self.findings, key=lambda finding: finding.order):
            key = (finding.line, finding.rule, finding.message)
            if key not in seen:
                seen.add(key)
                after = new[finding.line - 1] if finding.status == "changed" else ""
                yield replace(finding, before=old[finding.line - 1], after=after)


def runs_python(command: list[Word]) -> bool:
    return any(PYTHON.fullmatch(token.plain) for token in command)
