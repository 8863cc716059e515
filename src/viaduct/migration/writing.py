"""Put a migration onto the disk: into a new folder or into the project itself, wholly or not at all."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from viaduct.errors import BadValue
from viaduct.migration.run import FileResult, Outcome
from viaduct.migration.walk import shown, unsaved_files
from viaduct.repository import UnreadableRepository

SHOWN = 4
"""So many files are named in a refusal."""


def check_out(path: Path, out: Path) -> None:
    """Said before the work, not after it."""
    source = (path if path.is_dir() else path.parent).resolve()
    aim = out.resolve()
    if aim == source and path.is_dir():
        raise BadValue(f"--out {out} is the project itself.", "--in-place changes it there.")
    if path.is_dir() and source in aim.parents:
        raise BadValue(f"--out {out} lies within {path}.", "Name a folder beside it, so that it is not copied too.")
    if os.path.lexists(out) and not out.is_dir():
        raise BadValue(f"--out {out} is there and is not a folder.", "Name a new folder.")
    if out.is_dir() and any(out.iterdir()):
        raise BadValue(f"--out {out} exists and is not empty.", "Name a new folder, or remove that one.")
    parent = next(folder for folder in aim.parents if folder.exists())
    if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
        raise BadValue(f"--out {out}: {parent} cannot be written to.", "Name a folder of your own.")


def write_out(outcome: Outcome, out: Path, extra: Mapping[str, str]) -> None:
    """A copy of the project with its changes, and further files; made beside its place, then renamed."""
    draft = out.with_name(f".{out.name}.{os.getpid()}.draft")
    try:
        draft.parent.mkdir(parents=True, exist_ok=True)
        draft.mkdir()
        copy_project(outcome, draft)
        write_extra(draft, extra)
        os.replace(draft, out)
    except OSError as error:
        raise BadValue(
            f"{out} cannot be written: {error.strerror} ({error.filename or out}).", "Nothing was left behind."
        ) from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def copy_project(outcome: Outcome, draft: Path) -> None:
    for folder in outcome.walk.folders:
        (draft / folder).mkdir()
    for path in outcome.walk.others:
        shutil.copy2(outcome.root / path, draft / path)
    for path in outcome.walk.links:
        os.symlink(os.readlink(outcome.root / path), draft / path)
    for file in outcome.files:
        shutil.copy2(outcome.root / file.path, draft / file.path)
        if file.changed:
            replace_bytes(draft / file.path, file.after)
    for file in outcome.added:
        if file.before:
            shutil.copy2(outcome.root / file.path, draft / file.path)
            replace_bytes(draft / file.path, file.after)
        else:
            (draft / file.path).write_bytes(file.after)


def replace_bytes(path: Path, data: bytes) -> None:
    """Of a copy: read-only ones can be written too, and stay read-only."""
    mode = path.stat().st_mode
    path.unlink()
    path.write_bytes(data)
    path.chmod(mode)


def write_extra(draft: Path, extra: Mapping[str, str]) -> None:
    for name, text in extra.items():
        target = draft / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
        if target.suffix == ".sh" and target.name != "env.sh":
            target.chmod(0o755)


# ---- in place


def check_in_place(path: Path) -> None:
    """A new file put in the place of a link would leave the one that is meant as it was."""
    if path.is_symlink() and not path.is_dir():
        raise BadValue(
            f"{path} is a symbolic link to {path.resolve()}.",
            "--in-place would replace the link and leave that file as it is. Name the file itself.",
        )


def check_clean(outcome: Outcome) -> bool:
    """Refuses what git could not bring back; False where there is no repository at all."""
    try:
        unsaved = unsaved_files(outcome.walk)
    except UnreadableRepository as error:
        raise BadValue(
            f"whether git holds these files is not known: {shown(str(error))}.",
            "--force changes them all the same; --out DIR writes a copy.",
        ) from None
    if unsaved:
        more = f" and {len(unsaved) - SHOWN} more" if len(unsaved) > SHOWN else ""
        raise BadValue(
            f"{shown(str(outcome.root))} has changes that are not committed: "
            f"{', '.join(shown(path) for path in unsaved[:SHOWN])}{more}.",
            "Commit them first, so that git can undo the migration; or give --force; or --out DIR.",
        )
    return unsaved is not None


def write_in_place(outcome: Outcome) -> None:
    """All files or none: new contents are written first, then swapped in, and swapped back if one fails."""
    with backups(outcome) as swap:
        for file in outcome.written:
            swap(file)


@contextlib.contextmanager
def backups(outcome: Outcome) -> Iterator[_Swap]:
    swap = _Swap(outcome.root)
    try:
        for file in outcome.written:
            swap.prepare(file)
        yield swap
    except OSError as error:
        swap.undo()
        raise BadValue(
            f"{error.filename or outcome.root} cannot be written: {error.strerror}.", "No file was changed."
        ) from error
    except BaseException:
        swap.undo()
        raise
    finally:
        swap.tidy()


class _Swap:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.drafts: list[Path] = []
        self.saved: list[tuple[Path, Path]] = []  # (the file, its old content)
        self.fresh: list[Path] = []  # new files

    def beside(self, path: Path, what: str) -> Path:
        return path.with_name(f".{path.name}.{os.getpid()}.{what}")

    def prepare(self, file: FileResult) -> None:
        path = self.root / file.path
        if not file.before:
            self.prepare_new(path, file)
            return
        if not os.access(path, os.W_OK):
            raise PermissionError(13, "it is read-only", str(path))
        if path.read_bytes() != file.before:
            raise BadValue(f"{path} was changed while it was being migrated.", "No file was written; start again.")
        draft, saved = self.beside(path, "draft"), self.beside(path, "before")
        self.drafts += [draft, saved]
        draft.write_bytes(file.after)
        shutil.copymode(path, draft)
        shutil.copy2(path, saved)

    def prepare_new(self, path: Path, file: FileResult) -> None:
        if os.path.lexists(path):
            raise BadValue(f"{path} has appeared during the migration.", "No file was written; start again.")
        draft = self.beside(path, "draft")
        self.drafts.append(draft)
        draft.write_bytes(file.after)

    def __call__(self, file: FileResult) -> None:
        path = self.root / file.path
        if not file.before:
            self.fresh.append(path)
            os.replace(self.beside(path, "draft"), path)
            return
        self.saved.append((path, self.beside(path, "before")))
        os.replace(self.beside(path, "draft"), path)

    def undo(self) -> None:
        for path in self.fresh:
            with contextlib.suppress(FileNotFoundError):
                path.unlink()
        for path, saved in reversed(self.saved):
            with contextlib.suppress(FileNotFoundError):
                os.replace(saved, path)

    def tidy(self) -> None:
        for path in self.drafts:
            with contextlib.suppress(OSError):
                path.unlink()
