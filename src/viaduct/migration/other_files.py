"""Migrate or check the files of a project that are neither Python nor notebooks.

In a PyTorch project shell scripts, settings files, lists of packages, Dockerfiles and CUDA sources have readers
(shell.py, settings.py, manifests.py). In every other text file, such as a Makefile, the first line that names CUDA,
NCCL or a tool for NVIDIA cards is reported, so that the migration is not complete; also in what a reader does not know.
Prose, data and binary files are left out, and files above MAX_BYTES except shell scripts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from viaduct.migration import manifests, settings, shell
from viaduct.migration.findings import Finding
from viaduct.migration.options import Options
from viaduct.migration.project import Project
from viaduct.migration.results import FileResult
from viaduct.migration.source import lines_of
from viaduct.migration.walk import Walk

MAX_BYTES = 1_000_000
"""A larger file is not searched, unless it is named like a shell script."""
RULE = "engine.gpu_mention"
PROSE_SUFFIXES = (
    ".md", ".markdown", ".rst", ".adoc", ".org", ".tex", ".bib", ".html", ".htm", ".css", ".svg", ".srt", ".cff",
    ".diff", ".patch", ".license",
)  # fmt: skip
DATA_SUFFIXES = (
    ".csv", ".tsv", ".jsonl", ".ndjson", ".log", ".out", ".err", ".lock", "package-lock.json",
    ".jpg", ".jpeg", ".png", ".gif", ".bmp", ".webp", ".tif", ".tiff", ".ppm", ".pgm", ".ico", ".pdf",
    ".mp3", ".mp4", ".wav", ".flac", ".avi", ".mov", ".npy", ".npz", ".pt", ".pth", ".ckpt", ".bin", ".pkl", ".pickle",
    ".h5", ".hdf5", ".mat", ".onnx", ".pb", ".safetensors", ".tfrecord", ".tfrecords", ".parquet", ".arrow", ".lmdb",
    ".zip", ".gz", ".bz2", ".xz", ".zst", ".tar", ".tgz", ".7z", ".whl", ".so", ".o", ".a", ".exe", ".dll", ".pyc",
)  # fmt: skip
PROSE_NAME = re.compile(
    r"(?:readme|licen[cs]e|copying|copyright|notice|change(?:s|log)|history|news|authors|contribut|todo)[\w-]*(?:\.txt)?"
    r"|\.\w*ignore",
    re.IGNORECASE,
)
# A comment of one line. `#include`, `#SBATCH` and the like have no blank behind the sign.
COMMENT = re.compile(r"(?:^|\s)(?:#|//)(?:\s.*|$)")
# Texts that always mean an NVIDIA card: CUDA_HOME, nvidia-smi, cuda:0, torch.cuda, `runtime: nvidia`, /gpu:0.
CARD_TEXT = re.compile(
    r"CUDA_[A-Z]|NCCL_[A-Z]|NVIDIA_[A-Z]|nvidia-(?:smi|docker)|nvcr\.io/|nvidia\.com/gpu|\bnvcc\b|\bcuda:\d|torch\.cuda"
    r"|\.cuda\(|\b(?:runtime|driver)[\"']?\s*[:=]\s*[\"']?nvidia\b|/(?:device:)?(?:gpu|GPU):\d"
)
# In a PyTorch project also CUDA and NCCL alone or as a part of a name: `--use_cuda`, `find_package(CUDA)`.
CUDA_NAME = re.compile(rf"{CARD_TEXT.pattern}|(?<![a-z])cuda|C(?:UDA|uda)|cudnn|CUDNN|nccl|NCCL")


def migrate_all(walk: Walk, options: Options, project: Project) -> Iterator[FileResult]:
    """Yield the files with changes or findings."""
    if project.torch_files:
        shell.record_options(project)
    for path in list(walk.other_files):
        if not is_prose_or_data(path):
            data = walk.read(path, None if path.endswith(shell.SUFFIXES) else MAX_BYTES)
            file = migrate_file(path, data, options, project) if data else FileResult(path)
            if file.changed or file.findings:
                yield file


def is_prose_or_data(path: str) -> bool:
    """Return True for the names of documentation, of data and of binary files."""
    name = path.rpartition("/")[2]
    return name.lower().endswith((*PROSE_SUFFIXES, *DATA_SUFFIXES)) or PROSE_NAME.fullmatch(name) is not None


def migrate_file(path: str, data: bytes, options: Options, project: Project) -> FileResult:
    """Migrate or check one file with its reader, then report what the reader does not know."""
    if project.torch_files and manifests.find_rule_name(path, options):
        return report_other_mention(manifests.check(path, data, options), options)
    if options.mode == "patch":  # the vendor's patch replaces device strings while a script runs
        return FileResult(path)
    if project.torch_files and shell.is_shell_script(path, data):
        return shell.migrate(path, data, options, project)
    if project.torch_files and path.endswith(settings.SUFFIXES):
        return report_other_mention(settings.migrate(path, data, options), options)
    return report_mention(FileResult(path, data, data), CUDA_NAME if project.torch_files else CARD_TEXT, options)


def report_other_mention(file: FileResult, options: Options) -> FileResult:
    """Report what the file's reader does not know; nothing with --skip: the line may be that of a skipped rule."""
    return file if options.skip else report_mention(file, CARD_TEXT, options)


def report_mention(file: FileResult, names: re.Pattern[str], options: Options) -> FileResult:
    """Return the file with a finding for its first line that contains one of `names` and has no finding yet."""
    if options.only or options.mode == "patch" or b"\0" in file.after:
        return file
    known_lines = {finding.line for finding in file.findings}
    for number, line in enumerate(lines_of(file.after.decode(errors="replace")), 1):
        if number not in known_lines and names.search(COMMENT.sub("", line)):
            finding = Finding(
                *(file.path, number, number, 1, RULE, "report", "manual"),
                "this line names CUDA, NCCL or a tool for NVIDIA cards, and viaduct does not migrate it: adapt it, and "
                "look for more in the file",
                "此行提到 CUDA、NCCL 或 NVIDIA 的工具,viaduct 不会迁移:请手工修改,并检查该文件的其余部分",
                before=line,
            )
            return file.add_findings([finding])
    return file
