"""Training loops of a script: loaders and the loop over the epochs."""

from __future__ import annotations

from migration.rules.torch.data_parallel_script import SCRIPT, ddp


def test_a_loader_kept_on_self_is_followed() -> None:
    after, output = ddp(
        """\
        import torch
        from torch.utils.data import DataLoader
        class Trainer:
            def __init__(self, model, data):
                self.model = torch.nn.DataParallel(model)
                self.loader = DataLoader(data, batch_size=4, shuffle=True)
            def epoch(self):
                for x in self.loader:
                    self.model(x).sum().backward()
            def fit(self, epochs):
                for number in range(epochs):
                    self.epoch()
        if __name__ == "__main__":
            Trainer(build(), data()).fit(3)
        """
    )
    assert "for number in range(epochs):\n            self.loader.sampler.set_epoch(number)\n" in after, output


def test_a_training_loader_that_does_not_shuffle_gets_a_sampler_too() -> None:
    after, _ = ddp(SCRIPT.replace(", shuffle=True", ""))
    assert "sampler=DistributedSampler(data, shuffle=False))" in after


def test_a_shuffled_evaluation_loader_stays() -> None:
    after, _ = ddp(
        SCRIPT.replace("test = DataLoader(data, batch_size=batch)", "test = DataLoader(data, 4, shuffle=True)")
    )
    assert "test = DataLoader(data, 4, shuffle=True)\n" in after
    assert after.count("set_epoch") == 1


def test_a_loader_in_a_progress_bar_is_followed() -> None:
    after, output = ddp(SCRIPT.replace("for x, y in loader:", "bar = tqdm(loader)\n        for x, y in bar:"))
    assert "train_loader.sampler.set_epoch(epoch)" in after, output
