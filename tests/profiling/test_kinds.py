from __future__ import annotations

import pytest

from viaduct.profiling import kinds


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>", kinds.OTHER),
        ("sm90_xmma_dgrad_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x64", kinds.CONVOLUTION),
        ("void cutlass__5x_cudnn::Kernel<cutlass_tensorop_bf16_s16816wgrad_optimized_bf16_128x128>", kinds.CONVOLUTION),
        ("void cudnn::engines_precompiled::nchwToNhwcKernel<float>", kinds.CONVOLUTION),
        ("void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, int>", kinds.NORMALISATION),
        ("void at::native::batch_norm_backward_reduce_channels_last_kernel<4>", kinds.NORMALISATION),
        ("triton_poi_fused__native_batch_norm_legit_functional_add_relu_12", kinds.NORMALISATION),
        ("triton_red_fused_convolution_backward_native_batch_norm_backward_threshold_backward_3", kinds.NORMALISATION),
        ("nvjet_tst_128x256_64x4_1x2_h_bz_coopA_NTN", kinds.PRODUCT),
        ("void at::native::max_pool_backward_nhwc<c10::BFloat16, float>", kinds.POOLING),
        (
            "void at::native::multi_tensor_apply_kernel<TensorListMetadata<3>, FusedSgdMathFunctor<float, 3>>",
            "optimizer",
        ),
        ("Memcpy DtoD (Device -> Device)", kinds.COPIES),
        ("void at::native::multi_tensor_apply_kernel<TensorListMetadata<2>, CopyFunctor<BFloat16>>", kinds.COPIES),
        ("triton_poi_fused__to_copy_7", kinds.COPIES),
    ],
)
def test_a_kernel_is_known_by_its_name(name: str, kind: str) -> None:
    assert kinds.classify_kernel(name) == kind


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("aten::relu_", kinds.OTHER),
        ("aten::mkldnn_convolution", kinds.CONVOLUTION),
        ("aten::native_batch_norm_backward", kinds.NORMALISATION),
        ("aten::addmm", kinds.PRODUCT),
        ("aten::mul", kinds.OTHER),
        ("aten::_fused_sgd_", kinds.OPTIMIZER),
        ("aten::copy_", kinds.COPIES),
        ("Torch-Compiled Region: 0/0", kinds.COMPILED),
    ],
)
def test_an_operator_is_known_by_its_name(name: str, kind: str) -> None:
    assert kinds.classify_operator(name) == kind


def test_our_own_kernels_are_known_by_their_files() -> None:
    known = kinds.classify_viaduct_kernels()
    assert known["moments_kernel"] == kinds.NORMALISATION
    assert known["stem_forward_kernel"] == kinds.CONVOLUTION
    assert known["pool_forward_kernel"] == kinds.POOLING
    assert kinds.classify_kernel("moments_kernel") == kinds.NORMALISATION
