"""Plug-ins built for another torch: seen from their metadata, named with the version that would fit, not imported."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch
import typer
from typer.testing import CliRunner

from viaduct import devices
from viaduct.devices import hardware, plugin, plugin_match
from viaduct.errors import MissingDevice
from viaduct.verbs.devices import main

from .conftest import Install

HERE = torch.__version__
RELEASE = HERE.partition("+")[0]
SAME_MINOR = ".".join(RELEASE.split(".")[:2]) + ".97"


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Return a folder on sys.path."""
    monkeypatch.syspath_prepend(str(tmp_path))
    for package in plugin_match.PLUGINS:
        monkeypatch.delitem(sys.modules, package, raising=False)
    return tmp_path


def install_package(site: Path, package: str, version: str, requires: str = "", code: str = "") -> None:
    folder = site / f"{package}-{version}.dist-info"
    folder.mkdir()
    lines = ["Metadata-Version: 2.1", f"Name: {package}", f"Version: {version}"]
    lines += [f"Requires-Dist: {requires}"] if requires else []
    (folder / "METADATA").write_text("\n".join(lines) + "\n")
    (site / package).mkdir()
    (site / package / "__init__.py").write_text(code or "raise SystemError('must not be imported')")


def show_devices(*arguments: str) -> str:
    app = typer.Typer()
    app.command()(main)
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


@pytest.mark.parametrize(
    ("package", "version", "requires", "wanted"),
    [
        ("torch_npu", "2.5.1", "", "2.5.1"),
        ("torch_npu", "2.5.1.post3", "", "2.5.1"),
        ("torch_npu", "2.10.0rc2", "", "2.10.0"),
        ("torch_npu", "2.7.1.post4+gitabc1234", "", "2.7.1"),
        ("torch_npu", "2.6.0.post5", "torch==2.6.0+cpu", "2.6.0"),
        ("torch_npu", "26.1.0", "torch (==2.12.0)", "2.12.0"),
        ("torch_mlu", "1.24.1+torch2.5.0", "", "2.5.0"),
        ("torch_mlu", "1.23.1-torch2.1.0", "", "2.1.0"),
        ("torch_mlu", "1.17.0+torch1.13", "", "1.13"),
        ("torch_mlu", "1.26.0", "torch === 2.7.1", "2.7.1"),
        ("torch_mlu", "unknown", "", None),
        ("torch_mlu", "1.26.0", "torchvision==0.20.1", None),
        ("torch_mlu", "1.26.0", "torch>=2.4", None),
    ],
)
def test_the_torch_that_a_plugin_needs_is_read_from_its_metadata(
    site: Path, package: str, version: str, requires: str, wanted: str | None
) -> None:
    install_package(site, package, version, requires)
    fit = plugin_match.match_plugin(package, HERE)
    assert (fit.built_for if fit else None) == wanted


@pytest.mark.parametrize(("package", "version"), [("torch_npu", "2.4.0.post2"), ("torch_mlu", "1.22.0+torch2.4.0")])
def test_a_plugin_for_another_torch_is_not_imported_and_the_right_torch_is_named(
    site: Path, package: str, version: str
) -> None:
    """If this torch is 2.4 itself, the plug-in is built for 2.99 instead."""
    if RELEASE.startswith("2.4."):
        version = version.replace("2.4.0", "2.99.0")
    wanted = "2.99.0" if "2.99.0" in version else "2.4.0"
    install_package(site, package, version)
    output = show_devices()
    assert f"{package} {version} is built for torch {wanted}, but this is torch {HERE}\n" in output
    assert f"  Install torch=={wanted}, or the {package} built for torch {RELEASE}.\n" in output
    assert output.count("is built for") == 1


def test_a_plugin_for_a_torch_that_viaduct_does_not_support_is_to_be_exchanged(site: Path) -> None:
    install_package(site, "torch_mlu", "1.17.0+torch1.13")
    missing = devices.get("mlu").find_problem() or ""
    assert f"Install the torch_mlu built for torch {RELEASE}; viaduct trains with torch 2.4 or later." in missing
    assert "torch==1.13" not in missing


def test_training_on_a_card_whose_plugin_does_not_fit_names_both_versions(site: Path) -> None:
    install_package(site, "torch_npu", "2.99.0")
    with pytest.raises(MissingDevice) as caught:
        devices.pick("npu")
    assert f"no npu to run on: torch_npu 2.99.0 is built for torch 2.99.0, but this is torch {HERE}." in str(
        caught.value
    )
    assert list(plugin.find_broken_plugins()) == ["torch_npu"]


def test_a_plugin_that_fits_and_fails_in_its_libraries_names_both_versions_too(site: Path) -> None:
    install_package(site, "torch_npu", f"{RELEASE}.post1", code="raise ImportError('undefined symbol: _ZN3c10')")
    output = show_devices()
    assert "torch_npu is installed but does not load: ImportError: undefined symbol: _ZN3c10" in output
    assert f"(torch_npu {RELEASE}.post1 for torch {RELEASE}; this is torch {HERE})" in output
    assert "Source CANN's set_env.sh" in output


def test_a_plugin_for_another_patch_release_that_fails_is_told_which_torch_would_fit(site: Path) -> None:
    install_package(site, "torch_npu", SAME_MINOR, code="raise ImportError('undefined symbol: _ZN3c10')")
    missing = devices.get("npu").find_problem() or ""
    assert "undefined symbol" in missing
    assert missing.endswith(f"Install torch=={SAME_MINOR}, or the torch_npu built for torch {RELEASE}.")


def test_a_plugin_for_another_patch_release_that_works_is_used_and_noted(site: Path, install: Install) -> None:
    install_package(site, "torch_mlu", f"1.25.0+torch{SAME_MINOR}")
    install("mlu")
    assert devices.get("mlu").is_available()
    assert f"note: torch_mlu 1.25.0+torch{SAME_MINOR} is built for torch {SAME_MINOR}" in show_devices()
    assert len(json.loads(show_devices("--json"))["notes"]) == 1


def test_a_plugin_that_fits_is_no_note(site: Path, install: Install) -> None:
    install_package(site, "torch_npu", RELEASE)
    install("npu")
    assert "note:" not in show_devices()


def test_without_torch_the_one_that_a_plugin_is_built_for_is_named(site: Path) -> None:
    install_package(site, "torch_mlu", "1.24.1+torch2.5.0")
    assert "Install torch==2.5.0, which torch_mlu 1.24.1+torch2.5.0 is built for" in hardware.describe_missing("mlu")
    assert "Install the vendor's torch and torch_npu" in hardware.describe_missing("npu")


def test_metadata_without_a_version_is_no_traceback(site: Path) -> None:
    folder = site / "torch_npu-.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: torch_npu\n")
    assert plugin_match.match_plugin("torch_npu", HERE) is None
