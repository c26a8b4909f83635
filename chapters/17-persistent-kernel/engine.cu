// SPDX-License-Identifier: MIT
#include <algorithm>
#include <chrono>
#include <future>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <minfer/engine.h>
#include <minfer/rope.h>

#include "cuda/buffer.h"
#include "cuda/device.h"
#include "cuda/event.h"
#include "cuda/launch.h"
#include "cuda/step_cost.h"
#include "cuda/stream.h"
#include "memory.h"
#include "persistent.cuh"
#include "shape.h"

namespace minfer {
namespace {

/// What of the kernel suits a GPU.
template <class S>
struct Form {
  using Kernel = void (*)(DeviceModel, Workspace<S>, Request);
  Kernel kernel;
  std::size_t shared_bytes;  ///< dynamic
};

template <class S, std::uint32_t kBatches, std::uint32_t kHeads>
Form<S> form() {
  return {persistent<S, kBatches, kHeads>, Ring<kBatches>::kBytes};
}

/// The form for a GPU, and for so many CTAs.
template <class S>
Form<S> form_for(const Device& device, std::uint32_t n_ctas) {
  // GPU                                        a warp's ring        heads of a unit of attention
  // a CTA for every head, room (an H200)       5 batches, 11.5 KB   one
  // any other (a Jetson, of 8 SMs and 163 KB)  3 batches, 6.9 KB    all that share K and V
  const Form<S> large = form<S, 5, 1>();
  cudaFuncAttributes attributes;
  CUDA_CHECK(cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(large.kernel)));
  const bool has_room =
      attributes.sharedSizeBytes + large.shared_bytes <= device.shared_bytes_per_block;
  return has_room && n_ctas >= S::kHeads ? large : form<S, 3, S::kGroup>();
}

/// Greedy decoding on a GPU by one kernel, which goes from token to token by itself and leaves each
/// in the host's memory.
template <class S>
class GpuEngine final : public Engine {
 public:
  GpuEngine(const Model& model, const EngineOptions& options)
      : config_(model.config()),
        context_(options.context),
        n_ctas_(options.value("CTAS", Device::current().sm_count)),
        form_(form_for<S>(Device::current(), n_ctas_)),
        weight_bytes_(model.bytes_per_token() - model.lm_head().bytes() +
                      model.lm_head().rows * row_bytes(TensorType::kQ4_0, S::kModel)),
        device_("the model with a context of " + std::to_string(context_) + " tokens", model,
                context_, n_ctas_, RopeTable(config_.head_dim, config_.rope_base, context_)) {}

  std::string describe() const override {
    return engine_info().name + " (" + Device::current().name + ")";
  }
  std::uint32_t context() const override { return context_; }
  std::uint32_t position() const override { return position_; }
  void truncate(std::uint32_t position) override { position_ = position; }

  void prefill(Span<const Token> ids) override {
    for (std::size_t done = 0; done < ids.size();) {
      const std::size_t n = std::min<std::size_t>(kMostSteps, ids.size() - done);
      run(ids.subspan(done, n), n, false, [&](const Prediction& p) { return keep(p); });
      done += n;
    }
  }

  std::uint32_t decode(std::uint32_t n, const TokenSink& sink) override {
    if (n == 0) return 0;
    std::uint32_t emitted = 1;
    bool goes_on = sink(prediction_.id);
    while (goes_on && emitted < n && position_ < context_) {
      const std::uint32_t steps = std::min({n - emitted, context_ - position_, kMostSteps});
      run({&prediction_.id, 1}, steps, false, [&](const Prediction& p) {
        emitted += 1;
        return goes_on = keep(p) && sink(p.id);
      });
    }
    return emitted;
  }

  void force(Span<const Token> ids, const LogitsSink& sink) override {
    std::vector<float> logits(config_.n_tokens);
    for (const Token& id : ids) {
      run({&id, 1}, 1, true, [&](const Prediction& p) { return keep(p); });
      stream_.download(logits.data(), device_->work.logits, logits.size());
      sink(position_ - 1, logits.data());
    }
  }

  /// A step is one kernel, with the host's part of its launch.
  std::optional<StepCost> time_kernels(std::uint32_t passes) override {
    StepCost cost = {{{"persistent", 1, bytes_per_token(position_), {}}}, {}};
    const std::uint32_t position = position_;
    const Prediction known = prediction_;
    Event begin, end;
    for (std::uint32_t pass = 0; pass <= passes; ++pass) {
      begin.record(stream_);
      run({&known.id, 1}, 1, false, [&](const Prediction& p) { return keep(p); });
      end.record(stream_);
      end.synchronize();
      if (pass > 0) cost.kernels[0].us.push_back(1e3 * double{end.milliseconds_since(begin)});
      position_ = position;
      prediction_ = known;
    }
    cost.empty_us = time_empty_kernel(stream_, passes);
    return cost;
  }

