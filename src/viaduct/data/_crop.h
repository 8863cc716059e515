/* Training crops: the same draws and results as those of `draw_crop` in geometry.py with a generator of
 * `order.make_image_generator`. Tests compare the two.
 */
#ifndef VIADUCT_CROP_H
#define VIADUCT_CROP_H

#include <math.h>
#include <stdint.h>

#define PURPOSE_SAMPLE 7 /* order.Purpose.SAMPLE */
#define MAX_BOXES 64     /* images with more boxes are left to Python */

/* Philox4x64-10 as in NumPy, which increments the counter before every four words. */
typedef struct {
    uint64_t counter[4], key[2], words[4];
    int used; /* how many of the four words have been drawn */
} RandomStream;

typedef struct {
    double low, high;              /* range of width / height */
    double least_area, most_area;  /* fractions of the image's area */
    double least_covered;          /* share of at least one object that the crop must cover */
    int64_t attempts, uses_boxes;
    int64_t frame; /* side of a square that the crop is drawn in and then stretched to the image; 0: no square */
} CropSampler;

typedef enum { NOT_MIRRORED, MIRRORED_BEFORE, MIRRORED_AFTER } Mirroring; /* before or after resizing */

typedef struct {
    int64_t y, x, height, width;
} Crop;

/* Return the lower 64 bits of a product, and set the upper ones. */
static inline uint64_t multiply(uint64_t a, uint64_t b, uint64_t *high) {
    const unsigned __int128 product = (unsigned __int128)a * b;
    *high = (uint64_t)(product >> 64);
    return (uint64_t)product;
}

static RandomStream start_stream(uint64_t seed, uint64_t epoch, uint64_t position) {
    return (RandomStream){{0, position, 0, PURPOSE_SAMPLE}, {seed, epoch}, {0, 0, 0, 0}, 4};
}

/* Draw the next four words. */
static void draw_words(RandomStream *stream) {
    /* The first word of the counter never overflows: that would take 2^64 calls. */
    stream->counter[0]++;
    uint64_t c[4] = {stream->counter[0], stream->counter[1], stream->counter[2], stream->counter[3]};
    uint64_t key[2] = {stream->key[0], stream->key[1]};
    for (int round = 0; round < 10; round++) {
        uint64_t high0, high1;
        const uint64_t low0 = multiply(0xD2E7470EE14C6C93ULL, c[0], &high0);
        const uint64_t low1 = multiply(0xCA5A826395121157ULL, c[2], &high1);
        const uint64_t next[4] = {high1 ^ c[1] ^ key[0], low1, high0 ^ c[3] ^ key[1], low0};
        for (int i = 0; i < 4; i++) c[i] = next[i];
        key[0] += 0x9E3779B97F4A7C15ULL;
        key[1] += 0xBB67AE8584CAA73BULL;
    }
    for (int i = 0; i < 4; i++) stream->words[i] = c[i];
    stream->used = 0;
}

/* Draw from [0, 1) with 53 bits, as `Generator.random` does. */
static double draw_uniform(RandomStream *stream) {
    if (stream->used == 4) draw_words(stream);
    return (double)(stream->words[stream->used++] >> 11) * (1.0 / 9007199254740992.0);
}

/* Draw one of 0 to `choices` - 1; return 0, without a draw, if `choices` is 1 or less. */
static int64_t draw_below(RandomStream *stream, int64_t choices) {
    return choices > 1 ? (int64_t)(draw_uniform(stream) * (double)choices) : 0;
}

/* Round halves to the even number, as Python does. */
static inline int64_t round_half_to_even(double value) { return (int64_t)nearbyint(value); }

/* Return the largest height of a crop of this ratio that fits the image and has at most `most_area`. */
static int64_t find_tallest(double ratio, double most_area, int64_t height, int64_t width) {
    int64_t tallest = round_half_to_even(sqrt(most_area / ratio));
    if (round_half_to_even((double)tallest * ratio) > width) {
        tallest = (int64_t)(((double)width + 0.5) / ratio);
        if (round_half_to_even((double)tallest * ratio) > width) tallest--;
    }
    return tallest < height ? tallest : height;
}

/* Draw a crop without regard to objects; return 0 if its rounded sides are outside of the sampler's range of areas, or
 * do not fit the image. */
