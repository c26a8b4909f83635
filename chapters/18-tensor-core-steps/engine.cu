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

/// A kernel and what it is launched with.
template <class S>
struct Form {
  using Kernel = void (*)(DeviceModel, Workspace<S>, Request);
  Kernel kernel;
  std::size_t shared_bytes;  ///< dynamic
};

template <class S, std::uint32_t kBatches, std::uint32_t kHeads>
Form<S> one_token() {
  return {persistent<S, kBatches, kHeads>, Ring<kBatches>::kBytes};
}
template <class S, std::uint32_t kBatches, std::uint32_t kHeads>
Form<S> several_tokens() {
  return {persistent_tokens<S, kBatches, kHeads>,
          Ring<kBatches>::kBytes + TokensCta<kBatches>::kBytes};
}

/// What of the kernels suits a GPU: for steps of one token, and for steps of several.
template <class S>
struct Forms {
  Form<S> one, several;
};

/// The forms for a GPU, and for so many CTAs.
template <class S>
Forms<S> forms_for(const Device& device, std::uint32_t n_ctas) {
  // GPU                                        a warp's batches          heads of attention's unit
  // a CTA for every head, room (an H200)       5, 4 for several tokens   one
  // any other (a Jetson, of 8 SMs and 163 KB)  3                         all that share K and V
  const Form<S> large = one_token<S, 5, 1>();
  cudaFuncAttributes attributes;
  CUDA_CHECK(cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(large.kernel)));
  const bool has_room =
      attributes.sharedSizeBytes + large.shared_bytes <= device.shared_bytes_per_block;
  if (has_room && n_ctas >= S::kHeads) return {large, several_tokens<S, 4, 1>()};
  return {one_token<S, 3, S::kGroup>(), several_tokens<S, 3, S::kGroup>()};
}

