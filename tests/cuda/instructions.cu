// SPDX-License-Identifier: MIT
#include <cuda_fp16.h>
#include <minfer/math.h>

#include "cuda/launch.h"
#include "cuda/ptx.h"
#include "cuda/shared.h"
#include "features.h"

namespace minfer::features {
namespace {

/// Four bytes of a row-major matrix [.., cols] as a register; of a column of it with `stride` =
/// cols.
__device__ std::uint32_t pack(const std::int8_t* first, unsigned stride) {
  std::uint32_t result = 0;
  for (unsigned i = 0; i < 4; ++i) {
    result |= static_cast<std::uint32_t>(static_cast<std::uint8_t>(first[i * stride])) << (8 * i);
  }
  return result;
}

__global__ void multiply(int* d,                // [16, 8]
                         const std::int8_t* a,  // [16, 32]
                         const std::int8_t* b,  // [32, 8]
                         const int* c) {        // [16, 8]
  const unsigned group = lane_id() / 4;
  const unsigned in_group = lane_id() % 4;
  const std::int8_t* upper = a + group * 32 + in_group * 4;
  const std::int8_t* lower = upper + 8 * 32;
  const std::int8_t* column = b + in_group * 4 * 8 + group;
  const std::uint32_t ra[4] = {pack(upper, 1), pack(lower, 1), pack(upper + 16, 1),
                               pack(lower + 16, 1)};
  const std::uint32_t rb[2] = {pack(column, 8), pack(column + 16 * 8, 8)};
  const unsigned first = group * 8 + in_group * 2;
  const unsigned second = first + 8 * 8;
  int sum[4] = {c[first], c[first + 1], c[second], c[second + 1]};
  mma_m16n8k32_s8(sum, ra, rb, sum);
  d[first] = sum[0];
  d[first + 1] = sum[1];
  d[second] = sum[2];
  d[second + 1] = sum[3];
}

constexpr unsigned kCopyThreads = 64;

/// One CTA, a tile of 4 words a thread at a time, the next one in flight meanwhile.
__global__ void copy_tiles(unsigned* out, const unsigned* in, unsigned tiles, unsigned valid) {
  MINFER_SHARED(__align__(16) unsigned, tile, [2][kCopyThreads * 4]);
  const unsigned own = threadIdx.x * 4;
  const auto begin = [&](unsigned t) {
    const unsigned first = (t * kCopyThreads + threadIdx.x) * 4;
    const unsigned present = first >= valid ? 0 : (valid - first < 4 ? valid - first : 4);
    if (t < tiles) {
      cp_async<16>(&tile[t % 2][own], in + first, static_cast<int>(16 - 4 * present));
    }
    cp_async_commit();
  };
  begin(0);
  for (unsigned t = 0; t < tiles; ++t) {
    begin(t + 1);
    cp_async_wait<1>();
    __syncthreads();  // tile[t % 2]: filled by all threads, read by others
    const unsigned other = kCopyThreads * 4 - 4 - own;
    const uint4 words = *reinterpret_cast<const uint4*>(&tile[t % 2][other]);
    *reinterpret_cast<uint4*>(out + t * kCopyThreads * 4 + other) = words;
    __syncthreads();  // tile[t % 2]: read by all, refilled in the next round
  }
}

__global__ void operate(std::array<unsigned, 11>* out, const uint4* in) {
  const uint4 v = in[threadIdx.x];
  unsigned* results = reinterpret_cast<unsigned*>(out + threadIdx.x);
  results[0] = __popc(v.x);
  results[1] = __clz(static_cast<int>(v.x));
  results[2] = __ffs(static_cast<int>(v.x));
  results[3] = __brev(v.x);
  results[4] = __byte_perm(v.x, v.y, v.z);
  results[5] = __funnelshift_l(v.x, v.y, v.z);
  results[6] = __funnelshift_r(v.x, v.y, v.z);
  results[7] = static_cast<unsigned>(__mulhi(static_cast<int>(v.x), static_cast<int>(v.y)));
  results[8] = __umulhi(v.x, v.y);
  results[9] = static_cast<unsigned>(
      __dp4a(static_cast<int>(v.x), static_cast<int>(v.y), static_cast<int>(v.z)));
  results[10] = __dp4a(v.x, v.y, v.z);
}

__global__ void widen_halves(unsigned* out) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  const float through_type = __half2float(__ushort_as_half(static_cast<unsigned short>(i)));
  const float direct = float_from_half(static_cast<std::uint16_t>(i));
  const bool same = __float_as_uint(through_type) == __float_as_uint(direct);
  out[i] = same ? __float_as_uint(direct) : 0xdeadbeefu;
}

__global__ void narrow_floats(unsigned* out, const float* in, unsigned n) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = __half_as_ushort(__float2half_rn(in[i]));
}