static int try_crop(const CropSampler *sampler, int64_t height, int64_t width, RandomStream *stream, Crop *crop) {
    const double ratio = sampler->low + (sampler->high - sampler->low) * draw_uniform(stream);
    const double least_area = sampler->least_area * (double)width * (double)height;
    const double most_area = sampler->most_area * (double)width * (double)height;
    const int64_t tallest = find_tallest(ratio, most_area, height, width);
    int64_t shortest = round_half_to_even(sqrt(least_area / ratio));
    if (shortest > tallest) shortest = tallest;
    int64_t crop_height = shortest + draw_below(stream, tallest - shortest + 1);
    if ((double)(crop_height * round_half_to_even((double)crop_height * ratio)) < least_area) crop_height++;
    if ((double)(crop_height * round_half_to_even((double)crop_height * ratio)) > most_area) crop_height--;
    const int64_t crop_width = round_half_to_even((double)crop_height * ratio);
    const double area = (double)(crop_height * crop_width);
    if (!(least_area <= area && area <= most_area)) return 0;
    if (!(0 < crop_height && crop_height <= height && 0 < crop_width && crop_width <= width)) return 0;
    crop->y = draw_below(stream, height - crop_height);
    crop->x = draw_below(stream, width - crop_width);
    crop->height = crop_height;
    crop->width = crop_width;
    return 1;
}

/* Return the number of indices that two ranges, each given by its begin and length, share. */
static inline int64_t count_shared(int64_t a, int64_t length_a, int64_t b, int64_t length_b) {
    const int64_t begin = a > b ? a : b, end = a + length_a < b + length_b ? a + length_a : b + length_b;
    return end > begin ? end - begin : 0;
}

/* Return 1 if the crop covers at least the share `least` of one object. */
static int covers(const Crop *crop, const Crop *objects, int count, double least) {
    for (int i = 0; i < count; i++) {
        const Crop *box = &objects[i];
        if (box->height * box->width <= 0) continue;
        const int64_t rows = count_shared(crop->y, crop->height, box->y, box->height);
        const int64_t columns = count_shared(crop->x, crop->width, box->x, box->width);
        if ((double)(rows * columns) >= least * (double)box->height * (double)box->width) return 1;
    }
    return 0;
}

/* Draw crops until one covers enough of an object, or of the image if there are no objects.
 * Return the full image if all attempts fail. */
static Crop draw_covering_crop(const CropSampler *sampler, int64_t height, int64_t width, const Crop *objects, int count,
                               RandomStream *stream) {
    const Crop full = {0, 0, height, width};
    for (int64_t i = 0; i < sampler->attempts; i++) {
        Crop crop;
        if (try_crop(sampler, height, width, stream, &crop) &&
            covers(&crop, count ? objects : &full, count ? count : 1, sampler->least_covered))
            return crop;
    }
    return full;
}

/* Draw a crop in the frame and stretch it to the image; sizes are truncated, but have at least one pixel. */
static Crop draw_crop_in_frame(const CropSampler *sampler, int64_t height, int64_t width, RandomStream *stream) {
    const int64_t frame = sampler->frame;
    const Crop crop = draw_covering_crop(sampler, frame, frame, NULL, 0, stream);
    const int64_t crop_height = crop.height * height / frame, crop_width = crop.width * width / frame;
    return (Crop){crop.y * height / frame, crop.x * width / frame, crop_height > 1 ? crop_height : 1,
                  crop_width > 1 ? crop_width : 1};
}

/* Resize `length` pixels from `start` on to `size` positions, as `stretch_axis` in geometry.py does, and mirror. */
static void stretch_axis(int64_t start, int64_t length, Py_ssize_t size, Mirroring mirroring, int64_t *first,
                         int64_t *second, float *fraction) {
    const float step = (float)length / (float)size;
    const int64_t last = start + length - 1;
    const int64_t mirror_sum = start + last; /* of the indices of a pixel and its mirror image */
    for (Py_ssize_t number = 0; number < size; number++) {
        const float position = (float)number * step;
        const int64_t whole = (int64_t)position;
        const int64_t before = start + whole, after = before + 1 < last ? before + 1 : last;
        const Py_ssize_t i = mirroring == MIRRORED_AFTER ? size - 1 - number : number;
        fraction[i] = position - (float)whole;
        first[i] = mirroring == MIRRORED_BEFORE ? mirror_sum - before : before;
        second[i] = mirroring == MIRRORED_BEFORE ? mirror_sum - after : after;
    }
}

#endif
