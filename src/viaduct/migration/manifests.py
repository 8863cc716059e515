"""Files of a project that are not Python: CUDA sources, lists of requirements, conda environments, Dockerfiles.

They are reported, not changed, and only in a project that uses PyTorch. Findings are those of the rules torch.kernels,
torch.packages and, for shell scripts with --mode patch, torch.patch_limits, so `--only` and `--skip` apply to them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from fnmatch import fnmatch
from functools import partial
from pathlib import PurePosixPath

from viaduct.cards import CARDS
from viaduct.cards.advice import CONTAINER_IMAGE, CUDA_KERNELS, TORCH_BUILD
from viaduct.cards.packages import describe_package, find_installed
from viaduct.migration.findings import Finding, Status
from viaduct.migration.options import Options
from viaduct.migration.rule import Rule, all_rules
from viaduct.migration.source import lines_of
from viaduct.migration.walk import Walk

MAX_BYTES = 1_000_000
"""A larger file is not looked into."""
KERNELS, PACKAGES, LIMITS = "torch.kernels", "torch.packages", "torch.patch_limits"
Line = tuple[int, str]  # its number, and the name of a package on it
NAME = re.compile(r"\s*([A-Za-z0-9][\w.-]*)")
ITEM = re.compile(r"\s*-\s*(?:[\w-]+::)?([A-Za-z0-9][\w.-]*)")
QUOTED = re.compile(r"[\"']([A-Za-z0-9][\w.-]*)")
KEY = re.compile(r"\s*[\"']?([A-Za-z0-9][\w.-]*)[\"']?\s*=")
SECTION = re.compile(r"\s*\[+([^\]]+)\]+\s*$")
CUDA_BUILD = re.compile(r"\+cu\d+|/whl/(?:nightly/)?cu\d+")
IMAGE = re.compile(r"\s*FROM\s+(?:--\S+\s+)?(\S+)", re.IGNORECASE)
CUDA_IMAGE = re.compile(r"nvidia|nvcr\.io|cuda", re.IGNORECASE)
PIP = re.compile(r"\b(?:pip3?|conda|mamba)\s+install\b(.*)")


def listed_names(pattern: re.Pattern[str], lines: list[str]) -> Iterator[Line]:
    """Yield what a pattern finds at the beginning of lines, with their numbers."""
    for number, line in enumerate(lines, 1):
        match = pattern.match(line.partition("#")[0])
        if match:
            yield number, match.group(1)


def project_names(lines: list[str]) -> Iterator[Line]:
    """Yield the dependencies that pyproject.toml and Pipfile list or have tables of, with their lines."""
    section, within = "", False
    for number, line in enumerate(lines, 1):
        text = line.partition("#")[0]
        header = SECTION.match(text)
        if header:
            section, within = header.group(1), False
            continue
        begins = re.match(r"\s*[\w-]*(?:dependencies|requires)\s*=\s*\[", text) is not None
        listed = within or begins or ("optional-dependencies" in section)
        if listed:
            yield from ((number, name) for name in QUOTED.findall(text))
        elif any(item in section for item in ("dependencies", "packages")):
            yield from ((number, match.group(1)) for match in [KEY.match(text)] if match)
        within = (within or begins) and "]" not in text.rpartition('"')[2].rpartition("'")[2]


def config_names(lines: list[str]) -> Iterator[Line]:
    """Yield the dependencies of setup.cfg: the indented lines below install_requires and its like."""
    within = False
    for number, line in enumerate(lines, 1):
        head = re.match(r"(\w+)\s*=\s*(.*)", line)
        if head or line.startswith("["):
            within = bool(head and head.group(1).endswith("requires")) or "extras_require" in line
            line = head.group(2) if head else ""
        match = NAME.match(line.partition("#")[0]) if within else None
        if match:
            yield number, match.group(1)


def image_names(lines: list[str]) -> Iterator[Line]:
    """Yield what a Dockerfile installs."""
    for number, line in enumerate(lines, 1):
        match = PIP.search(line)
        for part in match.group(1).split() if match else []:
            name = NAME.match(part.strip("\"'"))
            if name:
                yield number, name.group(1)


READERS: dict[str, Callable[[list[str]], Iterator[Line]]] = {
    **dict.fromkeys(("*requirements*.txt", "requirements/*.txt"), partial(listed_names, NAME)),
    **dict.fromkeys(("environment*.y*ml", "conda*.y*ml"), partial(listed_names, ITEM)),
    "pyproject.toml": project_names,
    "Pipfile": project_names,
    "setup.cfg": config_names,
    "Dockerfile*": image_names,
    "*.Dockerfile": image_names,
}


def reader_for(path: str) -> Callable[[list[str]], Iterator[Line]] | None:
    """Return the reader of a file by its name."""
    location = PurePosixPath(path)
    names = (location.name, "/".join(location.parts[-2:]))
    return next((read for pattern, read in READERS.items() if any(fnmatch(name, pattern) for name in names)), None)


def rule_for(path: str) -> str:
    """Return the name of the rule that reports on a file; empty if none does."""
    if path.endswith((".cu", ".cuh")):
        return KERNELS
    if path.endswith((".sh", ".bash")):
        return LIMITS  # runs with --mode patch only; else shell.py rewrites the script
    return PACKAGES if reader_for(path) else ""


def check_manifests(found: Walk, options: Options) -> Iterator[tuple[str, str, tuple[Finding, ...]]]:
    """Yield path, text and findings of each file with findings."""
    rules = {rule.name: rule for rule in all_rules() if rule.is_wanted(options)}
    for path in list(found.others):
        rule = rules.get(rule_for(path))
        if rule is None:
            continue
        text = (found.read(path, MAX_BYTES) or b"").decode(errors="replace").replace("\r\n", "\n").replace("\r", "\n")
        findings = sorted(find_all(path, text, rule, options), key=lambda finding: finding.line) if text else ()
        if findings:
            yield path, text, tuple(findings)


def find_all(path: str, text: str, rule: Rule, options: Options) -> Iterator[Finding]:
    """Yield the findings of one file."""
    lines = lines_of(text)
    if rule.name == KERNELS:
        yield kernel_finding(path, text, rule, options)
    elif rule.name == LIMITS:
        yield from find_variables(path, lines, rule, options)
    else:
        listed: dict[str, dict[int, str]] = {}  # package -> line -> its name there
        reader = reader_for(path)
        for number, name in reader(lines) if reader else ():
            package = find_installed(name)
            if package is not None:
                listed.setdefault(package.name, {}).setdefault(number, name)
        yield from (package_finding(path, lines, names, rule, options) for names in listed.values())
        yield from find_cuda_builds(path, lines, rule, options)


def package_finding(path: str, lines: list[str], names: dict[int, str], rule: Rule, options: Options) -> Finding:
    """Return one finding for all lines of a file that name a package: a lock file lists a dozen of CUDA's.

    `names`: line -> the name of the package there.
    """
    number, name = next(iter(names.items()))
    package = find_installed(name)
    assert package is not None
    english, chinese = describe_package(package, options.to, name)
    others = [str(other) for other in names][1:]
    if others:
        english = f"{english}; so are line{'s' if len(others) > 1 else ''} {', '.join(others)}"
        chinese = f"{chinese};第 {'、'.join(others)} 行同此"
    status: Status = "advice" if package.risk == "low" else "manual"
    location = (path, number, number, 1, rule.name, rule.kind, status)
    return Finding(*location, english, chinese, package.risk, lines[number - 1])


def kernel_finding(path: str, text: str, rule: Rule, options: Options) -> Finding:
    """Return the finding of a file with CUDA kernels."""
    count = len(re.findall(r"\b__global__\b", text))
    english, chinese = CUDA_KERNELS[options.to]
    contents = f" with {count} kernel{'' if count == 1 else 's'}" if count else ""
    contents_zh = f"(含 {count} 个核函数)" if count else ""
    messages = f"CUDA source{contents}: {english}", f"CUDA 源码{contents_zh}:{chinese}"
    return Finding(path, 1, 1, 1, rule.name, rule.kind, "manual", *messages, "high", lines_of(text)[0])


def find_variables(path: str, lines: list[str], rule: Rule, options: Options) -> Iterator[Finding]:
    """Yield the lines of a shell script that use CUDA_VISIBLE_DEVICES: the run-time patch does not replace it there."""
    visible = CARDS[options.to].visible
    messages = (
        f"the accelerator does not read CUDA_VISIBLE_DEVICES: set {visible}",
        f"加速卡不读取 CUDA_VISIBLE_DEVICES:请设置 {visible}",
    )
    for number, line in enumerate(lines, 1):
        if re.search(r"\bCUDA_VISIBLE_DEVICES\b", re.split(r"(?:^|\s)#", line)[0]):
            yield Finding(path, number, number, 1, rule.name, rule.kind, "manual", *messages, "medium", line)


def find_cuda_builds(path: str, lines: list[str], rule: Rule, options: Options) -> Iterator[Finding]:
    """Yield the lines with a CUDA build of PyTorch, by its version or index, and Dockerfiles' images made for CUDA."""
    for number, line in enumerate(lines, 1):
        match = IMAGE.match(line) if "ockerfile" in path else None
        image = match.group(1) if match else ""
        if CUDA_IMAGE.search(image):
            english, chinese = CONTAINER_IMAGE[options.to]
            messages = f"{image} is made for CUDA: take {english}", f"{image} 面向 CUDA:请使用{chinese}"
        elif CUDA_BUILD.search(line.partition("#")[0]):
            english, chinese = TORCH_BUILD[options.to]
            messages = f"a CUDA build of PyTorch: install {english}", f"CUDA 版 PyTorch:请安装{chinese}"
        else:
            continue
        yield Finding(path, number, number, 1, rule.name, rule.kind, "manual", *messages, "medium", line)
