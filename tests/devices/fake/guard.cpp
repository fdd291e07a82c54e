// Lets a torch without CUDA make fake tensors on CUDA devices: a guard for devices that are not there does nothing.
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/extension.h>

namespace {
using Nothing = c10::impl::NoOpDeviceGuardImpl<c10::DeviceType::CUDA>;
void install() { static const c10::impl::DeviceGuardImplRegistrar guard(c10::DeviceType::CUDA, new Nothing()); }
}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) { module.def("install", &install); }
