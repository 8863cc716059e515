// 3x3 convolutions in groups of GROUP = 4, 8, 16 or 32 channels, as many out as in: forward and backward.
//
// A block takes some rows of one image, or some whole images, and SLICE of the channels. It copies its input pixels and
// the pixels around them to shared memory once, zeros outside of the image. A warp keeps its weights in registers.
// A product has 16 pixels as its rows and 8 outputs as its columns; its depth is 16: two taps of 8 inputs where groups
// have 4 or 8 channels (two groups of 4 have zeros between them), 16 inputs of one tap where they have more.
//
// x and out are [count, height, width, channels]; weight is [channels, 3, 3, GROUP].
// Macros that grouped_cuda.py sets: KERNEL (FORWARD, BACKWARD or WEIGHT), GROUP, STRIDE, SLICE (32 or 64), TRANSPOSED
// (outputs and inputs of the weights change places), HALF (fp16, else bf16), WARPS, RESIDENT (blocks on a
// multiprocessor). An octet is 8 neighbouring channels, a tap one of the 9 weights of a window. grouped_ptx.cu, which
// is compiled before this file, has the instructions, and DEVICE for inline functions.

#define FORWARD 1
#define BACKWARD 2
#define WEIGHT 3

constexpr int OCTETS = GROUP <= 8 ? 1 : GROUP / 8;  // of inputs that an output depends on
constexpr int OWN = GROUP <= 8 ? 4 : 2;             // octets of outputs that a warp has
constexpr int STEPS = GROUP <= 8 ? 5 : 9 * OCTETS / 2;  // products of a window, for each octet of outputs
constexpr int CHUNKS = SLICE / 8;  // copies of 16 bytes for a pixel
constexpr int PITCH = SLICE * 2 + 16;  // bytes from pixel to pixel: eight neighbours lie in different banks
constexpr int COLUMNS = SLICE / (8 * OWN);  // warps side by side

// Images in global memory.
struct Images {
  int count, height, width, channels;
};

// The part of them that a block has in shared memory, from address `begin` on.
struct Tile {
  u32 begin;
  int image, images, top, left;  // its first image and pixel, which may be outside
  int rows, columns;
  int half;  // for a stride of 2: even columns come first, odd ones from here on; 0: columns in their order

  DEVICE int row_length() const { return half ? 2 * half : columns; }
};

struct Position {
  int image, row, column;
};

DEVICE int minimum(int a, int b) { return a < b ? a : b; }

// Division of numbers below 4096, such as pixels of a block, by a fixed number up to 224: a product and a shift.
struct Divider {
  u32 factor, by;
  DEVICE explicit Divider(int number) : factor(((1u << 20) + number - 1) / number), by(number) {}
  DEVICE int divide(int number) const { return (int)((u32)number * factor >> 20); }
};

DEVICE Position find_position(int index, const Divider& width, const Divider& rows) {
  int row_index = width.divide(index);
  int image = rows.divide(row_index);
  return {image, row_index - image * (int)rows.by, index - row_index * (int)width.by};
}

DEVICE void load_tile(const Tile& tile, const u16* x, const Images& all, int slice) {
  int lane = threadIdx.x % 32, chunk = lane % CHUNKS;
  for (int row_index = threadIdx.x / 32; row_index < tile.images * tile.rows; row_index += WARPS) {
    int image = tile.image + row_index / tile.rows, row = tile.top + row_index % tile.rows;
    bool row_inside = image < all.count && row >= 0 && row < all.height;
    long long start = ((long long)image * all.height + row) * all.width * all.channels + slice + chunk * 8;
    for (int column = lane / CHUNKS; column < tile.columns; column += 32 / CHUNKS) {
      int image_column = tile.left + column;
      bool inside = row_inside && image_column >= 0 && image_column < all.width;
      int pixel = row_index * tile.row_length() + (tile.half ? (column & 1) * tile.half + (column >> 1) : column);
      const u16* from = inside ? x + start + (long long)image_column * all.channels : x;
      copy16(tile.begin + pixel * PITCH + chunk * 16, from, inside);
    }
  }
}

