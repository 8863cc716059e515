"""Migrate shell scripts of a PyTorch project: variables, options and commands that name CUDA.

    CUDA_VISIBLE_DEVICES=0,1 python train.py --device cuda     becomes
    ASCEND_RT_VISIBLE_DEVICES=0,1 python train.py --device npu

CUDA_VISIBLE_DEVICES stays as it is in comments, and in printed text except `$CUDA_VISIBLE_DEVICES`. It stays in the
whole script if one of its lists of devices is not valid on the card; the list is then reported. Other variables of CUDA
and NCCL are reported. An option whose value is a CUDA device or `nccl` gets a new value if a PyTorch script of the
project declares the option for a device or a backend; else it is reported. Variables and options for a device or a
backend are also reported if CUDA or NCCL is a part of their value. Findings name the rules that do the same in Python.
Searched are files named *.sh or *.bash, and others whose first line names a shell (SHELL).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from viaduct.cards import CARDS, Card
from viaduct.cards.advice import MONITOR, describe_launcher, describe_monitor
from viaduct.cards.environment import (
    CHECK_DEVICE_ORDER,
    CUDA_VISIBLE_DEVICES,
    NCCL_VARIABLE,
    OTHER_CUDA_VARIABLES,
    describe_cuda_variable,
    describe_nccl_variable,
    explain_refused_devices,
    is_valid_device_list,
)
from viaduct.cards.limits import Bilingual, Risk
from viaduct.migration.device_texts import EXACT_CUDA_DEVICE, device_literal, is_device_name
from viaduct.migration.engine import leave_undecodable
from viaduct.migration.findings import Finding, Status
from viaduct.migration.lookups import elements, last_name
from viaduct.migration.options import Options
from viaduct.migration.predicates import is_literal_in, is_string
from viaduct.migration.project import Project
from viaduct.migration.results import FileResult
from viaduct.migration.rule import is_rule_wanted, rules_by_name
from viaduct.migration.shell_words import Script, Word, find_uses, read_script
from viaduct.migration.source import lines_of
from viaduct.migration.targets import target_cards

SUFFIXES = (".sh", ".bash")
SHELL = re.compile(rb"#![^\n]*[/ \t](?:ba|da|k|z)?sh(?:\s|\Z)")
PRINTING_COMMANDS = ("echo", "printf", "logger", ":")
"""Commands that only print or ignore their words."""
ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\+?=)(.*)", re.DOTALL)  # groups: variable, sign, value
OPTION = re.compile(r"(--?[A-Za-z][\w.-]*)(?:=(.*))?", re.DOTALL)  # groups: option, value behind a `=`
LAUNCHERS = ("torchrun", "torch.distributed.launch", "torch.distributed.run")
# A device or backend within a value, as in `cuda:0,cuda:1` and `${DEVICE:-cuda}`, not in a path or a longer word.
CUDA_IN_VALUE = re.compile(r"(?<![\w./])cuda(?::\d+)?(?![\w./-])")
NCCL_IN_VALUE = re.compile(r"(?<![\w./])nccl(?![\w./-])")
CUDA_IN_PYTHON = re.compile(r"torch\.cuda|\.cuda\(|[\"']cuda")
CUDA_IN_COMMAND = re.compile(
    rf"CUDA_VISIBLE_DEVICES|NCCL_[A-Z]|{CUDA_IN_PYTHON.pattern}|{CUDA_IN_VALUE.pattern}|{NCCL_IN_VALUE.pattern}"
)
PYTHON = re.compile(r"(?:.*/)?python[\d.]*")


def record_options(project: Project) -> None:
    """Record the command-line options by which the project's PyTorch scripts get a device or a backend."""
    devices, backends = project.device_options, project.backend_options
    for path in project.torch_files & project.parsed.keys():
        for call in project.parsed[path].source.nodes_of_type(ast.Call):
            if last_name(call.func) in ("add_argument", "option"):
                names = [str(argument.value) for argument in call.args if is_string(argument)]  # type: ignore[attr-defined]
                values = [keyword.value for keyword in call.keywords if keyword.arg in ("default", "choices")]
                texts = [text for value in values for text in elements(value)]
                if any(map(is_device_name, names)) or any(map(device_literal, texts)):
                    devices.update(map(normalize_option, names))
                if any("backend" in name for name in names) or any(is_literal_in(text, "nccl") for text in texts):
                    backends.update(map(normalize_option, names))


