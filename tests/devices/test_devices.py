from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch

import forked_viaduct
from viaduct import devices
from viaduct.errors import BadValue, MissingDevice, UnknownName

REPOSITORY = Path(__file__).parents[2]


def python(script: str, **environment: str) -> str:
    """Run a script in a fresh interpreter and return its output, for what happens once in a process."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(script)],
        env={**os.environ, **environment},
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def pretend(monkeypatch: pytest.MonkeyPatch, *present: str) -> None:
    """Pretend that only these devices are available; selecting one only returns its name."""
    for name in devices.names():
        device = devices.get(name)
        monkeypatch.setattr(device, "is_available", lambda name=name: name in present)
        monkeypatch.setattr(device, "select", lambda index=0, name=name: f"{name}:{index}")


def test_importing_the_package_does_not_import_torch() -> None:
    assert "False" in python("import sys, viaduct.devices; print('torch' in sys.modules)")


def test_an_unknown_name_is_refused_and_the_closest_offered() -> None:
    with pytest.raises(UnknownName, match="no device called 'cudda'") as caught:
        devices.get("cudda")
    assert "Closest is 'cuda'" in str(caught.value)


def test_gpu_is_no_name_and_the_message_names_nvidias() -> None:
    with pytest.raises(UnknownName, match="NVIDIA is 'cuda'"):
        devices.pick("gpu")


def test_auto_is_not_a_device_of_its_own() -> None:
    with pytest.raises(UnknownName):
        devices.get("auto")


@pytest.mark.parametrize("name", ["cpu:", "cuda:first", "npu:-1"])
def test_a_card_must_be_a_number(name: str) -> None:
    with pytest.raises(BadValue, match="Name a card by its number"):
        devices.pick(name)


def test_the_cpu_has_no_second_card() -> None:
    with pytest.raises(MissingDevice, match="no cpu:1 here") as caught:
        devices.pick("cpu:1")
    assert "This process sees 1: cpu:0" in str(caught.value)


def test_a_device_that_is_not_here_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices.get("npu"), "find_problem", lambda: "torch_npu is not installed\nInstall CANN.")
    with pytest.raises(MissingDevice) as caught:
        devices.pick("npu")
    assert str(caught.value) == "no npu to run on: torch_npu is not installed.\n  Install CANN."


def test_the_cpu_can_be_picked_by_name() -> None:
    device, device_name = devices.pick("cpu")
    assert device.NAME == "cpu"
    assert device_name == torch.device("cpu")


@pytest.mark.parametrize(
    ("present", "best"),
    [
        (("cpu",), "cpu"),
        (("cpu", "cuda"), "cuda"),
        (("cpu", "cuda", "mlu"), "mlu"),
        (("cpu", "cuda", "mlu", "npu"), "npu"),
        (("cpu", "npu"), "npu"),
    ],
)
def test_auto_takes_the_best_device_that_is_here(
    monkeypatch: pytest.MonkeyPatch, present: tuple[str, ...], best: str
) -> None:
    pretend(monkeypatch, *present)
    device, device_name = devices.pick("auto")
    assert (device.NAME, str(device_name)) == (best, f"{best}:0")


def test_the_number_after_the_colon_chooses_the_card(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, "cuda")
    assert str(devices.pick("cuda:3")[1]) == "cuda:3"


def test_asking_for_a_device_leaves_the_environment_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_DEVICE_BACKEND_AUTOLOAD", "1")
    devices.get("cpu")
    assert os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] == "1"
    monkeypatch.delenv("TORCH_DEVICE_BACKEND_AUTOLOAD")
    devices.get("cpu")
    assert "TORCH_DEVICE_BACKEND_AUTOLOAD" not in os.environ


def test_a_broken_plugin_that_torch_would_load_by_itself_is_a_reason_and_auto_says_so(tmp_path: Path) -> None:
    (tmp_path / "torch_npu").mkdir()
    (tmp_path / "torch_npu/__init__.py").write_text("raise ImportError('libhccl.so: cannot open shared object file')")
    version = torch.__version__.partition("+")[0]  # one that fits, so that it is loaded
    installed = tmp_path / f"torch_npu-{version}.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text(f"Metadata-Version: 2.1\nName: torch_npu\nVersion: {version}\n")
    (installed / "entry_points.txt").write_text("[torch.backends]\ntorch_npu = torch_npu:_autoload\n")
    output = python(
        """
        from viaduct import devices
        npu = devices.get("npu")
        print(npu.find_problem(), npu.get_versions()["torch_npu"], npu.find_problem(), sep="\\n")
        print("auto is", devices.pick("auto")[0].NAME)
        """,
        PYTHONPATH=os.pathsep.join((str(tmp_path), os.environ.get("PYTHONPATH", ""))),
        CUDA_VISIBLE_DEVICES="",
    )
    why = "torch_npu is installed but does not load: ImportError: libhccl.so: cannot open shared object file"
    assert output.count(why) == 3
    assert "Source CANN's set_env.sh" in output
    assert f"\n{version}\n" in output
    assert f"(torch_npu {version} for torch {version}; this is torch {torch.__version__})" in output
    assert f"device auto passes over a plug-in: {why}" in output
    assert "auto is cpu" in output


@pytest.mark.parametrize("name", ["npu", "mlu"])
def test_a_picked_card_is_a_torch_device_of_that_name(name: str) -> None:
    done = forked_viaduct.python(
        textwrap.dedent(f"""
        import sys, types, torch
        from devices.conftest import Card
        torch.utils.rename_privateuse1_backend("{name}")
        sys.modules["torch_{name}"] = types.ModuleType("torch_{name}")
        torch.{name} = card = Card()

        from viaduct import devices
        from viaduct.devices.card_check import check_cards
        from viaduct.errors import MissingDevice
        print(devices.pick("{name}:1")[1] == torch.device("{name}", 1), card.calls)
        print(devices.pick("auto")[1])
        try:
            devices.pick("{name}:2")
        except MissingDevice as error:
            print(error)
        for check in check_cards(devices.get("{name}")):
            print(check.device, check.precision, check.ok)
        """)
    )
    assert done.returncode == 0, done.stderr
    output = done.stdout + done.stderr
    assert "True ['set_device(1)']" in output
    assert f"\n{name}:0\n" in output
    assert f"no {name}:2 here.\n  This process sees 2: {name}:0 to {name}:1." in output
    # The stand-in has no kernels, so every check fails, and fails as an answer.
    assert [line.split() for line in output.splitlines() if line.endswith("False")] == [
        [f"{name}:{card}", precision, "False"] for card in (0, 1) for precision in ("fp32", "bf16", "fp16")
    ]


@pytest.mark.parametrize(("name", "place"), [("auto", "npu:3"), ("cuda", "cuda:3"), ("cpu", "cpu:0")])
def test_each_rank_has_the_card_of_its_number(monkeypatch: pytest.MonkeyPatch, name: str, place: str) -> None:
    pretend(monkeypatch, "cpu", "npu", "cuda")
    assert devices.pick(name, local_rank=3)[1] == place


def test_one_card_is_not_enough_for_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, "cpu", "cuda")
    with pytest.raises(BadValue, match="device 'cuda:1' is one card, but every rank needs its own"):
        devices.pick("cuda:1", local_rank=1)
