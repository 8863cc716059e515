// The PTX instructions that the kernels of grouped.cu use, one function each. Layouts of fragments are those of the PTX
// manual, "Matrix fragments for mma.m16n8k16". No headers are included: NVRTC may have none.

typedef unsigned short u16;
typedef unsigned int u32;

#define DEVICE __device__ __forceinline__

#if HALF
#define ELEMENT "f16"
#else
#define ELEMENT "bf16"
#endif

// Where the block's shared memory begins.
DEVICE u32 shared_begin() {
  extern __shared__ uint4 shared_memory[];
  return (u32)__cvta_generic_to_shared(shared_memory);
}

// Copy sixteen bytes to shared memory, without waiting; zeros if `inside` is false.
DEVICE void copy16(u32 to, const u16* from, bool inside) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(inside ? 16 : 0) : "memory");
}

DEVICE void wait_for_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// Load four 8x8 matrices; lanes 8k to 8k+7 give the addresses of the rows of matrix k.
DEVICE void load4(u32 (&to)[4], u32 row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(row) : "memory");
}

// Load four 8x8 matrices, each transposed.
DEVICE void load4_transposed(u32 (&to)[4], u32 row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(row) : "memory");
}

// sum += a b, [16, 16] by [16, 8].
DEVICE void multiply16(float (&sum)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32." ELEMENT "." ELEMENT ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// The same, [16, 8] by [8, 8].
DEVICE void multiply8(float (&sum)[4], u32 a0, u32 a1, u32 b0) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32." ELEMENT "." ELEMENT ".f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, "
      "{%0, %1, %2, %3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3]) : "r"(a0), "r"(a1), "r"(b0));
}

// Two numbers, rounded; the first in the lower half.
DEVICE u32 pack(float low, float high) {
  u32 both;
  asm("cvt.rn." ELEMENT "x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
}

DEVICE u32 shuffle_xor(u32 value, int differing_bit) {
  u32 other;
  asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 31, -1;" : "=r"(other) : "r"(value), "r"(differing_bit));
  return other;
}

DEVICE void store16(u16* to, u32 a, u32 b, u32 c, u32 d) { *(uint4*)to = make_uint4(a, b, c, d); }

DEVICE void store8(u16* to, u32 a, u32 b) { *(uint2*)to = make_uint2(a, b); }

DEVICE void sync_block() { __syncthreads(); }
