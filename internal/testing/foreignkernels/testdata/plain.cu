// Kernels for nvcc without its library's code: what its front and back ends make of C++. make.py compiles them.
typedef unsigned u32;
typedef unsigned short u16;
typedef unsigned char u8;
typedef unsigned long long u64;

// y[0] += Σ x: down the lanes of each warp, then through shared memory, then by an atomic of each block.
extern "C" __global__ void sum(const float* x, float* y, int n) {
  __shared__ float part[8];
  float s = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) s += x[i];
  for (int step = 16; step > 0; step /= 2) s += __shfl_down_sync(0xffffffffu, s, step);
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = s;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int w = 1; w < 8; ++w) s += part[w];
    atomicAdd(y, s);
  }
}

// Bins of bytes in shared memory first.
extern "C" __global__ void bins(const u8* x, u32* y, int n) {
  __shared__ u32 count[64];
  if (threadIdx.x < 64) count[threadIdx.x] = 0;
  __syncthreads();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd(&count[x[i] % 64], 1u);
  __syncthreads();
  if (threadIdx.x < 64) atomicAdd(&y[threadIdx.x], count[threadIdx.x]);
}

// Sums so far in blocks of 128, up the lanes.
extern "C" __global__ void prefix(const int* x, int* y) {
  __shared__ int last[4];
  int i = blockIdx.x * 128 + threadIdx.x, lane = threadIdx.x % 32, v = x[i];
  for (int step = 1; step < 32; step *= 2) {
    int below = __shfl_up_sync(0xffffffffu, v, step);
    if (lane >= step) v += below;
  }
  if (lane == 31) last[threadIdx.x / 32] = v;
  __syncthreads();
  for (int w = 0; w < threadIdx.x / 32; ++w) v += last[w];
  y[i] = v;
}

// Each element from the lane that another names, and the sum, greatest and least of the warp's.
extern "C" __global__ void lanes(const int* x, const int* from, int* y) {
  int i = blockIdx.x * 32 + threadIdx.x, v = x[i];
  int other = __shfl_sync(0xffffffffu, v, from[i]);
  y[4 * i] = other;
  y[4 * i + 1] = __reduce_add_sync(0xffffffffu, v);
  y[4 * i + 2] = __reduce_max_sync(0xffffffffu, v);
  y[4 * i + 3] = (int)__reduce_min_sync(0xffffffffu, (u32)v);
}

// What C++ does with integers of all widths.
extern "C" __global__ void integers(const u32* x, u32* y) {
  int i = blockIdx.x * 64 + threadIdx.x;
  u32 v = x[i];
  u16 h = (u16)v;
  struct { u32 low : 5, middle : 11, high : 16; } f;
  f.low = v >> 3; f.middle = v >> 7; f.high = v;
  u32 fields = *(u32*)&f;
  u64 wide = (u64)v * 2654435761u + v;
  y[8 * i] = h / 10 + (u32)(u16)(h % 10) * 65536u;
  y[8 * i + 1] = fields;
  y[8 * i + 2] = (u32)(wide >> 32);
  y[8 * i + 3] = (v << 7) | (v >> 25);
  y[8 * i + 4] = (u32)((int)v / 1000) ^ v / 48271u;
  y[8 * i + 5] = __byte_perm(v, ~v, 0x2614);
  y[8 * i + 6] = (u32)(signed char)v + (u32)(short)v;
  y[8 * i + 7] = (u32)(wide % 1000003u);
}

// Roundings, conversions, the ends of ranges.
extern "C" __global__ void numbers(const float* x, float* y, double* z) {
  int i = blockIdx.x * 64 + threadIdx.x;
  float v = x[i];
  y[8 * i] = __saturatef(v);
  y[8 * i + 1] = __fmaf_rd(v, 1.1f, 0.3f);
  y[8 * i + 2] = (float)(int)v;
  y[8 * i + 3] = (float)(long long)v;
  y[8 * i + 4] = floorf(v) + 0.5f * ceilf(v);
  y[8 * i + 5] = fminf(v, 3.25f) - fmaxf(v, -1.5f);
  y[8 * i + 6] = v > 1 ? v / 3 : v * v;
  y[8 * i + 7] = (float)(u8)(int)v;
  z[i] = (double)v * v / 3 - 0.5;
}

// Products of matrices, tile by tile in shared memory.
extern "C" __global__ void tiled(const float* x, const float* w, float* y, int rows, int columns, int depth) {
  __shared__ float a[16][17], b[16][16];
  int r = blockIdx.y * 16 + threadIdx.y, c = blockIdx.x * 16 + threadIdx.x;
  float total = 0;
  for (int first = 0; first < depth; first += 16) {
    a[threadIdx.y][threadIdx.x] = r < rows && first + threadIdx.x < depth ? x[r * depth + first + threadIdx.x] : 0;
    b[threadIdx.y][threadIdx.x] = c < columns && first + threadIdx.y < depth ? w[(first + threadIdx.y) * columns + c] : 0;
    __syncthreads();
    for (int d = 0; d < 16; ++d) total += a[threadIdx.y][d] * b[d][threadIdx.x];
    __syncthreads();
  }
  if (r < rows && c < columns) y[r * columns + c] = total;
}
