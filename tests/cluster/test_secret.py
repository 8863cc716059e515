"""The secret of a job: who may read it, and what is shown of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from viaduct.cluster.secret import check_secret, derive_key_prefix, describe_secret, find_secret, make_secret
from viaduct.errors import BadValue


def test_a_secret_that_others_may_read_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("0123456789abcdef")
    file.chmod(0o644)
    with pytest.raises(BadValue, match="may be read by others") as caught:
        find_secret(file)
    assert f"chmod 600 {file}" in str(caught.value)
    file.chmod(0o600)
    assert find_secret(file) == "0123456789abcdef"
    file.write_text("密" * 1024 + "\n", encoding="utf-8")
    assert find_secret(file) == "密" * 1024
    for text in ("", "short", "x" * 2000):
        file.write_text(text)
        with pytest.raises(BadValue, match="must have 16 to 1024 printable characters"):
            find_secret(file)
    with pytest.raises(BadValue, match="cannot be read"):
        find_secret(tmp_path / "none")
    assert find_secret(None, {}) == ""
    with pytest.raises(BadValue, match="VIADUCT_JOB_SECRET: a job's secret"):
        find_secret(None, {"VIADUCT_JOB_SECRET": "short"})


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "secret", 0o600)
    with pytest.raises(BadValue, match="cannot be read"):
        find_secret(tmp_path / "secret")


def test_what_is_shown_of_a_secret_tells_two_apart_and_does_not_contain_them() -> None:
    first, second = "correct horse battery", "another horse battery"
    names = [describe_secret(secret) for secret in (first, second, first, "")]
    assert names[0] == names[2]
    assert len(set(names)) == 3
    assert names[3] == "no secret"
    assert not any(argument in "".join(names) for argument in (*first.split(), *second.split()))


def test_keys_of_another_job_or_secret_have_another_prefix_which_the_name_does_not_tell() -> None:
    prefixes = {derive_key_prefix(secret, job) for secret in ("a" * 16, "b" * 16) for job in ("one", "two")}
    assert len(prefixes) == 4
    assert not any(describe_secret("a" * 16).removeprefix("secret ") in prefix for prefix in prefixes)


def test_a_generated_secret_is_valid_and_new_each_time() -> None:
    made = {make_secret() for _ in range(50)}
    assert len(made) == 50
    for secret in made:
        check_secret(secret, "made")
