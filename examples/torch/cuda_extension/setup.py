"""Builds the extension: python setup.py build_ext --inplace. Needs nvcc; train.py does without it."""

from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CUDAExtension

setup(
    name="scaled_swish",
    ext_modules=[
        CUDAExtension(
            "scaled_swish",
            ["extension.cpp", "kernel.cu"],
            extra_compile_args={
                "cxx": ["-O3"],
                "nvcc": ["-O3", "--use_fast_math", "-gencode=arch=compute_80,code=sm_80"],
            },
        )
    ],
    cmdclass={"build_ext": BuildExtension},
)
