"""Migrate shell scripts with `--to any`: set the visible devices for each kind of card; report everything else.

    CUDA_VISIBLE_DEVICES=0 python train.py     becomes
    CUDA_VISIBLE_DEVICES=0 ASCEND_RT_VISIBLE_DEVICES=0 MLU_VISIBLE_DEVICES=0 python train.py

Variables of other cards have no effect on CUDA. Where no other assignment may follow (`docker run -e`, a list that a
command computes), the names of the variables are only reported.
"""

from __future__ import annotations

from collections.abc import Iterator

from viaduct.cards import CARDS
from viaduct.cards.environment import (
    CUDA_VISIBLE_DEVICES,
    EVERY_CARD_IS_SET,
    describe_nccl_variable_for_all,
)
from viaduct.migration.shell import ASSIGNMENT, ShellMigration
from viaduct.migration.shell_words import Word

OTHER_VISIBLE = tuple(card.visible_variable for card in CARDS.values())
NAME_COMMANDS = ("export", "unset")
"""Commands that take several names."""
KEYWORDS = ("do", "then", "else", "if", "while", "until", "time", "{", "!")
"""Words after which a command begins."""
SUBSTITUTIONS = ("(", "`")
"""Characters directly after a word that begin a command substitution."""


class AnyShellMigration(ShellMigration):
    """Migration of one shell script to every card."""

    device_module = "accelerator"

    def set_visible_devices(self, assigned: list[tuple[Word, str]]) -> None:
        """Set the other cards' variables in each command that sets CUDA's and none of them.

        `assigned`, CUDA's variables that the script sets, is not used: single cards replace them, and this keeps them.
        """
        for command in self.active_commands:
            if not any(name in word.text for word in command for name in OTHER_VISIBLE):
                for word, value in find_settings(command):
                    self.add_variables(command, word, value)

    def add_variables(self, command: list[Word], word: Word, value: str) -> None:
        """Write the other cards' variables after a word that sets, exports or unsets CUDA's; else report them."""
        is_substituted = "$(" in value or "`" in value or self.text[word.end : word.end + 1] in SUBSTITUTIONS
        if is_substituted or not can_be_followed(command, word):
            names = " and ".join(OTHER_VISIBLE)
            messages = f"other cards have variables of their own: {names}", f"其他加速卡使用各自的变量:{names}"
            self.report("visible_devices", "advice", word, messages, "low")
            return
        self.edits[word.end] = (word.end, "".join(f" {name}{value}" for name in OTHER_VISIBLE))
        self.report("visible_devices", "changed", word, EVERY_CARD_IS_SET, "low")

    def report_nccl_variable(self, word: Word, name: str) -> None:
        self.report("nccl_variables", "advice", word, describe_nccl_variable_for_all(name), "low")

    def change_option(self, rule: str, is_declared: bool, value: Word, old: str, new: str, option: str) -> None:
        """Report the value of an option, which names CUDA on every machine."""
        message = f"{option} {value.plain} names CUDA on every machine: remove it where the default is right"
        zh = f"{option} {value.plain} 在任何机器上都指定 CUDA:若默认值可用,请去掉此选项"
        self.report(
            rule, "manual" if is_declared else "advice", value, (message, zh), "medium" if is_declared else "low"
        )

    def report_python(self, start: int) -> None:
        """Report Python code that begins at a position."""
        messages = (
            "Python code within a shell script is not migrated: it uses CUDA; move it into a script",
            "shell 脚本中的 Python 代码不会被迁移:其中使用了 CUDA,请移入独立的脚本",
        )
        self.report("launch_commands", "manual", start, messages, "medium")


def find_settings(command: list[Word]) -> Iterator[tuple[Word, str]]:
    """Yield (word, text after CUDA_VISIBLE_DEVICES): `=0,1` where it is set; "" where it is exported or unset."""
    for word in command:
        match = ASSIGNMENT.fullmatch(word.text)
        if match is not None and match[1] == CUDA_VISIBLE_DEVICES:
            yield word, match[2] + match[3]
        elif word.text == CUDA_VISIBLE_DEVICES and command[0].plain in NAME_COMMANDS:
            yield word, ""


def can_be_followed(command: list[Word], word: Word) -> bool:
    """Return True if another assignment may follow a word: before a command, or after `export`, `unset` or `env`."""
    words_before = [
        preceding for preceding in command[: command.index(word)] if not ASSIGNMENT.fullmatch(preceding.text)
    ]
    while words_before and words_before[0].plain in KEYWORDS:
        words_before = words_before[1:]
    return not words_before or (words_before[0].plain in (*NAME_COMMANDS, "env") and len(words_before) == 1)
