"""Report findings in files other than Python: CUDA sources, requirements, conda environments, Dockerfiles.

The files are not changed, and only PyTorch projects are checked. Findings belong to the rules torch.kernels,
torch.packages and, for shell scripts with --mode patch, torch.patch_limits; `--only` and `--skip` apply to them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from fnmatch import fnmatch
from functools import partial
from pathlib import PurePosixPath

from viaduct.cards import CARDS
from viaduct.cards.advice import CONTAINER_IMAGE, CUDA_KERNELS, TORCH_BUILD
from viaduct.cards.environment import describe_own_variable
from viaduct.cards.packages import Package, describe_package, find_package_of_distribution
from viaduct.migration.findings import Finding, Status
from viaduct.migration.options import Options
from viaduct.migration.results import FileResult
from viaduct.migration.rule import Rule, rules_by_name
from viaduct.migration.shell import CUDA_IN_COMMAND
from viaduct.migration.source import lines_of

KERNELS_RULE, PACKAGES_RULE, PATCH_LIMITS_RULE = "torch.kernels", "torch.packages", "torch.patch_limits"
PackageLine = tuple[int, str]  # (line, name of a package on it)
PACKAGE_LINE = re.compile(r"\s*([A-Za-z0-9][\w.-]*)")
YAML_ITEM = re.compile(r"\s*-\s*(?:[\w-]+::)?([A-Za-z0-9][\w.-]*)")
QUOTED_PACKAGE = re.compile(r"[\"']([A-Za-z0-9][\w.-]*)")
TOML_KEY = re.compile(r"\s*[\"']?([A-Za-z0-9][\w.-]*)[\"']?\s*=")
TOML_SECTION = re.compile(r"\s*\[+([^\]]+)\]+\s*$")
CUDA_BUILD = re.compile(r"\+cu\d+|/whl/(?:nightly/)?cu\d+")
FROM_IMAGE = re.compile(r"\s*FROM\s+(?:--\S+\s+)?(\S+)", re.IGNORECASE)
CUDA_IMAGE = re.compile(r"nvidia|nvcr\.io|cuda", re.IGNORECASE)
INSTALL_COMMAND = re.compile(r"\b(?:pip3?|conda|mamba)\s+install\b(.*)")


def find_listed_packages(pattern: re.Pattern[str], lines: list[str]) -> Iterator[PackageLine]:
    """Yield the package that a pattern finds at the beginning of each line."""
    for number, line in enumerate(lines, 1):
        match = pattern.match(line.partition("#")[0])
        if match:
            yield number, match.group(1)


def find_toml_packages(lines: list[str]) -> Iterator[PackageLine]:
    """Yield the dependencies in lists and in tables of pyproject.toml and Pipfile."""
    section, in_list = "", False
    for number, line in enumerate(lines, 1):
        text = line.partition("#")[0]
        header = TOML_SECTION.match(text)
        if header:
            section, in_list = header.group(1), False
            continue
        starts_list = re.match(r"\s*[\w-]*(?:dependencies|requires)\s*=\s*\[", text) is not None
        if in_list or starts_list or "optional-dependencies" in section:
            yield from ((number, name) for name in QUOTED_PACKAGE.findall(text))
        elif ("dependencies" in section or "packages" in section) and (key := TOML_KEY.match(text)):
            yield number, key.group(1)
        # A bracket within quotes, as in "torch[extra]", does not end the list.
        in_list = (in_list or starts_list) and "]" not in text.rpartition('"')[2].rpartition("'")[2]


def find_setup_cfg_packages(lines: list[str]) -> Iterator[PackageLine]:
    """Yield the dependencies of setup.cfg in `…requires` and extras_require."""
    in_requires = False
    for number, line in enumerate(lines, 1):
        header = re.match(r"(\w+)\s*=\s*(.*)", line)
        if header or line.startswith("["):
            in_requires = bool(header and header.group(1).endswith("requires")) or "extras_require" in line
            line = header.group(2) if header else ""
        match = PACKAGE_LINE.match(line.partition("#")[0]) if in_requires else None
        if match:
            yield number, match.group(1)


def find_dockerfile_packages(lines: list[str]) -> Iterator[PackageLine]:
    """Yield the packages that a Dockerfile installs with pip or conda, also on continued lines."""
    is_continued = False
    for number, line in enumerate(lines, 1):
        match = INSTALL_COMMAND.search(line)
        arguments, operator, _ = (match.group(1) if match else line if is_continued else "").partition("&&")
        for part in arguments.split():
            name = PACKAGE_LINE.match(part.strip("\"'"))
            if name:
                yield number, name.group(1)
        is_continued = (match is not None or is_continued) and not operator and line.rstrip().endswith("\\")


PACKAGE_READERS: dict[str, Callable[[list[str]], Iterator[PackageLine]]] = {
    **dict.fromkeys(("*requirements*.txt", "requirements/*.txt"), partial(find_listed_packages, PACKAGE_LINE)),
    **dict.fromkeys(("environment*.y*ml", "conda*.y*ml"), partial(find_listed_packages, YAML_ITEM)),
    "pyproject.toml": find_toml_packages,
    "Pipfile": find_toml_packages,
    "setup.cfg": find_setup_cfg_packages,
    "Dockerfile*": find_dockerfile_packages,
    "*.Dockerfile": find_dockerfile_packages,
}


def find_package_reader(path: str) -> Callable[[list[str]], Iterator[PackageLine]] | None:
    """Return the reader for a file; None if its name is not that of a list of packages."""
    location = PurePosixPath(path)
    names = (location.name, "/".join(location.parts[-2:]))
    return next(
        (read for pattern, read in PACKAGE_READERS.items() if any(fnmatch(name, pattern) for name in names)), None
    )


def find_rule_name(path: str, options: Options) -> str:
    """Return the name of the rule that reports on a file; "" if none does."""
    if path.endswith((".cu", ".cuh")):
        return KERNELS_RULE
    if path.endswith((".sh", ".bash")) and options.mode == "patch":
        return PATCH_LIMITS_RULE  # without the patch shell.py rewrites the script
    return PACKAGES_RULE if find_package_reader(path) else ""


def check(path: str, data: bytes, options: Options) -> FileResult:
    """Return the result of a file for which `find_rule_name` is not "": its findings, if the rule is wanted."""
    rule, lines = rules_by_name()[find_rule_name(path, options)], lines_of(data.decode(errors="replace"))
    findings = find_in_lines(path, lines, rule, options) if rule.is_wanted(options) else ()
    return FileResult(path, data, data, tuple(sorted(findings, key=lambda finding: finding.line)))


def find_in_lines(path: str, lines: list[str], rule: Rule, options: Options) -> Iterator[Finding]:
    """Yield the findings of one file; `rule` is the rule that reports on it."""
    if rule.name == KERNELS_RULE:
        yield make_kernel_finding(path, lines, rule, options)
    elif rule.name == PATCH_LIMITS_RULE:
        yield from check_visible_devices(path, lines, rule, options)
    else:
        listed: dict[Package, dict[int, str]] = {}  # package -> line -> name as written there
        reader = find_package_reader(path)
        for number, name in reader(lines) if reader else ():
            package = find_package_of_distribution(name)
            if package is not None:
                listed.setdefault(package, {}).setdefault(number, name)
        for package, names in listed.items():
            yield make_package_finding(path, lines, package, names, rule, options)
        yield from find_cuda_builds(path, lines, rule, options)


def make_package_finding(
    path: str, lines: list[str], package: Package, names: dict[int, str], rule: Rule, options: Options
) -> Finding:
    """Return one finding for all lines of a file that name a package. `names`: line -> name as written."""
    number, name = next(iter(names.items()))
    english, chinese = describe_package(package, options.to, name)
    other_lines = [str(line) for line in names][1:]
    if other_lines:
        english = f"{english}; also on line{'s' if len(other_lines) > 1 else ''} {', '.join(other_lines)}"
        chinese = f"{chinese};第 {'、'.join(other_lines)} 行同此"
    status: Status = "advice" if package.risk == "low" else "manual"
    location = (path, number, number, 1, rule.name, rule.category, status)
    return Finding(*location, english, chinese, package.risk, lines[number - 1])


def make_kernel_finding(path: str, lines: list[str], rule: Rule, options: Options) -> Finding:
    count = sum(len(re.findall(r"\b__global__\b", line)) for line in lines)
    english, chinese = CUDA_KERNELS[options.to]
    contents = f" with {count} kernel{'' if count == 1 else 's'}" if count else ""
    contents_zh = f"(含 {count} 个核函数)" if count else ""
    messages = f"CUDA source{contents}: {english}", f"CUDA 源码{contents_zh}:{chinese}"
    return Finding(path, 1, 1, 1, rule.name, rule.category, "manual", *messages, "high", "".join(lines[:1]))


def check_visible_devices(path: str, lines: list[str], rule: Rule, options: Options) -> Iterator[Finding]:
    """Yield a finding for each line of a shell script with CUDA_VISIBLE_DEVICES, which --mode patch cannot replace."""
    messages = describe_own_variable(CARDS[options.to])
    for number, line in enumerate(lines, 1):
        if re.search(r"\bCUDA_VISIBLE_DEVICES\b", re.split(r"(?:^|\s)#", line)[0]):
            yield Finding(path, number, number, 1, rule.name, rule.category, "manual", *messages, "medium", line)


def find_cuda_builds(path: str, lines: list[str], rule: Rule, options: Options) -> Iterator[Finding]:
    """Yield a finding for each CUDA build of PyTorch; in a Dockerfile also for CUDA images, commands and variables."""
    is_dockerfile = "ockerfile" in path
    for number, line in enumerate(lines, 1):
        match = FROM_IMAGE.match(line) if is_dockerfile else None
        image = match.group(1) if match else ""
        if CUDA_IMAGE.search(image):
            english, chinese = CONTAINER_IMAGE[options.to]
            messages = f"{image} is made for CUDA: take {english}", f"{image} 面向 CUDA:请使用{chinese}"
        elif CUDA_BUILD.search(line.partition("#")[0]):
            english, chinese = TORCH_BUILD[options.to]
            messages = f"a CUDA build of PyTorch: install {english}", f"CUDA 版 PyTorch:请安装{chinese}"
        elif is_dockerfile and CUDA_IN_COMMAND.search(re.split(r"^\s*#", line)[0]):
            messages = (
                "this line of a Dockerfile names CUDA or NCCL: adapt it to the device",
                "Dockerfile 的此行提到 CUDA 或 NCCL:请按目标设备修改",
            )
        else:
            continue
        yield Finding(path, number, number, 1, rule.name, rule.category, "manual", *messages, "medium", line)