  std::uint64_t bytes_per_token(std::uint32_t position) const override {
    return weight_bytes_ + 8ull * config_.n_layers * S::kKv * (position + 1);
  }

 private:
  static constexpr std::uint32_t kMostSteps = 1024;  ///< of a launch

  bool keep(const Prediction& prediction) {
    prediction_ = prediction;
    return true;
  }

  /// A launch that goes on beside the host, until it ends or this does.
  class Running {
   public:
    template <class Launch>
    Running(const Stream& stream, unsigned& stop, Launch launch)
        : stream_(stream), stop_(stop), launched_(std::async(std::launch::async, launch)) {}
    ~Running() {
      __atomic_store_n(&stop_, 1u, __ATOMIC_RELAXED);
      if (launched_.valid()) launched_.wait();
      cudaStreamSynchronize(stream_);
    }
    /// @throws what the launch has thrown, or CudaError of the kernel
    bool is_over() {
      if (is_launched_) return stream_.is_idle();
      if (launched_.wait_for(std::chrono::seconds(0)) != std::future_status::ready) return false;
      is_launched_ = true;
      launched_.get();
      return stream_.is_idle();
    }

   private:
    const Stream& stream_;
    unsigned& stop_;
    std::future<void> launched_;
    bool is_launched_ = false;
  };

  /// Consumes the given ids, and then what each step predicts, n_steps in all. Of each prediction
  /// from the last given id on `take` is told, until it returns false; what the kernel has decoded
  /// since then is forgotten.
  template <class Take>
  void run(Span<const Token> given, std::uint32_t n_steps, bool keeps_logits, Take take) {
    const auto first_predicted = static_cast<std::uint32_t>(given.size() - 1);
    std::fill(mailbox_.begin(), mailbox_.begin() + (n_steps - first_predicted), kNothing);
    stop_[0] = 0;
    stream_.upload(device_->given, given.data(), given.size());
    CUDA_CHECK(cudaMemsetAsync(device_->work.arrived, 0, sizeof(unsigned), stream_));
    const Request request = {device_->given,
                             static_cast<std::uint32_t>(given.size()),
                             n_steps,
                             first_predicted,
                             position_,
                             keeps_logits,
                             mailbox_.device_data(),
                             stop_.device_data()};
    Running running(stream_, stop_[0], [this, request] {
      launch_cooperative(form_.kernel, n_ctas_, kCtaThreads, form_.shared_bytes, stream_,
                         device_->weights, device_->work, request);
    });
    position_ += first_predicted;
    for (std::uint32_t i = 0; i < n_steps - first_predicted; ++i) {
      const Prediction prediction = await(running, mailbox_[i]);
      position_ += 1;
      if (!take(prediction)) return;
    }
  }

  /// @throws std::runtime_error when no logit is a number, CudaError when the kernel has failed
  static Prediction await(Running& running, const std::uint64_t& letter) {
    constexpr unsigned kPatience = 2000;
    bool is_over = false;
    for (unsigned looks = 0;; ++looks) {
      const std::uint64_t word = __atomic_load_n(&letter, __ATOMIC_RELAXED);
      if (word != kNothing) {
        const auto id = static_cast<Token>(static_cast<std::uint32_t>(word));
        if (id < 0) throw std::runtime_error("the logits are not numbers: damaged weights?");
        return {id, float_from_bits(static_cast<std::uint32_t>(word >> 32))};
      }
      if (is_over) throw std::logic_error("the kernel has ended without a prediction");
      is_over = running.is_over();
      if (looks < kPatience) {
        std::this_thread::yield();
      } else {
        std::this_thread::sleep_for(std::chrono::microseconds(50));
      }
    }
  }

  const ModelConfig& config_;
  const std::uint32_t context_;
  const std::uint32_t n_ctas_;
  const Form<S> form_;
  const std::uint64_t
      weight_bytes_;  ///< that a step needs: what tiles are filled up with not counted
  std::uint32_t position_ = 0;
  Prediction prediction_;  ///< of what follows
  MappedBuffer<std::uint64_t> mailbox_{kMostSteps};
  MappedBuffer<unsigned> stop_{1};
  Stream stream_;
  const Placed<DeviceState<S>> device_;
};

}  // namespace

EngineInfo engine_info() {
  EngineInfo info;
  info.name = MINFER_PROGRAM;
  info.options = {{"CTAS", {}, "CTAs that share the work: one an SM unless set"}};
  info.requantizes = true;
  return info;
}

std::unique_ptr<Engine> make_engine(const Model& model, const EngineOptions& options) {
  return with_shape(model.config(), [&](auto shape) -> std::unique_ptr<Engine> {
    return std::make_unique<GpuEngine<decltype(shape)>>(model, options);
  });
}

}  // namespace minfer
