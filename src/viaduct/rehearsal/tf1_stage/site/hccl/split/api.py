"""Settings for splitting the gradients into segments; HCCL sends a segment while further gradients are computed.

Here all gradients of an optimizer are exchanged together, so the settings are only checked.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from viaduct.rehearsal.tf1_stage import collectives

WORLD = collectives.WORLD
MAX_SEGMENTS = 8


def set_split_strategy_by_idx(idx_list: Sequence[int], group: str = WORLD) -> None:
    """Check the indices of each segment's last gradient, which must ascend."""
    collectives.list_members(group)
    if not 0 < len(idx_list) <= MAX_SEGMENTS:
        raise ValueError(f"set_split_strategy_by_idx takes 1 to {MAX_SEGMENTS} segments, not {len(idx_list)}")
    if any(second <= first for first, second in itertools.pairwise(idx_list)) or min(idx_list) < 0:
        raise ValueError(f"set_split_strategy_by_idx: indices must ascend from 0 on, not {list(idx_list)}")


def set_split_strategy_by_size(percent_list: Sequence[float], group: str = WORLD) -> None:
    """Check the sizes of the segments in percent, which must add up to 100."""
    collectives.list_members(group)
    if not 0 < len(percent_list) <= MAX_SEGMENTS:
        raise ValueError(f"set_split_strategy_by_size takes 1 to {MAX_SEGMENTS} segments, not {len(percent_list)}")
    if abs(sum(percent_list) - 100) > 1e-6 or min(percent_list) < 0:
        raise ValueError(f"set_split_strategy_by_size: shares must add up to 100, not {sum(percent_list)}")
