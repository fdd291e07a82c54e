// A second device type with the CPU's memory and arithmetic behind it, which is as strict about places as a GPU is.
//
// Four things make a device for torch: a guard (which device is current), an allocator (whose memory says on which device
// it is), hooks (what torch asks of an accelerator), and operators. A few operators, which make or look at memory, are
// written here. All others fall back to the CPU's, after a look at where their tensors are.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_cpu_dispatch.h>
#include <ATen/ops/resize_native.h>
#include <ATen/ops/set_cpu_dispatch.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/Allocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/core/impl/alloc_cpu.h>
#include <torch/extension.h>
#include <torch/library.h>

namespace {

using c10::Device;
using c10::DeviceIndex;
using c10::Stream;
using c10::SymInt;
using c10::SymIntArrayRef;
template <class T>
using Maybe = std::optional<T>;

constexpr auto PRETEND = c10::DeviceType::PrivateUse1;
constexpr DeviceIndex DEVICES = 2;
thread_local DeviceIndex current = 0;

void choose(DeviceIndex index) {
  TORCH_CHECK(index < DEVICES, "pretend: there is no device ", int(index));
  current = index < 0 ? 0 : index;
}

// ---- the guard: which device is current. Nothing runs in the background, so all streams are the default one.

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return PRETEND; }
  Device getDevice() const override { return {PRETEND, current}; }
  void setDevice(Device device) const override { choose(device.index()); }
  void uncheckedSetDevice(Device device) const noexcept override { current = device.index() < 0 ? 0 : device.index(); }
  Device exchangeDevice(Device device) const override {
    const Device before = getDevice();
    choose(device.index());
    return before;
  }
  DeviceIndex deviceCount() const noexcept override { return DEVICES; }
  Stream getStream(Device device) const noexcept override { return Stream(Stream::DEFAULT, device); }
  Stream getDefaultStream(Device device) const override { return Stream(Stream::DEFAULT, device); }
  Stream exchangeStream(Stream stream) const noexcept override { return Stream(Stream::DEFAULT, stream.device()); }
  bool queryStream(const Stream&) const override { return true; }
  void record(void**, const Stream&, const DeviceIndex, const c10::EventFlag) const override {}
  void block(void*, const Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void synchronizeEvent(void*) const override {}
  void synchronizeStream(const Stream&) const override {}
  void synchronizeDevice(const DeviceIndex) const override {}
};

// ---- memory

struct Memory final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    void* data = bytes ? c10::alloc_cpu(bytes) : nullptr;
    return {data, data, &c10::free_cpu, Device(PRETEND, current)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &c10::free_cpu; }
  void copy_data(void* to, const void* from, size_t bytes) const override { std::memcpy(to, from, bytes); }
};
Memory memory;

// ---- what torch asks of an accelerator

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
  DeviceIndex deviceCount() const override { return DEVICES; }
  DeviceIndex getCurrentDevice() const override { return current; }
  void setCurrentDevice(DeviceIndex index) const override { choose(index); }
  at::Allocator* getPinnedMemoryAllocator() const override { return c10::GetCPUAllocator(); }
  bool isPinnedPtr(const void*) const override { return false; }
  Device getDeviceFromPtr(void*) const override { return {PRETEND, current}; }
  const at::Generator& getDefaultGenerator(DeviceIndex) const override {
    static const at::Generator generator = at::detail::createCPUGenerator();
    return generator;
  }
};

// ---- operators that make memory, or look at it in another way

at::Tensor as_cpu(const at::Tensor& tensor) {  // the same memory
  if (!tensor.defined() || tensor.device().type() != PRETEND) return tensor;
  const auto options = tensor.options().device(at::kCPU).requires_grad(false);
  return at::from_blob(tensor.data_ptr(), tensor.sizes(), tensor.strides(), [tensor](void*) {}, options);
}

Device place_of(Maybe<Device> asked) { return asked.value_or(Device(PRETEND, current)); }

at::Tensor empty(SymIntArrayRef size, Maybe<at::ScalarType> dtype, Maybe<at::Layout>, Maybe<Device> device, Maybe<bool>,
                 Maybe<at::MemoryFormat> format) {
  const c10::DeviceGuard guard(place_of(device));
  const c10::DispatchKeySet keys(c10::DispatchKey::PrivateUse1);
  return at::detail::empty_generic_symint(size, &memory, keys, dtype.value_or(at::kFloat), format);
}

at::Tensor empty_strided(SymIntArrayRef size, SymIntArrayRef stride, Maybe<at::ScalarType> dtype, Maybe<at::Layout>,
                         Maybe<Device> device, Maybe<bool>) {
  const c10::DeviceGuard guard(place_of(device));
  const c10::DispatchKeySet keys(c10::DispatchKey::PrivateUse1);
  return at::detail::empty_strided_symint_generic(size, stride, &memory, keys, dtype.value_or(at::kFloat));
}

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool) {
  as_cpu(to).copy_(as_cpu(from));
  return to;
}

