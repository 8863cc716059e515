/* Reading of a TFRecord of the ImageNet schema, with its checksum.
 *
 * Records that are damaged or encoded in an unusual way are left to tfrecord.py and example.py, which report errors.
 * In protobuf messages the tag before a length-delimited field is 0x0A for field 1, 0x12 for 2 and 0x1A for 3.
 */
#ifndef VIADUCT_RECORD_H
#define VIADUCT_RECORD_H

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

typedef struct {
    const uint8_t *begin, *end;
} Span;

typedef struct {
    Span encoded;    /* the image file */
    Span sides[4];   /* floats: the top, left, bottom and right edges of all objects */
    int found_sides; /* one bit for each side that was found */
    int has_label;
} Example;

static uint32_t checksum_table[8][256];

/* Tables for eight bytes at a time (slicing-by-8). Called once, when the module is loaded. */
static void make_checksum_table(void) {
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t word = byte;
        for (int bit = 0; bit < 8; bit++) word = word >> 1 ^ (word & 1 ? 0x82F63B78u : 0);
        checksum_table[0][byte] = word;
    }
    for (int slice = 1; slice < 8; slice++)
        for (int byte = 0; byte < 256; byte++) {
            const uint32_t word = checksum_table[slice - 1][byte];
            checksum_table[slice][byte] = checksum_table[0][word & 0xFF] ^ word >> 8;
        }
}

static uint32_t checksum_by_table(const uint8_t *data, size_t length) {
    uint32_t crc = 0xFFFFFFFFu;
    for (; length >= 8; data += 8, length -= 8) {
        uint64_t word;
        memcpy(&word, data, 8);
        word ^= crc;
        crc = 0;
        for (int i = 0; i < 8; i++) crc ^= checksum_table[7 - i][word >> 8 * i & 0xFF];
    }
    for (; length; data++, length--) crc = checksum_table[0][(crc ^ *data) & 0xFF] ^ crc >> 8;
    return ~crc;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) static uint32_t checksum_by_instruction(const uint8_t *data, size_t length) {
    uint64_t crc = 0xFFFFFFFFu;
    for (; length >= 8; data += 8, length -= 8) {
        uint64_t word;
        memcpy(&word, data, 8);
        crc = _mm_crc32_u64(crc, word);
    }
    for (; length; data++, length--) crc = _mm_crc32_u8((uint32_t)crc, *data);
    return ~(uint32_t)crc;
}
#endif

static uint32_t masked_checksum(const uint8_t *data, size_t length) {
#if defined(__x86_64__)
    const uint32_t crc = __builtin_cpu_supports("sse4.2") ? checksum_by_instruction(data, length)
                                                          : checksum_by_table(data, length);
#else
    const uint32_t crc = checksum_by_table(data, length);
#endif
    return (crc >> 15 | crc << 17) + 0xA282EAD8u;
}

/* Read the data of a record and, if `check` is not 0, verify its checksum; NULL on any failure. The caller frees it. */
static uint8_t *read_record(int descriptor, int64_t offset, size_t length, int check) {
    const size_t expected = length + 4; /* with the checksum */
    uint8_t *data = malloc(expected);
    size_t received = 0;
    while (data != NULL && received < expected) {
        const off_t position = (off_t)(offset + (int64_t)received);
        const ssize_t count = pread(descriptor, data + received, expected - received, position);
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) break;
        received += (size_t)count;
    }
    uint32_t stored;
    if (data != NULL && received == expected) {
        memcpy(&stored, data + length, 4);
        if (!check || stored == masked_checksum(data, length)) return data;
    }
    free(data);
    return NULL;
}

/* Find the content after a one-byte tag and a length of at most five bytes; 0 for another tag or too few data. */
static int find_field(const uint8_t *at, const uint8_t *end, uint8_t tag, Span *found) {
    if (at >= end || *at++ != tag) return 0;
    uint64_t length = 0;
    for (int shift = 0; shift < 35; shift += 7) {
        if (at >= end) return 0;
        length |= (uint64_t)(*at & 0x7F) << shift;
        if (*at++ < 0x80) {
            if (length > (uint64_t)(end - at)) return 0;
            *found = (Span){at, at + length};
            return 1;
        }
    }
    return 0;
}

/* Find the content of the only field of a message. */
static int find_sole_field(Span message, uint8_t tag, Span *found) {
    return find_field(message.begin, message.end, tag, found) && found->end == message.end;
}

static int is_equal_text(Span name, const char *text) {
    const size_t length = strlen(text);
    return (size_t)(name.end - name.begin) == length && memcmp(name.begin, text, length) == 0;
}

/* Find the only value of a feature that is a list of bytes; return 0 for any other feature. */
static int find_sole_bytes(Span feature, Span *found) {
    Span list;
    return find_sole_field(feature, 0x0A, &list) && find_sole_field(list, 0x0A, found);
}

/* Return 1 if the list has a single number of less than ten bytes (negative numbers have ten). */
static int is_sole_number(Span feature) {
    Span list, packed;
    if (!find_sole_field(feature, 0x1A, &list) || !find_sole_field(list, 0x0A, &packed)) return 0;
    const int64_t length = packed.end - packed.begin;
    if (length < 1 || length > 9 || packed.end[-1] > 0x7F) return 0;
    for (const uint8_t *byte = packed.begin; byte < packed.end - 1; byte++)
        if (*byte < 0x80) return 0;
    return 1;
}

/* Find the packed floats of a feature, of which there may be none; return 0 for an unusual encoding. */
static int find_floats(Span feature, Span *found) {
    Span list;
    *found = (Span){feature.end, feature.end};
    if (feature.begin == feature.end) return 1; /* a list without values */
    if (!find_sole_field(feature, 0x12, &list)) return 0;
    if (list.begin == list.end) return 1;
    return find_sole_field(list, 0x0A, found) && (found->end - found->begin) % 4 == 0;
}

/* Add a feature to the example if training needs it; return 0 if its encoding is unusual. */
static int read_feature(Span name, Span feature, Example *example) {
    static const char *sides[4] = {"image/object/bbox/ymin", "image/object/bbox/xmin", "image/object/bbox/ymax",
                                   "image/object/bbox/xmax"};
    Span text;
    if (is_equal_text(name, "image/encoded")) return find_sole_bytes(feature, &example->encoded);
    if (is_equal_text(name, "image/class/label")) return example->has_label = is_sole_number(feature);
    if (is_equal_text(name, "image/class/text")) return feature.begin == feature.end || find_sole_bytes(feature, &text);
    for (int side = 0; side < 4; side++)
        if (is_equal_text(name, sides[side])) {
            example->found_sides |= 1 << side;
            return find_floats(feature, &example->sides[side]);
        }
    return 1;
}

/* Return 1 if the record has all features that training needs, and only the usual encoding. */
static int read_example(const uint8_t *data, size_t length, Example *example) {
    Span features, entry, name, feature;
    memset(example, 0, sizeof *example);
    if (!find_sole_field((Span){data, data + length}, 0x0A, &features)) return 0;
    for (const uint8_t *at = features.begin; at < features.end; at = entry.end) {
        if (!find_field(at, features.end, 0x0A, &entry)) return 0;
        if (!find_field(entry.begin, entry.end, 0x0A, &name) || name.end - name.begin > 0x7F) return 0;
        if (!find_sole_field((Span){name.end, entry.end}, 0x12, &feature)) return 0;
        if (!read_feature(name, feature, example)) return 0;
    }
    const int has_no_or_all_sides = example->found_sides == 0 || example->found_sides == 15;
    return example->encoded.begin != NULL && example->has_label && has_no_or_all_sides;
}

#endif
