"""Phases of scripts that run in this process; a phase takes at least the time that the script sleeps in it."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from viaduct.profiling.collector import Collector, Plan, clear_constant_interruptions
from viaduct.profiling.record import Facts, Profile
from viaduct.profiling.script_phases import ScriptPhases
from viaduct.scripts.runner import StopScript

HEAD = """\
import time
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

data = TensorDataset(torch.randn(64, 16), torch.randint(0, 4, (64,)))
loader = DataLoader(data, batch_size=8)
net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
loss = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
"""
TRAIN = """\
for epoch in range(9):
    for x, y in loader:
        optimizer.zero_grad()
        loss(net(x), y).backward()
        optimizer.step()
"""


class Watched:
    """Phases and profile of a script."""

    def __init__(self, body: str, plan: Plan, head: str = HEAD) -> None:
        self.collector = Collector(plan, "cpu", make_sampler=None)
        self.phases = ScriptPhases(self.collector, self.stop)
        self.stopped = False
        with self.phases:
            try:
                exec(compile(head + body, "train.py", "exec"), {"__name__": "__main__"})
            except StopScript:
                self.stopped = True
        self.profile: Profile = self.collector.finish(Facts("train.py", "script"))

    def stop(self) -> None:
        raise StopScript

    @property
    def interruptions(self) -> list[str]:
        return [step.interrupted_by for step in self.profile.steps]


def test_nothing_of_torch_is_changed_afterwards() -> None:
    before = (
        torch.autograd.backward,
        torch.save,
        torch.optim.Optimizer.__init__,
        torch.utils.data.DataLoader.__iter__,
        torch.amp.GradScaler.step,
        nn.Sequential.__call__,
    )
    Watched(TRAIN, Plan(1, 2, 0))
    after = (
        torch.autograd.backward,
        torch.save,
        torch.optim.Optimizer.__init__,
        torch.utils.data.DataLoader.__iter__,
        torch.amp.GradScaler.step,
        nn.Sequential.__call__,
    )
    assert all(first is second for first, second in zip(before, after, strict=True))


def test_a_training_loop_is_stopped_after_its_steps() -> None:
    watched = Watched(TRAIN, Plan(2, 3, 0))
    assert watched.stopped
    assert [step.number for step in watched.profile.steps] == [2, 3, 4]
    assert watched.phases.facts is not None
    assert (watched.phases.facts.batch, watched.phases.facts.precision) == (8, "float32")
    assert watched.phases.workers == 0
    assert watched.interruptions == ["", "", ""]


def test_each_part_of_a_step_is_where_the_script_spends_it() -> None:
    body = """\
class Slow(nn.Linear):
    def forward(self, x):
        time.sleep(0.03)
        return super().forward(x)

net = Slow(16, 4)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for epoch in range(9):
    for x, y in loader:
        time.sleep(0.02)  # a copy to the device, which is still data
        value = loss(net(x), y)
        optimizer.zero_grad()
        value.backward()
        time.sleep(0.04)  # clipping gradients
        optimizer.step()
        time.sleep(0.05)  # a scheduler, printing: the next step's data tail
"""
    steps = Watched(body, Plan(1, 2, 0)).profile.steps
    for step in steps:
        assert step.data_tail_us is not None
        assert step.data_tail_us >= 70_000
        assert step.forward_backward_us >= 30_000
        assert step.update_tail_us >= 40_000
        assert step.iteration_us == pytest.approx(
            step.data_tail_us + step.forward_backward_us + step.update_tail_us, abs=1e-3
        )


def test_waits_for_the_loader_are_those_of_the_step() -> None:
    body = """\
