"""Transformers, a GAN and a model with an update written by hand: migrated, they print what the original prints."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest

from forked_viaduct import viaduct

SCRIPTS = Path(__file__).parent / "scripts"
EXAMPLES = Path(__file__).parents[3] / "examples"
# Script -> what it is given, and flags of the rehearsal: the language model runs to its end.
CASES: dict[str, tuple[Path, list[str], list[str]]] = {
    "nano_gpt": (SCRIPTS / "nano_gpt.py", ["--compile=False"], []),
    "vision_transformer": (EXAMPLES / "carry" / "vision_transformer.py", ["--amp", "--epochs", "1"], []),
    "lstm": (SCRIPTS / "word_language_model.py", ["--cuda", "--epochs", "1"], ["--steps", "0"]),
    "transformer": (SCRIPTS / "word_language_model.py", ["--cuda", "--model", "Transformer"], ["--steps", "0"]),
    "gru": (SCRIPTS / "word_language_model.py", ["--cuda", "--model", "GRU", "--tied"], ["--steps", "0"]),
    "gan": (EXAMPLES / "torch" / "gan.py", ["--cuda", "--manualSeed", "3", "--niter", "1", "--steps", "4"], []),
}
QUICK = (("nano_gpt", "npu"), ("lstm", "mlu"))
slow = pytest.mark.slow


def rehearse(script: Path, card: str, case: str, folder: Path) -> list[str]:
    """Return the lines with numbers of training that a rehearsal prints, without times."""
    _, words, flags = CASES[case]
    answer = viaduct("rehearse", script, "--on", card, *flags, "--", *words, cwd=folder)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    lines = [re.sub(r"time[: ]+[\d.]+s?", "", line) for line in answer.stdout.splitlines()]
    return [line for line in lines if re.search(r"(?i)loss|acc|\[\d", line)]


@pytest.mark.parametrize(
    ("case", "card"),
    [
        *QUICK,
        *(pytest.param(*pair, marks=slow) for pair in itertools.product(CASES, ("npu", "mlu")) if pair not in QUICK),
    ],
)
def test_a_migrated_script_prints_on_the_card_what_the_original_prints(case: str, card: str, tmp_path: Path) -> None:
    script = CASES[case][0]
    migrated = viaduct("migrate", script, "--to", card, "--out", tmp_path / "migrated", "--quiet", cwd=tmp_path)
    assert migrated.returncode == 0, migrated.stdout + migrated.stderr
    before = rehearse(script, "original", case, tmp_path)
    after = rehearse(tmp_path / "migrated" / script.name, card, case, tmp_path)
    assert len(before) > 3, before
    assert before == after


WORKERS = """
import torch
import torch_npu
from torch.utils.data import DataLoader, TensorDataset

def main():
    model = torch.nn.Linear(3, 1).npu()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for start in ("fork", "spawn", "forkserver"):
        data = TensorDataset(torch.ones(4, 3))
        loader = DataLoader(data, 2, num_workers=1, multiprocessing_context=start, pin_memory=True)
        for (x,) in loader:
            assert x.is_pinned()
            loss = model(x.npu(non_blocking=True)).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

if __name__ == "__main__":
    main()
"""


@pytest.mark.slow
def test_workers_of_every_start_method_give_pinned_batches(tmp_path: Path) -> None:
    (tmp_path / "workers.py").write_text(WORKERS)
    answer = viaduct("rehearse", "workers.py", "--on", "npu", cwd=tmp_path)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert "6 steps" in answer.stderr + answer.stdout
