"""A training of two steps on few images, and a check of a refusal's exit code and output."""

from __future__ import annotations

import subprocess

QUICK = ["shapes_taster", "--device", "cpu", "--steps", "2", "--set", "data.train_images=64"]
QUICK += ["--set", "data.validation_images=16", "--batch", "16"]


def check_refusal(answer: subprocess.CompletedProcess[str], *fragments: str) -> None:
    """Check that a command ended with exit code 2 and a message with these fragments, without a traceback."""
    assert answer.returncode == 2, answer.stderr
    assert "Traceback" not in answer.stderr
    assert answer.stderr.startswith("viaduct ")
    for fragment in fragments:
        assert fragment in answer.stderr
