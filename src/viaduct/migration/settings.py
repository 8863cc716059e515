"""Migrate devices and backends in configuration files of a PyTorch project: YAML, JSON, TOML, INI and gin.

    device: cuda:0        becomes    device: npu:0
    dist:                            dist:
      backend: nccl                    backend: hccl

A value is changed if its key names a device or a backend, and the complete value is a CUDA device or `nccl`. The file
is not changed, and all such places in it are reported, if one needs manual review: a value under such a key that
contains CUDA or NCCL with other text, a device with a number (`cuda:0`) under another key, any other line that names
both a device and CUDA or a backend and NCCL (`args: --device cuda`), and CUDA_VISIBLE_DEVICES. With `--to any` nothing
is changed, because a configuration file cannot query the device at run time. Findings have the names of the rules that
make the same changes in Python.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from viaduct.cards import CARDS
from viaduct.cards.environment import CUDA_VISIBLE_DEVICES, describe_own_variable
from viaduct.cards.limits import Risk
from viaduct.migration.device_texts import is_device_name
from viaduct.migration.engine import leave_undecodable
from viaduct.migration.findings import Finding, Status
from viaduct.migration.options import Options
from viaduct.migration.results import FileResult
from viaduct.migration.rule import is_rule_wanted, rules_by_name
from viaduct.migration.shell import CUDA_IN_VALUE, NCCL_IN_VALUE, describe_mention
from viaduct.migration.targets import target_cards

LIGHTNING_RULE = "torch.lightning"
SUFFIXES = (".yaml", ".yml", ".json", ".toml", ".ini", ".cfg", ".conf", ".gin")
RELEVANT_TERMS = (b"cuda", b"nccl", b"accelerator", CUDA_VISIBLE_DEVICES.encode())
# `key: value` or `key = value`; the value is a quoted string, a [list], a ${reference} or one bare word.
KEY_AND_VALUE = re.compile(
    r"(?:(?<=[\s{,\[-])|^)(?P<key>\"[\w.\- ]+\"|'[\w.\- ]+'|[A-Za-z_][\w.-]*)\s*[:=]\s*"
    r"(?P<value>\"[^\"]*\"|'[^']*'|\[[^\]]*\]|\$\{[^}]*\}|[^\s,{}\[\]#;][^\s,}\]#;]*)"
)
# A key with its value on the next lines, and a value on its own line.
KEY_ALONE = re.compile(r"\s*(?:-\s+)?[\"']?(?P<key>[A-Za-z_][\w.-]*)[\"']?\s*[:=]\s*[\[|>]?-?\s*")
VALUE_ALONE = re.compile(r"\s*(?:-\s+)?[\"']?(?P<value>cuda(?::\d+)?|nccl)[\"']?\s*,?\s*[\]}]*,?\s*")
WORD = re.compile(r"[\w-]+")
COMMENT = re.compile(r"(?:^|\s)[#;]")
DEVICE = re.compile(r"cuda(?::\d+)?")
NUMBERED_DEVICE = re.compile(r"cuda:\d+")  # cannot be anything but a device, whatever its key


def migrate(path: str, data: bytes, options: Options) -> FileResult:
    """Migrate one configuration file; one that is not UTF-8 stays unchanged and is reported."""
    if not any(term in data for term in RELEVANT_TERMS):
        return FileResult(path, data, data)
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        return leave_undecodable(path, data, error)
    migration = SettingsMigration(path, options)
    old = text.split("\n")
    after = "\n".join([migration.migrate_line(number, line) for number, line in enumerate(old, 1)])
    findings = migration.findings
    if any(finding.status == "manual" and finding.rule != LIGHTNING_RULE for finding in findings):
        after, findings = text, [turn_into_review(finding) for finding in findings]
    return FileResult(path, data, after.encode(), tuple(findings))


def turn_into_review(finding: Finding) -> Finding:
    """Turn the finding of a change into one for manual review, because another line of the file needs review."""
    if finding.status != "changed":
        return finding
    return replace(
        finding,
        status="manual",
        after="",
        message=f"not changed, because another line of this file needs manual review; after that: {finding.message}",
        message_zh=f"{finding.message_zh}:因本文件另有需人工修改之处,未写入",
    )


@dataclass
class SettingsMigration:
    """Migration of one configuration file, line by line."""

    path: str
    options: Options
    findings: list[Finding] = field(default_factory=list)
    open_key: str = ""  # key, or option in a list, of the line before, whose value may be on the next lines; "": none

    def migrate_line(self, number: int, line: str) -> str:
        """Return the new text of a line, and add its findings."""
        comment = COMMENT.search(line)
        stop = comment.start() if comment and not self.path.endswith(".json") else len(line)
        pieces, position, former_count = [], 0, len(self.findings)
        for pair in KEY_AND_VALUE.finditer(line, 0, stop):
            key, value = pair["key"].strip("\"'").rpartition(".")[2], pair["value"].strip("\"'")
            new = self.migrate_value((number, pair.start() + 1), line, key, value)
            if new:
                start = pair.start("value") + pair["value"].index(value)
                pieces += [line[position:start], new]
                position = start + len(value)
        after = "".join(pieces) + line[position:]
        self.check_value_below(number, line, line[:stop])
        if len(self.findings) == former_count:  # no value in a known form
            self.check_mentions(number, line, line[:stop])
        for index, finding in enumerate(self.findings[former_count:], former_count):
            if finding.status == "changed":
                self.findings[index] = replace(finding, after=after.rstrip("\r"))
        return after

    def check_value_below(self, number: int, line: str, text: str) -> None:
        """Report a value alone on its line by the key of a line before; else record the line's key or option."""
        match = VALUE_ALONE.fullmatch(text)
        if match and self.open_key:
            self.migrate_value((number, match.start("value") + 1), line, self.open_key, match["value"], is_below=True)
        elif text.strip():
            match_key = KEY_ALONE.fullmatch(text)
            option = next(filter(is_device_name, WORD.findall(text)), "")  # in a list: "--device", then "cuda"
            self.open_key = match_key["key"].rpartition(".")[2] if match_key else option

    def check_mentions(self, number: int, line: str, text: str) -> None:
        """Report a line that names CUDA or NCCL in a form that `migrate_value` does not know: `device: !!str cuda`."""
        match = CUDA_IN_VALUE.search(text) if any(map(is_device_name, WORD.findall(text))) else None
        if match is not None:
            self.report_mention("torch.device_string", (number, match.start() + 1), line, text.strip(), "cuda")
        match = NCCL_IN_VALUE.search(text) if "backend" in text.lower() else None
        if match is not None:
            self.report_mention("torch.backend", (number, match.start() + 1), line, text.strip(), "nccl")
        if CUDA_VISIBLE_DEVICES in text:
            variables = "; ".join(describe_own_variable(card)[0] for card in target_cards(self.options))
            variables_zh = ";".join(describe_own_variable(card)[1] for card in target_cards(self.options))
            at = number, text.index(CUDA_VISIBLE_DEVICES) + 1
            self.report("torch.visible_devices", "manual", at, line, (variables, variables_zh), "medium")

    def report_mention(self, rule: str, at: tuple[int, int], line: str, text: str, old: str) -> None:
        """Report that `text`, a key with its value or a line, contains `old`: cuda or nccl."""
        risk: Risk = "high" if self.options.to == "any" else "medium"
        self.report(rule, "manual", at, line, describe_mention(text, old, self.options), risk)

    def migrate_value(self, at: tuple[int, int], line: str, key: str, value: str, is_below: bool = False) -> str:
        """Return the new text of a value, or "" if it stays; add its finding.

        `at`: line and column; `is_below`: the value is on a line below its key, so it is only reported.
        """
        if key == "accelerator" and value in ("gpu", "cuda") and is_rule_wanted(LIGHTNING_RULE, self.options):
            names = " and ".join(card.title for card in target_cards(self.options))
            messages = (
                f"accelerator: {value} means CUDA, and Lightning has no accelerator for the {names}: "
                "give the trainer an Accelerator of your own",
                f"accelerator: {value} 在 Lightning 中指 CUDA,且没有 {names} 的加速器:"
                "请为 Trainer 传入自定义的 Accelerator",
            )
            self.report(LIGHTNING_RULE, "manual", at, line, messages, "high")
            return ""
        has_device_key = is_device_name(key)
        is_device = (has_device_key and "cuda" in value) or NUMBERED_DEVICE.fullmatch(value) is not None
        is_backend = "backend" in key.lower() and "nccl" in value
        is_exact = (has_device_key and DEVICE.fullmatch(value)) or (is_backend and value == "nccl")
        rule = "torch.device_string" if is_device else "torch.backend"
        if not (is_device or is_backend) or not is_rule_wanted(rule, self.options):
            return ""
        old = "cuda" if is_device else "nccl"
        if self.options.to == "any" or not is_exact or is_below:
            self.report_mention(rule, at, line, f"{key}: {value}", old)
            return ""
        card = CARDS[self.options.to]
        new = card.device if is_device else card.backend
        messages = f"{key} in this configuration is {new}", f"配置中的 {key} 改为 {new}"
        self.report(rule, "changed", at, line, messages, "medium")
        return new + value[len(old) :]

    def report(
        self, rule: str, status: Status, at: tuple[int, int], line: str, messages: tuple[str, str], risk: Risk
    ) -> None:
        """Add a finding if its rule is wanted; `messages` in English and Chinese."""
        number, column = at
        if is_rule_wanted(rule, self.options):
            location = (self.path, number, number, column, rule, rules_by_name()[rule].category, status)
            self.findings.append(Finding(*location, *messages, risk, line.rstrip("\r")))