// The weights of two neighbouring inputs of an output; the index of the first, within the OCTETS, is even.
DEVICE u32 weight_pair(const u16* weight, int output, int tap, int input) {
  if (GROUP == 4 && (output & 4) != (input & 4)) return 0;
  int inner = input % GROUP;
#if TRANSPOSED
  const u16* from = weight + ((output / GROUP * GROUP + inner) * 9 + tap) * GROUP + output % GROUP;
  return from[0] | (u32)from[9 * GROUP] << 16;
#else
  return *(const u32*)(weight + (output * 9 + tap) * GROUP + inner);
#endif
}

// The output in column `column` of octet `octet`, relative to the warp's first output. In large groups the columns are
// ordered so that the numbers of a lane are neighbours in memory.
DEVICE int output_of(int octet, int column) {
  return OCTETS == 1 ? octet * 8 + column : (column >> 1) * 4 + octet * 2 + (column & 1);
}

// Load the warp's weights into registers, in the order of the taps.
DEVICE void load_weights(u32 (&warp_weights)[OWN][STEPS][2], const u16* weight, int first, const int (&taps)[9]) {
  int lane = threadIdx.x % 32;
#pragma unroll
  for (int step = 0; step < STEPS; step++)
#pragma unroll
    for (int part = 0; part < 2; part++)
#pragma unroll
      for (int octet = 0; octet < OWN; octet++) {
        int tap = OCTETS == 1 ? 2 * step + part : 2 * step / OCTETS;
        int input = OCTETS == 1 ? 0 : (2 * step + part) % OCTETS * 8;
        int output = first + output_of(octet, lane / 4);
        warp_weights[octet][step][part] = tap < 9 ? weight_pair(weight, output, taps[tap], input + lane % 4 * 2) : 0;
      }
}

// Transpose the four words of each of four lanes: afterwards lane k has the k-th word of every lane.
DEVICE void transpose_lanes(u32 (&words)[4]) {
  int lane = threadIdx.x % 4;
#pragma unroll
  for (int bit = 2; bit > 0; bit /= 2) {
    bool upper = lane & bit;
#pragma unroll
    for (int index = 0; index < 4; index++) {
      if (index & bit) continue;
      u32 other = shuffle_xor(upper ? words[index] : words[index | bit], bit);
      (upper ? words[index] : words[index | bit]) = other;
    }
  }
}

// Store rows r and r + 8 of a product at `one` and `two`, the addresses of two pixels, if these are in the image.
DEVICE void store_sums(const float (&sums)[OWN][4], u16* one, bool one_inside, u16* two, bool two_inside) {
  int lane = threadIdx.x % 4;
#pragma unroll
  for (int below = 0; below < 2; below++) {
    u16* to = below ? two : one;
    bool inside = below ? two_inside : one_inside;
    u32 words[4];
#pragma unroll
    for (int octet = 0; octet < OWN; octet++) words[octet] = pack(sums[octet][2 * below], sums[octet][2 * below + 1]);
    if (OCTETS == 1) {
      transpose_lanes(words);
      if (inside) store16(to + lane * 8, words[0], words[1], words[2], words[3]);
    } else if (inside) {
      store8(to + lane * 4, words[0], words[1]);
    }
  }
}

// The first input of a warp whose first output is `output`.
DEVICE int first_input(int output) { return OCTETS == 1 ? output : output / GROUP * GROUP; }

DEVICE u32 tap_shift(const Tile& tile, int tap) {
  int row = tap / 3, column = tap % 3;
  return (row * tile.row_length() + (STRIDE == 2 ? (column & 1) * tile.half + (column >> 1) : column)) * PITCH;
}

