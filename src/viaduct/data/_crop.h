/* Training crops: the same draws and results as `draw_crop` in geometry.py with the generator `sample_generator` of
 * order.py. Tests compare the two.
 */
#ifndef VIADUCT_CROP_H
#define VIADUCT_CROP_H

#include <math.h>
#include <stdint.h>

#define PURPOSE_SAMPLE 7 /* order.Purpose.SAMPLE */
#define MOST_BOXES 64    /* an image with more is left to Python */

/* Philox4x64-10 as in NumPy, which increments the counter before every four words. */
typedef struct {
    uint64_t counter[4], key[2], words[4];
    int used;
} Chance;

typedef struct {
    double low, high;              /* range of width / height */
    double least_area, most_area;  /* fractions of the image's area */
    double least_covered;          /* share of at least one object that the crop must cover */
    int64_t attempts, uses_boxes;
    int64_t frame; /* side of the square to sample in; the crop is then stretched to the image; 0: no square */
} Sampler;

typedef enum { NOT_MIRRORED, MIRRORED_BEFORE, MIRRORED_AFTER } Mirroring; /* before or after resizing */

typedef struct {
    int64_t y, x, height, width;
} Crop;

static inline uint64_t multiply(uint64_t a, uint64_t b, uint64_t *high) {
    const unsigned __int128 product = (unsigned __int128)a * b;
    *high = (uint64_t)(product >> 64);
    return (uint64_t)product;
}

static Chance chance_of(uint64_t seed, uint64_t epoch, uint64_t position) {
    return (Chance){{0, position, 0, PURPOSE_SAMPLE}, {seed, epoch}, {0, 0, 0, 0}, 4};
}

static void draw_words(Chance *chance) {
    /* The first word of the counter never overflows: that would take 2^64 calls. */
    chance->counter[0]++;
    uint64_t c[4] = {chance->counter[0], chance->counter[1], chance->counter[2], chance->counter[3]};
    uint64_t key[2] = {chance->key[0], chance->key[1]};
    for (int round = 0; round < 10; round++) {
        uint64_t high0, high1;
        const uint64_t low0 = multiply(0xD2E7470EE14C6C93ULL, c[0], &high0);
        const uint64_t low1 = multiply(0xCA5A826395121157ULL, c[2], &high1);
        const uint64_t next[4] = {high1 ^ c[1] ^ key[0], low1, high0 ^ c[3] ^ key[1], low0};
        for (int i = 0; i < 4; i++) c[i] = next[i];
        key[0] += 0x9E3779B97F4A7C15ULL;
        key[1] += 0xBB67AE8584CAA73BULL;
    }
    for (int i = 0; i < 4; i++) chance->words[i] = c[i];
    chance->used = 0;
}

/* Draw from [0, 1) with 53 bits, as `Generator.random` does. */
static double draw_uniform(Chance *chance) {
    if (chance->used == 4) draw_words(chance);
    return (double)(chance->words[chance->used++] >> 11) * (1.0 / 9007199254740992.0);
}

static int64_t draw_choice(Chance *chance, int64_t choices) {
    return choices > 1 ? (int64_t)(draw_uniform(chance) * (double)choices) : 0;
}

/* Round halves to the even number, as Python does. */
static inline int64_t rounded(double value) { return (int64_t)nearbyint(value); }

static int64_t tallest_that_fits(double ratio, double most_area, int64_t height, int64_t width) {
    int64_t tallest = rounded(sqrt(most_area / ratio));
    if (rounded((double)tallest * ratio) > width) {
        tallest = (int64_t)(((double)width + 0.5) / ratio);
        if (rounded((double)tallest * ratio) > width) tallest--;
    }
    return tallest < height ? tallest : height;
}

static int attempt_crop(const Sampler *sampler, int64_t height, int64_t width, Chance *chance, Crop *crop) {
    const double ratio = sampler->low + (sampler->high - sampler->low) * draw_uniform(chance);
    const double least_area = sampler->least_area * (double)width * (double)height;
    const double most_area = sampler->most_area * (double)width * (double)height;
    const int64_t tallest = tallest_that_fits(ratio, most_area, height, width);
    int64_t shortest = rounded(sqrt(least_area / ratio));
    if (shortest > tallest) shortest = tallest;
    int64_t high = shortest + draw_choice(chance, tallest - shortest + 1);
    if ((double)(high * rounded((double)high * ratio)) < least_area) high++;
    if ((double)(high * rounded((double)high * ratio)) > most_area) high--;
    const int64_t wide = rounded((double)high * ratio);
    const double area = (double)(high * wide);
    if (!(least_area <= area && area <= most_area)) return 0;
    if (!(0 < high && high <= height && 0 < wide && wide <= width)) return 0;
    crop->y = draw_choice(chance, height - high);
    crop->x = draw_choice(chance, width - wide);
    crop->height = high;
    crop->width = wide;
    return 1;
}

static inline int64_t shared_length(int64_t a, int64_t long_a, int64_t b, int64_t long_b) {
    const int64_t begin = a > b ? a : b, end = a + long_a < b + long_b ? a + long_a : b + long_b;
    return end > begin ? end - begin : 0;
}

static int covers(const Crop *crop, const Crop *objects, int count, double least) {
    for (int i = 0; i < count; i++) {
        const Crop *box = &objects[i];
        if (box->height * box->width <= 0) continue;
        const int64_t rows = shared_length(crop->y, crop->height, box->y, box->height);
        const int64_t columns = shared_length(crop->x, crop->width, box->x, box->width);
        if ((double)(rows * columns) >= least * (double)box->height * (double)box->width) return 1;
    }
    return 0;
}

static Crop sample_crop(const Sampler *sampler, int64_t height, int64_t width, const Crop *objects, int count,
                        Chance *chance) {
    const Crop whole = {0, 0, height, width};
    for (int64_t i = 0; i < sampler->attempts; i++) {
        Crop crop;
        if (attempt_crop(sampler, height, width, chance, &crop) &&
            covers(&crop, count ? objects : &whole, count ? count : 1, sampler->least_covered))
            return crop;
    }
    return whole;
}

/* Draw a crop in the frame and stretch it to the image, truncated; at least one pixel. */
static Crop sample_crop_in_frame(const Sampler *sampler, int64_t height, int64_t width, Chance *chance) {
    const int64_t frame = sampler->frame;
    const Crop crop = sample_crop(sampler, frame, frame, NULL, 0, chance);
    const int64_t high = crop.height * height / frame, wide = crop.width * width / frame;
    return (Crop){crop.y * height / frame, crop.x * width / frame, high > 1 ? high : 1, wide > 1 ? wide : 1};
}

/* Resize `length` pixels from `start` on to `size` positions, as `stretch_axis` in geometry.py does, and mirror. */
static void stretch(int64_t start, int64_t length, Py_ssize_t size, Mirroring mirroring, int64_t *first,
                    int64_t *second, float *way) {
    const float step = (float)length / (float)size;
    const int64_t last = start + length - 1, turn = start + last;
    for (Py_ssize_t place = 0; place < size; place++) {
        const float position = (float)place * step;
        const int64_t whole = (int64_t)position, one = start + whole, other = one + 1 < last ? one + 1 : last;
        const Py_ssize_t i = mirroring == MIRRORED_AFTER ? size - 1 - place : place;
        way[i] = position - (float)whole;
        first[i] = mirroring == MIRRORED_BEFORE ? turn - one : one;
        second[i] = mirroring == MIRRORED_BEFORE ? turn - other : other;
    }
}

#endif
