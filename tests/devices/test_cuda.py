"""The CUDA device passes on what torch reports; here torch is patched to report other machines."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from viaduct.devices import cuda, hardware
from viaduct.errors import MissingDevice
from viaduct.torch_compat import read_tf32_switches

OLD = (
    "The NVIDIA driver on your system is too old (found version 11040). Please update your GPU driver by "
    "downloading and installing a new version from the URL: http://www.nvidia.com/Download/index.aspx"
)
NONE = (
    "Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU and installed a driver "
    "from http://www.nvidia.com/Download/index.aspx"
)


@pytest.fixture
def absent(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A CUDA build of torch that finds no card."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return monkeypatch


@pytest.fixture
def present(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Eight cards."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 8)
    return monkeypatch


def refuse(monkeypatch: pytest.MonkeyPatch, message: str) -> None:
    def start() -> int:
        raise RuntimeError(message)

    monkeypatch.setattr(torch.cuda, "current_device", start)


def test_a_torch_without_cuda_is_what_is_missing(absent: pytest.MonkeyPatch) -> None:
    absent.setattr(torch.version, "cuda", None)
    assert cuda.find_problem() == (f"torch {torch.__version__} was built without CUDA\nInstall a CUDA build of torch.")
    assert cuda.count_cards() == 0
    assert cuda.get_graph_class() is None


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (OLD, "The NVIDIA driver on your system is too old (found version 11040)\n"),
        (NONE, "Found no NVIDIA driver on your system\n"),
        ("No CUDA GPUs are available", "No CUDA GPUs are available\n"),
    ],
)
def test_what_torch_says_of_the_driver_is_passed_on_without_its_addresses(
    absent: pytest.MonkeyPatch, message: str, expected: str
) -> None:
    refuse(absent, message)
    missing = cuda.find_problem() or ""
    assert missing.startswith(expected)
    assert "nvidia-smi" in missing
    assert "://" not in missing


def test_a_hidden_card_names_the_variable_that_hides_it(absent: pytest.MonkeyPatch) -> None:
    refuse(absent, "No CUDA GPUs are available")
    absent.setenv("CUDA_VISIBLE_DEVICES", "")
    assert cuda.find_problem() == "no card visible; CUDA_VISIBLE_DEVICES=''\nUnset it, or list card numbers: 0,1."


def test_the_variable_is_not_blamed_for_an_old_driver(absent: pytest.MonkeyPatch) -> None:
    refuse(absent, OLD)
    absent.setenv("CUDA_VISIBLE_DEVICES", "0")
    assert "too old" in (cuda.find_problem() or "")


def test_selecting_a_card_makes_it_current(present: pytest.MonkeyPatch) -> None:
    chosen: list[int] = []
    present.setattr(torch.cuda, "set_device", chosen.append)
    assert cuda.select(5) == torch.device("cuda", 5)
    assert chosen == [5]


def test_an_index_beyond_the_cards_selects_nothing(present: pytest.MonkeyPatch) -> None:
    with pytest.raises(MissingDevice, match="This process sees 8: cuda:0 to cuda:7"):
        cuda.select(8)


@pytest.mark.parametrize(
    ("capability", "precisions"),
    [((6, 1), ()), ((7, 0), ("fp16",)), ((7, 5), ("fp16",)), ((8, 0), ("bf16", "fp16")), ((12, 0), ("bf16", "fp16"))],
)
def test_the_compute_capability_decides_the_precisions(
    present: pytest.MonkeyPatch, capability: tuple[int, int], precisions: tuple[str, ...]
) -> None:
    present.setattr(torch.cuda, "get_device_capability", lambda: capability)
    assert cuda.list_native_dtypes() == precisions


@pytest.fixture
def switches() -> Iterator[None]:
    """Restore torch's TF32 switches after the test; they exist without a card too."""
    yield
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = True


@pytest.mark.usefixtures("switches")
def test_tf32_is_switched_off_and_on_where_either_generation_of_switches_is_read() -> None:
    torch.backends.cuda.matmul.allow_tf32 = True
    cuda.set_tf32(False)
    assert not torch.backends.cudnn.allow_tf32
    assert not torch.backends.cuda.matmul.allow_tf32
    assert torch.get_float32_matmul_precision() == "highest"
    assert read_tf32_switches() == {"convolutions": False, "products": False}
    cuda.set_tf32(True)
    assert torch.backends.cudnn.allow_tf32
    assert read_tf32_switches() == {"convolutions": True, "products": False}


@pytest.mark.usefixtures("switches")
@pytest.mark.filterwarnings("error")
def test_no_warning_of_an_old_switch_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(torch, "set_float32_matmul_precision", lambda word: warnings.warn("old", stacklevel=1))
        cuda.set_tf32(False)


@pytest.mark.parametrize(
    "kernel", ["NVIDIA UNIX x86_64 Kernel Module  580.159.03", "NVIDIA UNIX Open Kernel Module for x86_64  580.159.03"]
)
def test_versions_name_cuda_cudnn_and_the_driver(present: pytest.MonkeyPatch, tmp_path: Path, kernel: str) -> None:
    note = tmp_path / "proc/driver/nvidia/version"
    note.parent.mkdir(parents=True)
    note.write_text(f"NVRM version: {kernel}  Tue Jan  6\nGCC version:  gcc version 13.3.0\n")
    present.setattr(hardware, "ROOT", tmp_path)
    present.setattr(torch.version, "cuda", "13.0")
    present.setattr(torch.backends.cudnn, "version", lambda: 91002)
    assert cuda.get_versions() == {
        "torch": torch.__version__,
        "cuda": "13.0",
        "cudnn": "9.10.2",
        "driver": "580.159.03",
    }


@pytest.mark.parametrize(("number", "version"), [(None, None), (8907, "8.9.7"), (90100, "9.1.0"), (91002, "9.10.2")])
def test_cudnn_8_and_9_number_their_releases_differently(
    monkeypatch: pytest.MonkeyPatch, number: int | None, version: str | None
) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "version", lambda: number)
    assert cuda.get_versions().get("cudnn") == version


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA card")
def test_a_real_card_counts_its_memory_and_continues_its_random_numbers() -> None:
    device = cuda.select(0)
    cuda.reset_peak_memory()
    before, saved = cuda.get_peak_memory(), cuda.get_random_state()
    first = torch.rand(2**20, device=device)
    assert cuda.get_peak_memory() >= before + 4 * 2**20
    cuda.set_random_state(saved)
    assert torch.equal(torch.rand(2**20, device=device), first)
    cuda.synchronize()
    assert cuda.get_free_memory() > 0
    assert "GiB" in cuda.describe_card()
