/* Load on a Kafka-protocol broker from librdkafka; one JSON object on standard output.
 *
 *   load produce brokers=… topic=… partitions=4 size=100 count=1000000 [acks=1] [rdkafka.<property>=<value>]…
 *   load consume brokers=… topic=… partitions=4 count=1000000
 *   load latency brokers=… topic=… partitions=4 size=100 rate=1000 seconds=10 warm_up_seconds=2 [consumer=1]
 *
 * `latency` is an open loop: record i is due at start + i / rate whatever became of those before it, and its latency
 * runs from that due time, so a stalled broker cannot hide the records that it kept waiting. */
#include <errno.h>
#include <pthread.h>

#include "common.h"
#include "librdkafka.h"

#define CHUNK 1000
#define TIMEOUT_MS 60000
#define PAYLOAD_BYTES (1 << 20)

static int argc_;
static char **argv_;
static int64_t errors;
static int first_error;

static void note_error(int error) {
    if (errors++ == 0)
        first_error = error;
}

static rd_kafka_conf_t *configure(const char *const (*defaults)[2]) {
    char error[512];
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    for (; (*defaults)[0]; defaults++)
        if (rd_kafka_conf_set(conf, (*defaults)[0], (*defaults)[1], error, sizeof error) != RD_KAFKA_CONF_OK)
            fail((*defaults)[0], error);
    if (rd_kafka_conf_set(conf, "bootstrap.servers", argument(argc_, argv_, "brokers", NULL), error, sizeof error))
        fail("brokers", error);
    return conf;
}

/* `rdkafka.linger.ms=5` on the command line sets librdkafka's property linger.ms. */
static void configure_from_arguments(rd_kafka_conf_t *conf) {
    static const char prefix[] = "rdkafka.";
    char error[512], name[128];
    for (int i = 1; i < argc_; i++) {
        const char *equals = strchr(argv_[i], '=');
        if (strncmp(argv_[i], prefix, sizeof prefix - 1) != 0 || equals == NULL)
            continue;
        snprintf(name, sizeof name, "%.*s", (int)(equals - argv_[i] - sizeof prefix + 1), argv_[i] + sizeof prefix - 1);
        if (rd_kafka_conf_set(conf, name, equals + 1, error, sizeof error) != RD_KAFKA_CONF_OK)
            fail(argv_[i], error);
    }
}

static void on_delivery(rd_kafka_t *rk, const rd_kafka_message_t *message, void *opaque);

static rd_kafka_t *new_producer(int only_errors) {
    char error[512];
    const char *const defaults[][2] = {
        {"acks", argument(argc_, argv_, "acks", "1")},
        {"queue.buffering.max.messages", "500000"},
        {"queue.buffering.max.kbytes", "1048576"},
        {"message.timeout.ms", "60000"},
        {"delivery.report.only.error", only_errors ? "true" : "false"},
        {NULL, NULL}};
    rd_kafka_conf_t *conf = configure(defaults);
    rd_kafka_conf_set_dr_msg_cb(conf, on_delivery);
    configure_from_arguments(conf);
    rd_kafka_t *rk = rd_kafka_new(RD_KAFKA_PRODUCER, conf, error, sizeof error);
    if (rk == NULL)
        fail("producer", error);
    return rk;
}

static rd_kafka_t *new_consumer(void) {
    char error[512];
    const char *const defaults[][2] = {
        {"queued.min.messages", "1000000"}, {"fetch.wait.max.ms", "500"}, {"enable.partition.eof", "false"}, {NULL, NULL}};
    rd_kafka_t *rk = rd_kafka_new(RD_KAFKA_CONSUMER, configure(defaults), error, sizeof error);
    if (rk == NULL)
        fail("consumer", error);
    return rk;
}

/* The topic with its leaders known, so that connecting is not part of what is measured. */
static rd_kafka_topic_t *open_topic(rd_kafka_t *rk) {
    rd_kafka_topic_t *topic = rd_kafka_topic_new(rk, argument(argc_, argv_, "topic", NULL), NULL);
    const struct rd_kafka_metadata *metadata;
    int error = rd_kafka_metadata(rk, 0, topic, &metadata, TIMEOUT_MS);
    if (error)
        fail("metadata", rd_kafka_err2str(error));
    rd_kafka_metadata_destroy(metadata);
    return topic;
}

static char *make_payload(void) {
    char *payload = malloc(PAYLOAD_BYTES * 2);
    uint64_t state = 88172645463325252ULL;
    for (int i = 0; i < PAYLOAD_BYTES * 2; i++) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        payload[i] = "abcdefghijklmnopqrstuvwxyz      "[state % 32];
    }
    return payload;
}

static int64_t records_in_topic(rd_kafka_t *rk, int partitions) {
    int64_t sum = 0, low, high;
    for (int partition = 0; partition < partitions; partition++) {
        int error = rd_kafka_query_watermark_offsets(rk, argument(argc_, argv_, "topic", NULL), partition, &low, &high, TIMEOUT_MS);
        if (error)
            fail("watermarks", rd_kafka_err2str(error));
        sum += high - low;
    }
    return sum;
}

