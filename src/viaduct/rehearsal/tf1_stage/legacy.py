"""Names of the Python world of 2019 that scripts still say: NumPy's aliases of builtins, absl's string of choices."""

from __future__ import annotations

from typing import Any

import numpy as np

ALIASES: dict[str, type] = {"bool": bool, "int": int, "float": float, "object": object, "complex": complex, "str": str}


def install() -> None:
    for name, kind in ALIASES.items():
        if name not in np.__dict__:
            setattr(np, name, kind)
    accept_string_choices()


def accept_string_choices() -> None:
    """absl took `enum_values="a|b"` for a sequence of letters until 1.4, and refuses it since."""
    from absl.flags import _argument_parser

    parser: Any = _argument_parser.EnumParser
    plain = parser.__init__

    def init(self: Any, enum_values: Any, *args: Any, **kwargs: Any) -> None:
        values = enum_values.split("|") if isinstance(enum_values, str) and "|" in enum_values else enum_values
        plain(self, list(values) if isinstance(values, str) else values, *args, **kwargs)

    parser.__init__ = init
