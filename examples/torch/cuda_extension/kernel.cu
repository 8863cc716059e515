// x * sigmoid(scale * x) and its gradient, one thread an element.
#include <ATen/cuda/CUDAContext.h>
#include <torch/extension.h>

template <typename scalar_t>
__global__ void forward_kernel(const scalar_t* __restrict__ x, scalar_t* __restrict__ y, float scale, int64_t size) {
  const int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
  if (i < size) {
    const float v = static_cast<float>(x[i]);
    y[i] = static_cast<scalar_t>(v / (1.0f + __expf(-scale * v)));
  }
}

template <typename scalar_t>
__global__ void backward_kernel(const scalar_t* __restrict__ grad, const scalar_t* __restrict__ x,
                                scalar_t* __restrict__ out, float scale, int64_t size) {
  const int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
  if (i < size) {
    const float v = static_cast<float>(x[i]);
    const float s = 1.0f / (1.0f + __expf(-scale * v));
    out[i] = static_cast<scalar_t>(static_cast<float>(grad[i]) * s * (1.0f + scale * v * (1.0f - s)));
  }
}

torch::Tensor swish_forward_cuda(torch::Tensor x, double scale) {
  auto y = torch::empty_like(x);
  const int threads = 256;
  const int blocks = (x.numel() + threads - 1) / threads;
  AT_DISPATCH_FLOATING_TYPES_AND_HALF(x.scalar_type(), "swish_forward", [&] {
    forward_kernel<scalar_t><<<blocks, threads, 0, at::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<scalar_t>(), y.data_ptr<scalar_t>(), static_cast<float>(scale), x.numel());
  });
  return y;
}

torch::Tensor swish_backward_cuda(torch::Tensor grad, torch::Tensor x, double scale) {
  auto out = torch::empty_like(x);
  const int threads = 256;
  const int blocks = (x.numel() + threads - 1) / threads;
  AT_DISPATCH_FLOATING_TYPES_AND_HALF(x.scalar_type(), "swish_backward", [&] {
    backward_kernel<scalar_t><<<blocks, threads, 0, at::cuda::getCurrentCUDAStream()>>>(
        grad.data_ptr<scalar_t>(), x.data_ptr<scalar_t>(), out.data_ptr<scalar_t>(), static_cast<float>(scale),
        x.numel());
  });
  return out;
}
