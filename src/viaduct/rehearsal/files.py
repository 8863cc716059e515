"""A rehearsed script's view of the user's files, and where the files that it writes are kept.

The script sees an overlay (a mount that keeps its writes in separate folders, `overlay.py`) where the kernel allows it,
else a mirror (a folder of copies and links, `mirror.py`); with --here it sees the files themselves. After a run in an
overlay or mirror, the files that the script wrote lie in the record folder: in work/, by their path relative to
`plan.start_folder`, the user's folder that the script runs in, or in elsewhere/, by their full path.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path

from viaduct.errors import BadRun
from viaduct.rehearsal import guard, overlay, project
from viaduct.rehearsal.mirror import Mirror
from viaduct.rehearsal.overlay import Layout, OverlayError, choose_folders, find_obstacle, make_removable, open_view
from viaduct.rehearsal.plan import Plan

WORK_FOLDER, ELSEWHERE_FOLDER = "work", "elsewhere"
UPPER_LAYERS_FOLDER = "overlay"  # in the record folder: the upper layers of overlays, see `overlay.Layout`
MAX_ENTRIES = 2000  # entries of a folder that are searched for links
MAX_PATH_LENGTH = 1000  # characters of a string that is taken for a path
SYSTEM_FOLDERS = {"/bin", "/boot", "/etc", "/lib", "/lib64", "/sbin", "/usr"}  # a path in one of them is no user's


class FileView:
    """View of the user's files. This base class is the view with --here: the files themselves."""

    def wrap_command(self, command: list[str]) -> list[str]:
        """Return the command that runs `command` in this view of the files."""
        return command

    def close(self) -> tuple[list[str], list[str]]:
        """End the view; return the files that the script wrote to the record, and the user's own files that changed."""
        return [], []


def choose_file_view(plan: Plan, report: Callable[[str], None]) -> Plan:
    """Return the plan with an overlay if one can be mounted and covers the start folder and project, else a mirror.

    `report` prints a note to the user that says why there is no overlay.
    """
    record = Path(plan.record_folder)
    existing_folder = next(folder for folder in (record, *record.parents) if folder.is_dir())
    obstacle = find_obstacle(make_layout(plan), existing_folder) or find_uncovered(plan)
    if obstacle:
        report(f"no overlay is used here ({obstacle}): the script runs in a mirror of your folders.")
    return set_record_folder(replace(plan, file_view="mirror" if obstacle else "overlay"), record)


def find_uncovered(plan: Plan) -> str:
    """Return why an overlay would not catch the script's writes into its start folder and project; "" if it would."""
    layout = make_layout(plan)
    for path in (plan.start_folder, plan.project_root):
        if not any(Path(path).is_relative_to(folder) for folder in layout.folders):
            return f"{path} cannot be overlaid"
        if os.geteuid() and os.stat(path).st_uid != os.geteuid():
            return f"{path} belongs to another user"
    return ""


def set_record_folder(plan: Plan, record: Path) -> Plan:
    """Return the plan with another record folder; a mirror in it gives the script's folders other visible paths."""
    plan = replace(plan, record_folder=str(record))
    if plan.file_view == "mirror":
        mirror = make_mirror(plan)
        return replace(
            plan,
            visible_start_folder=str(mirror.work),
            visible_project_root=str(mirror.path_of(Path(plan.project_root))),
        )
    return replace(plan, visible_start_folder=plan.start_folder, visible_project_root=plan.project_root)


def open_file_view(plan: Plan) -> FileView:
    """Open the plan's view of the user's files."""
    if plan.file_view == "overlay":
        return OverlayFileView(plan)
    return MirrorFileView(plan) if plan.file_view == "mirror" else FileView()


class OverlayFileView(FileView):
    """View through overlay mounts, in which every file has its usual path."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        try:
            self.view = open_view(make_layout(plan))
        except OverlayError as error:
            raise BadRun(
                f"the overlay of your files cannot be mounted: {error}.",
                f"Set {overlay.OVERLAY_VARIABLE}=off to rehearse in a mirror of your folders.",
            ) from None

    def wrap_command(self, command: list[str]) -> list[str]:
        return self.view.wrap_command(self.plan.visible_start_folder, command)

    def close(self) -> tuple[list[str], list[str]]:
        """Unmount the overlay; return the files that the script wrote."""
        self.view.close()
        names = keep_written(self.plan, self.view.find_written())
        make_removable(self.view.layout.upper_layers)
        for folder in (self.view.layout.upper_layers, find_scratch_folder(self.plan)):
            shutil.rmtree(folder, ignore_errors=True)
        return names, []


class MirrorFileView(FileView):
    """View through a mirror of copies and links; `guard.py` keeps Python from writing through the links."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.mirror = make_mirror(plan)
        self.mirror.set_up()
        # Guarded are the user's folders that the mirror reproduces, and the targets of its links.
        folders = [str(path) for path in self.mirror.mirrored_folders if path != Path("/")]
        guard.save_owned_paths(plan.record_folder, [*folders, *self.mirror.originals])

    def close(self) -> tuple[list[str], list[str]]:
        """Remove the mirror; return the files that the script wrote in it, and the originals that changed."""
        changed = self.mirror.find_changed_originals()
        names = keep_written(self.plan, self.mirror.find_written())
        for folder in (self.mirror.folder, find_scratch_folder(self.plan)):
            shutil.rmtree(folder, ignore_errors=True)
        return names, changed


