"""Every verb, every flag that takes a path, every bad path: two lines and exit code 2, never a traceback.

The flags are found in the verbs' own parameters, so that a new one is tested by itself. All cases of a verb run one
after the other in one process that has given up root's rights over files.
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
import signal
import sys
import time
import traceback
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from cluster.rank_tables import GUIDE_1
from data.record_files import png, write_split
from forked_viaduct import start_command, viaduct
from unprivileged import drop_file_privileges
from viaduct.cli import VERBS, load_verb
from viaduct.profiling.folder import write_profile
from viaduct.profiling.record import Facts, Profile, Step

SECONDS = 60  # for a case: a pipe that is opened and never written to would wait for ever
SCRIPT = """\
import torch
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    optimizer.zero_grad()
    model(torch.ones(3, 4)).sum().backward()
    optimizer.step()
"""


# What is wrong with a path, and the path; all lie in a folder that is made anew for each case.
BAD = {
    "inside a folder that may not be entered": "closed/inner/x",
    "a folder that may not be entered": "closed",
    "a file that may not be read": "secret.txt",
    "inside a folder that may not be written to": "readonly/x",
    "a name of 300 bytes": "n" * 300,
    "a path of 5,000 bytes": "d/" * 2500,
    "a NUL byte": "a\0b",
    "inside a file": "file.txt/x",
    "a file": "file.txt",
    "an empty folder": "empty",
    "a link to itself": "loop",
    "a link to nothing": "dangling",
    "a pipe": "fifo",
    "bytes that are no text": os.fsdecode(b"\xff\xfe/x"),
    "a line break and an escape": "a\nb\x1b[31m/x",
    "missing": "missing/x",
    "a full disk": "/dev/full",
    "nothing": "",
}


def make_bad_path(folder: Path, wrong: str) -> str:
    """A folder with everything that a bad path needs; the path."""
    (folder / "closed" / "inner").mkdir(parents=True)
    (folder / "empty").mkdir()
    (folder / "readonly").mkdir()
    for name in ("file.txt", "secret.txt"):
        (folder / name).write_text("text\n")
    (folder / "loop").symlink_to("loop")
    (folder / "dangling").symlink_to("nowhere")
    os.mkfifo(folder / "fifo")
    for name, mode in (("closed", 0), ("readonly", 0o555), ("secret.txt", 0)):
        (folder / name).chmod(mode)
    return os.path.join(folder, BAD[wrong]) if BAD[wrong] else ""


RECIPE = """\
import numpy as np
from torch import nn
from viaduct.recipes import Arrays, ImageSet, Recipe, Split

def split(count):
    labels = np.arange(count, dtype=np.int64) % 2
    return Split(np.full((count, 8, 8, 3), 60, np.uint8) * labels[:, None, None, None].astype(np.uint8), labels)

def make(path):
    return ImageSet(split(8), split(4), ("dark", "light"))

def network(classes):
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, classes))

recipe = Recipe(model=network, data=Arrays(global_batch=4, size=8, classes=2, make=make), steps=1)
"""
RECORDS = """\
from viaduct.recipes import Records, Recipe
from tiny import network

