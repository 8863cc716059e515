"""View of the file system that keeps a run's writes separate, by overlay mounts in a mount namespace.

Every file has its usual path, so relative and absolute paths, `__file__`, links, other programs and libraries in C
work unchanged. Writes, deletions and renames in the overlaid folders go to the run's record, and the user's files there
are only read. All other folders are the real ones: those outside of `Layout.folders`, those in `Layout.excluded`, and
folders that are not in `Layout.required` and cannot be overlaid. Where the kernel does not let the user mount overlays,
`mirror.py` makes a mirror instead.

This file is also a script that runs without viaduct on its path:

    overlay.py hold                         read a Layout from stdin, mount it, answer, wait until stdin is closed
    overlay.py enter PID FOLDER COMMAND...  run a command in the view that process PID holds
"""

from __future__ import annotations

import ctypes
import filecmp
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

NEW_MOUNTS, NEW_USER = 0x00020000, 0x10000000  # flags of unshare(2): CLONE_NEWNS, CLONE_NEWUSER
BIND, RECURSIVE, PRIVATE = 4096, 16384, 1 << 18  # flags of mount(2): MS_BIND, MS_REC, MS_PRIVATE
# Options of an overlay mount, tried in this order: the second set is for mounts without root's rights.
OVERLAY_OPTIONS = ("redirect_dir=on,index=off,metacopy=off", "userxattr,index=off,metacopy=off")
KERNEL_FOLDERS = {"/dev", "/proc", "/run", "/sys"}  # never overlaid, but folders in them may be, such as /dev/shm
OVERLAY_VARIABLE = "VIADUCT_OVERLAY"  # environment variable; "off": use a mirror even where overlays can be mounted
UNMOUNT_S = 30.0  # for the holding process to unmount and end
MAX_READ_BYTES = 1 << 24  # larger files with equal size and time, such as datasets, count as equal without being read


@dataclass(frozen=True)
class Layout:
    """Folders to overlay, and where their writes go.

    The overlay file system combines a lower layer, here a folder of the user, with an upper layer, which receives all
    writes into that folder.
    """

    folders: tuple[str, ...]
    upper_layers: str  # the folder that holds numbered layer folders, each with an upper layer, `files`, and `work`
    required: tuple[str, ...] = ()  # if one of these folders cannot be overlaid, `open_view` raises OverlayError
    excluded: tuple[str, ...] = ()  # folders inside of `folders` where writes reach the real files
    # The project and a variant of it, such as the migrated project: at the original's paths the view shows the variant.
    original_tree: str = ""
    variant_tree: str = ""


@dataclass
class View:
    """A mounted layout; it lasts as long as the process `holder`, in whose mount namespace it is."""

    holder: subprocess.Popen[str]
    layout: Layout
    layers: dict[str, str] = field(default_factory=dict)  # overlaid folder by the number of its layer folder
    # Initial states (`read_state`) of the files of `variant_tree` in the view, by visible path.
    variant_states: dict[str, list[int]] = field(default_factory=dict)

    def wrap_command(self, folder: str, command: list[str]) -> list[str]:
        """Return the command that runs `command` in this view, with `folder` as its current folder."""
        return [sys.executable, "-I", "-S", __file__, "enter", str(self.holder.pid), folder, *command]

    def close(self) -> None:
        """End the process that holds the view; its mounts end with it."""
        assert self.holder.stdin is not None
        self.holder.stdin.close()
        try:
            self.holder.wait(UNMOUNT_S)
        except subprocess.TimeoutExpired:
            self.holder.kill()
            self.holder.wait()

    def find_written(self) -> Iterator[tuple[str, Path]]:
        """Yield the visible path of each file that was written, and its path in the upper layer."""
        for number, folder in self.layers.items():
            upper = Path(self.layout.upper_layers) / number / "files"
            for root, folders, files in os.walk(upper):
                folders.sort()
                for name in sorted(files):
                    path = Path(root) / name
                    visible = os.path.join(folder, os.path.relpath(path, upper))
                    # Whiteouts, which mark deletions, are not regular files; the variant's unchanged files were not
                    # written by the script.
                    if path.is_symlink() or (path.is_file() and self.variant_states.get(visible) != read_state(path)):
                        yield visible, path


class OverlayError(Exception):
    """Raised with the reason why an overlay cannot be mounted."""


def open_view(layout: Layout) -> View:
    """Mount a layout; raise OverlayError if that is not possible."""
    Path(layout.upper_layers).mkdir(parents=True, exist_ok=True)
    holder = subprocess.Popen(
        [sys.executable, "-I", "-S", __file__, "hold"],  # -I, -S: import nothing of the user's
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Ctrl-C is for the script
    )
    assert holder.stdin is not None
    assert holder.stdout is not None
    assert holder.stderr is not None
    try:
        holder.stdin.write(json.dumps(asdict(layout)) + "\n")
        holder.stdin.flush()
        answer = json.loads(holder.stdout.readline() or '{"error": "no answer"}')
    except (OSError, ValueError) as error:
        answer = {"error": str(error)}
    finally:
        holder.stdout.close()
    if "error" in answer:
        holder.stdin.close()
        holder.wait()
        last_line = holder.stderr.read().strip().splitlines()[-1:]
        holder.stderr.close()
        raise OverlayError(" ".join([answer["error"], *last_line]))
    holder.stderr.close()
    return View(holder, layout, answer["layers"], answer["variant_states"])


