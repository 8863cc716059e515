"""Names and arguments of older packages that scripts still use: NumPy's type aliases, absl's enum_values as text."""

from __future__ import annotations

from typing import Any

import numpy as np

from viaduct.rehearsal.wrapping import wrap

ALIASES: dict[str, type] = {"bool": bool, "int": int, "float": float, "object": object, "complex": complex, "str": str}


def install() -> None:
    """Add NumPy's former type aliases (`np.int`), and let absl's DEFINE_enum take text as before absl 1.4.

    `enum_values="a|b"` allows the values a and b. A text without "|" allows each of its letters.
    """
    for name, kind in ALIASES.items():
        if name not in np.__dict__:
            setattr(np, name, kind)
    from absl.flags import _argument_parser

    @wrap(_argument_parser.EnumParser, "__init__")
    def init(plain: Any, self: Any, enum_values: Any, *args: Any, **kwargs: Any) -> None:
        values = enum_values.split("|") if isinstance(enum_values, str) and "|" in enum_values else enum_values
        plain(self, list(values) if isinstance(values, str) else values, *args, **kwargs)
