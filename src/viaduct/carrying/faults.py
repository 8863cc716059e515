"""The reason why a run failed: the script, a missing package or file, a limit of the card or of the run, or viaduct."""

from __future__ import annotations

import importlib.metadata
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import viaduct
from viaduct.carrying.output_folder import REPRODUCER_FILE
from viaduct.carrying.running import TRACEBACK_FRAME, Run
from viaduct.carrying.sides import SIDE_NAMES
from viaduct.extras import is_installed
from viaduct.rehearsal.limits import StandInFails
from viaduct.rehearsal.project import FRAMEWORK_OF_PACKAGE, STAND_IN_PACKAGES, make_install_advice
from viaduct.rehearsal.summary import (
    MISSING_FILE,
    MISSING_PACKAGE,
    UNREPORTED_END_ADVICE,
    describe_end,
    has_empty_input,
)

FaultOwner = Literal["script", "package", "file", "limit", "bound", "viaduct"]  # see sentences.FAULTS
VIADUCT_FOLDER = str(Path(viaduct.__file__).resolve().parent) + "/"
# A message about an operator that the stand-in lacks.
NO_KERNEL = re.compile(
    r"Could not run 'aten::|PrivateUse1|not implemented for .*(?:npu|mlu)|No registered kernel", re.I
)
# An import that fails; `MISSING_PACKAGE`, the case that the package is not installed, is searched first.
FAILED_IMPORT = re.compile(r"^(?:ImportError|ModuleNotFoundError): (.+)")
# Two messages about a name that the installed release of a package lacks.
NO_ATTRIBUTE = re.compile(r"^AttributeError: module '([A-Za-z0-9_.]+)' has no attribute '\w+'")
NO_NAME = re.compile(r"^ImportError: cannot import name '\w+' from '([A-Za-z0-9_.]+)'")
# Message of an error -> package of which the script needs another release. NumPy 1 has no copy=None.
PACKAGE_OF_MESSAGE = {"NoneType copy mode not allowed": "numpy"}
# Bugs of viaduct if the innermost frame is viaduct's; other errors are raised by PyTorch because of the script.
PROGRAMMING_ERRORS = (
    "AttributeError", "TypeError", "KeyError", "IndexError", "NameError", "AssertionError", "NotImplementedError",
)  # fmt: skip
NO_NETWORK = re.compile(
    r"URL fetch failure|URLError|urlopen error|Name or service not known|Temporary failure in name resolution|"
    r"Max retries exceeded|Failed to establish a new connection|couldn't connect to 'https?://",
    re.I,
)
ERROR = re.compile(r"[\w.]+(?:Error|Exception|Interrupt|Exit|Warning)\b")
# TensorFlow writes the node and reason of a failed graph after the traceback of the node's creation.
GRAPH_ERROR = re.compile(r"([\w.]+): Graph execution error:.*?^Node: '([^']*)'\n([^\n]+)", re.DOTALL | re.MULTILINE)
UNREPORTED_END_ADVICE_ZH = "os._exit 或在原进程中启动其他程序时不会留下报告;请用 sys.exit 或执行到最后一行来结束脚本。"
REPORT_ADVICE = (
    "This is {probably}a fault of viaduct, not of the script. Please report it with {file}: it has the command, the "
    "versions, the failing line with the lines around it, and the traceback."
)
REPORT_ADVICE_ZH = (
    "这{probably}是 viaduct 的问题,不是脚本的问题。请附上 {file} 进行反馈,"
    "其中有命令、版本、出错位置附近的代码和调用栈。"
)
MAX_ERROR_LETTERS = 300  # of an error in a message
FATAL_EXIT_CODES = (139, 134, 136, 132)  # of SIGSEGV, SIGABRT, SIGFPE, SIGILL


@dataclass(frozen=True)
class Fault:
    """What is at fault for a failed run, with the reason and advice in two languages."""

    owner: FaultOwner
    text: str
    chinese: str
    advice: str = ""
    chinese_advice: str = ""
    is_certain: bool = True  # False: a native library of the script may be at fault, too


def find_fault(run: Run) -> Fault:
    """Return the fault by the first explanation that fits the run's summary and output; else it is the script's."""
    names = SIDE_NAMES[run.side]
    return next(fault for explain in EXPLANATIONS if (fault := explain(run, *names)) is not None)


