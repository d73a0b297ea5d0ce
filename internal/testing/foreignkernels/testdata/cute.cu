// Kernels of one warp or four whose every index CuTe's traits (BSD licence) give. make.py compiles them.
#include <cute/tensor.hpp>
#include <cute/atom/mma_atom.hpp>
#include <cute/atom/mma_traits_sm80.hpp>
#include <cute/atom/mma_traits_sm89.hpp>
#include <cute/atom/mma_traits_sm90.hpp>
#include <cute/atom/mma_traits_sm120.hpp>
#include <cute/atom/copy_traits_sm75.hpp>
#include <cute/atom/copy_traits_sm80.hpp>
#include <cute/atom/copy_traits_sm90.hpp>
#include <cutlass/numeric_conversion.h>
using namespace cute;

// The elements that a lane holds of a matrix of ROWS rows stored in rows of `depth`, packed into words of 32 bits.
template <int ROWS, class Layout, int WORDS, class T>
__device__ void gather(uint32_t (&words)[WORDS], Layout layout, const T* from, int depth, int bits, int shift = 0) {
  int each = 32 / bits;
  CUTE_UNROLL
  for (int w = 0; w < WORDS; ++w) {
    words[w] = 0;
    CUTE_UNROLL
    for (int e = 0; e < each; ++e) {
      int at = layout(threadIdx.x, w * each + e);
      words[w] |= uint32_t(from[at % ROWS * depth + at / ROWS]) << (e * bits + shift);
    }
  }
}

// y += x·wᵀ of one atom: x has 16 rows, w 8, in codes of type T.
template <class Op, int BITS, class T, class S>
__device__ void atom(const T* x, const T* w, S* y, int shift_x = 0, int shift_w = 0) {
  using Traits = MMA_Traits<Op>;
  constexpr int depth = size<2>(typename Traits::Shape_MNK{});
  uint32_t a[extent<typename Op::ARegisters>::value], b[extent<typename Op::BRegisters>::value];
  gather<16>(a, typename Traits::ALayout{}, x, depth, BITS, shift_x);
  gather<8>(b, typename Traits::BLayout{}, w, depth, BITS, shift_w);
  typename Traits::CLayout places;
  S c[4];
  CUTE_UNROLL
  for (int i = 0; i < 4; ++i) c[i] = y[places(threadIdx.x, i) % 16 * 8 + places(threadIdx.x, i) / 16];
  if constexpr (sizeof(b) == 4) Op::fma(c[0], c[1], c[2], c[3], a[0], a[1], b[0], c[0], c[1], c[2], c[3]);
  else Op::fma(c[0], c[1], c[2], c[3], a[0], a[1], a[2], a[3], b[0], b[1], c[0], c[1], c[2], c[3]);
  CUTE_UNROLL
  for (int i = 0; i < 4; ++i) y[places(threadIdx.x, i) % 16 * 8 + places(threadIdx.x, i) / 16] = c[i];
}

