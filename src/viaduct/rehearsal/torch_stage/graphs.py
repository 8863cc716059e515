"""Device graphs: captures raise NotImplementedError, and make_graphed_callables returns its callables."""

from __future__ import annotations

from typing import Any

from viaduct.rehearsal.torch_stage.cards import cards


class Graph:
    """NPUGraph, MLUGraph or CUDAGraph, and the context `torch.npu.graph`; making one raises NotImplementedError."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError(
            f"A rehearsal does not capture {cards.name_in_script.upper()} graphs: there is no stream of the card to "
            "record. Switch the capture off for the rehearsal."
        )


graph = Graph


def make_graphed_callables(
    callables: Any, sample_args: Any, num_warmup_iters: int = 3, allow_unused_input: bool = False, pool: Any = None
) -> Any:
    """Return the callables unchanged."""
    return callables


def graph_pool_handle() -> tuple[int, int]:
    return (0, 0)