# ---- explanations: each returns the fault, or None if it does not fit; `who` names the side, `who_zh` in Chinese


def explain_limit_of_card(run: Run, who: str, who_zh: str) -> Fault | None:
    if not any(hit["mode"] == "error" for hit in run.summary.met_limits):
        return None
    return Fault("limit", f"{who} goes beyond a documented limit of the card", f"{who_zh}超出了加速卡的文档限制")


def explain_unwatched_run(run: Run, who: str, who_zh: str) -> Fault | None:
    """Explain a run that was ended because its time and memory could no longer be watched."""
    return blame_stand_in(run, who, who_zh) if run.summary.stopped_by_limit == "watch" else None


def explain_limit_of_run(run: Run, who: str, who_zh: str) -> Fault | None:
    """Explain a run that was stopped by --timeout or --memory."""
    if not (limit := run.summary.stopped_by_limit):
        return None
    flag = "--timeout" if limit == "time" else "--memory"
    return Fault(
        "bound",
        f"{who} was stopped by the limit of {limit}",
        f"{who_zh}因 {flag} 的限制被停止",
        f"Raise it with {flag}, or give fewer --steps or smaller data.",
        f"用 {flag} 提高限制,或减少 --steps 和数据量。",
    )


def explain_unreported_end(run: Run, who: str, who_zh: str) -> Fault | None:
    if not (end := run.summary.unreported_end):
        return None
    chinese = f"{who_zh}的进程没有留下报告"
    return Fault("script", f"of {who}, {end}", chinese, UNREPORTED_END_ADVICE, UNREPORTED_END_ADVICE_ZH)


def explain_missing_module(run: Run, who: str, who_zh: str) -> Fault | None:
    """Explain a missing module of TensorFlow, Horovod, the stand-in or another package."""
    if not (match := MISSING_PACKAGE.search(run.summary.failure)):
        return None
    name, top = match[1], match[1].partition(".")[0]
    if top == "tensorflow" and is_installed("tensorflow"):
        text = f"TensorFlow 2.15, which is used as TensorFlow 1 here, has no module {name!r}, which {who} imports"
        chinese = f"此处以 TensorFlow 2.15 模拟 TensorFlow 1,它没有{who_zh}导入的模块 {name!r}"
        return blame_viaduct(run, text, chinese)
    if top == "horovod" and run.plan.platform == "npu":
        return Fault(
            "limit",
            f"{who} still imports 'horovod', which an NPU does not have: the manual review is not done",
            f"{who_zh}仍然导入 NPU 上没有的 'horovod':人工检查尚未完成",
            "Change the lines that the page lists for manual review in the migrated copy, and give it with --migrated.",
            "请在迁移后的副本中修改页面列出的需人工检查的行,然后用 --migrated 指定该副本。",
        )
    if top in STAND_IN_PACKAGES:
        text = f"the stand-in has no module {name!r}, which {who} imports"
        return blame_viaduct(run, text, f"替身没有{who_zh}导入的模块 {name!r}")
    install = make_install_advice([top])
    return Fault("package", f"{who} needs the package {top!r}", f"{who_zh}需要软件包 {top!r}", install, install)


def explain_crash(run: Run, who: str, who_zh: str) -> Fault | None:
    """Explain a fatal signal without an error message."""
    if run.summary.script_exit_code not in FATAL_EXIT_CODES or run.summary.failure:
        return None
    text = f"viaduct's stand-in probably crashes under {who}: it {describe_end(run.summary.script_exit_code)}"
    return blame_viaduct(run, text, f"运行{who_zh}时进程崩溃,可能是 viaduct 替身的问题", is_certain=False)


def explain_stand_in(run: Run, who: str, who_zh: str) -> Fault | None:
    """Explain an operator or name of tf.contrib that the stand-in lacks, and errors of the stand-in.

    These are StandInFails, and PROGRAMMING_ERRORS whose innermost frame is viaduct's.
    """
    failure = run.summary.failure
    match = NO_ATTRIBUTE.match(failure) or NO_NAME.match(failure)
    lacks_contrib = match is not None and match[1].startswith("tensorflow.contrib")
    frames = TRACEBACK_FRAME.findall(run.output_of_rank(run.summary.failed_rank))
    is_ours = bool(frames) and frames[-1][0].startswith(VIADUCT_FOLDER) and failure.startswith(PROGRAMMING_ERRORS)
    if not (is_ours or lacks_contrib or NO_KERNEL.search(failure) or StandInFails.__name__ in failure):
        return None
    return blame_stand_in(run, who, who_zh)