#define ATOM(name, op, bits, in, out, ...) \
  extern "C" __global__ void name(const in* x, const in* w, out* y) { atom<op, bits>(x, w, y, ##__VA_ARGS__); }

#ifndef NARROW
ATOM(atom_f16, SM80_16x8x16_F32F16F16F32_TN, 16, uint16_t, float)
ATOM(atom_bf16, SM80_16x8x16_F32BF16BF16F32_TN, 16, uint16_t, float)
ATOM(atom_tf32, SM80_16x8x8_F32TF32TF32F32_TN, 32, uint32_t, float)
ATOM(atom_s8, SM80_16x8x32_S32S8S8S32_TN, 8, uint8_t, uint32_t)
ATOM(atom_u8_s8, SM80_16x8x32_S32U8S8S32_TN, 8, uint8_t, uint32_t)
ATOM(atom_s8_u8, SM80_16x8x32_S32S8U8S32_TN, 8, uint8_t, uint32_t)

// y = x·w of 32×32 tiles by four warps: x comes in by asynchronous copies, both operands through ldmatrix, w, which is not
// turned, by the transposing one.
extern "C" __global__ void tiles(const half_t* x, const half_t* w, float* y, int depth) {
  __shared__ alignas(16) half_t xs[32 * 32], ws[32 * 32];
  auto rows = composition(Swizzle<2, 3, 3>{}, Layout<Shape<_32, _32>, Stride<_32, _1>>{});
  auto columns = composition(Swizzle<2, 3, 3>{}, Layout<Shape<_32, _32>, Stride<_1, _32>>{});  // (column, depth)
  Tensor sx = make_tensor(make_smem_ptr(xs), rows);
  Tensor sw = make_tensor(make_smem_ptr(ws), columns);
  auto mma = make_tiled_mma(SM80_16x8x16_F32F16F16F32_TN{}, Layout<Shape<_2, _2, _1>>{}, Tile<_32, _32, _16>{});
  auto mine = mma.get_slice(threadIdx.x);
  Tensor gy = make_tensor(make_gmem_ptr(y), Layout<Shape<_32, _32>, Stride<_32, _1>>{});
  Tensor py = mine.partition_C(gy);
  Tensor total = mine.make_fragment_C(py);
  clear(total);
  Tensor fx = mine.partition_fragment_A(sx);
  Tensor fw = mine.partition_fragment_B(sw);
  auto load_x = make_tiled_copy_A(Copy_Atom<SM75_U32x4_LDSM_N, half_t>{}, mma);
  auto load_w = make_tiled_copy_B(Copy_Atom<SM75_U16x8_LDSM_T, half_t>{}, mma);
  auto in = make_tiled_copy(Copy_Atom<SM80_CP_ASYNC_CACHEGLOBAL<uint128_t>, half_t>{}, Layout<Shape<_32, _4>, Stride<_4, _1>>{}, Layout<Shape<_1, _8>>{});
  auto in_w = make_tiled_copy(Copy_Atom<SM80_CP_ASYNC_CACHEALWAYS<uint64_t>, half_t>{}, Layout<Shape<_8, _16>, Stride<_1, _8>>{}, Layout<Shape<_4, _1>>{});
  CUTE_NO_UNROLL
  for (int first = 0; first < depth; first += 32) {
    Tensor gx = make_tensor(make_gmem_ptr(x + first), make_layout(Shape<_32, _32>{}, make_stride(depth, _1{})));
    Tensor gw = make_tensor(make_gmem_ptr(w + first * 32), Layout<Shape<_32, _32>, Stride<_1, _32>>{});
    copy(in, in.get_slice(threadIdx.x).partition_S(gx), in.get_slice(threadIdx.x).partition_D(sx));
    copy(in_w, in_w.get_slice(threadIdx.x).partition_S(gw), in_w.get_slice(threadIdx.x).partition_D(sw));
    cp_async_fence();
    cp_async_wait<0>();
    __syncthreads();
    copy(load_x, load_x.get_slice(threadIdx.x).partition_S(sx), load_x.get_slice(threadIdx.x).retile_D(fx));
    copy(load_w, load_w.get_slice(threadIdx.x).partition_S(sw), load_w.get_slice(threadIdx.x).retile_D(fw));
    gemm(mma, fx, fw, total);
    __syncthreads();
  }
  copy(total, py);
}
#else
ATOM(atom_e4m3, SM89_16x8x32_F32E4M3E4M3F32_TN, 8, uint8_t, float)
ATOM(atom_e4m3_e5m2, SM89_16x8x32_F32E4M3E5M2F32_TN, 8, uint8_t, float)
ATOM(atom_e5m2_e4m3, SM89_16x8x32_F32E5M2E4M3F32_TN, 8, uint8_t, float)
ATOM(atom_e5m2, SM89_16x8x32_F32E5M2E5M2F32_TN, 8, uint8_t, float)
// A 4-bit code lies in the middle of its byte.
using E4M3_E2M1 = SM120_16x8x32_TN<float_e4m3_t, float_e2m1_t, float>;
using E2M1_E5M2 = SM120_16x8x32_TN<float_e2m1_t, float_e5m2_t, float>;
ATOM(atom_e4m3_e2m1, E4M3_E2M1, 8, uint8_t, float, 0, 2)
ATOM(atom_e2m1_e5m2, E2M1_E5M2, 8, uint8_t, float, 2, 0)

// The scales that a lane gives, one a byte, as the traits say which.
template <int ROWS, int BLOCK, class Layout>
__device__ uint32_t scales(Layout layout, const uint8_t* from, int depth) {
  uint32_t word = 0;
  CUTE_UNROLL
  for (int i = 0; i < depth / BLOCK; ++i) {
    int at = layout(threadIdx.x, i * BLOCK);
    word |= uint32_t(from[at % ROWS * (depth / BLOCK) + at / ROWS / BLOCK]) << (8 * i);
  }
  return word;
}

template <class Op, int BITS, int BLOCK>
__device__ void block_atom(const uint8_t* x, const uint8_t* x_scale, const uint8_t* w, const uint8_t* w_scale, float* y, int shift_w = 0) {
  using Traits = MMA_Traits<Op>;
  constexpr int depth = size<2>(typename Traits::Shape_MNK{});
  uint32_t a[4], b[2];
  gather<16>(a, typename Traits::ALayout{}, x, depth, BITS);
  gather<8>(b, typename Traits::BLayout{}, w, depth, BITS, shift_w);
  uint32_t sa = scales<16, BLOCK>(typename Traits::SFALayout{}, x_scale, depth);
  uint32_t sb = scales<8, BLOCK>(typename Traits::SFBLayout{}, w_scale, depth);
  typename Traits::CLayout places;
  float c[4];
  CUTE_UNROLL
  for (int i = 0; i < 4; ++i) c[i] = y[places(threadIdx.x, i) % 16 * 8 + places(threadIdx.x, i) / 16];
  using F = typename remove_extent<typename Op::SFARegisters>::type;
  Op::fma(c[0], c[1], c[2], c[3], a[0], a[1], a[2], a[3], b[0], b[1], c[0], c[1], c[2], c[3], F(sa), F(sb));
  CUTE_UNROLL
  for (int i = 0; i < 4; ++i) y[places(threadIdx.x, i) % 16 * 8 + places(threadIdx.x, i) / 16] = c[i];
}

#define BLOCK_ATOM(name, bits, block, ...) \
  extern "C" __global__ void name(const uint8_t* x, const uint8_t* xs, const uint8_t* w, const uint8_t* ws, float* y) { \
    block_atom<__VA_ARGS__, bits, block>(x, xs, w, ws, y); }
BLOCK_ATOM(atom_nvfp4, 4, 16, SM120::BLOCKSCALED::SM120_16x8x64_TN_VS<float_e2m1_t, float_e2m1_t, float, float_ue4m3_t, 16>)
BLOCK_ATOM(atom_mxfp4, 4, 32, SM120::BLOCKSCALED::SM120_16x8x64_TN_VS<float_e2m1_t, float_e2m1_t, float, float_ue8m0_t, 32>)
BLOCK_ATOM(atom_mxfp8, 8, 32, SM120::BLOCKSCALED::SM120_16x8x32_TN_VS<float_e4m3_t, float_e4m3_t, float, float_ue8m0_t, 32>)

// y = x in 16 bits, by four 8×8 matrices of a warp: stmatrix puts into shared memory what ldmatrix's order gives.
extern "C" __global__ void storing(const half_t* x, half_t* y) {
  __shared__ alignas(16) half_t s[16 * 16];
  auto rows = Layout<Shape<_16, _16>, Stride<_16, _1>>{};
  Tensor shared = make_tensor(make_smem_ptr(s), rows);
  auto mma = make_tiled_mma(SM80_16x8x16_F32F16F16F32_TN{}, Layout<Shape<_1, _1, _1>>{}, Tile<_16, _16, _16>{});
  auto mine = mma.get_slice(threadIdx.x);
  Tensor gx = make_tensor(make_gmem_ptr(x), rows);
  Tensor px = mine.partition_C(gx);
  Tensor fragment = make_tensor<half_t>(px.shape());
  copy(px, fragment);
  auto store = make_tiled_copy_C(Copy_Atom<SM90_U32x4_STSM_N, half_t>{}, mma);
  copy(store, store.get_slice(threadIdx.x).retile_S(fragment), store.get_slice(threadIdx.x).partition_D(shared));
  __syncthreads();
  for (int i = threadIdx.x; i < 256; i += 32) y[i] = s[i];
}

// Eight numbers of each thread in 4, 8 and 16 bits, as CUTLASS packs them.
template <class T, int N>
__device__ void narrowed(const float* x, uint32_t* y) {
  CUTE_UNROLL
  for (int i = 0; i < 8 / N; ++i) {
    cutlass::Array<float, N> v;
    CUTE_UNROLL
    for (int e = 0; e < N; ++e) v[e] = x[i * N + e];
    cutlass::Array<T, N> n = cutlass::NumericArrayConverter<T, float, N>::convert(v);
    y[i] = reinterpret_cast<uint32_t const&>(n);
  }
}
extern "C" __global__ void narrowing(const float* x, uint32_t* four, uint32_t* eight, uint32_t* sixteen) {
  int i = blockIdx.x * 32 + threadIdx.x;
  narrowed<cutlass::float_e2m1_t, 8>(x + 8 * i, four + i);
  narrowed<cutlass::float_e4m3_t, 4>(x + 8 * i, eight + 2 * i);
  narrowed<cutlass::bfloat16_t, 2>(x + 8 * i, sixteen + 4 * i);
}
#endif
