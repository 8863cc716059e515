"""--help in the plain layout: short placeholders, and flags under the heading that their `rich_help_panel` names."""

from __future__ import annotations

import typing
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

import typer
import typer.core

Verb = TypeVar("Verb", bound=Callable[..., Any])
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]  # parameter of many verbs
PLACEHOLDERS = {"Path": "PATH", "float": "X", "int": "N", "str": "TEXT"}  # part of a type annotation -> placeholder


class GroupedCommand(typer.core.TyperCommand):
    """Command whose --help shows flags under headings, and `--jobs N` instead of the name of a type."""

    headings: tuple[str, ...] = ()  # behind "Arguments", in this order; further ones follow

    def format_help(self, ctx: Any, formatter: Any) -> None:
        set_placeholders(self)
        super().format_help(ctx, formatter)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        set_placeholders(self)  # `viaduct launch --help` calls this method without `format_help`
        sections: dict[str, list[tuple[str, str]]] = {heading: [] for heading in ("Arguments", *self.headings)}
        for parameter in self.get_params(ctx):
            is_argument = parameter.param_type_name == "argument"
            if record := parameter.get_help_record(ctx):
                heading = getattr(parameter, "rich_help_panel", None) or ("Arguments" if is_argument else "Options")
                row = (str(parameter.metavar), record[1]) if is_argument else record
                sections.setdefault(heading, []).append(row)
        for heading, rows in sections.items():
            if rows:
                with formatter.section(heading):
                    formatter.write_dl(rows)


class DefaultGroup(typer.core.TyperGroup):
    """Group whose subcommand `default` may be left out."""

    default = ""

    def prepend_subcommand(self, arguments: list[str]) -> list[str]:
        """Return the arguments with the default subcommand in front, unless they begin with a subcommand."""
        return arguments if arguments[:1] and arguments[0] in self.commands else [self.default, *arguments]


class Subcommands(typer.Typer):
    """Verb with subcommands, each with the same layout of --help."""

    def __init__(self, help: str, **settings: Any) -> None:
        super().__init__(help=help, add_completion=False, rich_markup_mode=None, **{"no_args_is_help": True} | settings)

    def command(self, name: str | None = None, *, cls: Any = GroupedCommand, **settings: Any) -> Callable[[Verb], Verb]:
        return super().command(name, cls=cls, **settings)


def set_placeholders(command: Any) -> None:
    """Give a placeholder to each argument, and to each option that takes a number, a text or a path."""
    types = typing.get_type_hints(command.callback)
    for parameter in command.params:
        if parameter.metavar or getattr(parameter, "is_flag", False):
            continue
        if parameter.param_type_name == "argument":
            parameter.metavar = parameter.name.upper()
            continue
        annotation = str(types.get(parameter.name))
        if "Literal" not in annotation:
            parameter.metavar = next((text for kind, text in PLACEHOLDERS.items() if kind in annotation), None)
