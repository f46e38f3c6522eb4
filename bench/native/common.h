/* What both load generators share: the clock, `name=value` arguments, and exact percentiles of what was measured. */
#ifndef PENSTOCK_BENCH_COMMON_H
#define PENSTOCK_BENCH_COMMON_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#define NANOSECONDS 1000000000LL

static inline int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * NANOSECONDS + now.tv_nsec;
}

static inline void sleep_until_ns(int64_t when) {
    struct timespec at = {when / NANOSECONDS, when % NANOSECONDS};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL);
}

static inline double cpu_seconds(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_utime.tv_sec + usage.ru_stime.tv_sec + (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

static inline void fail(const char *what, const char *detail) {
    fprintf(stderr, "%s: %s\n", what, detail);
    exit(1);
}

/* The value of the argument `name=value`, or `otherwise`; without either the program ends. */
static inline const char *argument(int argc, char **argv, const char *name, const char *otherwise) {
    size_t length = strlen(name);
    for (int i = 1; i < argc; i++)
        if (strncmp(argv[i], name, length) == 0 && argv[i][length] == '=')
            return argv[i] + length + 1;
    if (otherwise == NULL)
        fail("missing argument", name);
    return otherwise;
}

static inline int64_t number(int argc, char **argv, const char *name, const char *otherwise) {
    return atoll(argument(argc, argv, name, otherwise));
}

/* Every measured latency is kept, so percentiles are exact and no histogram can round the tail. */
struct samples {
    int64_t *values;
    size_t count, capacity;
};

static inline void samples_open(struct samples *samples, size_t capacity) {
    samples->values = malloc((capacity ? capacity : 1) * sizeof(int64_t));
    samples->count = 0;
    samples->capacity = capacity;
    if (samples->values == NULL)
        fail("samples", "out of memory");
}

static inline void samples_add(struct samples *samples, int64_t value) {
    if (samples->count == samples->capacity) {
        samples->capacity = samples->capacity * 2 + 1024;
        samples->values = realloc(samples->values, samples->capacity * sizeof(int64_t));
        if (samples->values == NULL)
            fail("samples", "out of memory");
    }
    samples->values[samples->count++] = value;
}

static inline int compare_values(const void *left, const void *right) {
    int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    return (a > b) - (a < b);
}

/* Prints `"name": {"count": …, "p50": …, …}` in microseconds. */
static inline void samples_print(struct samples *samples, const char *name) {
    static const struct { const char *label; double fraction; } wanted[] = {
        {"p50", 0.5}, {"p90", 0.9}, {"p99", 0.99}, {"p99_9", 0.999}, {"p99_99", 0.9999}, {"max", 1.0}};
    qsort(samples->values, samples->count, sizeof(int64_t), compare_values);
    printf("\"%s\": {\"count\": %zu", name, samples->count);
    for (size_t i = 0; samples->count > 0 && i < sizeof wanted / sizeof *wanted; i++) {
        size_t rank = (size_t)(wanted[i].fraction * samples->count);
        if (rank >= samples->count)
            rank = samples->count - 1;
        printf(", \"%s\": %.1f", wanted[i].label, samples->values[rank] / 1e3);
    }
    printf("}");
}

#endif