def make_mirror(plan: Plan) -> Mirror:
    """Return the mirror of a plan, which is not set up yet."""
    variant_tree = Path(plan.source_tree) if plan.replaced_source_tree else None
    return Mirror(Path(plan.start_folder), Path(plan.mirror), Path(plan.project_root), variant_tree)


def keep_written(plan: Plan, written: Iterable[tuple[str, Path]]) -> list[str]:
    """Move written files into the record if `is_kept`; return their names, relative to `plan.start_folder` or absolute.

    `written` has the path of each file as the script saw it, and its present path. A file that cannot be moved is left
    out.
    """
    names = []
    kept = [(name, path) for name, path in written if is_kept(name, plan)]  # before a move changes the walked folders
    for name, path in kept:
        kept_name = os.path.relpath(name, plan.start_folder) if Path(name).is_relative_to(plan.start_folder) else name
        target = find_written_file(plan.record_folder, kept_name)
        with suppress(OSError):
            target.parent.mkdir(parents=True, exist_ok=True)
            os.rename(path, target)
            names.append(kept_name)
    return sorted(names)


def find_written_file(record: str, name: str) -> Path:
    """Return the path in the record of a file that the script wrote; `name` is from `keep_written`."""
    return Path(record, ELSEWHERE_FOLDER, name.lstrip("/")) if os.path.isabs(name) else Path(record, WORK_FOLDER, name)


def find_scratch_folder(plan: Plan) -> Path:
    """Return the path of a rehearsal's temporary folder, a short one: Unix sockets in it may not have long paths."""
    number = hashlib.sha256(plan.record_folder.encode()).hexdigest()[:8]
    return Path(tempfile.gettempdir(), f"viaduct_{number}")


def is_kept(name: str, plan: Plan) -> bool:
    """Return False for bytecode, temporary files, the record, and hidden entries of the home folder.

    Files below the start folder or its parent are kept even if these lie in a temporary folder or the home folder.
    """
    path = Path(name)
    if "__pycache__" in path.parts or any(
        path.is_relative_to(at) for at in (find_scratch_folder(plan), plan.record_folder)
    ):
        return False
    if path.is_relative_to(Path(plan.start_folder).parent):
        return True
    temporary, home = Path(tempfile.gettempdir()), Path.home()
    if path.is_relative_to(home):
        return not path.relative_to(home).parts[0].startswith(".")
    return not path.is_relative_to(temporary)


# ---- layout of an overlay


def make_layout(plan: Plan) -> Layout:
    """Return the overlay's layout: folders around the paths of `find_paths`.

    The cache folder and the record are not overlaid: writes there reach the real files.
    """
    caches = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    required = choose_folders([plan.start_folder, plan.project_root])
    folders = choose_folders([*required, *find_paths(plan)])
    excluded = [caches] if any(Path(caches).is_relative_to(folder) for folder in folders) else []
    return Layout(
        folders,
        upper_layers=str(Path(plan.record_folder) / UPPER_LAYERS_FOLDER),
        required=required,
        excluded=(*excluded, plan.record_folder),
        original_tree=plan.replaced_source_tree,
        variant_tree=plan.source_tree if plan.replaced_source_tree else "",
    )


def find_paths(plan: Plan) -> Iterator[str]:
    """Yield paths that the script may write to: its folders, and paths in arguments, links and string constants."""
    yield from (plan.start_folder, plan.project_root, plan.script_folder)
    texts = [*split_arguments(plan.arguments)]
    for folder in dict.fromkeys(
        (plan.start_folder, os.path.dirname(plan.start_folder), plan.replaced_source_tree or plan.source_tree)
    ):
        texts += find_links(folder)
    for source in project.read_project(Path(plan.script)).sources:
        texts += project.find_strings(source.tree)
    yield from filter(None, map(expand_users_path, texts))


def split_arguments(arguments: Iterable[str]) -> Iterator[str]:
    """Yield each argument (`/data/lr=0.1` may be a path), and the text after its first "=" (`--out=/data`)."""
    for argument in arguments:
        yield argument
        _, sign, value = argument.partition("=")
        if sign:
            yield value


def expand_users_path(text: str) -> str:
    """Return a text as an absolute path if it may be one of the user's, else "".

    Such a path has at least two levels, and its top folder exists and is not in SYSTEM_FOLDERS. `~` is the home folder,
    and `file:///data` is `/data`; other URLs are no paths.
    """
    path = text.removeprefix("file://")
    if not path.startswith(("/", "~")) or len(path) > MAX_PATH_LENGTH or "\0" in path or not is_encodable(path):
        return ""
    path = os.path.expanduser(path)
    path = "/" + os.path.normpath(path).lstrip("/") if path.startswith("/") else ""
    top = "/".join(path.split("/")[:2])
    return path if path.count("/") > 1 and top not in SYSTEM_FOLDERS and os.path.isdir(top) else ""


def is_encodable(path: str) -> bool:
    """Return False for a text with lone surrogates."""
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        return False
    return True


def find_links(folder: str) -> list[str]:
    """Return the targets of the links in a folder."""
    try:
        with os.scandir(folder) as entries:
            return [os.path.realpath(entry.path) for entry in islice(entries, MAX_ENTRIES) if entry.is_symlink()]
    except OSError:
        return []
