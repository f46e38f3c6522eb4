/* One-record produce requests over many connections, each with one request in flight; one JSON object on stdout.
 *
 *   requests host=127.0.0.1 port=9092 topic=… partitions=8 connections=100 size=100 acks=1 seconds=5 warm_up_seconds=1
 *
 * Speaks Produce version 9 on plain sockets from a single epoll loop, because a thousand librdkafka clients would be
 * the load that is measured. Every response must carry the request's correlation id and error code 0. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "common.h"

#define FRAME_BYTES_MAX 70000
#define RESPONSE_BYTES_MAX 1024
#define EVENTS_MAX 1024
#define SILENCE_NS (10 * NANOSECONDS)

struct buffer {
    uint8_t bytes[FRAME_BYTES_MAX];
    size_t length;
};

struct connection {
    int socket, partition;
    int32_t correlation;
    int64_t sent_at;
    size_t received;
    uint8_t response[RESPONSE_BYTES_MAX];
};

static void put(struct buffer *buffer, const void *bytes, size_t length) {
    if (buffer->length + length > FRAME_BYTES_MAX)
        fail("size", "the record does not fit into the request buffer");
    memcpy(buffer->bytes + buffer->length, bytes, length);
    buffer->length += length;
}

static void put_integer(struct buffer *buffer, int64_t value, int width) {
    for (int shift = (width - 1) * 8; shift >= 0; shift -= 8) {
        uint8_t byte = (uint8_t)(value >> shift);
        put(buffer, &byte, 1);
    }
}

static void put_unsigned_varint(struct buffer *buffer, uint64_t value) {
    do {
        uint8_t byte = (uint8_t)((value & 0x7f) | (value > 0x7f ? 0x80 : 0));
        put(buffer, &byte, 1);
        value >>= 7;
    } while (value);
}

static void put_varint(struct buffer *buffer, int64_t value) {
    put_unsigned_varint(buffer, ((uint64_t)value << 1) ^ (uint64_t)(value >> 63));
}

static void put_compact_string(struct buffer *buffer, const char *text) {
    put_unsigned_varint(buffer, strlen(text) + 1);
    put(buffer, text, strlen(text));
}

static uint32_t crc32c(const uint8_t *bytes, size_t length) {
    uint32_t crc = ~0u;
    for (size_t i = 0; i < length; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc & 1 ? (crc >> 1) ^ 0x82f63b78u : crc >> 1;
    }
    return ~crc;
}

/* A record batch (magic 2) that holds one record with a null key and `size` bytes of value. */
static void put_batch(struct buffer *batch, int size) {
    static struct buffer record, checked;
    struct timespec wall;
    clock_gettime(CLOCK_REALTIME, &wall);
    int64_t timestamp_ms = wall.tv_sec * 1000 + wall.tv_nsec / 1000000;
    put_integer(&record, 0, 1);  /* attributes */
    put_varint(&record, 0);      /* timestamp delta */
    put_varint(&record, 0);      /* offset delta */
    put_varint(&record, -1);     /* key */
    put_varint(&record, size);
    for (int i = 0; i < size; i++)
        put(&record, "x", 1);
    put_varint(&record, 0);      /* headers */
    put_integer(&checked, 0, 2); /* attributes */
    put_integer(&checked, 0, 4); /* last offset delta */
    put_integer(&checked, timestamp_ms, 8);
    put_integer(&checked, timestamp_ms, 8);
    put_integer(&checked, -1, 8); /* producer id */
    put_integer(&checked, -1, 2); /* producer epoch */
    put_integer(&checked, -1, 4); /* base sequence */
    put_integer(&checked, 1, 4);  /* record count */
    put_varint(&checked, (int64_t)record.length);
    put(&checked, record.bytes, record.length);
    put_integer(batch, 0, 8);                            /* base offset */
    put_integer(batch, (int64_t)(9 + checked.length), 4); /* what follows: epoch, magic, crc, the checked part */
    put_integer(batch, -1, 4);                           /* partition leader epoch */
    put_integer(batch, 2, 1);                            /* magic */
    put_integer(batch, crc32c(checked.bytes, checked.length), 4);
    put(batch, checked.bytes, checked.length);
}

/* The whole request; the correlation id stands at bytes 8 to 11, the partition's place is returned. */
static size_t put_request(struct buffer *frame, const struct buffer *batch, const char *topic, int acks) {
    static struct buffer body;
    put_integer(&body, 0, 2); /* Produce */
    put_integer(&body, 9, 2);
    put_integer(&body, 0, 4); /* correlation id */
    put_integer(&body, 5, 2);
    put(&body, "bench", 5);
    put_unsigned_varint(&body, 0);
    put_unsigned_varint(&body, 0); /* transactional id: null */
    put_integer(&body, acks, 2);
    put_integer(&body, 30000, 4);
    put_unsigned_varint(&body, 2);
    put_compact_string(&body, topic);
    put_unsigned_varint(&body, 2);
    size_t partition_at = 4 + body.length;
    put_integer(&body, 0, 4);
    put_unsigned_varint(&body, batch->length + 1);
    put(&body, batch->bytes, batch->length);
    put_unsigned_varint(&body, 0);
    put_unsigned_varint(&body, 0);
    put_unsigned_varint(&body, 0);
    put_integer(frame, (int64_t)body.length, 4);
    put(frame, body.bytes, body.length);
    return partition_at;
}

static int32_t get_int32(const uint8_t *bytes) {
    return (int32_t)((uint32_t)bytes[0] << 24 | bytes[1] << 16 | bytes[2] << 8 | bytes[3]);
}

