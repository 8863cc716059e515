from __future__ import annotations

import ast
from pathlib import Path

import pytest

from viaduct import devices
from viaduct.devices.base import Device, check_index, collect_facts, find_in_file, summarise_error
from viaduct.errors import MissingDevice

ROOM = Path(devices.__file__).parent


def public_names(path: Path) -> list[str]:
    """Return the public names of a device's file; of plugin.py those of the class, where __init__ sets NAME."""
    body = ast.parse(path.read_text()).body
    names = []
    for node in body:
        if isinstance(node, ast.ClassDef) and node.name == "PluginDevice":
            return ["NAME", *(name.name for name in node.body if not getattr(name, "name", "_").startswith("_"))]
        if isinstance(node, ast.FunctionDef):
            names.append(node.name)
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names += [target.id for target in targets if isinstance(target, ast.Name)]
    return [name for name in names if not name.startswith("_")]


def promised_names() -> list[str]:
    protocol = next(
        node for node in ast.parse((ROOM / "base.py").read_text()).body if getattr(node, "name", "") == "Device"
    )
    assert isinstance(protocol, ast.ClassDef)
    return ["NAME", *(node.name for node in protocol.body if isinstance(node, ast.FunctionDef))]


@pytest.mark.parametrize("name", ["cpu", "cuda", "plugin"])
def test_every_device_has_the_same_public_names_in_the_same_order(name: str) -> None:
    assert public_names(ROOM / f"{name}.py") == promised_names()


@pytest.mark.parametrize("name", devices.names())
def test_every_device_keeps_the_promise(name: str) -> None:
    device = devices.get(name)
    assert isinstance(device, Device)
    assert name == device.NAME


@pytest.mark.parametrize("name", devices.names())
def test_a_device_is_available_exactly_when_nothing_is_missing(name: str) -> None:
    device = devices.get(name)
    assert device.is_available() == (device.find_problem() is None) == (device.count_cards() > 0)


@pytest.mark.parametrize("name", devices.names())
def test_what_is_missing_is_reported_in_two_lines_without_addresses(name: str) -> None:
    missing = devices.get(name).find_problem()
    assert missing is None or (len(missing.splitlines()) == 2 and "://" not in missing)


@pytest.mark.parametrize(("name", "backend"), [("cpu", "gloo"), ("cuda", "nccl"), ("mlu", "cncl"), ("npu", "hccl")])
def test_every_device_names_its_collective_backend(name: str, backend: str) -> None:
    assert devices.get(name).get_collective_backend() == backend


def test_facts_of_an_absent_device_say_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    npu = devices.get("npu")
    monkeypatch.setattr(npu, "find_problem", lambda: "torch_npu is not installed\nInstall it.")
    facts = collect_facts(npu)
    assert not facts.present
    assert facts.missing == "torch_npu is not installed\nInstall it."
    assert "torch" in facts.versions


def test_facts_of_a_card_that_does_not_answer_are_not_an_exception(monkeypatch: pytest.MonkeyPatch) -> None:
    def hang() -> int:
        raise RuntimeError("driver error 507033\nstack trace")

    cpu = devices.get("cpu")
    monkeypatch.setattr(cpu, "get_free_memory", hang)
    facts = collect_facts(cpu)
    assert not facts.present
    assert facts.missing is not None
    assert facts.missing.startswith("cpu is here but does not answer: RuntimeError: driver error 507033\n")


def test_an_index_in_range_passes() -> None:
    check_index("cuda", 7, count=8, problem=None)


@pytest.mark.parametrize("index", [-1, 8])
def test_an_index_out_of_range_says_how_many_cards_there_are(index: int) -> None:
    with pytest.raises(MissingDevice, match="This process sees 8: cuda:0 to cuda:7"):
        check_index("cuda", index, count=8, problem=None)


def test_a_first_line_has_no_address_in_it() -> None:
    error = RuntimeError("Found no driver: https://example.org/drivers\nmore")
    assert summarise_error(error) == "RuntimeError: Found no driver"
    assert summarise_error(KeyError()) == "KeyError"


def test_a_file_that_does_not_exist_holds_no_version(tmp_path: Path) -> None:
    assert find_in_file(tmp_path / "version.txt", "(.*)") is None