class Slow(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        time.sleep(0.005)
        return data[index]

loader = DataLoader(Slow(), batch_size=4)
"""
    for step in Watched(body + TRAIN, Plan(1, 3, 0)).profile.steps:
        assert step.loader_wait_us is not None
        assert step.data_tail_us is not None
        assert 20_000 <= step.loader_wait_us <= step.data_tail_us


def test_accumulated_gradients_are_one_step() -> None:
    body = """\
for epoch in range(9):
    for number, (x, y) in enumerate(loader):
        loss(net(x), y).backward()
        if number % 4 == 3:
            optimizer.step()
            optimizer.zero_grad()
"""
    watched = Watched(body, Plan(1, 3, 0))
    assert watched.phases.passes == 16
    assert watched.phases.facts is not None
    assert watched.phases.facts.samples_per_step == 32


GAN = """\
make, judge = nn.Linear(16, 16), nn.Linear(16, 1)
first = torch.optim.SGD(judge.parameters(), lr=0.1)
second = torch.optim.SGD(make.parameters(), lr=0.1)
for epoch in range(9):
    for x in BATCHES:
        time.sleep(0.03)
        made = make(torch.randn(8, 16))
        judge(made.detach()).mean().backward()
        first.step()
        judge(made).mean().backward()
        second.step()
"""


@pytest.mark.parametrize("batches", ["(x for x, y in loader)", "torch.randn(8, 8, 16)"])
def test_a_step_of_several_optimizers_ends_with_the_last(batches: str) -> None:
    watched = Watched(GAN.replace("BATCHES", batches), Plan(2, 4, 0), HEAD.replace("optimizer =", "optimizer = None #"))
    assert watched.phases.updates in (12, 13)  # two in each of six steps
    for step in watched.profile.steps:
        assert step.data_tail_us is not None
        assert step.data_tail_us >= 30_000  # it begins with the data, not with the second network
        assert step.forward_backward_us < 30_000 + step.data_tail_us
    assert "the last of several optimizers" in " ".join(watched.phases.describe_time_points())


def test_a_closure_is_part_of_the_step() -> None:
    body = """\
optimizer = torch.optim.LBFGS(net.parameters(), max_iter=2)
x, y = data.tensors

def closure():
    optimizer.zero_grad()
    value = loss(net(x), y)
    time.sleep(0.01)
    value.backward()
    return value

for _ in range(9):
    optimizer.step(closure)
"""
    watched = Watched(body, Plan(1, 2, 0), HEAD.replace("optimizer =", "optimizer = None #"))
    assert len(watched.profile.steps) == 2
    assert all(step.forward_backward_us >= 10_000 for step in watched.profile.steps)


def test_a_skipped_update_of_a_scaler_is_no_regular_step() -> None:
    body = """\
scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
number = 0
for epoch in range(9):
    for x, y in loader:
        number += 1
        optimizer.zero_grad()
        value = loss(net(x), y) * (float("inf") if number == 3 else 1.0)
        scaler.scale(value).backward()
        scaler.step(optimizer)
        scaler.update()
"""
    watched = Watched(body, Plan(1, 4, 0))
    assert watched.interruptions == ["", "skipped update", "", ""]
    assert any("GradScaler skipped 1 updates" in note for note in watched.phases.list_notes())


def test_a_first_update_that_is_skipped_is_not_a_step_without_optimizer() -> None:
    body = """\
scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
number = 0
for epoch in range(9):
    for x, y in loader:
        number += 1
        optimizer.zero_grad()
        value = loss(net(x), y) * (float("inf") if number == 1 else 1.0)
        scaler.scale(value).backward()
        scaler.step(optimizer)
        scaler.update()
"""
    watched = Watched(body, Plan(1, 4, 0))
    assert watched.phases.describe_time_points()[-1] == "t6, step end: the return of optimizer.step()."


EVALUATE = """\
test = DataLoader(data, batch_size=32)
for epoch in range(9):
    net.train()
    for number, (x, y) in enumerate(loader):
        if number == 3:
            break
        optimizer.zero_grad()
        loss(net(x), y).backward()
        optimizer.step()
    net.eval()
    with CONTEXT:
        for x, y in test:
            net(x)
"""


@pytest.mark.parametrize("context", ["torch.no_grad()", "torch.inference_mode()", "torch.enable_grad()"])
def test_an_evaluation_interrupts_the_step_after_it(context: str) -> None:
    watched = Watched(EVALUATE.replace("CONTEXT", context), Plan(1, 7, 0))
    assert watched.interruptions == ["", "", "evaluation", "", "", "evaluation", ""]


def test_an_evaluation_without_a_loader_is_seen() -> None:
    body = """\
x, y = data.tensors
for number in range(99):
    net.train()
    optimizer.zero_grad()
    loss(net(x), y).backward()
    optimizer.step()
    if number == 2:
        net.eval()
        with torch.no_grad():
            net(x)
"""
    assert Watched(body, Plan(1, 4, 0)).interruptions == ["", "", "evaluation", ""]


def test_an_evaluation_in_training_mode_between_batches_is_seen() -> None:
    body = """\
number = 0
for epoch in range(9):
    for x, y in loader:
        if number == 3:
            with torch.no_grad():
                net(x)
        number += 1
        optimizer.zero_grad()
        loss(net(x), y).backward()
        optimizer.step()
"""
    assert Watched(body, Plan(1, 4, 0)).interruptions == ["", "", "evaluation", ""]


def test_a_checkpoint_interrupts_the_step_after_it() -> None:
    body = """\
import io
for number in range(99):
    optimizer.zero_grad()
    loss(net(data.tensors[0]), data.tensors[1]).backward()
    optimizer.step()
    if number == 2:
        torch.save(net.state_dict(), io.BytesIO())
"""
    assert Watched(body, Plan(1, 4, 0)).interruptions == ["", "", "checkpoint", ""]


def test_a_teacher_network_is_not_an_evaluation() -> None:
    body = """\
teacher = nn.Linear(16, 4).eval()
for epoch in range(9):
    for x, y in loader:
        with torch.no_grad():
            wanted = teacher(x)
        optimizer.zero_grad()
        (net(x) - wanted).pow(2).mean().backward()
        optimizer.step()
"""
    assert set(Watched(body, Plan(1, 4, 0)).interruptions) == {""}


def test_what_interrupts_every_step_is_part_of_it() -> None:
    body = TRAIN + "        with torch.no_grad():\n            net(x)\n"
    profile = clear_constant_interruptions(Watched(body, Plan(1, 4, 0)).profile)
    assert [step.interrupted_by for step in profile.steps] == [""] * 4
    assert profile.facts.notes == ("evaluation occurs in most steps and is counted as part of them.",)


def test_updates_by_hand_end_where_the_next_batch_is_requested() -> None:
    body = """\
for epoch in range(9):
    for x, y in loader:
        loss(net(x), y).backward()
        with torch.no_grad():
            for weight in net.parameters():
                weight -= 0.1 * weight.grad
                weight.grad = None
        time.sleep(0.02)
"""
    watched = Watched(body, Plan(1, 3, 0), HEAD.replace("optimizer =", "optimizer = None #"))
    assert all(step.update_tail_us >= 20_000 for step in watched.profile.steps)
    assert "no optimizer of torch.optim steps" in " ".join(watched.phases.describe_time_points())


def test_without_a_network_the_forward_pass_begins_with_the_batch() -> None:
    body = """\
weight = torch.randn(16, 4, requires_grad=True)
optimizer = torch.optim.SGD([weight], lr=0.1)
for epoch in range(9):
    for x, y in loader:
        time.sleep(0.02)
        optimizer.zero_grad()
        nn.functional.cross_entropy(x @ weight, y).backward()
        optimizer.step()
"""
    watched = Watched(body, Plan(2, 3, 0), HEAD.replace("optimizer =", "optimizer = None #"))
    assert all(step.forward_backward_us >= 20_000 for step in watched.profile.steps)
    assert "no network was called with its weights" in watched.phases.describe_time_points()[0]


def test_a_script_without_a_step_lists_the_calls_that_were_seen() -> None:
    watched = Watched("for x, y in loader:\n    net(x)\n", Plan(1, 3, 0))
    assert not watched.stopped
    assert not watched.profile.steps
    expected = "it made 1 optimizers; 8 training passes, 0 backward passes, 0 optimizer steps"
    assert watched.phases.explain_missing_steps() == expected


def test_a_loop_in_a_class_is_seen_like_any_other() -> None:
    body = """\
class Lit(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = net

    def forward(self, x):
        return self.net(x)

    def training_step(self, batch):
        x, y = batch
        return loss(self(x), y)

class Trainer:
    def fit(self, module):
        for epoch in range(9):
            for batch in loader:
                value = module.training_step(batch)
                optimizer.zero_grad()
                value.backward()
                optimizer.step()

Trainer().fit(Lit())
"""
    watched = Watched(body, Plan(1, 3, 0))
    assert watched.stopped
    assert watched.phases.facts is not None
    assert watched.phases.facts.network == "Lit"


@pytest.mark.lengthy
def test_compiled_code_is_compiled_as_often_as_without_us() -> None:
    body = """\
torch._dynamo.reset()
compiled = torch.compile(net, backend="eager", dynamic=False)
number = 0
for epoch in range(9):
    for x, y in loader:
        number += 1
        if number == 4:
            x, y = x[:5], y[:5]
        optimizer.zero_grad()
        loss(compiled(x), y).backward()
        optimizer.step()
"""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's compiler, about hooks and about itself
        watched = Watched(body, Plan(2, 4, 0))
    assert [step.recompiled for step in watched.profile.steps] == [0, 1, 0, 0]
    assert [step.compile_us > 0 for step in watched.profile.steps] == [False, True, False, False]
    assert any("size mismatch" in note for note in watched.profile.facts.notes)


def test_nothing_is_marked_while_a_device_records_a_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("viaduct.profiling.script_phases.is_capturing", lambda device: True)
    watched = Watched(TRAIN, Plan(1, 3, 0))
    assert not watched.stopped
    assert not watched.profile.steps