#if KERNEL == FORWARD
// The convolution; with TRANSPOSED weights and a stride of 1, the gradient w.r.t. the input.
extern "C" __global__ void __launch_bounds__(WARPS * 32, RESIDENT)
grouped_convolution(const u16* x, const u16* weight, u16* out, int count, int height, int width, int out_height,
                    int out_width, int channels, int top, int left, int rows, int images) {
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int slice = blockIdx.x * SLICE, first_row = blockIdx.y * rows, image = blockIdx.z * images;
  int own_rows = minimum(rows, out_height - first_row), columns = (out_width - 1) * STRIDE + 3;
  Tile tile = {shared_begin(), image, images, first_row * STRIDE - top, -left, (own_rows - 1) * STRIDE + 3,
               columns, STRIDE == 2 ? (columns + 1) / 2 : 0};
  load_tile(tile, x, {count, height, width, channels}, slice);

  int output = warp % COLUMNS * 8 * OWN;
  u32 warp_weights[OWN][STEPS][2];
#if TRANSPOSED
  const int taps[9] = {8, 7, 6, 5, 4, 3, 2, 1, 0};
#else
  const int taps[9] = {0, 1, 2, 3, 4, 5, 6, 7, 8};
#endif
  load_weights(warp_weights, weight, slice + output, taps);
  // In small groups the upper lanes read the second of two taps; in large ones the next octet.
  u32 shift[STEPS];
#pragma unroll
  for (int step = 0; step < STEPS; step++) {
    if (OCTETS == 1)
      shift[step] = step < 4 ? tap_shift(tile, 2 * step + lane / 16) : tap_shift(tile, 8) + lane / 16 * 16;
    else
      shift[step] = tap_shift(tile, 2 * step / OCTETS) + 2 * step % OCTETS * 16;
  }
  u32 begin = tile.begin + first_input(output) * 2 + (OCTETS == 1 ? 0 : lane / 16 * 16);
  Divider by_width(out_width), by_rows(own_rows);
  int pixels = minimum(images, count - image) * own_rows * out_width;
  u16* out_begin = out + (((long long)image * out_height + first_row) * out_width) * channels + slice + output;
  wait_for_copies();
  sync_block();

  for (int start = warp / COLUMNS * 16; start < pixels; start += WARPS / COLUMNS * 16) {
    Position at = find_position(minimum(start + lane % 16, pixels - 1), by_width, by_rows);
    int pixel = (at.image * tile.rows + at.row * STRIDE) * tile.row_length() + at.column;
    u32 from = begin + pixel * PITCH;
    float sums[OWN][4] = {};
    u32 a[4];
    if (OCTETS == 1) {
#pragma unroll
      for (int step = 0; step < 4; step++)
#pragma unroll
        for (int octet = 0; octet < OWN; octet++) {
          load4(a, from + shift[step] + octet * 16);
          multiply16(sums[octet], a[0], a[1], a[2], a[3], warp_weights[octet][step][0], warp_weights[octet][step][1]);
        }
#pragma unroll
      for (int octet = 0; octet < OWN; octet += 2) {
        load4(a, from + shift[4] + octet * 16);
        multiply8(sums[octet], a[0], a[1], warp_weights[octet][4][0]);
        multiply8(sums[octet + 1], a[2], a[3], warp_weights[octet + 1][4][0]);
      }
    } else {
#pragma unroll
      for (int step = 0; step < STEPS; step++) {
        load4(a, from + shift[step]);
#pragma unroll
        for (int octet = 0; octet < OWN; octet++)
          multiply16(sums[octet], a[0], a[1], a[2], a[3], warp_weights[octet][step][0], warp_weights[octet][step][1]);
      }
    }
    u16* to = out_begin + (u32)(start + lane / 4) * channels;
    store_sums(sums, to, start + lane / 4 < pixels, to + 8 * channels, start + lane / 4 + 8 < pixels);
  }
}