def find_obstacle(layout: Layout, parent: Path) -> str:
    """Try to mount a layout with its upper layers inside `parent`; return why that fails, or "" if it works."""
    if os.environ.get(OVERLAY_VARIABLE, "").lower() in ("off", "0", "no"):
        return f"{OVERLAY_VARIABLE} is {os.environ[OVERLAY_VARIABLE]}"
    with tempfile.TemporaryDirectory(dir=parent, prefix=".viaduct_overlay_") as folder:
        try:
            view = open_view(replace(layout, upper_layers=folder, excluded=()))
        except (OverlayError, OSError) as error:
            return str(error)
        view.close()
        make_removable(folder)
    return ""


def make_removable(upper_layers: str | Path) -> None:
    """Give permissions to the folders that the kernel made without any, so that they can be removed."""
    for root, folders, _ in os.walk(upper_layers):
        for name in folders:
            path = os.path.join(root, name)
            if not os.path.islink(path) and not os.access(path, os.R_OK | os.W_OK | os.X_OK):
                os.chmod(path, 0o700)


def find_top(path: str) -> str:
    """Return the folder directly below / that holds a path; below KERNEL_FOLDERS, the folder one level deeper."""
    parts = path.split(os.sep)  # the first is "", since the path is absolute
    top = os.sep + parts[1]
    return os.sep.join(parts[:3]) if top in KERNEL_FOLDERS else top


def find_folder(path: str) -> str:
    """Return the folder to overlay so that a path and its surroundings are covered.

    For root this is the folder of `find_top`. For other users it is the first folder, from the path upwards, that
    belongs to another user, or else the folder of `find_top`. An overlay of a folder further up would refuse writes
    here: the kernel would have to copy the other user's folder into the upper layer, which it may not.
    """
    path = os.path.realpath(path)
    while not os.path.isdir(path):
        path = os.path.dirname(path)
    top = find_top(path)
    if os.geteuid() == 0:
        return top
    while path != top and os.stat(path).st_uid == os.geteuid():
        path = os.path.dirname(path)
    return path


def choose_folders(paths: Iterable[str]) -> tuple[str, ...]:
    """Return the outermost folders to overlay for some paths; / and KERNEL_FOLDERS are left out."""
    folders = {find_folder(path) for path in paths if path} - {os.sep} - KERNEL_FOLDERS
    return tuple(sorted(folder for folder in folders if not is_below(folder, folders)))


# ---- system calls and the two commands of this file


_libc = ctypes.CDLL(None, use_errno=True)


def check_result(result: int, action: str) -> None:
    """Raise OSError with errno's text if a system call failed."""
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{action}: {os.strerror(number)}")


def mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    """Call mount(2); raise OSError if it fails."""
    arguments = (os.fsencode(source), os.fsencode(target), kind.encode(), ctypes.c_ulong(flags), options.encode())
    check_result(_libc.mount(*arguments), f"mounting {kind or 'a folder'} at {target}")


def make_namespace() -> None:
    """Move this process into a new mount namespace; without root's rights also into a new user namespace."""
    if _libc.unshare(NEW_MOUNTS) != 0:
        user, group = os.getuid(), os.getgid()
        check_result(_libc.unshare(NEW_USER | NEW_MOUNTS), "making a mount namespace")
        for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
            Path(f"/proc/self/{name}").write_text(text)
    mount("none", "/", "", RECURSIVE | PRIVATE)


def list_mount_points() -> list[str]:
    """Return the folders at which something is mounted."""
    lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    return [line.split()[4].encode("latin-1", "replace").decode("unicode_escape") for line in lines]


def is_below(path: str, folders: Iterable[str]) -> bool:
    """Return True if a path lies below one of the folders."""
    return any(path.startswith(folder.rstrip("/") + "/") for folder in folders)


