from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
import torch

import viaduct.devices
from viaduct.devices.base import GIB
from viaduct.errors import BadValue


def load_anew() -> ModuleType:
    """Load cpu.py as a separate module: runs of the suite that mask the processor's features patch the shared one."""
    spec = importlib.util.spec_from_file_location("cpu_anew", Path(viaduct.devices.__path__[0]) / "cpu.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


cpu = load_anew()


def processor(monkeypatch: pytest.MonkeyPatch, path: Path, text: str, **probes: bool) -> None:
    """Pretend a processor with these flags; torch's own probes return False unless `probes` says otherwise."""
    path.write_text(text)
    monkeypatch.delenv("VIADUCT_CPU_BF16", raising=False)
    monkeypatch.setattr(cpu, "_CPUINFO", path)
    for name in cpu._BF16_PROBES:
        monkeypatch.setattr(torch.cpu, name, lambda name=name: probes.get(name, False), raising=False)


@pytest.mark.parametrize("flags", ["", "flags : fpu avx2 avx512f avx512_vnni", "Features : fp asimd fphp"])
def test_a_processor_without_bf16_instructions_offers_it_in_software(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, flags: str
) -> None:
    processor(monkeypatch, tmp_path / "cpuinfo", f"processor : 0\n{flags}\n")
    assert cpu.list_native_dtypes() == ()
    assert cpu.list_emulated_dtypes() == ("bf16", "fp16")


@pytest.mark.parametrize(
    "flags", ["flags\t\t: fpu avx512_bf16 sse", "flags\t: fpu amx_bf16 amx_tile", "Features\t: fp asimd bf16 i8mm"]
)
def test_a_processor_with_bf16_instructions_offers_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, flags: str
) -> None:
    processor(monkeypatch, tmp_path / "cpuinfo", f"processor\t: 0\n{flags}\n")
    assert cpu.list_native_dtypes() == ("bf16",)
    assert cpu.list_emulated_dtypes() == ("fp16",)


@pytest.mark.parametrize(("setting", "expected"), [("0", ()), ("1", ("bf16",))])
@pytest.mark.parametrize("flags", ["avx2", "avx512_bf16"])
def test_the_environment_overrules_the_processor(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, flags: str, setting: str, expected: tuple[str, ...]
) -> None:
    processor(monkeypatch, tmp_path / "cpuinfo", f"flags : {flags}\n")
    monkeypatch.setenv("VIADUCT_CPU_BF16", setting)
    assert cpu.list_native_dtypes() == expected


def test_a_setting_that_is_neither_0_nor_1_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VIADUCT_CPU_BF16", "yes")
    with pytest.raises(BadValue, match="VIADUCT_CPU_BF16='yes' is neither 0 nor 1"):
        cpu.list_native_dtypes()


@pytest.mark.parametrize("probe", ["_is_avx512_bf16_supported", "_is_amx_tile_supported"])
def test_torch_is_believed_where_the_flags_cannot_be_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, probe: str
) -> None:
    processor(monkeypatch, tmp_path / "cpuinfo", "", **{probe: True})
    assert cpu.list_native_dtypes() == ("bf16",)


def test_a_torch_without_the_probes_leaves_it_to_the_flags(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    processor(monkeypatch, tmp_path / "cpuinfo", "flags : avx512_bf16\n")
    for name in cpu._BF16_PROBES:
        monkeypatch.delattr(torch.cpu, name)
    assert cpu.list_native_dtypes() == ("bf16",)


def test_the_description_names_processor_cores_and_best_instructions(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    processor(monkeypatch, tmp_path / "cpuinfo", "model name\t: AMD EPYC 9R14\nflags : avx2 avx512f avx512_bf16\n")
    monkeypatch.setattr(cpu, "count_cores", lambda: 2)
    assert cpu.describe_card() == "AMD EPYC 9R14, 2 cores, avx512_bf16"


@pytest.mark.process  # Python asks uname for the processor
def test_a_machine_without_proc_still_has_a_description(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(cpu, "_CPUINFO", tmp_path / "none")
    monkeypatch.setattr(cpu, "count_cores", lambda: 1)
    assert cpu.describe_card().endswith(", 1 core")


def test_peak_memory_grows_with_what_is_allocated() -> None:
    cpu.reset_peak_memory()
    before = cpu.get_peak_memory()
    block = torch.ones(before + 64 * 2**20, dtype=torch.uint8)
    assert cpu.get_peak_memory() >= before + block.numel() // 2


def test_a_kernel_that_will_not_reset_the_peak_is_no_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(cpu, "_CLEAR_REFS", tmp_path)
    cpu.reset_peak_memory()


def test_free_memory_is_what_the_container_leaves(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text(f"MemTotal: 1 kB\nMemAvailable:   {64 * GIB // 1024} kB\n")
    monkeypatch.setattr(cpu, "_MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(cpu, "_CGROUP", tmp_path)
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "memory.current").write_text(f"{6 * GIB}\n")
    assert cpu.get_free_memory() == 64 * GIB
    (tmp_path / "memory.max").write_text(f"{8 * GIB}\n")
    (tmp_path / "memory.stat").write_text(f"anon 1\ninactive_file {3 * GIB}\n")
    assert cpu.get_free_memory() == 5 * GIB


def test_the_cpu_has_no_random_numbers_of_its_own() -> None:
    assert cpu.get_random_state() is None
    cpu.set_random_state(None)
