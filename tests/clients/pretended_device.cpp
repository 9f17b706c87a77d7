// A device of torch in host memory: each operation falls back to the processor. It counts what a step would send to a
// GPU, and shows which operations mix devices.
#include <torch/extension.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/EmptyTensor.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/core/Allocator.h>
#include <torch/library.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/Resize.h>
#include <cstring>
#include <ATen/ops/set_cpu_dispatch.h>

struct Guard final : public c10::impl::DeviceGuardImplInterface {
  static constexpr c10::DeviceType static_type = c10::DeviceType::PrivateUse1;
  c10::DeviceType type() const override { return static_type; }
  c10::Device exchangeDevice(c10::Device d) const override { return d; }
  c10::Device getDevice() const override { return c10::Device(static_type, 0); }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::Stream getStream(c10::Device d) const noexcept override { return c10::Stream(c10::Stream::DEFAULT, d); }
  c10::Stream getDefaultStream(c10::Device d) const override { return c10::Stream(c10::Stream::DEFAULT, d); }
  c10::Stream exchangeStream(c10::Stream s) const noexcept override { return s; }
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
  void record(void**, const c10::Stream&, const c10::DeviceIndex, const c10::EventFlag) const override {}
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void destroyEvent(void*, const c10::DeviceIndex) const noexcept override {}
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeStream(const c10::Stream&) const override {}
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

struct Alloc final : at::Allocator {
  at::DataPtr allocate(size_t n) override {
    void* p = n ? aligned_alloc(64, (n + 63) / 64 * 64) : nullptr;
    return {p, p, &del, at::Device(at::DeviceType::PrivateUse1, 0)};
  }
  static void del(void* p) { free(p); }
  at::DeleterFnPtr raw_deleter() const override { return &del; }
  void copy_data(void* d, const void* s, std::size_t n) const override { memcpy(d, s, n); }
};
static Alloc alloc;
REGISTER_ALLOCATOR(c10::DeviceType::PrivateUse1, &alloc);

struct Hooks : public at::PrivateUse1HooksInterface {
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  bool isAvailable() const override { return true; }
  bool isBuilt() const override { return true; }
  at::Allocator* getPinnedMemoryAllocator() const override { return at::getCPUAllocator(); }
};

at::Tensor empty_mf(c10::IntArrayRef size, std::optional<at::ScalarType> dt, std::optional<at::Layout>,
                    std::optional<at::Device>, std::optional<bool>, std::optional<at::MemoryFormat> mf) {
  constexpr c10::DispatchKeySet ks(c10::DispatchKey::PrivateUse1);
  return at::detail::empty_generic(size, &alloc, ks, c10::dtype_or_default(dt), mf);
}
at::Tensor empty_st(c10::IntArrayRef size, c10::IntArrayRef stride, std::optional<at::ScalarType> dt,
                    std::optional<at::Layout>, std::optional<at::Device>, std::optional<bool>) {
  constexpr c10::DispatchKeySet ks(c10::DispatchKey::PrivateUse1);
  return at::detail::empty_strided_generic(size, stride, &alloc, ks, c10::dtype_or_default(dt));
}
at::Tensor as_cpu(const at::Tensor& t) {  // shares memory
  if (t.is_cpu()) return t;
  return at::from_blob(t.data_ptr(), t.sizes(), t.strides(), at::TensorOptions().dtype(t.dtype()).device(at::kCPU));
}
at::Tensor copy_from(const at::Tensor& self, const at::Tensor& dst, bool) {
  as_cpu(dst).copy_(as_cpu(self));
  return dst;
}
at::Tensor copy_from_resize(const at::Tensor& self, const at::Tensor& dst) {
  if (self.sizes() != dst.sizes()) dst.resize_(self.sizes());
  as_cpu(dst).copy_(as_cpu(self));
  return dst;
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", &empty_mf);
  m.impl("empty_strided", &empty_st);
  m.impl("_copy_from", &copy_from);
  m.impl("_copy_from_and_resize", &copy_from_resize);
  m.impl("_local_scalar_dense", [](const at::Tensor& t) { return as_cpu(t).item(); });
  m.impl("view", [](const at::Tensor& t, c10::SymIntArrayRef s) { return at::native::view(t, C10_AS_INTARRAYREF_SLOW(s)); });
  m.impl("as_strided", [](const at::Tensor& t, c10::SymIntArrayRef s, c10::SymIntArrayRef st, std::optional<c10::SymInt> o) {
    std::optional<int64_t> off; if (o.has_value()) off = o->expect_int();
    return at::native::as_strided_tensorimpl(t, C10_AS_INTARRAYREF_SLOW(s), C10_AS_INTARRAYREF_SLOW(st), off); });
  m.impl("resize_", [](const at::Tensor& t, c10::SymIntArrayRef s, std::optional<at::MemoryFormat> mf) -> const at::Tensor& {
    return at::native::resize_(t, C10_AS_INTARRAYREF_SLOW(s), mf); });
  m.impl("set_.source_Storage_storage_offset", [](at::Tensor& r, at::Storage st, c10::SymInt o, c10::SymIntArrayRef s, c10::SymIntArrayRef str) -> at::Tensor& {
    return at::cpu::set_(r, st, o.expect_int(), C10_AS_INTARRAYREF_SLOW(s), C10_AS_INTARRAYREF_SLOW(str)); });
  m.impl("_reshape_alias", [](const at::Tensor& t, c10::SymIntArrayRef s, c10::SymIntArrayRef st) {
    return at::native::_reshape_alias(t, C10_AS_INTARRAYREF_SLOW(s), C10_AS_INTARRAYREF_SLOW(st)); });
}
void fb(const c10::OperatorHandle& op, torch::jit::Stack* stack) { at::native::cpu_fallback(op, stack); }
TORCH_LIBRARY_IMPL(_, PrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&fb>()); }
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("init", []() { static Hooks h; at::RegisterPrivateUse1HooksInterface(&h); });
}
