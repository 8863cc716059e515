"""Embedding services on the NPU's parameter servers, which raise NotImplementedError in a rehearsal."""

from __future__ import annotations

from typing import Any


class ESWorker:
    def __init__(self, es_cluster_config: str = "") -> None:
        raise NotImplementedError(
            "embedding services need the NPU's parameter servers, which a rehearsal does not have"
        )


def embedding_service(*args: Any, **kwargs: Any) -> Any:
    return ESWorker()
