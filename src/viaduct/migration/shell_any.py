"""Shell scripts with `--to any`: the cards to be seen are named to each kind, and the rest is said.

    CUDA_VISIBLE_DEVICES=0 python train.py     becomes
    CUDA_VISIBLE_DEVICES=0 ASCEND_RT_VISIBLE_DEVICES=0 MLU_VISIBLE_DEVICES=0 python train.py

A variable of another card disturbs nobody, so on CUDA nothing changes. Where one word does not simply stand beside
another (`docker run -e`, a list that a command makes), nothing is written and the names are told.
"""

from __future__ import annotations

from collections.abc import Iterator

from viaduct.cards import CARDS
from viaduct.cards.environment import NCCL, OTHERS, VISIBLE, on_nccl_alone, on_other
from viaduct.migration.rule import Rule
from viaduct.migration.rules.torch import any_device_text, backend, launch_commands, visible_devices
from viaduct.migration.rules.torch import nccl_variables as nccl
from viaduct.migration.shell import ASSIGNMENT, SAYS, Migration
from viaduct.migration.shell_words import Word

NAMES = tuple(card.visible for card in CARDS.values())
LISTS = ("export", "unset")
"""Commands that take several names as well as one."""
BEFORE = ("do", "then", "else", "if", "while", "until", "time", "{", "!")
"""Words behind which a command begins."""
GOES_ON = ("(", "`")
"""What behind a word belongs to it: a command that makes the value."""


class NeutralMigration(Migration):
    root = "accelerator"

    def look_at_visible(self) -> None:
        rule = visible_devices.rule
        commands = [command for command in self.script.commands if command[0].plain not in SAYS]
        assigned = [token for command in commands for token in self.assignments(command)]
        if not rule.is_wanted(self.options) or not self.all_fit(rule, assigned):
            return
        for command in commands:
            if not any(name in item.text for item in command for name in NAMES):
                for part, value in find_settings(command):
                    self.add(rule, command, part, value)

    def add(self, rule: Rule, command: list[Word], token: Word, value: str) -> None:
        if (
            not has_room(command, token)
            or "$(" in value
            or "`" in value
            or self.text[token.end : token.end + 1] in GOES_ON
        ):
            others = " and ".join(NAMES)
            said = f"other cards have variables of their own: {others}", f"其他加速卡使用各自的变量:{others}"
            self.report(rule, "advice", token.start, *said, "low")
            return
        self.change(token.end, token.end, "".join(f" {name}{value}" for name in NAMES))
        message = "the visible devices are set for every kind of card; an NPU requires them in ascending order"
        self.report(rule, "changed", token.start, message, "同时设置各类加速卡的可见设备变量;NPU 要求编号升序", "low")

    def look_at_variables(self, command: list[Word]) -> None:
        for token in command:
            match = ASSIGNMENT.fullmatch(token.text)
            if match is not None and NCCL.fullmatch(match[1]):
                self.report(nccl.rule, "advice", token.start, *on_nccl_alone(match[1]), "low")
            elif match is not None and match[1] in OTHERS:
                for card in CARDS.values():
                    self.report(nccl.rule, "advice", token.start, *on_other(match[1], card), "low")

    def carry(self, rule: Rule, known: bool, value: Word, old: str, new: str, option: str) -> None:
        """The value of an option: it is CUDA's wherever the script is started."""
        rule = backend.rule if rule is backend.rule else any_device_text.rule
        message = f"{option} {value.plain} requires CUDA on every machine: remove it where the default is right"
        zh = f"{option} {value.plain} 在任何机器上都指定 CUDA:若默认值可用,请去掉此选项"
        self.report(rule, "manual" if known else "advice", value.start, message, zh, "medium" if known else "low")

    def say_python(self, start: int) -> None:
        self.report(
            launch_commands.rule,
            "manual",
            start,
            "Python code within a shell script is not migrated: it uses CUDA; move it into a script",
            "shell 脚本中的 Python 代码不会被迁移:其中使用了 CUDA,请移入独立的脚本",
            "medium",
        )


def find_settings(command: list[Word]) -> Iterator[tuple[Word, str]]:
    """Yield where the variable is set, with `=` and its value; or where it is exported or unset, with nothing."""
    for token in command:
        match = ASSIGNMENT.fullmatch(token.text)
        if match is not None and match[1] == VISIBLE:
            yield token, match[2] + match[3]
        elif token.text == VISIBLE and command[0].plain in LISTS:
            yield token, ""


def has_room(command: list[Word], word: Word) -> bool:
    """Before a command, behind `export` or `env`: there another assignment may follow."""
    before = [token for token in command[: command.index(word)] if not ASSIGNMENT.fullmatch(token.text)]
    while before and before[0].plain in BEFORE:
        before = before[1:]
    return not before or (before[0].plain in (*LISTS, "env") and len(before) == 1)
