"""Embedding services, which a rehearsal does not have."""

from __future__ import annotations

import pytest

from viaduct.rehearsal.tf1_stage.site.npu_bridge.embedding.npu_embedding import ESWorker, embedding_service


def test_a_service_says_that_the_rehearsal_has_none_and_does_not_pretend() -> None:
    for call in (ESWorker, embedding_service):
        with pytest.raises(NotImplementedError, match="parameter servers"):
            call("cluster.json")
