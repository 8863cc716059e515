"""Locate the tuning bank: --bank, else TUNE_BANK_PATH, else the default ~/.local/share/viaduct/bank.

A bank that is shipped with viaduct is read in addition and never written.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from viaduct.tuning.bank import BadBank, Bank

# Environment variables with the names that the Ascend documents use.
BANK_VARIABLE = "TUNE_BANK_PATH"
REPEAT_VARIABLE = "REPEAT_TUNE"
NO_BANK = Path("none")  # `--bank none`: no bank is used
BUILT_IN_BANK = Path(__file__).parent / "built_in"
Origin = Literal["--bank", "TUNE_BANK_PATH", "default"]  # the setting that names the bank


@dataclass(frozen=True)
class Location:
    """A bank's folder and the setting that it comes from."""

    bank: Bank
    origin: Origin

    @property
    def path(self) -> Path:
        return self.bank.path

    def describe(self) -> str:
        return f"{self.path} ({'your default bank' if self.origin == 'default' else self.origin})"


def locate_bank(flag_path: Path | None, environment: Mapping[str, str] = os.environ) -> Location:
    """Return the location of the bank; raise BadBank if TUNE_BANK_PATH is not a usable folder."""
    if flag_path is not None:
        return Location(Bank(flag_path), "--bank")
    if variable := environment.get(BANK_VARIABLE, ""):
        path = Path(variable)
        check_shared_folder(path)
        return Location(Bank(path), "TUNE_BANK_PATH")
    data_home = environment.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Location(Bank(Path(data_home) / "viaduct" / "bank"), "default")


def check_shared_folder(path: Path) -> None:
    """Raise BadBank for a TUNE_BANK_PATH that is not a folder or cannot be read, written and entered."""
    setting, hint = f"{BANK_VARIABLE}={str(path)[:200]!r}", f"Make the folder, or unset {BANK_VARIABLE}."
    try:
        exists, is_folder = path.exists(), path.is_dir()
    except (OSError, ValueError) as error:
        raise BadBank(f"{setting} cannot be read: {error}.", hint) from None
    if not is_folder:
        raise BadBank(f"{setting} {'is not a folder' if exists else 'does not exist'}.", hint)
    rights = {"read": os.R_OK, "written": os.W_OK, "entered": os.X_OK}
    if lacking := [name for name, right in rights.items() if not os.access(path, right)]:
        raise BadBank(f"{setting} may not be {' or '.join(lacking)}.", "Change its rights, or unset it.")


def prepare_writing(location: Location, flag: str = "--bank") -> None:
    """Make the folder of a bank; raise BadBank, naming `flag`, if it cannot be made or written to."""
    path, bank = location.path, f"the bank {str(location.path)!r}"
    if path.exists() and not path.is_dir():
        raise BadBank(f"{bank} is a file.", f"Name a folder: {flag} DIR.")
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadBank(f"{bank} cannot be made: {error.strerror}.", f"Name another with {flag}.") from None
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        raise BadBank(f"{bank} may not be written to.", f"Name another with {flag}, or change its rights.")


@contextmanager
def remove_empty_bank_on_failure(location: Location) -> Iterator[None]:
    """Remove the bank's folder after an error if the block created it and it is empty."""
    existed = location.path.exists()
    try:
        yield
    except BaseException:
        if not existed:
            with suppress(OSError):  # something was written, or the folder was not made
                location.path.rmdir()
        raise


def is_repeat_wanted(environment: Mapping[str, str] = os.environ) -> bool:
    """Return True if REPEAT_TUNE requests another search of operators with an entry in the bank."""
    text = environment.get(REPEAT_VARIABLE, "").strip().lower()
    if text in ("", "false", "0"):
        return False
    if text in ("true", "1"):
        return True
    raise BadBank(
        f"{REPEAT_VARIABLE}={environment[REPEAT_VARIABLE]!r} is neither True nor False.", "Set it to True, or unset it."
    )
