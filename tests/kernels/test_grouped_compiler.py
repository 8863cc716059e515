"""Compiled kernels in the cache."""

from __future__ import annotations

from pathlib import Path

import pytest

from viaduct.kernels import grouped_compiler


def test_what_was_compiled_is_there_for_the_next_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Compiler:
        def nvrtcVersion(self, major: object, minor: object) -> int:
            return 0

    made: list[str] = []

    def compile_source(source: str, defines: grouped_compiler.Defines, architecture: str) -> bytes:
        made.append(architecture)
        return f"{source} {defines} {architecture}".encode()

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(grouped_compiler, "load_nvrtc", Compiler)
    monkeypatch.setattr(grouped_compiler, "compile_source", compile_source)
    first = grouped_compiler.load_or_compile("text", (("GROUP", 4),), "sm_90")
    assert grouped_compiler.load_or_compile("text", (("GROUP", 4),), "sm_90") == first
    assert made == ["sm_90"]
    others = [
        ("text", (("GROUP", 8),), "sm_90"),
        ("texts", (("GROUP", 4),), "sm_90"),
        ("text", (("GROUP", 4),), "sm_80"),
    ]
    assert len({first, *(grouped_compiler.load_or_compile(*other) for other in others)}) == 4


def test_a_cache_folder_that_cannot_be_written_costs_nothing_but_time(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    grouped_compiler.store_code(tmp_path / "file" / "kernel.cubin", b"code")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
