"""--help in the plain layout, with flags under the heading that their `rich_help_panel` names."""

from __future__ import annotations

from typing import Any

import typer.core


class GroupedCommand(typer.core.TyperCommand):
    """Command whose --help shows flags under headings."""

    headings: tuple[str, ...] = ()  # headings that come first

    def format_options(self, ctx: Any, formatter: Any) -> None:
        sections: dict[str, list[tuple[str, str]]] = {heading: [] for heading in ("Arguments", *self.headings)}
        for parameter in self.get_params(ctx):
            fallback = "Arguments" if parameter.param_type_name == "argument" else "Options"
            if record := parameter.get_help_record(ctx):
                sections.setdefault(getattr(parameter, "rich_help_panel", None) or fallback, []).append(record)
        for heading, records in sections.items():
            if records:
                with formatter.section(heading):
                    formatter.write_dl(records)
