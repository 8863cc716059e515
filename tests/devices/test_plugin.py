"""Behaviour that npu and mlu share, with stand-ins for the vendors' plug-ins that have the documented names."""

from __future__ import annotations

import importlib.abc
import sys
from types import ModuleType

import pytest
import torch

from viaduct import devices
from viaduct.devices import plugin
from viaduct.devices.base import collect_facts
from viaduct.errors import MissingDevice

from .conftest import Graph, Install

both = pytest.mark.parametrize("name", ["npu", "mlu"])


def break_import(monkeypatch: pytest.MonkeyPatch, package: str, error: Exception) -> None:
    """Let the import of `package` raise an error, such as one about a missing library."""

    class Finder(importlib.abc.MetaPathFinder):
        def find_spec(self, name: str, path: object = None, target: object = None) -> None:
            if name == package:
                raise error

    monkeypatch.delitem(sys.modules, package, raising=False)
    monkeypatch.setattr(sys, "meta_path", [Finder(), *sys.meta_path])


@both
def test_a_plugin_that_is_not_installed_is_no_exception(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    break_import(monkeypatch, f"torch_{name}", ModuleNotFoundError("none", name=f"torch_{name}"))
    device = devices.get(name)
    assert not device.is_available()
    assert device.count_cards() == 0
    assert device.get_graph_class() is None
    assert f"torch_{name} is not installed\nInstall " in (device.find_problem() or "")
    assert plugin.find_broken_plugins() == {}


@both
@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ImportError("libhccl.so: cannot open shared object file"), "ImportError: libhccl.so: cannot open"),
        (OSError("libcnrt.so: undefined symbol"), "OSError: libcnrt.so: undefined symbol"),
        (ModuleNotFoundError("No module named 'yaml'", name="yaml"), "No module named 'yaml'"),
        (RuntimeError("torch has already been renamed"), "RuntimeError: torch has already been renamed"),
    ],
)
def test_a_plugin_that_does_not_load_is_a_reason_and_not_a_traceback(
    monkeypatch: pytest.MonkeyPatch, name: str, error: Exception, message: str
) -> None:
    break_import(monkeypatch, f"torch_{name}", error)
    device = devices.get(name)
    missing = device.find_problem() or ""
    assert missing.startswith(f"torch_{name} is installed but does not load: ")
    assert message in missing
    assert not collect_facts(device).present


@both
def test_the_first_error_of_a_broken_plugin_is_the_one_that_is_kept(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    break_import(monkeypatch, f"torch_{name}", OSError("first"))
    devices.get(name).find_problem()
    break_import(monkeypatch, f"torch_{name}", OSError("second"))
    assert "OSError: first" in (devices.get(name).find_problem() or "")


@both
def test_a_plugin_too_old_to_add_itself_to_torch_is_a_reason(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setitem(sys.modules, f"torch_{name}", ModuleType(f"torch_{name}"))
    monkeypatch.delattr(torch, name, raising=False)
    assert "does not load: KeyError" in (devices.get(name).find_problem() or "")


@both
def test_using_a_device_without_its_plugin_is_a_missing_device(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    break_import(monkeypatch, f"torch_{name}", ModuleNotFoundError("none", name=f"torch_{name}"))
    with pytest.raises(MissingDevice, match=f"no {name} to run on: torch_{name} is not installed"):
        devices.get(name).synchronize()


@both
def test_no_card_points_to_the_vendors_own_monitor(
    monkeypatch: pytest.MonkeyPatch, install: Install, name: str
) -> None:
    for variable in ("ASCEND_RT_VISIBLE_DEVICES", "CN_VISIBLE_DEVICES", "MLU_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(variable, raising=False)
    install(name, cards=0)
    missing = devices.get(name).find_problem() or ""
    assert missing.startswith(f"torch_{name} 2.11.0 sees no card\n")
    assert ("npu-smi info" if name == "npu" else "cnmon") in missing


@both
def test_a_driver_that_fails_to_count_is_a_reason(monkeypatch: pytest.MonkeyPatch, install: Install, name: str) -> None:
    def fail() -> int:
        raise RuntimeError("drvGetDevNum failed")

    card = install(name)
    monkeypatch.setattr(card, "device_count", fail)
    assert f"torch_{name} cannot count its cards: RuntimeError: drvGetDevNum" in (
        devices.get(name).find_problem() or ""
    )


@both
def test_an_index_beyond_the_cards_selects_nothing(install: Install, name: str) -> None:
    card = install(name)
    with pytest.raises(MissingDevice, match=f"This process sees 2: {name}:0 to {name}:1"):
        devices.get(name).select(2)
    assert card.calls == []


@both
def test_a_present_card_is_queried_by_the_documented_names(install: Install, name: str) -> None:
    card = install(name)
    device = devices.get(name)
    assert device.is_available()
    assert device.count_cards() == 2
    assert device.get_peak_memory() == 3 * 2**30
    assert device.get_free_memory() == 60 * 2**30
    assert device.describe_card() == "Stand-in 910B, 64 GiB"
    assert device.get_graph_class() is Graph
    assert device.get_versions()[f"torch_{name}"] == "2.11.0"
    device.synchronize()
    device.reset_peak_memory()
    assert card.calls == ["synchronize", "init", "reset_peak_memory_stats"]


@both
def test_bf16_comes_first_where_the_card_has_it(install: Install, name: str) -> None:
    install(name, bf16=True)
    assert devices.get(name).list_native_dtypes() == ("bf16", "fp16")


@both
def test_a_card_without_bf16_computes_in_fp16(install: Install, name: str) -> None:
    install(name, bf16=False)
    assert devices.get(name).list_native_dtypes() == ("fp16",)


@both
def test_random_numbers_continue_from_a_saved_state(install: Install, name: str) -> None:
    card = install(name)
    device = devices.get(name)
    saved = device.get_random_state()
    card.state = torch.ones(16, dtype=torch.uint8)
    device.set_random_state(None)
    assert card.state.sum() == 16
    device.set_random_state(saved)
    assert card.state is saved


@both
def test_a_stand_in_installed_later_is_found(monkeypatch: pytest.MonkeyPatch, install: Install, name: str) -> None:
    with monkeypatch.context() as before:
        break_import(before, f"torch_{name}", ModuleNotFoundError("none", name=f"torch_{name}"))
        assert not devices.get(name).is_available()
    install(name)
    assert devices.get(name).is_available()


def test_a_hidden_npu_names_the_variable_that_hides_it(monkeypatch: pytest.MonkeyPatch, install: Install) -> None:
    install("npu", cards=0)
    monkeypatch.setenv("ASCEND_RT_VISIBLE_DEVICES", "1,0")
    assert devices.get("npu").find_problem() == (
        "no card visible; ASCEND_RT_VISIBLE_DEVICES='1,0'\nUnset it, or list card numbers in ascending order: 0,1."
    )


def test_a_hidden_mlu_names_the_first_variable_that_is_set(monkeypatch: pytest.MonkeyPatch, install: Install) -> None:
    install("mlu", cards=0)
    monkeypatch.delenv("CN_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("MLU_VISIBLE_DEVICES", "")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    problem = devices.get("mlu").find_problem()
    assert problem == "no card visible; MLU_VISIBLE_DEVICES=''\nUnset it, or list card numbers: 0,1."