/* Hands one chunk to librdkafka, waiting while its queue is full. */
static void enqueue(rd_kafka_t *rk, rd_kafka_topic_t *topic, int partition, rd_kafka_message_t *messages, int count) {
    while (count > 0) {
        int refused = 0;
        if (rd_kafka_produce_batch(topic, partition, 0, messages, count) == count)
            return;
        for (int i = 0; i < count; i++) {
            if (messages[i].err == RD_KAFKA_ERR_QUEUE_FULL) {
                messages[refused] = messages[i];
                messages[refused++].err = 0;
            } else if (messages[i].err) {
                note_error(messages[i].err);
            }
        }
        count = refused;
        rd_kafka_poll(rk, 10);
    }
}

static void print_outcome(const char *mode, int64_t records, double seconds, double cpu) {
    printf("{\"mode\": \"%s\", \"records\": %lld, \"seconds\": %.6f, \"client_cpu_seconds\": %.3f, \"errors\": %lld, "
           "\"first_error\": \"%s\", \"librdkafka\": \"%s\"",
           mode, (long long)records, seconds, cpu, (long long)errors, errors ? rd_kafka_err2str(first_error) : "",
           rd_kafka_version_str());
}

static void produce(void) {
    int64_t count = number(argc_, argv_, "count", NULL), size = number(argc_, argv_, "size", NULL);
    int partitions = (int)number(argc_, argv_, "partitions", "1");
    rd_kafka_t *rk = new_producer(1);
    rd_kafka_topic_t *topic = open_topic(rk);
    char *payload = make_payload();
    rd_kafka_message_t messages[CHUNK];
    /* One record first: leaders are connected and an idempotent producer has its id before the clock starts. */
    if (rd_kafka_produce(topic, 0, RD_KAFKA_MSG_F_COPY, payload, size, NULL, 0, NULL) || rd_kafka_flush(rk, TIMEOUT_MS))
        fail("first record", rd_kafka_err2str(rd_kafka_last_error()));
    int64_t before = records_in_topic(rk, partitions), sent = 0, position = 0;
    double cpu = cpu_seconds();
    int64_t start = now_ns();
    for (int chunk = 0; sent < count; chunk++) {
        int length = count - sent < CHUNK ? (int)(count - sent) : CHUNK;
        memset(messages, 0, sizeof *messages * length);
        for (int i = 0; i < length; i++) {
            messages[i].payload = payload + position;
            messages[i].len = size;
            position = (position + size) % PAYLOAD_BYTES;
        }
        enqueue(rk, topic, chunk % partitions, messages, length);
        rd_kafka_poll(rk, 0);
        sent += length;
    }
    if (rd_kafka_flush(rk, TIMEOUT_MS * 2))
        fail("flush", "records were still unacknowledged after two minutes");
    double seconds = (now_ns() - start) / 1e9;
    cpu = cpu_seconds() - cpu;
    int64_t landed = records_in_topic(rk, partitions) - before;
    if (landed != count && errors == 0 && strcmp(argument(argc_, argv_, "acks", "1"), "0") != 0) {
        fprintf(stderr, "%lld records acknowledged, %lld in the topic\n", (long long)count, (long long)landed);
        exit(1);
    }
    print_outcome("produce", count, seconds, cpu);
    printf("}\n");
}

struct progress {
    int64_t records, bytes, next_offset[1024];
};

static void on_record(rd_kafka_message_t *message, void *opaque) {
    struct progress *progress = opaque;
    if (message->err) {
        if (message->err != RD_KAFKA_ERR_PARTITION_EOF)
            note_error(message->err);
        return;
    }
    if (message->offset != progress->next_offset[message->partition]++)
        fail("consume", "offsets are not in order without gaps");
    progress->records++;
    progress->bytes += message->len;
}

static void consume(void) {
    int64_t count = number(argc_, argv_, "count", NULL);
    int partitions = (int)number(argc_, argv_, "partitions", "1");
    static struct progress progress;
    rd_kafka_t *rk = new_consumer();
    rd_kafka_topic_t *topic = open_topic(rk);
    rd_kafka_queue_t *queue = rd_kafka_queue_new(rk);
    double cpu = cpu_seconds();
    int64_t start = now_ns(), last_arrival = start, last_count = 0;
    for (int partition = 0; partition < partitions; partition++)
        if (rd_kafka_consume_start_queue(topic, partition, RD_KAFKA_OFFSET_BEGINNING, queue))
            fail("consume_start", rd_kafka_err2str(rd_kafka_last_error()));
    while (progress.records < count) {
        rd_kafka_consume_callback_queue(queue, 100, on_record, &progress);
        if (progress.records != last_count)
            last_count = progress.records, last_arrival = now_ns();
        if (now_ns() - last_arrival > 20 * NANOSECONDS)
            fail("consume", "no record came for twenty seconds");
    }
    double seconds = (now_ns() - start) / 1e9;
    print_outcome("consume", progress.records, seconds, cpu_seconds() - cpu);
    printf(", \"bytes\": %lld}\n", (long long)progress.bytes);
}

static struct samples acknowledged, received;
static int64_t measure_from;
static volatile int finished;