__global__ void compute(std::array<unsigned, 6>* out, const float* in, unsigned n) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const float x = in[i];
  const float y = in[n - 1 - i];
  unsigned* results = reinterpret_cast<unsigned*>(out + i);
  results[0] = bits_from_float(exp_f32(x));
  results[1] = bits_from_float(silu_f32(x));
  results[2] = bits_from_float(rsqrt_f32(x));
  results[3] = bits_from_float(x / y);
  results[4] = static_cast<unsigned>(round_half_even_to_int(x, -127, 127));
  results[5] = bits_from_float(fmaf(x, y, x));
}

__global__ void write_lanes(std::array<unsigned, 2>* out) {
  unsigned* results = reinterpret_cast<unsigned*>(out + threadIdx.x);
  results[0] = lane_id();
  results[1] = lane_mask_below();
}

__global__ void stream_words(uint4* out, const uint4* in) {
  prefetch_l2(in + threadIdx.x);
  out[threadIdx.x] = load_streaming(in + threadIdx.x);
}

constexpr unsigned kThreads = 256;

unsigned blocks_for(std::size_t n) {
  return static_cast<unsigned>((n + kThreads - 1) / kThreads);
}

}  // namespace

std::vector<int> mma(const std::vector<std::int8_t>& a, const std::vector<std::int8_t>& b,
                     const std::vector<int>& c) {
  Stream stream;
  const auto da = on_device(a, stream);
  const auto db = on_device(b, stream);
  const auto dc = on_device(c, stream);
  DeviceBuffer<int> d(c.size());
  launch(multiply, 1, 32, 0, stream, d.data(), da.data(), db.data(), dc.data());
  return on_host(d, stream);
}

std::vector<unsigned> pipelined_copy(const std::vector<unsigned>& in, std::size_t valid) {
  Stream stream;
  const auto from = on_device(in, stream);
  DeviceBuffer<unsigned> to(in.size());
  launch(copy_tiles, 1, kCopyThreads, 0, stream, to.data(), from.data(),
         in.size() / (kCopyThreads * 4), valid);
  return on_host(to, stream);
}

std::vector<std::array<unsigned, 11>> bit_operations(const std::vector<uint4>& in) {
  Stream stream;
  const auto from = on_device(in, stream);
  DeviceBuffer<std::array<unsigned, 11>> out(in.size());
  launch(operate, 1, static_cast<unsigned>(in.size()), 0, stream, out.data(), from.data());
  return on_host(out, stream);
}

std::vector<unsigned> floats_of_halves() {
  Stream stream;
  DeviceBuffer<unsigned> out(1 << 16);
  launch(widen_halves, blocks_for(1 << 16), kThreads, 0, stream, out.data());
  return on_host(out, stream);
}

std::vector<unsigned> halves_of_floats(const std::vector<float>& in) {
  Stream stream;
  const auto from = on_device(in, stream);
  DeviceBuffer<unsigned> out(in.size());
  launch(narrow_floats, blocks_for(in.size()), kThreads, 0, stream, out.data(), from.data(),
         in.size());
  return on_host(out, stream);
}

std::vector<std::array<unsigned, 6>> arithmetic(const std::vector<float>& in) {
  Stream stream;
  const auto from = on_device(in, stream);
  DeviceBuffer<std::array<unsigned, 6>> out(in.size());
  launch(compute, blocks_for(in.size()), kThreads, 0, stream, out.data(), from.data(), in.size());
  return on_host(out, stream);
}

std::vector<std::array<unsigned, 2>> lanes(unsigned threads) {
  Stream stream;
  DeviceBuffer<std::array<unsigned, 2>> out(threads);
  launch(write_lanes, 1, threads, 0, stream, out.data());
  return on_host(out, stream);
}

std::vector<uint4> streamed(const std::vector<uint4>& in) {
  Stream stream;
  const auto from = on_device(in, stream);
  DeviceBuffer<uint4> to(in.size());
  launch(stream_words, 1, static_cast<unsigned>(in.size()), 0, stream, to.data(), from.data());
  return on_host(to, stream);
}

}  // namespace minfer::features
