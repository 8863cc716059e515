"""Options of a dump: the flags that `viaduct dump` and `viaduct train` share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from viaduct.flags import Flag

Mode = Literal["input", "output", "all"]
Level = Literal["module", "op"]


@dataclass(frozen=True)
class DumpOptions:
    """What is dumped. The fields are also arguments of `comparison.dump.Dump`."""

    steps: Annotated[str, Flag("Steps to dump, from 0: 0,5,10-12.", metavar="LIST")] = "0"
    mode: Annotated[Mode, Flag("Tensors of each operator that are dumped.")] = "all"
    only: Annotated[str | None, Flag("Dump only operators with these names: 'layer3.*,head'.", metavar="GLOB,…")] = None
    level: Annotated[Level, Flag("Dump modules, or every aten operator, forward and backward.")] = "module"
    statistics_only: Annotated[bool, Flag("Dump minimum, maximum, mean, deviation, norm; no tensors.")] = False
