// The door between Python and kernel.cu: checks what it was given, calls the kernels.
#include <torch/extension.h>

torch::Tensor swish_forward_cuda(torch::Tensor x, double scale);
torch::Tensor swish_backward_cuda(torch::Tensor grad, torch::Tensor x, double scale);

#define CHECK_CUDA(x) TORCH_CHECK(x.device().is_cuda(), #x " must be a CUDA tensor")
#define CHECK_CONTIGUOUS(x) TORCH_CHECK(x.is_contiguous(), #x " must be contiguous")
#define CHECK_INPUT(x) CHECK_CUDA(x); CHECK_CONTIGUOUS(x)

torch::Tensor forward(torch::Tensor x, double scale) {
  CHECK_INPUT(x);
  return swish_forward_cuda(x, scale);
}

torch::Tensor backward(torch::Tensor grad, torch::Tensor x, double scale) {
  CHECK_INPUT(grad);
  CHECK_INPUT(x);
  return swish_backward_cuda(grad, x, scale);
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("forward", &forward, "x * sigmoid(scale * x)");
  m.def("backward", &backward, "its gradient with respect to x");
}
