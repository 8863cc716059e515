"""Options of profiling a run: `--profile 100-120`, and CANN's PROFILING_MODE and PROFILING_OPTIONS.

    options = read_environment(os.environ)            None: PROFILING_MODE is not true
    window = parse_window("100-120")                  Window(100, 120)

PROFILING_OPTIONS is JSON with the keys that Ascend documents for training. USED_KEYS have an effect here; UNUSED_KEYS
are for CANN's own profiler and give a note. Any other key is refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from viaduct.cards import NPU
from viaduct.errors import BadValue, find_closest

MODE_VARIABLE, OPTIONS_VARIABLE = "PROFILING_MODE", "PROFILING_OPTIONS"
COLLECTIVES_KEY = NPU.backend  # "hccl", which switches collectives on or off
USED_KEYS = ("output", "training_trace", "task_trace", COLLECTIVES_KEY, "fp_point", "bp_point", "storage_limit")
UNUSED_KEYS = (
    "aicpu", "aic_metrics", "aiv_metrics", "l2", "runtime_api", "ge_api", "msproftx", "task_time", "host_sys",
    "host_sys_usage", "host_sys_pid", "llc_profiling", "instr_profiling_freq", "dvpp_freq", "sys_hardware_mem_freq",
    "sys_io_sampling_freq", "sys_interconnection_freq",
)  # fmt: skip
AIC_METRICS = (  # values of aic_metrics
    "PipeUtilization", "ArithmeticUtilization", "Memory", "MemoryL0", "MemoryUB", "ResourceConflictRatio",
    "L2Cache",
)  # fmt: skip
# Keys whose value is "on" or "off".
SWITCHES = ("training_trace", "task_trace", COLLECTIVES_KEY, "aicpu")
MIN_LIMIT_MB = 200  # as in CANN
DEFAULT_SKIP, DEFAULT_STEPS = 10, 20  # steps that PROFILING_MODE skips, and steps that it then profiles
MAX_RECORDED = 5  # largest number of recorded steps of a window
TYPOGRAPHIC_QUOTES = "“”„‟″«»"
EXAMPLE = '{"output": "/tmp/profiling", "training_trace": "on", "task_trace": "on", "fp_point": "", "bp_point": ""}'


@dataclass(frozen=True)
class ProfilingOptions:
    """Parsed PROFILING_OPTIONS."""

    output: Path | None = None  # None: RUN/profile
    operators: bool = True  # record operators and kernels (task_trace)
    collectives: bool = True  # keep the collectives (hccl)
    fp_point: str = ""  # module whose call is the forward start; empty: the forward start is found automatically
    bp_point: str = ""  # module whose gradients are the backward end; empty: the backward end is found automatically
    storage_limit: int | None = None  # largest size of trace.json in bytes
    notes: tuple[str, ...] = ()  # about options that have no effect


@dataclass(frozen=True)
class Window:
    """Range of steps of a run, counted from 0; both ends are included."""

    first: int
    last: int

    def __len__(self) -> int:
        return self.last - self.first + 1

    def __str__(self) -> str:
        return f"{self.first}-{self.last}" if self.last > self.first else str(self.first)

    def count_recorded(self) -> int:
        """Return the number of recorded steps: the last quarter, at most five; of fewer than four steps all but one."""
        return min(MAX_RECORDED, len(self) // 4) if len(self) >= 4 else len(self) - 1


def parse_window(text: str) -> Window:
    """Return the steps of --profile; raise BadValue if the text is neither a step nor a range of steps."""
    match = re.fullmatch(r"\s*(\d{1,12})\s*(?:-\s*(\d{1,12})\s*)?", text, re.ASCII)
    if match is None:
        several = "," in text or "|" in text
        hint = "One range at a time: --profile 100-120" if several else "Write steps from 0: --profile 100-120"
        raise BadValue(f"--profile is {text!r}, which is not a range of steps.", hint)
    first, last = int(match[1]), int(match[2] or match[1])
    if last < first:
        raise BadValue(f"--profile is {text!r}: the range ends before it begins.", f"Write --profile {last}-{first}")
    return Window(first, last)


def choose_default_window(start: int, steps: int) -> Window:
    """Return the window of PROFILING_MODE in a run that takes the steps from `start` to `steps` - 1.

    It has 20 steps after the first 10; in a shorter run, the last 20 steps or all of them.
    """
    first = max(start, min(start + DEFAULT_SKIP, steps - DEFAULT_STEPS))
    return Window(first, min(first + DEFAULT_STEPS, steps) - 1)


def read_environment(variables: Mapping[str, str]) -> ProfilingOptions | None:
    """Return the options in PROFILING_OPTIONS; None unless PROFILING_MODE is true."""
    mode = variables.get(MODE_VARIABLE, "").strip().lower()
    if mode in ("", "false"):
        return None
    if mode != "true":
        raise BadValue(
            f"{MODE_VARIABLE} is {variables[MODE_VARIABLE]!r}; it is true or false.",
            f"Unset it, or {MODE_VARIABLE}=true.",
        )
    return parse_options(variables.get(OPTIONS_VARIABLE, ""))


def parse_options(text: str) -> ProfilingOptions:
    """Parse PROFILING_OPTIONS; if empty, everything is recorded, into RUN/profile."""
    values = parse_json(text) if text.strip() else {}
    for key in values:
        check_key(key)
    for key in SWITCHES:
        if (value := values.get(key, "on")) not in ("on", "off"):
            raise BadValue(f'{OPTIONS_VARIABLE}: {key} is {json.dumps(value)}; it is "on" or "off".')
    check_metrics(values.get("aic_metrics", AIC_METRICS[0]))
    texts = {key: check_text(key, values.get(key, "")) for key in ("output", "fp_point", "bp_point")}
    has_step_trace, operators = (values.get(key, "on") == "on" for key in ("training_trace", "task_trace"))
    if not has_step_trace and not operators:
        raise BadValue(
            f"{OPTIONS_VARIABLE}: training_trace and task_trace are off: nothing is left to profile.",
            f"To profile nothing, leave {MODE_VARIABLE} unset.",
        )
    return ProfilingOptions(
        output=Path(texts["output"]) if texts["output"] else None,
        operators=operators,
        collectives=values.get(COLLECTIVES_KEY, "on") == "on",
        fp_point=texts["fp_point"],
        bp_point=texts["bp_point"],
        storage_limit=parse_limit(values["storage_limit"]) if "storage_limit" in values else None,
        notes=tuple(describe_unused(values, has_step_trace)),
    )


def parse_json(text: str) -> dict[str, Any]:
    """Return the object in PROFILING_OPTIONS; raise BadValue with the position of an error in the JSON."""
    try:
        pairs = json.loads(text, object_pairs_hook=refuse_repeated)
    except json.JSONDecodeError as error:
        near = text[max(0, error.pos - 10) : error.pos + 20]
        raise BadValue(
            f"{OPTIONS_VARIABLE} is not JSON: {error.msg} at character {error.pos + 1}, in {near!r}.",
            *list_hints(text, error),
        ) from None
    if not isinstance(pairs, dict):
        raise BadValue(f"{OPTIONS_VARIABLE} is {text[:60]!r}, not a JSON object.", f"For example {EXAMPLE}")
    return pairs


def refuse_repeated(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key, value in pairs:
        if key in values:
            raise BadValue(f"{OPTIONS_VARIABLE} has {key!r} twice.", "Keep one of them.")
        values[key] = value
    return values


def list_hints(text: str, error: json.JSONDecodeError) -> list[str]:
    """Return hints about common mistakes in text copied from a document."""
    hints = [f"For example {OPTIONS_VARIABLE}='{EXAMPLE}'"]
    if any(quote in text for quote in TYPOGRAPHIC_QUOTES):
        hints.insert(0, 'It has typographic quotes: replace them by plain ones, ".')
    elif text[error.pos : error.pos + 1] in ("\n", "\r", "\t"):
        hints.insert(0, "There is a line break or a tab inside a string: remove it.")
    elif "'" in text:
        hints.insert(0, 'JSON has double quotes around keys and values: "output"; put single quotes around the JSON.')
    return hints


def check_key(key: str) -> None:
    all_keys = (*USED_KEYS, *UNUSED_KEYS)
    if key in all_keys:
        return
    without_spaces = re.sub(r"\s+", "", key)
    if without_spaces in all_keys:
        raise BadValue(f"{OPTIONS_VARIABLE}: the key {key!r} contains spaces.", f"Write it as {without_spaces!r}.")
    hint = suggest_closest(without_spaces, all_keys) or f"Keys that have an effect: {', '.join(USED_KEYS)}."
    raise BadValue(f"{OPTIONS_VARIABLE}: no key is called {key!r}.", hint)


def check_metrics(value: Any) -> None:
    if value not in AIC_METRICS:
        hint = suggest_closest(str(value), AIC_METRICS) or f"Known are: {', '.join(AIC_METRICS)}."
        raise BadValue(f"{OPTIONS_VARIABLE}: aic_metrics is {json.dumps(value)}, which is not known.", hint)


def suggest_closest(name: str, known: tuple[str, ...]) -> str:
    closest = find_closest(name, known)
    return f"Closest is {closest!r}." if closest else ""


def check_text(key: str, value: Any) -> str:
    if not isinstance(value, str) or "\0" in value:
        raise BadValue(f"{OPTIONS_VARIABLE}: {key} is {json.dumps(value)}; it must be a text.")
    if key == "output" and value and Path(value).exists() and not Path(value).is_dir():
        raise BadValue(f"{OPTIONS_VARIABLE}: output is {value!r}, which is a file.", "Name a folder.")
    return value


def parse_limit(value: Any) -> int:
    """Return the bytes of a limit in CANN's notation, such as "200MB"."""
    match = re.fullmatch(r"(\d{1,12})MB", value, re.ASCII) if isinstance(value, str) else None
    if match is None or int(match[1]) < MIN_LIMIT_MB:
        raise BadValue(
            f"{OPTIONS_VARIABLE}: storage_limit is {json.dumps(value)}; it must be at least {MIN_LIMIT_MB}MB.",
            'For example "storage_limit": "500MB"',
        )
    return int(match[1]) * 1_000_000


def describe_unused(values: Mapping[str, Any], has_step_trace: bool) -> list[str]:
    """Return notes about keys in UNUSED_KEYS, and about a training_trace that is switched off."""
    unused = [key for key in values if key in UNUSED_KEYS and values[key] != "off"]
    notes = []
    if unused:
        verb = "has" if len(unused) == 1 else "have"
        keys = ", ".join(unused)
        notes.append(f"{OPTIONS_VARIABLE}: {keys} {verb} no effect here, only in CANN's own profiler of an NPU.")
    if not has_step_trace:
        notes.append(
            f"{OPTIONS_VARIABLE}: training_trace is off; the step trace is recorded anyway, because operators need it."
        )
    return notes