def normalize_option(name: str) -> str:
    """Return argparse's attribute for an option: `--dist-backend` becomes dist_backend."""
    return name.lstrip("-").replace("-", "_")


def is_shell_script(path: str, data: bytes) -> bool:
    return path.endswith(SUFFIXES) or SHELL.match(data) is not None


def migrate(path: str, data: bytes, options: Options, project: Project) -> FileResult:
    """Migrate one shell script. `record_options(project)` must have been called before."""
    from viaduct.migration.shell_any import AnyShellMigration

    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        return leave_undecodable(path, data, error)
    migration = (AnyShellMigration if options.to == "any" else ShellMigration)(path, text, options, project)
    migration.run()
    return FileResult(path, data, migration.render().encode(), tuple(migration.sort_findings()))


@dataclass
class ShellMigration:
    """Migration of one shell script to a card: its edits and findings."""

    path: str
    text: str
    options: Options
    project: Project
    edits: dict[int, tuple[int, str]] = field(default_factory=dict)  # start -> (end, new text)
    findings: list[Finding] = field(default_factory=list)
    script: Script = field(init=False)
    card: Card = field(init=False)

    def __post_init__(self) -> None:
        self.script = read_script(self.text)
        # With --to any: lists of devices must be valid on the NPU, which accepts the fewest.
        self.card = CARDS.get(self.options.to, CARDS["npu"])

    @property
    def device_module(self) -> str:
        """Module that replaces torch.cuda, such as torch.npu."""
        return self.card.torch_module

    @property
    def active_commands(self) -> list[list[Word]]:
        """Commands that do more than print their words."""
        return [command for command in self.script.commands if command[0].plain not in PRINTING_COMMANDS]

    def run(self) -> None:
        for command in self.active_commands:
            self.check_variables(command)
            self.check_options(command)
            self.check_words(command)
        for start, end in self.script.documents:
            match = CUDA_IN_PYTHON.search(self.text, start, end)
            if match is not None:
                self.report_python(match.start())
        if CUDA_VISIBLE_DEVICES in self.text and self.is_wanted("visible_devices"):
            assigned = [word for command in self.active_commands for word in find_assignments(command)]
            refused = [(word, value) for word, value in assigned if not self.is_accepted(value)]
            for word, value in refused:
                reason = explain_refused_devices(value.strip("\"'"), self.card)
                self.report("visible_devices", "manual", word, reason, "high")
            if not refused:
                self.set_visible_devices(assigned)

    # ---- CUDA_VISIBLE_DEVICES

    def set_visible_devices(self, assigned: list[tuple[Word, str]]) -> None:
        """Rename the variable where it is set, used or unset. `assigned`: (word that sets it, value)."""
        starts = {
            *(word.start for word, _ in assigned),
            *self.find_mentions(),
            *find_uses(self.script, CUDA_VISIBLE_DEVICES),
        }
        messages = (
            f"{CUDA_VISIBLE_DEVICES} becomes {self.card.visible_variable}",
            f"{CUDA_VISIBLE_DEVICES} 改为 {self.card.visible_variable}",
        )
        for start in sorted(starts):
            self.edits[start] = (start + len(CUDA_VISIBLE_DEVICES), self.card.visible_variable)
            self.report("visible_devices", "changed", start, messages, "low")
        for word, value in assigned:
            if self.card.name == "npu" and "$" in value and CUDA_VISIBLE_DEVICES not in value:
                self.report("visible_devices", "advice", word, CHECK_DEVICE_ORDER, "low")

    def is_accepted(self, value: str) -> bool:
        """Return True if the card accepts a list of devices, or if it is composed at run time."""
        return any(sign in value for sign in "$`{") or is_valid_device_list(value.strip("\"'"), self.card)

    def find_mentions(self) -> Iterator[int]:
        """Yield the positions of the variable's name as a word: `export NAME`, `unset NAME`, `env -u NAME`."""
        for word in (word for command in self.active_commands for word in command):
            if word.text in (CUDA_VISIBLE_DEVICES, f'"{CUDA_VISIBLE_DEVICES}"', f"'{CUDA_VISIBLE_DEVICES}'"):
                yield word.start + word.text.index(CUDA_VISIBLE_DEVICES)

    # ---- other variables, options, commands

    def check_variables(self, command: list[Word]) -> None:
        """Report variables of NCCL and CUDA that a command sets, and settings: DEVICE=cuda, trainer.device=cuda."""
        for word in command:
            name, equals_sign, value = word.plain.partition("=")
            name = name.removesuffix("+").rpartition(".")[2]  # `NAME+=value`; an override of Hydra begins with a path
            if not equals_sign or name.startswith("-"):
                continue
            if NCCL_VARIABLE.fullmatch(name):
                self.report_nccl_variable(word, name)
            elif name in OTHER_CUDA_VARIABLES:
                for card in target_cards(self.options):
                    self.report("nccl_variables", "advice", word, describe_cuda_variable(name, card), "low")
            elif is_device_name(name) and CUDA_IN_VALUE.search(value):
                self.report_mention("device_argparse", word, "cuda")
            elif "backend" in name.lower() and NCCL_IN_VALUE.search(value):
                self.report_mention("backend", word, "nccl")

    def report_mention(self, rule: str, word: Word, old: str) -> None:
        """Report a variable or an option for a device or a backend whose value contains `old`: cuda or nccl."""
        self.report(rule, "manual", word, describe_mention(word.plain, old, self.options), "medium")

    def report_nccl_variable(self, word: Word, name: str) -> None:
        self.report("nccl_variables", "manual", word, describe_nccl_variable(name, self.card), "medium")

    def check_options(self, command: list[Word]) -> None:
        """Change or report options with a CUDA device or NCCL as their value: `--device cuda`, `--backend=nccl`."""
        for index, word in enumerate(command):
            match = OPTION.fullmatch(word.text)
            if match is None or (match[2] is None and index + 1 == len(command)):
                continue
            value = command[index + 1] if match[2] is None else Word(word.start + match.start(2), match[2])
            name, option = normalize_option(match[1]), Word(word.start, self.text[word.start : value.end])
            if EXACT_CUDA_DEVICE.fullmatch(value.plain):
                is_declared = name in self.project.device_options
                self.change_option("device_argparse", is_declared, value, "cuda", self.card.device, match[1])
            elif value.plain == "nccl":
                is_declared = name in self.project.backend_options
                self.change_option("backend", is_declared, value, "nccl", self.card.backend, match[1])
            elif (name in self.project.device_options or is_device_name(name)) and CUDA_IN_VALUE.search(value.plain):
                self.report_mention("device_argparse", option, "cuda")
            elif (name in self.project.backend_options or "backend" in name) and NCCL_IN_VALUE.search(value.plain):
                self.report_mention("backend", option, "nccl")

    def change_option(self, rule: str, is_declared: bool, value: Word, old: str, new: str, option: str) -> None:
        """Change the value of an option; only report it if no script declares the option for a device or backend."""
        start = value.start + value.text.index(old)
        if is_declared:
            if self.is_wanted(rule):
                self.edits[start] = (start + len(old), new)
            messages = f"{option} {old} becomes {new}", f"{option} 的值 {old} 改为 {new}"
            self.report(rule, "changed", start, messages, "low")
        else:
            kind, kind_zh = ("backend", "后端") if rule == "backend" else ("device", "设备")
            message = f"{option} {value.plain}: no script seen declares a {kind} by this name; for the card write {new}"
            zh = f"{option} {value.plain}:未见脚本将此选项声明为{kind_zh};若指加速卡,请改为 {new}"
            self.report(rule, "advice", start, (message, zh), "low")

    def check_words(self, command: list[Word]) -> None:
        """Report launchers, NVIDIA's monitor, and Python code that uses CUDA."""
        runs_python = any(PYTHON.fullmatch(word.plain) for word in command)
        for word in command:
            program = word.plain.rpartition("/")[2]
            if program in LAUNCHERS:
                advice = describe_launcher(self.device_module)
                self.report("launch_commands", "advice", word, advice, "low")
            elif word.text[:1] in "\"'" and CUDA_IN_PYTHON.search(word.text) and runs_python:
                self.report_python(word.start)
            elif program == MONITOR or (MONITOR in word.text and "$(" in word.text):
                advice = describe_monitor(self.options.to)
                self.report("launch_commands", "advice", word, advice, "low")

    def report_python(self, start: int) -> None:
        """Report Python code that begins at a position."""
        messages = (
            f"Python code within a shell script is not migrated: it uses CUDA; write {self.card.device}",
            f"shell 脚本中的 Python 代码不会被迁移:其中使用了 CUDA,请改为 {self.card.device}",
        )
        self.report("launch_commands", "manual", start, messages, "medium")

    # ---- edits and findings

    def is_wanted(self, rule: str) -> bool:
        """Return True if a rule for PyTorch runs with these options; here `rule` is a name without the family."""
        return is_rule_wanted(f"torch.{rule}", self.options)

    def report(self, rule: str, status: Status, at: Word | int, messages: tuple[str, str], risk: Risk) -> None:
        """Add a finding at a word or a position if the rule is wanted; `messages`: in English and in Chinese."""
        if self.is_wanted(rule):
            start = at.start if isinstance(at, Word) else at
            line, column = self.script.line_of(start), start - self.text.rfind("\n", 0, start)
            name = f"torch.{rule}"
            self.findings.append(
                Finding(self.path, line, line, column, name, rules_by_name()[name].category, status, *messages, risk)
            )

    def render(self) -> str:
        pieces, position = [], 0
        for start, (end, text) in sorted(self.edits.items()):
            pieces += [self.text[position:start], text]
            position = end
        return "".join([*pieces, self.text[position:]])

    def sort_findings(self) -> Iterator[Finding]:
        """Yield the findings with the text of their lines before and after, without duplicates."""
        old, new = lines_of(self.text), lines_of(self.render())
        unique: dict[tuple[int, str, str], Finding] = {}
        for finding in sorted(self.findings, key=lambda finding: finding.order):
            unique.setdefault((finding.line, finding.rule, finding.message), finding)
        for finding in unique.values():
            after = new[finding.line - 1] if finding.status == "changed" else ""
            yield replace(finding, before=old[finding.line - 1], after=after)


def describe_mention(text: str, old: str, options: Options) -> Bilingual:
    """Return the message about a text that sets a device or a backend and contains `old`: cuda or nccl."""
    if options.to == "any":
        return (
            f"{text} is valid on CUDA only: leave it out, or let each machine have its own value",
            f"{text} 仅适用于 CUDA:请删去,或按机器分别设置",
        )
    new = CARDS[options.to].backend if old == "nccl" else CARDS[options.to].device
    return f"{text} mentions {old}: if that means the card, write {new}", f"{text} 提到 {old}:若指加速卡,请改为 {new}"


def find_assignments(command: list[Word]) -> Iterator[tuple[Word, str]]:
    """Yield the words `CUDA_VISIBLE_DEVICES=value` of a command, with the value."""
    for word in command:
        match = ASSIGNMENT.fullmatch(word.text)
        if match is not None and match[1] == CUDA_VISIBLE_DEVICES:
            yield word, match[3]