#elif KERNEL == BACKWARD
// Gradient w.r.t. the input for a stride of 2. Rows and columns are counted with the padding: an even row is
// read by taps 0 and 2, of this row of gradients and the one before, an odd one by tap 1. So the four pixels of a
// square need four gradients between them, with which all nine taps are multiplied.
extern "C" __global__ void __launch_bounds__(WARPS * 32, RESIDENT)
grouped_convolution_input(const u16* gradient, const u16* weight, u16* out, int count, int height, int width,
                          int out_height, int out_width, int channels, int top, int left, int rows, int images) {
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int slice = blockIdx.x * SLICE, first_row = blockIdx.y * rows, image = blockIdx.z * images;
  int squares_down = (height - 1 + top) / 2 + 1, squares_across = (width - 1 + left) / 2 + 1;
  int own_rows = minimum(rows, squares_down - first_row);
  Tile tile = {shared_begin(), image, images, first_row - 1, -1, own_rows + 1, squares_across + 1, 0};
  load_tile(tile, gradient, {count, out_height, out_width, channels}, slice);

  int output = warp % COLUMNS * 8 * OWN;
  u32 warp_weights[OWN][STEPS][2];
#if GROUP <= 8
  const int taps[9] = {0, 2, 6, 8, 3, 5, 1, 7, 4};
#else
  const int taps[9] = {0, 1, 2, 3, 4, 5, 6, 7, 8};
#endif
  load_weights(warp_weights, weight, slice + output, taps);
  u32 begin = tile.begin + first_input(output) * 2;
  // In small groups the upper lanes read the gradient to the left; in large ones the next octet.
  begin += OCTETS == 1 ? (lane < 16 ? PITCH : 0) : lane / 16 * 16;
  Divider by_width(squares_across), by_rows(own_rows);
  int squares = minimum(images, count - image) * own_rows * squares_across;
  long long row_stride = (long long)width * channels;
  u16* out_begin = out + image * height * row_stride + slice + output;
  wait_for_copies();
  sync_block();

  for (int start = warp / COLUMNS * 16; start < squares; start += WARPS / COLUMNS * 16) {
    Position at = find_position(minimum(start + lane % 16, squares - 1), by_width, by_rows);
    u32 above = begin + ((at.image * tile.rows + at.row) * tile.columns + at.column) * PITCH;
    u32 here = above + tile.columns * PITCH;
    float sums[4][OWN][4] = {};  // of the even row: even column, odd column; of the odd row
    u32 a[4];
    if (OCTETS == 1) {
      u32 b[4];
#pragma unroll
      for (int octet = 0; octet < OWN; octet++) {
        u32(&w)[STEPS][2] = warp_weights[octet];
        load4(a, here + octet * 16);
        load4(b, above + octet * 16);
        multiply16(sums[0][octet], a[0], a[1], a[2], a[3], w[0][0], w[0][1]);
        multiply16(sums[0][octet], b[0], b[1], b[2], b[3], w[1][0], w[1][1]);
        multiply16(sums[2][octet], a[0], a[1], a[2], a[3], w[2][0], w[2][1]);
        multiply16(sums[1][octet], a[0], a[1], b[0], b[1], w[3][0], w[3][1]);
        multiply8(sums[3][octet], a[0], a[1], w[4][0]);
      }
    } else {
#pragma unroll
      for (int part = 0; part < OCTETS / 2; part++)
#pragma unroll
        for (int back = 0; back < 4; back++) {  // rows and columns back
          load4(a, (back / 2 ? above : here) + (back % 2 ? 0 : PITCH) + part * 32);
#pragma unroll
          for (int tap = 0; tap < 9; tap++) {
            int row = tap / 3, column = tap % 3;
            if (row / 2 != back / 2 || column / 2 != back % 2) continue;
#pragma unroll
            for (int octet = 0; octet < OWN; octet++) {
              u32(&w)[2] = warp_weights[octet][tap * OCTETS / 2 + part];
              multiply16(sums[row % 2 * 2 + column % 2][octet], a[0], a[1], a[2], a[3], w[0], w[1]);
            }
          }
        }
    }
    u16* targets[2];
    bool inside[2][4];
#pragma unroll
    for (int below = 0; below < 2; below++) {
      int square = start + lane / 4 + below * 8;
      Position to = find_position(square, by_width, by_rows);
      int row = 2 * (first_row + to.row) - top, column = 2 * to.column - left;
      targets[below] = out_begin + (to.image * height + row) * row_stride + column * channels;
      bool rows_inside[2] = {square < squares && row >= 0 && row < height, square < squares && row + 1 < height};
      bool columns_inside[2] = {column >= 0 && column < width, column + 1 < width};
#pragma unroll
      for (int kind = 0; kind < 4; kind++) inside[below][kind] = rows_inside[kind / 2] && columns_inside[kind % 2];
    }
#pragma unroll
    for (int kind = 0; kind < 4; kind++) {
      long long further = kind / 2 * row_stride + kind % 2 * channels;
      store_sums(sums[kind], targets[0] + further, inside[0][kind], targets[1] + further, inside[1][kind]);
    }
  }
}
#elif KERNEL == WEIGHT
// Gradient w.r.t. the weights. A warp accumulates 16 outputs by 16 inputs for all nine taps, from its first pixel to
// its last; products of different groups are dropped at the end. Warps write partial sums, [channels, 3, 3, GROUP] in
// float32 each, which the caller adds; a warp fills the channels of its outputs.
constexpr int JOBS = GROUP == 32 ? SLICE / 8 : SLICE / 16;  // such squares of a slice, one for each warp