/// Greedy decoding on a GPU by one kernel, which goes from token to token by itself and leaves each
/// in the host's memory; and by another of the same kind, which goes through what is given.
template <class S>
class GpuEngine final : public Engine {
 public:
  GpuEngine(const Model& model, const EngineOptions& options)
      : config_(model.config()),
        context_(options.context),
        n_ctas_(options.value("CTAS", Device::current().sm_count)),
        step_tokens_(options.value("TCHUNK", kMaxTokens)),
        forms_(forms_for<S>(Device::current(), n_ctas_)),
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
      consume(ids.subspan(done, n), n - 1, false);
      done += n;
    }
  }

  std::uint32_t decode(std::uint32_t n, const TokenSink& sink) override {
    if (n == 0) return 0;
    std::uint32_t emitted = 1;
    bool goes_on = sink(prediction_.id);
    while (goes_on && emitted < n && position_ < context_) {
      const std::uint32_t steps = std::min({n - emitted, context_ - position_, kMostSteps});
      run({&prediction_.id, 1}, 1, steps, 0, false, [&](const Prediction& p) {
        emitted += 1;
        return goes_on = keep(p) && sink(p.id);
      });
    }
    return emitted;
  }

  void force(Span<const Token> ids, const LogitsSink& sink) override {
    std::vector<float> logits(std::size_t{step_tokens_} * config_.n_tokens);
    for (std::size_t done = 0; done < ids.size();) {
      const std::size_t n = std::min<std::size_t>(step_tokens_, ids.size() - done);
      consume(ids.subspan(done, n), 0, true);
      stream_.download(logits.data(), device_->work.logits, n * config_.n_tokens);
      for (std::size_t t = 0; t < n; ++t) {
        sink(position_ - n + t, logits.data() + t * config_.n_tokens);
      }
      done += n;
    }
  }

  /// A step by what more of them add to a launch.
  std::vector<std::vector<double>> time_steps(std::uint32_t passes) override {
    constexpr std::uint32_t kMore = 7;
    std::vector<std::vector<double>> seconds;
    const std::vector<Token> ids(step_tokens_ * (1 + kMore));
    while (seconds.size() < step_tokens_) {
      const auto n = static_cast<std::uint32_t>(seconds.size() + 1);
      const std::uint32_t more = std::min(kMore, (context_ - position_) / n - 1);
      if (position_ + n >= context_ || more == 0) break;
      seconds.emplace_back();
      for (std::uint32_t pass = 0; pass <= passes; ++pass) {
        const double one = time_of(ids, n, 1), all = time_of(ids, n, 1 + more);
        if (pass > 0) seconds.back().push_back((all - one) / more);
      }
    }
    return seconds;
  }

  /// A step is one kernel, with the host's part of its launch.
  std::optional<StepCost> time_kernels(std::uint32_t passes) override {
    StepCost cost = {{{"persistent", 1, bytes_per_token(position_), {}}}, {}};
    const std::uint32_t position = position_;
    const Prediction known = prediction_;
    Event begin, end;
    for (std::uint32_t pass = 0; pass <= passes; ++pass) {
      begin.record(stream_);
      consume({&known.id, 1}, 0, false);
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

  /// Consumes ids in steps of as many as a step carries, and keeps the last prediction.
  /// @param first_predicted  the first of them behind which there is one
  void consume(Span<const Token> ids, std::size_t first_predicted, bool keeps_logits) {
    const std::uint32_t n = std::min(step_tokens_, static_cast<std::uint32_t>(ids.size()));
    run(ids, n, ceil_div(static_cast<std::uint32_t>(ids.size()), n), first_predicted, keeps_logits,
        [&](const Prediction& p) { return keep(p); });
  }

  /// Seconds of a launch of so many steps of n tokens, all with predictions, where everything is
  /// afterwards as it was.
  double time_of(Span<const Token> ids, std::uint32_t n, std::uint32_t steps) {
    const std::uint32_t position = position_;
    const Prediction known = prediction_;
    Event begin, end;
    begin.record(stream_);
    run(ids.subspan(0, n == 1 ? 1 : n * steps), n, steps, 0, false,
        [&](const Prediction& p) { return keep(p); });
    end.record(stream_);
    end.synchronize();
    position_ = position;
    prediction_ = known;
    return 1e-3 * double{end.milliseconds_since(begin)};
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

  /// Takes steps, each of n of the given ids, the last one of what is left; where n is 1, more of
  /// them of what the step before has predicted. Of each prediction, from that behind token
  /// `first_predicted` on, `take` is told, until it returns false; what the kernel has decoded
  /// since then is forgotten.
  template <class Take>
  void run(Span<const Token> given, std::uint32_t n, std::uint32_t n_steps,
           std::size_t first_predicted, bool keeps_logits, Take take) {
    const auto first = static_cast<std::uint32_t>(first_predicted);
    const std::uint32_t n_predictions =
        std::max(n_steps, static_cast<std::uint32_t>(given.size())) - first;
    std::fill(mailbox_.begin(), mailbox_.begin() + n_predictions, kNothing);
    stop_[0] = 0;
    stream_.upload(device_->given, given.data(), given.size());
    CUDA_CHECK(cudaMemsetAsync(device_->work.arrived, 0, sizeof(unsigned), stream_));
    const Request request = {device_->given,
                             static_cast<std::uint32_t>(given.size()),
                             n_steps,
                             n,
                             first,
                             position_,
                             keeps_logits,
                             mailbox_.device_data(),
                             stop_.device_data()};
    const Form<S>& form = n == 1 ? forms_.one : forms_.several;
    Running running(stream_, stop_[0], [this, &form, request] {
      launch_cooperative(form.kernel, n_ctas_, kCtaThreads, form.shared_bytes, stream_,
                         device_->weights, device_->work, request);
    });
    position_ += first;
    for (std::uint32_t i = 0; i < n_predictions; ++i) {
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
  const std::uint32_t step_tokens_;  ///< that are given
  const Forms<S> forms_;
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
  info.options = {{"CTAS", {}, "CTAs that share the work: one an SM unless set"},
                  {"TCHUNK", {1, 2, 3, 4, 5, 6, 7, 8}, "given tokens that a step carries"},
                  {"BENCHT", {0, 1}, "bench: 1 prints what a step takes by its tokens"}};
  info.requantizes = true;
  return info;
}

std::unique_ptr<Engine> make_engine(const Model& model, const EngineOptions& options) {
  return with_shape(model.config(), [&](auto shape) -> std::unique_ptr<Engine> {
    return std::make_unique<GpuEngine<decltype(shape)>>(model, options);
  });
}

}  // namespace minfer
