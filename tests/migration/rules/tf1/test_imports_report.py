"""Packages that have no equivalent."""

from __future__ import annotations

import pytest

from migration.checking import check_noop, check_says


@pytest.mark.parametrize(
    "source",
    [
        "import cupy_helpers\nfrom .cupy import x\nfrom . import pynvml\n",
        "import mine.cupy\nfrom mine import mpi4py\n",
        "from nvidia import other\nimport tensorflow.contrib.slim as slim\n",
        "cupy = 'cupy'\n",
    ],
)
def test_other_packages_are_left_alone(source: str) -> None:
    check_noop("imports_report", source)


@pytest.mark.parametrize(
    "source",
    [
        "import cupy as cp\n",
        "from cupy.cuda import Device\n",
        "import cupyx.scipy\n",
        "try:\n    import pynvml\nexcept ImportError:\n    pynvml = None\n",
        "from nvidia import dali\n",
        "import nvidia.dali.plugin.tf as dali_tf\n",
        "from tensorflow.python.compiler.tensorrt import trt_convert as trt\n",
        "import tensorflow.contrib.tensorrt as trt\n",
        "def f():\n    from mpi4py import MPI\n",
        "import tensorrt as trt\n",
        "import pycuda.autoinit\n",
    ],
)
def test_packages_without_an_equivalent_are_reported_once(source: str) -> None:
    assert len(check_says("imports_report", source, "manual", "no equivalent").findings) == 1


def test_mpi_may_stay_with_horovod_on_an_mlu() -> None:
    check_noop("imports_report", "from mpi4py import MPI\n", to="mlu")
    check_says("imports_report", "import cupy\n", "manual", "cupy", to="mlu")