static void on_delivery(rd_kafka_t *rk, const rd_kafka_message_t *message, void *opaque) {
    (void)rk, (void)opaque;
    if (message->err)
        note_error(message->err);
    else if (message->_private && (int64_t)message->_private >= measure_from)
        samples_add(&acknowledged, now_ns() - (int64_t)message->_private);
}

static void *poll_deliveries(void *rk) {
    while (!finished)
        rd_kafka_poll(rk, 100);
    return NULL;
}

static void on_stamped_record(rd_kafka_message_t *message, void *opaque) {
    (void)opaque;
    int64_t due;
    if (message->err) {
        if (message->err != RD_KAFKA_ERR_PARTITION_EOF)
            note_error(message->err);
        return;
    }
    memcpy(&due, message->payload, sizeof due);
    if (due >= measure_from)
        samples_add(&received, now_ns() - due);
}

static void *poll_records(void *queue) {
    while (!finished)
        rd_kafka_consume_callback_queue(queue, 100, on_stamped_record, NULL);
    return NULL;
}

static void start_consumer(int partitions, pthread_t *thread) {
    rd_kafka_t *rk = new_consumer();
    rd_kafka_topic_t *topic = open_topic(rk);
    rd_kafka_queue_t *queue = rd_kafka_queue_new(rk);
    for (int partition = 0; partition < partitions; partition++)
        if (rd_kafka_consume_start_queue(topic, partition, RD_KAFKA_OFFSET_END, queue))
            fail("consume_start", rd_kafka_err2str(rd_kafka_last_error()));
    pthread_create(thread, NULL, poll_records, queue);
}

static void send_on_schedule(rd_kafka_topic_t *topic, int64_t start, int64_t total, int64_t rate, int partitions) {
    int64_t size = number(argc_, argv_, "size", NULL);
    char *payload = make_payload();
    for (int64_t i = 0; i < total; i++) {
        int64_t due = start + i * NANOSECONDS / rate;
        if (now_ns() < due)
            sleep_until_ns(due);
        memcpy(payload, &due, sizeof due);
        while (rd_kafka_produce(topic, i % partitions, RD_KAFKA_MSG_F_COPY, payload, size, NULL, 0, (void *)due)) {
            if (rd_kafka_last_error() != RD_KAFKA_ERR_QUEUE_FULL)
                fail("produce", rd_kafka_err2str(rd_kafka_last_error()));
            sleep_until_ns(now_ns() + NANOSECONDS / 1000);
        }
    }
}

static void latency(void) {
    int64_t rate = number(argc_, argv_, "rate", NULL), seconds = number(argc_, argv_, "seconds", "10");
    int64_t warm_up = number(argc_, argv_, "warm_up_seconds", "2");
    int partitions = (int)number(argc_, argv_, "partitions", "1"), with_consumer = (int)number(argc_, argv_, "consumer", "0");
    if (number(argc_, argv_, "size", NULL) < (int64_t)sizeof(int64_t))
        fail("size", "records must hold the eight bytes of a time");
    samples_open(&acknowledged, rate * seconds);
    samples_open(&received, rate * seconds);
    rd_kafka_t *rk = new_producer(0);
    rd_kafka_topic_t *topic = open_topic(rk);
    pthread_t deliveries, records;
    pthread_create(&deliveries, NULL, poll_deliveries, rk);
    if (with_consumer)
        start_consumer(partitions, &records);
    double cpu = cpu_seconds();
    int64_t start = now_ns() + NANOSECONDS / 10, total = rate * (warm_up + seconds);
    measure_from = start + warm_up * NANOSECONDS;
    send_on_schedule(topic, start, total, rate, partitions);
    if (rd_kafka_flush(rk, TIMEOUT_MS))
        fail("flush", "records were still unacknowledged after a minute");
    int64_t give_up = now_ns() + 10 * NANOSECONDS;
    while (with_consumer && now_ns() < give_up && (int64_t)received.count < rate * seconds)
        sleep_until_ns(now_ns() + NANOSECONDS / 100);
    finished = 1;
    pthread_join(deliveries, NULL);
    if (with_consumer)
        pthread_join(records, NULL);
    if (with_consumer && (int64_t)received.count < rate * seconds)
        fail("latency", "not every record that was sent came back to the consumer");
    print_outcome("latency", total, (double)(seconds + warm_up), cpu_seconds() - cpu);
    printf(", ");
    samples_print(&acknowledged, "acknowledged_us");
    if (with_consumer) {
        printf(", ");
        samples_print(&received, "received_us");
    }
    printf("}\n");
}

int main(int argc, char **argv) {
    argc_ = argc, argv_ = argv;
    if (argc > 1 && strcmp(argv[1], "produce") == 0)
        produce();
    else if (argc > 1 && strcmp(argv[1], "consume") == 0)
        consume();
    else if (argc > 1 && strcmp(argv[1], "latency") == 0)
        latency();
    else
        fail("usage", "load produce|consume|latency name=value…");
    fflush(stdout);
    /* Closing clients politely can take seconds and is not what is measured. */
    _Exit(errors ? 2 : 0);
}