static void set_int32(uint8_t *bytes, int32_t value) {
    uint32_t network = htonl((uint32_t)value);
    memcpy(bytes, &network, 4);
}

static void send_request(struct connection *connection, struct buffer *frame, size_t partition_at) {
    set_int32(frame->bytes + 8, ++connection->correlation);
    set_int32(frame->bytes + partition_at, connection->partition);
    connection->received = 0;
    connection->sent_at = now_ns();
    if (write(connection->socket, frame->bytes, frame->length) != (ssize_t)frame->length)
        fail("write", strerror(errno));
}

/* A broker may know a new topic before it leads its partitions; clients try again, and so does the warm-up. */
static int is_not_ready(int16_t code) {
    return code == 3 || code == 5 || code == 6;
}

/* 1 when a whole response has arrived and is good, 0 when more is to come, -1 when the request should be repeated. */
static int read_response(struct connection *connection, size_t topic_length, int64_t measure_from) {
    ssize_t got = read(connection->socket, connection->response + connection->received,
                       RESPONSE_BYTES_MAX - connection->received);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (got <= 0)
        fail("read", got == 0 ? "the broker closed a connection" : strerror(errno));
    connection->received += (size_t)got;
    if (connection->received < 4)
        return 0;
    int32_t length = get_int32(connection->response);
    if (length < 0 || length > RESPONSE_BYTES_MAX - 4)
        fail("response", "its length is out of range");
    if (connection->received < (size_t)length + 4)
        return 0;
    if (connection->received > (size_t)length + 4)
        fail("response", "more bytes than one response");
    if (get_int32(connection->response + 4) != connection->correlation)
        fail("response", "correlation id of another request");
    /* After it: header tags, array of one, topic name, array of one, partition index, error code. */
    const uint8_t *error = connection->response + 4 + 4 + 1 + 1 + 1 + topic_length + 1 + 4;
    if (error + 2 > connection->response + connection->received)
        fail("response", "too short for an error code");
    int16_t code = (int16_t)(error[0] << 8 | error[1]);
    if (is_not_ready(code) && now_ns() < measure_from)
        return -1;
    if (code != 0) {
        fprintf(stderr, "response: error code %d\n", code);
        exit(1);
    }
    return 1;
}

static void open_connection(struct connection *connection, const struct sockaddr_in *address, int epoll) {
    int on = 1;
    connection->socket = socket(AF_INET, SOCK_STREAM, 0);
    if (connection->socket < 0 || connect(connection->socket, (const void *)address, sizeof *address) != 0)
        fail("connect", strerror(errno));
    setsockopt(connection->socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = connection};
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, connection->socket, &event) != 0)
        fail("epoll_ctl", strerror(errno));
}

int main(int argc, char **argv) {
    static struct buffer batch, frame;
    int connections = (int)number(argc, argv, "connections", "1"), partitions = (int)number(argc, argv, "partitions", "1");
    int64_t seconds = number(argc, argv, "seconds", "5"), warm_up = number(argc, argv, "warm_up_seconds", "1");
    const char *topic = argument(argc, argv, "topic", NULL);
    if (strlen(topic) > 120)
        fail("topic", "its name must be shorter than 120 bytes");
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)number(argc, argv, "port", NULL))};
    if (inet_pton(AF_INET, argument(argc, argv, "host", "127.0.0.1"), &address.sin_addr) != 1)
        fail("host", "must be a numeric IPv4 address");
    put_batch(&batch, (int)number(argc, argv, "size", "100"));
    size_t partition_at = put_request(&frame, &batch, topic, (int)number(argc, argv, "acks", "1"));
    int epoll = epoll_create1(0);
    struct connection *all = calloc((size_t)connections, sizeof *all);
    struct samples latencies;
    samples_open(&latencies, 1 << 20);
    for (int i = 0; i < connections; i++) {
        all[i].partition = i % partitions;
        open_connection(&all[i], &address, epoll);
    }
    int64_t measure_from = now_ns() + warm_up * NANOSECONDS, end = measure_from + seconds * NANOSECONDS, last = now_ns();
    double cpu = cpu_seconds();
    int64_t total = 0;
    for (int i = 0; i < connections; i++)
        send_request(&all[i], &frame, partition_at);
    while (now_ns() < end) {
        struct epoll_event events[EVENTS_MAX];
        int ready = epoll_wait(epoll, events, EVENTS_MAX, 100);
        if (ready <= 0 && now_ns() - last > SILENCE_NS)
            fail("broker", "no response for ten seconds");
        for (int i = 0; i < ready; i++) {
            struct connection *connection = events[i].data.ptr;
            int outcome = read_response(connection, strlen(topic), measure_from);
            if (outcome == 0)
                continue;
            last = now_ns();
            total += outcome > 0;
            if (connection->sent_at >= measure_from)
                samples_add(&latencies, last - connection->sent_at);
            send_request(connection, &frame, partition_at);
        }
    }
    double elapsed = (now_ns() - measure_from) / 1e9;
    printf("{\"mode\": \"requests\", \"connections\": %d, \"records\": %lld, \"seconds\": %.6f, \"requests_per_second\": %.1f, "
           "\"client_cpu_seconds\": %.3f, \"errors\": 0, ",
           connections, (long long)total, elapsed, latencies.count / elapsed, cpu_seconds() - cpu);
    samples_print(&latencies, "acknowledged_us");
    printf("}\n");
    return 0;
}