def explain_other_release(run: Run, who: str, who_zh: str) -> Fault | None:
    """Explain a package in a release that the script cannot use."""
    if not (package := find_other_release(run)):
        return None
    error, release = shorten_error(run.summary.failure.splitlines()[0]), read_release(package)
    return Fault(
        "package",
        f"{who} needs another release of {package!r} than {release}: {error}",
        f"{who_zh}需要 {package!r} 的其他版本,而不是 {release}:{error}",
        f"Install the release of {package} that the script was written for, or change that line.",
        f"请安装脚本所用的 {package} 版本,或修改该行。",
    )


def explain_failed_import(run: Run, who: str, who_zh: str) -> Fault | None:
    """Explain an import that fails though the package is installed, by the file of the traceback's innermost frame.

    The file belongs to the project, to viaduct or to a package.
    """
    if not FAILED_IMPORT.search(run.summary.failure):
        return None
    error = shorten_error(run.summary.failure)
    traced = TRACEBACK_FRAME.findall(run.output_of_rank(run.summary.failed_rank))
    frames = [file for file, _ in traced if not file.startswith("<")]  # not <frozen importlib>
    if not frames or frames[-1].startswith(f"{run.plan.executed_root}/"):
        return Fault("script", f"{who} cannot import what it needs: {error}", f"{who_zh}无法导入所需内容:{error}")
    if frames[-1].startswith(VIADUCT_FOLDER):
        return blame_stand_in(run, who, who_zh)
    return Fault(
        "package",
        f"{who} imports a package that cannot be loaded: {error}",
        f"{who_zh}导入的软件包无法加载:{error}",
        f"The package is installed, but fails in {frames[-1]}: try another release of it or of its dependencies.",
        f"该软件包已安装,但在 {frames[-1]} 处出错:请换用与其依赖相符的版本。",
    )


def explain_missing_network(run: Run, who: str, who_zh: str) -> Fault | None:
    if not NO_NETWORK.search(run.summary.failure):
        return None
    error = shorten_error(run.summary.failure)
    return Fault(
        "file",
        f"{who} cannot download what it needs: {error}",
        f"{who_zh}无法下载所需文件:{error}",
        "Put the file where the script looks for it, or give --fake-data.",
        "请将文件放到脚本查找的位置,或使用 --fake-data。",
    )


def explain_missing_input(run: Run, who: str, who_zh: str) -> Fault | None:
    """Explain a missing file, or a dataset that is empty before the first step."""
    is_input_empty = has_empty_input(run.summary)
    if not is_input_empty and not MISSING_FILE.search(run.summary.failure):
        return None
    error = shorten_error(run.summary.failure)
    return Fault(
        "file",
        f"{who} {'has no input before its first step' if is_input_empty else 'does not find a file'}: {error}",
        f"{who_zh}{'在第一步之前没有输入数据' if is_input_empty else '找不到文件'}:{error}",
        "Give the script the path of its data after --, or give --fake-data. A relative path is read from the folder "
        "in which the command is given.",
        "请在 -- 之后给出数据路径,或使用 --fake-data;相对路径以执行命令的目录为准。",
    )


def explain_missing_step(run: Run, who: str, who_zh: str) -> Fault | None:
    """Explain a script that ended with exit code 0: the explanations before this one leave only a missing step."""
    if run.summary.script_exit_code:
        return None
    if step_at := run.plan.step_at:
        return Fault(
            "script",
            f"{who} ended with exit code 0 and never executed --step-at {step_at}",
            f"{who_zh}正常结束,但从未执行 --step-at {step_at}",
            "Name a line or a function that each step executes, or give the script after -- the arguments to reach it.",
            "请指出每一步都会执行的行或函数,或在 -- 之后给出能执行到它的参数。",
        )
    return Fault(
        "script",
        f"{who} ended with exit code 0 and took no training step",
        f"{who_zh}正常结束,但没有执行任何训练步",
        "A step is an update by an optimizer, or by hand between a backward pass and the next forward pass of a "
        "module. Give the arguments for training after --, or the line where a step ends with --step-at FILE:LINE.",
        "一步指优化器的一次更新,或在反向传播与下一次前向传播之间手工完成的更新。请在 -- 之后给出训练所需的参数,"
        "或用 --step-at 文件:行号 指出一步在哪里结束。",
    )


