"""--help with flags under headings: `rich_help_panel` of each option, in the plain layout."""

from __future__ import annotations

from typing import Any

import typer.core


class GroupedCommand(typer.core.TyperCommand):
    """Command whose --help shows flags under headings, `headings` first."""

    headings: tuple[str, ...] = ()

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write arguments, then the flags of each heading, then the others."""
        sections: dict[str, list[tuple[str, str]]] = {heading: [] for heading in ("Arguments", *self.headings)}
        for parameter in self.get_params(ctx):
            fallback = "Arguments" if parameter.param_type_name == "argument" else "Options"
            if record := parameter.get_help_record(ctx):
                sections.setdefault(getattr(parameter, "rich_help_panel", None) or fallback, []).append(record)
        for heading, records in sections.items():
            if records:
                with formatter.section(heading):
                    formatter.write_dl(records)
