/* A TFRecord of the ImageNet schema, read and verified.
 *
 * Records that are damaged or encoded in an unusual way are left to tfrecord.py and example.py, which report errors.
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
    Span encoded, sides[4]; /* floats: top, left, bottom, right of each object */
    int boxed, labelled; /* bits of the sides that were found; 1 if a label was found */
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

/* Read the data of a record and verify its checksum; NULL on any failure. The caller frees the data. */
static uint8_t *read_record(int descriptor, int64_t offset, size_t length, int check) {
    const size_t wanted = length + 4;
    uint8_t *data = malloc(wanted);
    size_t got = 0;
    while (data != NULL && got < wanted) {
        const ssize_t more = pread(descriptor, data + got, wanted - got, (off_t)(offset + (int64_t)got));
        if (more < 0 && errno == EINTR) continue;
        if (more <= 0) break;
        got += (size_t)more;
    }
    uint32_t stored;
    if (data != NULL && got == wanted) {
        memcpy(&stored, data + length, 4);
        if (!check || stored == masked_checksum(data, length)) return data;
    }
    free(data);
    return NULL;
}

/* Find the content after a one-byte tag and a length of at most five bytes; 0 for another tag or too few data. */
static int field_at(const uint8_t *at, const uint8_t *end, uint8_t tag, Span *found) {
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
static int sole_field(Span message, uint8_t tag, Span *found) {
    return field_at(message.begin, message.end, tag, found) && found->end == message.end;
}

static int named(Span name, const char *text) {
    const size_t length = strlen(text);
    return (size_t)(name.end - name.begin) == length && memcmp(name.begin, text, length) == 0;
}

static int sole_bytes(Span feature, Span *found) {
    Span list;
    return sole_field(feature, 0x0A, &list) && sole_field(list, 0x0A, found);
}

/* Return 1 if the list has a single number of less than ten bytes (negative numbers have ten). */
static int is_sole_number(Span feature) {
    Span list, packed;
    if (!sole_field(feature, 0x1A, &list) || !sole_field(list, 0x0A, &packed)) return 0;
    const int64_t length = packed.end - packed.begin;
    if (length < 1 || length > 9 || packed.end[-1] > 0x7F) return 0;
    for (const uint8_t *byte = packed.begin; byte < packed.end - 1; byte++)
        if (*byte < 0x80) return 0;
    return 1;
}

static int sole_floats(Span feature, Span *found) {
    Span list;
    *found = (Span){feature.end, feature.end};
    if (feature.begin == feature.end) return 1; /* a list without values */
    if (!sole_field(feature, 0x12, &list)) return 0;
    if (list.begin == list.end) return 1;
    return sole_field(list, 0x0A, found) && (found->end - found->begin) % 4 == 0;
}

static int take_feature(Span name, Span feature, Example *example) {
    static const char *sides[4] = {"image/object/bbox/ymin", "image/object/bbox/xmin", "image/object/bbox/ymax",
                                   "image/object/bbox/xmax"};
    Span text;
    if (named(name, "image/encoded")) return sole_bytes(feature, &example->encoded);
    if (named(name, "image/class/label")) return example->labelled = is_sole_number(feature);
    if (named(name, "image/class/text")) return feature.begin == feature.end || sole_bytes(feature, &text);
    for (int side = 0; side < 4; side++)
        if (named(name, sides[side])) {
            example->boxed |= 1 << side;
            return sole_floats(feature, &example->sides[side]);
        }
    return 1;
}

/* Return 1 if the record has all features that training needs, and only the usual encoding. */
static int read_example(const uint8_t *data, size_t length, Example *example) {
    Span features, entry, name, feature;
    memset(example, 0, sizeof *example);
    if (!sole_field((Span){data, data + length}, 0x0A, &features)) return 0;
    for (const uint8_t *at = features.begin; at < features.end; at = entry.end) {
        if (!field_at(at, features.end, 0x0A, &entry)) return 0;
        if (!field_at(entry.begin, entry.end, 0x0A, &name) || name.end - name.begin > 0x7F) return 0;
        if (!sole_field((Span){name.end, entry.end}, 0x12, &feature)) return 0;
        if (!take_feature(name, feature, example)) return 0;
    }
    return example->encoded.begin != NULL && example->labelled && (example->boxed == 0 || example->boxed == 15);
}

#endif
