"""Skip tests that need the stand-ins for PyTorch if the installed torch is too old for the stand-ins."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from viaduct.errors import BadValue
from viaduct.rehearsal.stage import refuse_old_torch

FOLDERS = ("carrying", "rehearsal")
WITHOUT_TORCH = ("test_tf1_", "test_stage")  # modules that need no stand-in for PyTorch, as do those of tf1_stage/


def skip_with_old_torch(items: Iterable[Any], tests: Path) -> None:
    try:
        refuse_old_torch()
    except BadValue as error:
        reason = str(error).splitlines()[0]
    except ImportError:
        return  # without torch these modules are skipped by themselves
    else:
        return
    for item in items:
        path = item.path.relative_to(tests)
        needs_torch = "tf1_stage" not in path.parts and not path.name.startswith(WITHOUT_TORCH)
        if path.parts[0] in FOLDERS and needs_torch:
            item.add_marker(pytest.mark.skip(reason=reason))