def explain_script_error(run: Run, who: str, who_zh: str) -> Fault:
    error, code = shorten_error(run.summary.failure), run.summary.script_exit_code
    reason = error or f"it {describe_end(code)}{quote_last_line(run)}"
    return Fault("script", f"{who} fails: {reason}", f"{who_zh}运行失败:{reason}")


# In this order: an explanation may rely on those before it not to fit.
EXPLANATIONS: tuple[Callable[[Run, str, str], Fault | None], ...] = (
    explain_limit_of_card,
    explain_unwatched_run,
    explain_unreported_end,
    explain_limit_of_run,
    explain_missing_module,
    explain_crash,
    explain_stand_in,
    explain_other_release,
    explain_failed_import,
    explain_missing_network,
    explain_missing_input,
    explain_missing_step,
    explain_script_error,
)


# ---- facts that the explanations need


def find_other_release(run: Run) -> str:
    """Return the installed package of which the script needs another release; "" if the message does not show one.

    The message names a package without a certain attribute, or is one of PACKAGE_OF_MESSAGE. Frameworks, the standard
    library, the stand-in's packages and the project's own modules do not count.
    """
    failure = run.summary.failure
    match = NO_ATTRIBUTE.match(failure) or NO_NAME.match(failure)
    top = match[1].partition(".")[0] if match else ""
    by_message = next((package for message, package in PACKAGE_OF_MESSAGE.items() if message in failure), "")
    if not match or top in FRAMEWORK_OF_PACKAGE or top in STAND_IN_PACKAGES or top in sys.stdlib_module_names:
        return by_message
    tree = Path(run.plan.executed_root)
    is_own = (tree / f"{top}.py").exists() or (tree / top).is_dir()
    return top if read_release(top) and not is_own else by_message


def read_release(package: str) -> str:
    """Return the version of an installed package by its import name; empty if it is not installed."""
    for name in importlib.metadata.packages_distributions().get(package, ()):
        return importlib.metadata.version(name)
    return ""


def blame_viaduct(run: Run, text: str, chinese: str, is_certain: bool = True) -> Fault:
    """Return a fault of viaduct with the advice to report it."""
    path = Path(run.plan.record_folder).parents[1] / REPRODUCER_FILE
    file = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
    advice = REPORT_ADVICE.format(file=file, probably="" if is_certain else "probably ")
    chinese_advice = REPORT_ADVICE_ZH.format(file=file, probably="" if is_certain else "可能")
    return Fault("viaduct", text, chinese, advice, chinese_advice, is_certain)


def blame_stand_in(run: Run, who: str, who_zh: str) -> Fault:
    error = shorten_error(run.summary.failure) or f"it {describe_end(run.summary.script_exit_code)}"
    text, chinese = f"viaduct's stand-in fails under {who}: {error}", f"viaduct 的替身在运行{who_zh}时出错:{error}"
    return blame_viaduct(run, text, chinese)


def quote_last_line(run: Run) -> str:
    """Return the last line of the output, such as argparse's error, in brackets; empty if there is none."""
    lines = [line.strip() for line in run.output_of_rank(run.summary.failed_rank).splitlines() if line.strip()]
    return f" ({shorten_error(lines[-1])})" if lines else ""


def shorten_error(text: str) -> str:
    """Return the line with the error's message, cut to MAX_ERROR_LETTERS."""
    if graph := GRAPH_ERROR.match(text):
        text = f"{graph[1]}: {graph[3]} (node {graph[2]})"
    lines = text.splitlines()
    # Take the first or the last line if it begins with an error's name, else the last one.
    line = next((line for line in (*lines[:1], *lines[-1:]) if ERROR.match(line)), lines[-1] if lines else "")
    line = line.strip().rstrip(".")
    return line if len(line) <= MAX_ERROR_LETTERS else f"{line[:MAX_ERROR_LETTERS]} …"
