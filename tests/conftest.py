"""Being here puts `tests/` on the path, so that any test may say `from reporting.browser import open_page`."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from old_torch import skip_with_old_torch
from quick import LIMIT_S, forbid_processes, heavy_import, is_quick

# No bank of tuned operators that whoever runs the suite may have.
os.environ.pop("TUNE_BANK_PATH", None)
os.environ["XDG_DATA_HOME"] = "/nonexistent/no-bank"

# As the command line does (cli.py): before torch is imported, so that a busy machine does not slow the suite tenfold.
os.environ.setdefault("GOMP_SPINCOUNT", "1000")

# `nohup make test &` starts the suite with these ignored, and every process that a test starts would inherit it. A
# handler that does nothing keeps the suite as deaf and is not inherited.
for number in (signal.SIGINT, signal.SIGHUP):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, lambda number, frame: None)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="only tests without processes and TensorFlow")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--quick"):
        sys.modules["tensorflow"] = None  # type: ignore[assignment]  # an import fails as if it were not installed


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    is_module = collection_path.match("test_*.py")
    if config.getoption("--quick") and is_module and heavy_import(collection_path):
        return True  # not even imported
    return None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    skip_with_old_torch(items, Path(__file__).parent)
    if config.getoption("--quick"):
        left_out = [item for item in items if not is_quick(item)]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if is_quick(item)]


@pytest.fixture(autouse=True)
def keep_quick(request: pytest.FixtureRequest) -> Iterator[None]:
    """Let a test of the quick part start no process, and in `make quick` take no more than its time."""
    if not is_quick(request.node):
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        forbid_processes(patch)
        began = time.process_time()
        yield
    seconds = time.process_time() - began
    if request.config.getoption("--quick") and seconds > LIMIT_S:
        pytest.fail(f"it took {seconds:.1f} s of processor time: mark it with @pytest.mark.lengthy")


@pytest.fixture
def stand_in_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Put packages in the place of timm and torchvision on sys.path, and take them away again."""
    from stand_in_packages import write_packages

    folder = write_packages(tmp_path / "packages")
    names = ("timm", "torchvision", "torchvision.models", "stand_in_networks")
    for name in names:
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(str(folder))
    yield folder
    for name in names:
        sys.modules.pop(name, None)


@pytest.fixture(scope="session")
def shapes_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train the built-in shapes for some steps: weights with settled statistics, far from random outputs."""
    run = tmp_path_factory.mktemp("handover") / "shapes"
    flags = ["--device", "cpu", "--run", str(run), "--steps", "12", "--set", "data.train_images=512"]
    flags += ["--set", "data.validation_images=64", "--precision", "fp32"]
    done = subprocess.run(
        [sys.executable, "-m", "viaduct", "train", "shapes_taster", *flags], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return run