extern "C" __global__ void __launch_bounds__(WARPS * 32, RESIDENT)
grouped_convolution_weight(const u16* x, const u16* gradient, float* parts, int count, int height, int width,
                           int out_height, int out_width, int channels, int top, int left, int rows, int images) {
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32, job = warp % JOBS;
  int slice = blockIdx.x * SLICE;
  int output = GROUP == 32 ? job / 2 * 16 : job * 16;
  int input = GROUP == 32 ? output / 32 * 32 + job % 2 * 16 : output;
  int strips = (out_height + rows - 1) / rows, tiles = strips * ((count + images - 1) / images);
  int columns = (out_width - 1) * STRIDE + 3, half = STRIDE == 2 ? (columns + 1) / 2 : 0;
  float sums[9][2][4] = {};

  for (int tile_index = blockIdx.y; tile_index < tiles; tile_index += gridDim.y) {
    int image = tile_index / strips * images, first_row = tile_index % strips * rows;
    int own_rows = minimum(rows, out_height - first_row);
    Tile tile = {shared_begin(), image, images, first_row * STRIDE - top, -left, (own_rows - 1) * STRIDE + 3,
                 columns, half};
    int pixels = minimum(images, count - image) * own_rows * out_width;
    u32 gradient_begin = tile.begin + images * tile.rows * tile.row_length() * PITCH;
    const u16* first_pixel = gradient + (((long long)image * out_height + first_row) * out_width) * channels + slice;
    load_tile(tile, x, {count, height, width, channels}, slice);
    for (int index = threadIdx.x; index < (pixels + 15) / 16 * 16 * CHUNKS; index += WARPS * 32) {
      int pixel = index / CHUNKS, chunk = index % CHUNKS;
      bool inside = pixel < pixels;
      const u16* from = inside ? first_pixel + (long long)pixel * channels + chunk * 8 : gradient;
      copy16(gradient_begin + pixel * PITCH + chunk * 16, from, inside);
    }
    Divider by_width(out_width), by_rows(own_rows);
    u32 begin = tile.begin + input * 2 + lane / 16 * 16;
    u32 gradient_address = gradient_begin + (lane % 8 + lane / 16 * 8) * PITCH + output * 2 + lane / 8 % 2 * 16;
    wait_for_copies();
    sync_block();
    for (int start = warp / JOBS * 16; start < pixels; start += WARPS / JOBS * 16) {
      Position at = find_position(minimum(start + lane % 16, pixels - 1), by_width, by_rows);
      u32 from = begin + ((at.image * tile.rows + at.row * STRIDE) * tile.row_length() + at.column) * PITCH;
      u32 a[4], b[4];
      load4_transposed(a, gradient_address + start * PITCH);
#pragma unroll
      for (int tap = 0; tap < 9; tap++) {
        load4_transposed(b, from + tap_shift(tile, tap));
        multiply16(sums[tap][0], a[0], a[1], a[2], a[3], b[0], b[1]);
        multiply16(sums[tap][1], a[0], a[1], a[2], a[3], b[2], b[3]);
      }
    }
    sync_block();
  }

  float* part = parts + (long long)(blockIdx.y * (WARPS / JOBS) + warp / JOBS) * channels * 9 * GROUP;
#pragma unroll
  for (int tap = 0; tap < 9; tap++)
#pragma unroll
    for (int octet = 0; octet < 2; octet++)
#pragma unroll
      for (int below = 0; below < 2; below++) {
        int row = lane / 4 + below * 8, column = octet * 8 + lane % 4 * 2;
        if (GROUP < 16 && row / GROUP != column / GROUP) continue;
        float* to = part + ((slice + output + row) * 9 + tap) * GROUP + (input + column) % GROUP;
        to[0] = sums[tap][octet][2 * below];
        to[1] = sums[tap][octet][2 * below + 1];
      }
}
#endif