recipe = Recipe(model=network, data=Records(global_batch=2, size=32, classes=4), steps=1)
"""


def make_kit(folder: Path) -> None:
    """Sound inputs of every kind, so that the bad path is the only mistake."""
    write_split(folder / "records", "train", [4])
    write_split(folder / "records", "validation", [2])
    for number in range(4):
        image = folder / "images" / f"class{number % 2}" / f"{number}.png"
        image.parent.mkdir(parents=True, exist_ok=True)
        image.write_bytes(png(number))
    (folder / "table.json").write_text(GUIDE_1)
    (folder / "bank").mkdir()
    (folder / "script.py").write_text(SCRIPT)
    (folder / "tiny.py").write_text(RECIPE)
    (folder / "records.py").write_text(RECORDS)
    read = ["records.py", "--data", "records", "--run", "read"]
    for words in (["tiny.py", "--dump-steps", "0", "--run", "run"], read):
        made = viaduct("train", *words, "--device", "cpu", cwd=folder)
        assert made.returncode == 0, made.stderr
    steps = [Step(0, number, number + 0.2, number + 0.7, number + 1.0, float(number)) for number in range(4)]
    write_profile(Profile(Facts("script.py", "script"), steps), folder / "prof")
    save_file({"fc.weight": np.zeros((2, 2), np.float32)}, folder / "weights.safetensors")


# What a verb is given beside the path that is tried: its other arguments, by the flag's name or for all of them ("").
# A path in them is relative to the kit.
BESIDE: dict[str, dict[str, list[str]]] = {
    "train": {
        "": ["tiny.py", "--device", "cpu"],
        "recipe": ["--device", "cpu"],
        "data": ["records.py", "--device", "cpu"],
    },
    "evaluate": {"": ["read", "--device", "cpu"], "run": ["--device", "cpu"]},
    "predict": {
        "": ["read", "images", "--device", "cpu"],
        "weights": ["images", "--device", "cpu"],
        "images": ["read"],
    },
    "export": {
        "": ["read", "--to", "safetensors", "--out", "new.safetensors"],
        "weights": ["--to", "safetensors", "--out", "new.safetensors"],
        "out": ["read", "--to", "safetensors"],
        "check_images": ["read", "--to", "safetensors", "--out", "new.safetensors", "--force"],
    },
    "serve": {
        "": ["read", "--device", "cpu", "--port", "0"],
        "weights": ["--device", "cpu", "--port", "0"],
        "access_log": ["read", "--port", "0", "--name", "a/b"],  # refused after the log is opened: no server is left
    },
    "search": {
        "": ["tiny.py", "--space", "optimizer.lr=0.1..1", "--trials", "1", "--device", "cpu"],
        "data": ["records.py", "--space", "optimizer.lr=0.1..1", "--trials", "1", "--device", "cpu"],
    },
    "runs list": {},
    "runs best": {},
    "runs show": {},
    "runs diff": {"a": ["read"], "b": ["read"]},
    "runs lineage": {"": ["read"], "run": []},
    "runs page": {"": ["read"], "dirs": ["--out", "new.html"]},
    "runs watch": {},
    "runs export": {"": ["read"], "dirs": ["--out", "new.csv"]},
    "bench": {"": ["records.py"], "recipe": []},
    "migrate": {"": ["script.py"], "path": []},
    "rehearse": {"": ["script.py"], "script": []},
    "carry": {"": ["script.py"], "source": []},
    "compare": {"": ["run/dump", "run/dump", "--workers", "1"], "left": [], "right": ["run/dump"]},
    "dump": {"": ["script.py"], "script": []},
    "profile run": {
        "": ["script.py", "--steps", "1", "--skip", "0", "--recorded", "0"],
        "target": [],
        "data": ["records.py", "--device", "cpu", "--steps", "1", "--skip", "0", "--recorded", "0"],
    },
    "profile read": {"": ["prof"], "path": []},
    "profile compare": {"": ["prof", "prof"], "before": ["prof"], "after": ["prof"]},
    "tune run": {"": ["tiny.py", "--device", "cpu", "--budget", "1s"], "data": ["records.py", "--budget", "1s"]},
    "tune show": {},
    "tune merge": {"": ["bank", "bank"], "banks": ["bank", "--out", "new_bank"]},
    "data build": {"": ["images"], "source": [], "idx": [], "idx_validation": ["--idx", "i", "l"]},
    "data fetch": {"": ["cifar10", "--from", "nowhere"], "source": ["cifar10"]},
    "data index": {"": ["records"], "records": []},
    "data check": {},
    "data show": {"": ["records"], "records": []},
    "data bench": {"": ["records"], "records": []},
    "weights show": {},
    "weights import": {"": ["tf/model.ckpt-1"], "checkpoint": ["--out", "new.safetensors"]},
    "weights export": {"": ["run"], "weights": ["--out", "new.ckpt"]},
    "ranktable make": {
        "": ["--servers", "10.0.0.1", "--devices", "1", "--device-ips", "auto"],
        "device_ips": ["--servers", "10.0.0.1", "--devices", "1"],
    },
    "ranktable check": {},
    "ranktable show": {},
    "ranktable convert": {"": ["table.json", "--to", "2"], "file": ["--to", "2"]},
    "ranktable env": {"": ["--rank", "0"]},
    "launch start": {"": ["--ranks", "1", "--", "true"]},
    "launch scripts": {"folder": ["--target", "cpu", "--", "true"], "": ["d", "--target", "cpu", "--", "true"]},
    "launch plan": {"": []},
}
# Parameters that are text, but may be a path.
TEXT = {
    "train": ["recipe"],
    "bench": ["recipe"],
    "dump": ["script"],
    "profile run": ["target"],
    "data fetch": ["source"],
    "ranktable make": ["device_ips"],
    "ranktable convert": ["device_ips"],
    "launch plan": ["recipe"],
}


# Where a bad path is none, or what the path holds decides: the exit code, and why.
MADE = dict.fromkeys(("an empty folder", "bytes that are no text", "a line break and an escape", "missing"), 0)
REPLACED = {"a link to itself": 0, "a link to nothing": 0}
OTHERWISE: dict[tuple[str, str], dict[str, int]] = {
    # A folder that is written to is made where it is missing, whatever its name; an empty one is used.
    ("train", "run"): MADE,
    ("search", "study"): {wrong: 0 for wrong in MADE if wrong != "bytes that are no text"},
    ("search", "past"): {"an empty folder": 0},
    ("train", "bank"): {"an empty folder": 0},
    # A bank is made; what is refused then is the second that there is to fill it.
    ("tune run", "bank"): dict.fromkeys(MADE, 2),
    ("tune show", "bank"): {"an empty folder": 0},
    ("tune merge", "banks"): {"an empty folder": 0},
    ("tune merge", "out"): MADE,
    ("migrate", "out"): MADE,
    ("rehearse", "record"): MADE,
    ("carry", "out"): MADE,
    ("compare", "out"): MADE,
    ("dump", "out"): MADE | {"a link to nothing": 0},
    ("profile run", "out"): MADE,
    ("profile read", "out"): MADE,
    ("profile compare", "out"): {wrong: 0 for wrong in MADE if wrong != "an empty folder"},
    ("data build", "out"): MADE,
    ("data index", "dali_folder"): MADE,
    ("launch start", "log_dir"): MADE,
    ("launch scripts", "folder"): MADE,
    # A file that is written replaces a link, not what it leads to.
    ("ranktable make", "out"): REPLACED,
    ("ranktable convert", "out"): REPLACED,
    # A folder without runs is searched for those that a run came from; none is found there.
    ("runs lineage", "within"): {"an empty folder": 0},
    # The exit code is that of the script, which is no Python; and of the check, which finds that it is no table.
    ("dump", "script"): {"a file": 1},
    ("profile run", "target"): {"a file": 1},
    ("ranktable check", "file"): {"a file": 1},
}
SLOW = (
    "rehearse",
    "carry",
    "profile run",
    "search",
    "tune run",
)  # a script is run in a process of its own, which takes seconds


def verb_functions() -> dict[str, Callable[..., Any]]:
    """Every verb, and the verbs of verbs, with the function behind it."""
    found = {}
    for verb in VERBS:
        module = importlib.import_module(f"viaduct.verbs.{verb}")
        if hasattr(module, "app"):
            for inner in module.app.registered_commands:
                found[f"{verb} {inner.name or inner.callback.__name__}"] = inner.callback
        else:
            found[verb] = module.main
    return found


def path_parameters(verb: str) -> list[Any]:
    """The parameters of a verb that take a path, as typer knows them."""
    function = verb_functions()[verb]
    hints = typing.get_type_hints(function)
    names = {name for name in inspect.signature(function).parameters if "Path" in str(hints[name])}
    command = load_verb(verb.split()[0])
    for argument in verb.split()[1:]:
        command = command.commands[argument]
    return [parameter for parameter in command.params if parameter.name in names | set(TEXT.get(verb, ()))]


def words_with(verb: str, parameter: Any, path: str, kit: Path) -> list[str]:
    """The command line with this path."""
    beside = BESIDE[verb]
    others = beside.get(parameter.name, beside.get("", []))
    inputs = {entry.name for entry in kit.iterdir()}
    sound = [str(kit / argument) if argument.split("/")[0] in inputs else argument for argument in others]
    given = [path] * max(1, getattr(parameter, "nargs", 1))
    if parameter.param_type_name == "option":
        given = [parameter.opts[0], *given]
        return [*verb.split(), *given, *sound]
    before = [sound.pop(0)] if parameter.name in ("right", "images", "after", "b") else []
    return [*verb.split(), *before, *given, *(["run/dump"] if parameter.name == "left" else []), *sound]


class TimeUp(BaseException):
    """A case has taken too long."""


def run_cases(verb: str, cases: list[tuple[str, str]], kit: Path, work: Path) -> None:
    """Call `viaduct` with each bad path in each parameter, in this process; write down exit codes and messages."""
    from viaduct import cli

    drop_file_privileges()
    parameters = {parameter.name: parameter for parameter in path_parameters(verb)}
    answers = (work / "answers.jsonl").open("w")

    def raise_time_up(number: int, frame: Any) -> None:
        raise TimeUp

    for number, (name, wrong) in enumerate(cases):
        folder = work / str(number)
        path = make_bad_path(folder / "bad", wrong)
        os.chdir(folder)
        outputs = [(folder / name).open("w+") for name in (".out", ".err")]
        for stream, file in zip((1, 2), outputs, strict=True):
            os.dup2(file.fileno(), stream)
        sys.argv = ["viaduct", *words_with(verb, parameters[name], path, kit)]
        code: object = None
        began = time.monotonic()
        signal.signal(signal.SIGALRM, raise_time_up)
        signal.alarm(SECONDS)
        try:
            cli.main()
        except SystemExit as error:
            code = error.code
        except TimeUp:
            code = "too long"
        except BaseException:
            code = "traceback"
            traceback.print_exc()
        signal.alarm(0)
        sys.stdout.flush()
        sys.stderr.flush()
        (folder / "bad" / "closed").chmod(0o700)  # so that it can be removed
        texts = [Path(file.name).read_bytes().decode(errors="replace") for file in outputs]
        print(json.dumps([code, *texts, time.monotonic() - began]), file=answers, flush=True)


@pytest.fixture(scope="module")
def kit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kit")
    make_kit(folder)
    return folder


def check_cases(verb: str, cases: list[tuple[str, str]], kit: Path, folder: Path) -> None:
    with start_command(run_cases, verb, cases, kit, folder) as child:
        child.communicate(SECONDS * len(cases))
    answers = [json.loads(line) for line in (folder / "answers.jsonl").read_text().splitlines()]
    failures = []
    for (name, wrong), (code, out, stderr, _) in zip(cases, answers, strict=True):
        expected = OTHERWISE.get((verb, name), {}).get(wrong, 2)
        output = f"viaduct {verb}: " in stderr and len(stderr) < 3000 and "\x1b" not in stderr
        broken = code == 2 and (not output or "Traceback" in stderr + out)
        if code != expected or broken:
            failures.append(f"{name}: {wrong}: exit code {code}, expected {expected}\n{out[-500:]}{stderr[-1500:]}")
    assert not failures, "\n".join(failures)


def all_cases(verb: str) -> list[tuple[str, str]]:
    return [(parameter.name, wrong) for parameter in path_parameters(verb) for wrong in BAD]


@pytest.mark.parametrize("verb", [verb for verb in BESIDE if verb not in SLOW])
def test_a_bad_path_is_two_lines_and_no_traceback(verb: str, kit: Path, tmp_path: Path) -> None:
    check_cases(verb, all_cases(verb), kit, tmp_path)


@pytest.mark.parametrize("verb", SLOW)
def test_a_bad_path_is_refused_before_a_script_is_run(verb: str, kit: Path, tmp_path: Path) -> None:
    refused = [case for case in all_cases(verb) if case[1] not in OTHERWISE.get((verb, case[0]), {})]
    check_cases(verb, refused, kit, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("verb", SLOW)
def test_a_folder_of_any_name_holds_what_a_script_left(verb: str, kit: Path, tmp_path: Path) -> None:
    fine = [case for case in all_cases(verb) if case[1] in OTHERWISE.get((verb, case[0]), {})]
    check_cases(verb, fine, kit, tmp_path)


def test_every_verb_that_takes_a_path_is_tried() -> None:
    assert {verb for verb in verb_functions() if path_parameters(verb)} == set(BESIDE)