at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
  at::native::resize_(to, from.sizes(), std::nullopt);
  return copy_from(from, to, false);
}

at::Scalar number(const at::Tensor& tensor) { return as_cpu(tensor).item(); }

at::Tensor as_strided(const at::Tensor& tensor, SymIntArrayRef size, SymIntArrayRef stride, Maybe<SymInt> offset) {
  return at::cpu::as_strided_symint(tensor, size, stride, offset);
}

at::Tensor view(const at::Tensor& tensor, SymIntArrayRef size) {
  return at::native::view(tensor, C10_AS_INTARRAYREF_SLOW(size));
}

at::Tensor reshape_alias(const at::Tensor& tensor, SymIntArrayRef size, SymIntArrayRef stride) {
  return at::native::_reshape_alias(tensor, C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride));
}

at::Tensor unfold(const at::Tensor& tensor, int64_t dim, int64_t size, int64_t step) {
  return at::native::unfold(tensor, dim, size, step);
}

const at::Tensor& resize(const at::Tensor& tensor, SymIntArrayRef size, Maybe<at::MemoryFormat> format) {
  return at::native::resize_(tensor, C10_AS_INTARRAYREF_SLOW(size), format);
}

at::Tensor& set_storage(at::Tensor& tensor, at::Storage storage, SymInt offset, SymIntArrayRef size,
                        SymIntArrayRef stride) {
  return at::cpu::set__symint(tensor, storage, offset, size, stride);
}

// CUDA counts whole numbers, the CPU does not
at::Tensor counted(const at::Tensor& tensor, int64_t bins, const at::Scalar& least, const at::Scalar& most) {
  const auto values = as_cpu(tensor);
  const bool whole = at::isIntegralType(values.scalar_type(), false);
  const auto counts = at::histc(whole ? values.to(at::kFloat) : values, bins, least, most);
  return counts.to(tensor.options());
}

// ---- all other operators: the CPU's, if every tensor is on one device

void fall_back(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto& name = op.schema().name();
  Maybe<Device> place;
  bool several = false, on_cpu = false;
  const auto look = [&](const at::Tensor& tensor) {
    if (!tensor.defined()) return;
    if (tensor.device().type() != PRETEND) {
      on_cpu = on_cpu || tensor.dim() > 0;  // a number may be anywhere, as with CUDA
    } else {
      several = several || (place && *place != tensor.device());
      place = tensor.device();
    }
  };
  for (const auto& value : torch::jit::last(*stack, op.schema().arguments().size())) {
    if (value.isTensor()) {
      look(value.toTensor());
    } else if (value.isTensorList()) {
      for (const auto& tensor : value.toTensorVector()) look(tensor);
    } else if (value.isOptionalTensorList()) {
      for (const Maybe<at::Tensor>& tensor : value.toOptionalTensorList()) {
        if (tensor) look(*tensor);
      }
    }
  }
  // CUDA takes an index from the CPU in x[i] and x[i] = y, where x is its own, and nowhere else
  const auto& first = torch::jit::peek(*stack, 0, op.schema().arguments().size());
  const bool own = first.isTensor() && first.toTensor().defined() && first.toTensor().device().type() == PRETEND;
  const bool takes_cpu = own && (name == "aten::index" || name == "aten::index_put_" || name == "aten::index_put" ||
                                 name == "aten::_index_put_impl_");
  TORCH_CHECK(!several && (!on_cpu || !place || takes_cpu), "pretend: tensors on several devices in ", name);
  at::native::cpu_fallback(op, stack);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&fall_back>());
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("empty.memory_format", &empty);
  library.impl("empty_strided", &empty_strided);
  library.impl("_copy_from", &copy_from);
  library.impl("_copy_from_and_resize", &copy_from_and_resize);
  library.impl("_local_scalar_dense", &number);
  library.impl("as_strided", &as_strided);
  library.impl("view", &view);
  library.impl("_reshape_alias", &reshape_alias);
  library.impl("resize_", &resize);
  library.impl("unfold", &unfold);
  library.impl("histc", &counted);
  library.impl("set_.source_Storage_storage_offset", &set_storage);
}

void install() {
  static const c10::impl::DeviceGuardImplRegistrar guard(PRETEND, new Guard());
  static Hooks hooks;
  c10::SetAllocator(PRETEND, &memory);
  at::RegisterPrivateUse1HooksInterface(&hooks);
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  module.attr("DEVICES") = int(DEVICES);
  module.def("install", &install);
  module.def("current", [] { return int(current); });
  module.def("choose", [](int index) { choose(DeviceIndex(index)); });
}
