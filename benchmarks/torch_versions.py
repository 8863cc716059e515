"""Run the core of the test suite with several releases of torch, each in a fresh environment outside the tree.

    python benchmarks/torch_versions.py                       2.4.1, 2.11.0, 2.13.0 and the newest that pip finds
    python benchmarks/torch_versions.py 2.5.1 newest          these; 2.5 is the newest 2.5.x
    python benchmarks/torch_versions.py 2.11.0 --keep         and keep the environment for inspection
    python benchmarks/torch_versions.py 2.5.1 --tests tests/cluster tests/training/test_elastic.py

`make test-matrix` calls it; `make test-matrix TORCHES="2.5.1"` tests one. Environments are built one at a time from a
copy of the tree (what git tracks or would add), used and removed: a torch with its CUDA libraries takes 5 GB and some
minutes. A release that fails does not stop the others; the exit code is then 1. A Markdown table goes to stdout, all
other output to stderr, pytest's output to a file in the folder of the environments.

Not run: tests marked slow, browser or gpu. TensorFlow is not installed, so tests against it are skipped and counted
as skipped.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from pathlib import Path

TREE = Path(__file__).resolve().parents[1]
TORCHES = ["2.4.1", "2.11.0", "2.13.0", "newest"]
CORE = [
    *("tests/cluster", "tests/data", "tests/devices", "tests/training", "tests/weights", "tests/test_torch_compat.py"),
    "tests/rehearsal/torch_stage",  # skipped before 2.13
    *(f"tests/verbs/test_{verb}.py" for verb in ("data", "devices", "launch", "train", "weights")),
]
MARKS = "not slow and not browser and not gpu"
COLUMNS = ["torch", "python", "passed", "failed", "skipped", "seconds"]


@dataclass
class Outcome:
    """Test result with one torch; `error`: why the tests did not run or did not finish."""

    asked: str
    torch: str = ""
    python: str = ""
    numpy: str = ""
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0.0
    error: str = ""
    failures: list[str] = field(default_factory=list)
    skip_reasons: dict[str, int] = field(default_factory=dict)

    @property
    def is_good(self) -> bool:
        return not self.error and not self.failed and self.passed > 0

    def as_row(self) -> dict[str, str]:
        if self.error:
            return dict(zip(COLUMNS, (self.torch or self.asked, self.python, "", self.error, "", ""), strict=True))
        counts = (self.passed, self.failed, self.skipped, round(self.seconds))
        return dict(zip(COLUMNS, (self.torch, self.python, *map(str, counts)), strict=True))


def main() -> None:
    options = parse_arguments()
    folder = Path(options.environments).expanduser().resolve()
    if folder == TREE or TREE in folder.parents:
        sys.exit(f"--environments {folder} is inside the tree.\n  Choose a folder outside of it: each takes 5 GB.")
    outcomes = [test_release(release, folder, options) for release in options.torches]
    print(render_table([outcome.as_row() for outcome in outcomes]))
    for outcome in outcomes:
        for name in outcome.failures:
            print_note(f"torch {outcome.torch}: {name} failed")
    if options.out:
        options.out.write_text(json.dumps(make_record(outcomes, options), indent=1) + "\n")
    sys.exit(0 if all(outcome.is_good for outcome in outcomes) else 1)


def parse_arguments() -> argparse.Namespace:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "viaduct" / "torch-versions"
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("torches", nargs="*", default=TORCHES, metavar="TORCH", help="2.5.1, 2.5 or newest")
    parser.add_argument("--environments", default=str(cache), metavar="DIR", help="built there; default: %(default)s")
    parser.add_argument("--keep", action="store_true", help="do not remove an environment after its tests")
    parser.add_argument("--python", default=sys.executable, help="makes the environments; default: this one")
    parser.add_argument("--tests", nargs="+", default=CORE, metavar="PATH", help="default: the core of the suite")
    parser.add_argument("--processes", type=int, default=2, help="of pytest")
    parser.add_argument("--out", type=Path, help="write the figures here, for docs/results/")
    options = parser.parse_args()
    for release in options.torches:
        requirement_of(release)
    return options


def requirement_of(release: str) -> str:
    """Return the requirement for pip: `torch`, `torch==2.5.*` or `torch==2.5.1`."""
    if release == "newest":
        return "torch"
    if not re.fullmatch(r"\d+\.\d+(\.\d+)?(\+\w+)?", release):
        sys.exit(f"{release!r} is no release of torch.\n  Write 2.5.1, 2.5 for the newest 2.5.x, or newest.")
    return f"torch=={release}" + (".*" if release.count(".") == 1 else "")


def test_release(release: str, folder: Path, options: argparse.Namespace) -> Outcome:
    """Build an environment, run the tests in it, remove it."""
    outcome = Outcome(release)
    environment = folder / f"torch-{release}"
    shutil.rmtree(environment, ignore_errors=True)
    environment.mkdir(parents=True)
    log = folder / f"torch-{release}.log"
    try:
        source = copy_tree(environment / "tree")
        print_note(f"torch {release}: building {environment}; the log is {log}")
        build(environment, source, requirement_of(release), options.python, log)
        outcome.torch, outcome.numpy, outcome.python = versions_in(environment)
        print_note(f"torch {outcome.torch}, numpy {outcome.numpy}, Python {outcome.python}: testing")
        run_tests(outcome, environment, source, log, options)
    except subprocess.CalledProcessError as error:
        outcome.error = f"could not: {shlex.join(map(str, error.cmd))[:120]}"
        print_note(f"torch {release}: {outcome.error}; the end of {log}:")
        print_note("\n".join(log.read_text(errors="replace").splitlines()[-15:]) if log.exists() else "")
    finally:
        if not options.keep:
            shutil.rmtree(environment, ignore_errors=True)
    print_note(
        f"torch {outcome.torch or release}: {outcome.passed} passed, {outcome.failed} failed, {outcome.skipped} skipped"
    )
    return outcome


def copy_tree(target: Path) -> Path:
    """Copy what git tracks or would add, so that installing and testing write into the copy."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=TREE,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in filter(None, listed.stdout.split("\0")):
        if (TREE / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(TREE / name, target / name)
    return target


def build(environment: Path, source: Path, torch: str, python: str, log: Path) -> None:
    with log.open("w") as output:
        subprocess.run([python, "-m", "venv", environment], stdout=output, stderr=output, check=True)
        packages = [torch, f"{source}[train]", "pytest", "pytest-xdist", "scikit-image"]
        # Nothing is kept: what pip would keep of four torches is larger than the environment.
        command = [environment / "bin/pip", "install", "--no-cache-dir", "--disable-pip-version-check", *packages]
        subprocess.run(command, stdout=output, stderr=output, check=True)


def versions_in(environment: Path) -> tuple[str, str, str]:
    code = "import platform, torch, numpy; print(torch.__version__, numpy.__version__, platform.python_version())"
    answer = subprocess.run([environment / "bin/python", "-c", code], capture_output=True, text=True, check=True)
    torch, numpy, python = answer.stdout.split()
    return torch, numpy, python


def run_tests(outcome: Outcome, environment: Path, source: Path, log: Path, options: argparse.Namespace) -> None:
    """Run pytest against the installed package; the copy's own `src` is moved away."""
    (source / "src").rename(source / "src.moved")
    report = environment / "report.xml"
    command = [environment / "bin/python", "-m", "pytest", *options.tests, "-m", MARKS, f"--junitxml={report}"]
    command += ["-n", str(options.processes), "--dist", "worksteal", "-p", "no:cacheprovider", "-rfE"]
    variables = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    with tempfile.TemporaryDirectory(prefix="viaduct-") as scratch, log.open("a") as output:
        variables |= {"XDG_CACHE_HOME": scratch, "PATH": f"{environment / 'bin'}{os.pathsep}{os.environ['PATH']}"}
        began = time.monotonic()
        done = subprocess.run(map(str, command), cwd=source, env=variables, stdout=output, stderr=output, check=False)
        outcome.seconds = time.monotonic() - began
    if done.returncode not in (0, 1) or not report.is_file():
        raise subprocess.CalledProcessError(done.returncode, command)
    read_report(outcome, report)


def read_report(outcome: Outcome, report: Path) -> None:
    """Read the counts from pytest's JUnit report."""
    reasons: Counter[str] = Counter()
    for case in ElementTree.parse(report).iter("testcase"):
        name = f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name')}"
        if case.find("failure") is not None or case.find("error") is not None:
            outcome.failures.append(name)
        elif (skip := case.find("skipped")) is not None:
            reasons[skip.get("message", "")] += 1
        else:
            outcome.passed += 1
    outcome.failed, outcome.skipped = len(outcome.failures), reasons.total()
    outcome.skip_reasons = dict(reasons.most_common())


def render_table(rows: list[dict[str, str]]) -> str:
    lines = [COLUMNS, ["---"] * len(COLUMNS), *([row[column] for column in COLUMNS] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def make_record(outcomes: list[Outcome], options: argparse.Namespace) -> dict[str, object]:
    """Return the record for docs/results/, from which `make results` makes a table."""
    from viaduct import devices
    from viaduct.training.summary import describe_machine, read_commit

    skips = sum((Counter(outcome.skip_reasons) for outcome in outcomes), Counter())
    return {
        "kind": "benchmark",
        "title": "The core of the test suite with several releases of torch",
        "note": f"`pytest {' '.join(options.tests)} -m '{MARKS}'`, each in a fresh environment without TensorFlow. "
        f"The commonest reasons for skipping: {'; '.join(reason for reason, _ in skips.most_common(3))}.",
        "command": shlex.join(["python", "benchmarks/torch_versions.py", *options.torches]),
        "commit": read_commit(),
        "machine": describe_machine(devices.get("cpu")),
        "date": f"{datetime.now(timezone.utc):%Y-%m-%d}",
        "columns": COLUMNS,
        "rows": [outcome.as_row() for outcome in outcomes],
        "samples": [asdict(outcome) for outcome in outcomes],
    }


def print_note(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