def mount_layout(layout: dict[str, Any]) -> dict[str, Any]:
    """Mount a layout, outer folders first; return the fields `layers` and `variant_states` of its View."""
    points = [*layout["folders"], *(point for point in list_mount_points() if is_below(point, layout["folders"]))]
    points = sorted(dict.fromkeys(points), key=lambda point: point.count("/"))
    # Later these paths lead into the overlay; the descriptors opened now still lead to the folders below it.
    opened = {path: open_path(path) for path in points}
    excluded = {path: open_path(path) for path in layout["excluded"] if os.path.isdir(path)}
    upper_layers = open_path(layout["upper_layers"])
    # The innermost overlaid folder around the original project: its upper layer gets the variant's files.
    around = [point for point in points if is_below(layout["original_tree"] + "/", [point])]
    project_target = max(around, key=len, default="")
    layers: dict[str, str] = {}
    variant_states: dict[str, list[int]] = {}
    for number, target in enumerate(points):
        try:
            if not os.path.isdir(opened[target]):
                raise NotADirectoryError(target)
            layer_folder = f"{upper_layers}/{number}"
            for name in ("files", "work"):
                os.makedirs(f"{layer_folder}/{name}")
            os.chmod(f"{layer_folder}/files", os.stat(opened[target]).st_mode & 0o7777)
            if target == project_target:
                trees = layout["variant_tree"], layout["original_tree"]
                variant_states = copy_variant(*trees, target, f"{layer_folder}/files")
            mount_overlay(target, opened[target], layer_folder)
            layers[str(number)] = target
        except OSError:
            if target in (*layout["required"], project_target):
                raise
            # The target is no folder, or the kernel refuses to overlay it: writes there reach the real files.
            mount(opened[target], target, "", BIND | RECURSIVE)
    for path, source in excluded.items():
        mount(source, path, "", BIND | RECURSIVE)
    return {"layers": layers, "variant_states": variant_states}


def copy_variant(variant_tree: str, original_tree: str, target: str, upper: str) -> dict[str, list[int]]:
    """Copy the variant's files that differ from the original's into the upper layer of `target`; links are left out.

    Return the states of the copies by their visible paths, the paths in the original.
    """
    states = {}
    for root, _, files in os.walk(variant_tree):
        for name in files:
            path = os.path.join(root, name)
            visible = os.path.normpath(os.path.join(original_tree, os.path.relpath(path, variant_tree)))
            if os.path.islink(path) or is_same_file(path, visible):
                continue
            relative = os.path.relpath(visible, target)
            copy_path = os.path.join(upper, relative)
            make_folders(os.path.dirname(relative), target, upper)
            shutil.copy2(path, copy_path)
            states[visible] = read_state(copy_path)
    return states


def is_same_file(path: str, other: str) -> bool:
    """Return True if two files have the same content, or more than MAX_READ_BYTES and the same size and time.

    Return False if one cannot be read.
    """
    try:
        return filecmp.cmp(path, other, shallow=os.path.getsize(path) > MAX_READ_BYTES)
    except OSError:
        return False


def make_folders(folder: str, target: str, upper: str) -> None:
    """Make a folder and its parents in the upper layer of `target`, with the modes that they have in `target`.

    `folder` is relative to `target`, and "" for `target` itself.
    """
    relative = ""
    for part in folder.split("/") if folder else ():
        relative = f"{relative}/{part}" if relative else part
        if not os.path.isdir(f"{upper}/{relative}"):
            os.mkdir(f"{upper}/{relative}")
            if os.path.isdir(f"{target}/{relative}"):
                shutil.copymode(f"{target}/{relative}", f"{upper}/{relative}")


def read_state(path: str | Path) -> list[int]:
    """Return a file's modification time, size and inode; one of them changes when the file is written or replaced."""
    status = os.stat(path)
    return [status.st_mtime_ns, status.st_size, status.st_ino]


def open_path(path: str) -> str:
    """Open a path; return a path of the descriptor, which stays valid when something is mounted over it."""
    return f"/proc/self/fd/{os.open(path, os.O_PATH)}"


def mount_overlay(target: str, lower: str, layer_folder: str) -> None:
    """Mount an overlay with the first set of options that the kernel takes."""
    layers = f"lowerdir={lower},upperdir={layer_folder}/files,workdir={layer_folder}/work"
    for options in OVERLAY_OPTIONS:
        try:
            mount("viaduct", target, "overlay", 0, f"{layers},{options}")
        except OSError:
            if options == OVERLAY_OPTIONS[-1]:
                raise
        else:
            return


def hold() -> None:
    """Make the namespace, mount the layout that stdin describes, and wait until stdin is closed."""
    layout = json.loads(sys.stdin.readline())
    try:
        make_namespace()
        answer = mount_layout(layout)
    except OSError as error:
        answer = {"error": error.strerror or str(error)}
    print(json.dumps(answer), flush=True)
    sys.stdin.read()


def enter(pid: str, folder: str, command: list[str]) -> None:
    """Enter the user and mount namespaces of a process and replace this process by a command."""
    for kind in ("user", "mnt"):
        target, current = f"/proc/{pid}/ns/{kind}", f"/proc/self/ns/{kind}"
        if os.stat(target).st_ino != os.stat(current).st_ino:
            descriptor = os.open(target, os.O_RDONLY | os.O_CLOEXEC)
            check_result(_libc.setns(descriptor, 0), f"entering the view of process {pid}")
    os.chdir(folder)
    os.execvp(command[0], command)


if __name__ == "__main__":
    if sys.argv[1:2] == ["hold"]:
        hold()
    else:
        enter(sys.argv[2], sys.argv[3], sys.argv[4:])
