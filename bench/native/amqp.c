/* Load on a RabbitMQ queue over AMQP 0.9.1 with librabbitmq; one JSON object on standard output.
 *
 *   amqp publish port=5672 queue=… type=stream|quorum size=100 count=100000 window=2000
 *   amqp consume port=5672 queue=… type=… count=100000
 *
 * Publishing keeps at most `window` messages unconfirmed and ends when the broker has confirmed them all. */
#include <amqp.h>
#include <amqp_tcp_socket.h>
#include <sys/time.h>

#include "common.h"

#define CHANNEL 1
#define PREFETCH 5000
#define SILENCE_SECONDS 30

static void check(amqp_rpc_reply_t reply, const char *what) {
    if (reply.reply_type != AMQP_RESPONSE_NORMAL)
        fail(what, reply.reply_type == AMQP_RESPONSE_LIBRARY_EXCEPTION ? amqp_error_string2(reply.library_error) : "refused by the broker");
}

static amqp_connection_state_t open_channel(int port) {
    amqp_connection_state_t connection = amqp_new_connection();
    amqp_socket_t *socket = amqp_tcp_socket_new(connection);
    if (amqp_socket_open(socket, "127.0.0.1", port) != AMQP_STATUS_OK)
        fail("connect", "refused");
    check(amqp_login(connection, "/", 0, 131072, 0, AMQP_SASL_METHOD_PLAIN, "guest", "guest"), "login");
    amqp_channel_open(connection, CHANNEL);
    check(amqp_get_rpc_reply(connection), "channel");
    return connection;
}

static void declare(amqp_connection_state_t connection, amqp_bytes_t queue, const char *type) {
    amqp_table_entry_t entry = {.key = amqp_cstring_bytes("x-queue-type")};
    entry.value.kind = AMQP_FIELD_KIND_UTF8;
    entry.value.value.bytes = amqp_cstring_bytes(type);
    amqp_table_t arguments = {1, &entry};
    amqp_queue_declare(connection, CHANNEL, queue, 0, 1, 0, 0, arguments);
    check(amqp_get_rpc_reply(connection), "declare");
}

/* Which of the delivery tags 1 to count are confirmed; single and multiple confirmations may overlap. */
struct confirmations {
    char *confirmed;
    uint64_t count, all_up_to, total;
};

static void mark(struct confirmations *confirmations, uint64_t tag) {
    if (tag > confirmations->count)
        fail("confirm", "a delivery tag that was never sent");
    confirmations->total += !confirmations->confirmed[tag];
    confirmations->confirmed[tag] = 1;
}

static void read_confirmation(amqp_connection_state_t connection, struct confirmations *confirmations) {
    amqp_frame_t frame;
    struct timeval timeout = {SILENCE_SECONDS, 0};
    int status = amqp_simple_wait_frame_noblock(connection, &frame, &timeout);
    if (status != AMQP_STATUS_OK)
        fail("confirm", amqp_error_string2(status));
    if (frame.frame_type != AMQP_FRAME_METHOD)
        return;
    if (frame.payload.method.id != AMQP_BASIC_ACK_METHOD)
        fail("confirm", "the broker refused a message or closed the channel");
    amqp_basic_ack_t *ack = frame.payload.method.decoded;
    mark(confirmations, ack->delivery_tag);
    while (ack->multiple && confirmations->all_up_to < ack->delivery_tag)
        mark(confirmations, ++confirmations->all_up_to);
}

static void publish(int argc, char **argv) {
    int64_t count = number(argc, argv, "count", NULL), size = number(argc, argv, "size", NULL);
    int64_t window = number(argc, argv, "window", "2000");
    amqp_bytes_t queue = amqp_cstring_bytes(argument(argc, argv, "queue", NULL));
    amqp_connection_state_t connection = open_channel((int)number(argc, argv, "port", NULL));
    declare(connection, queue, argument(argc, argv, "type", NULL));
    amqp_confirm_select(connection, CHANNEL);
    check(amqp_get_rpc_reply(connection), "confirm.select");
    amqp_basic_properties_t properties = {._flags = AMQP_BASIC_DELIVERY_MODE_FLAG, .delivery_mode = 2};
    amqp_bytes_t body = amqp_bytes_malloc((size_t)size);
    memset(body.bytes, 'x', (size_t)size);
    struct confirmations confirmations = {calloc((size_t)count + 1, 1), (uint64_t)count, 0, 0};
    int64_t start = now_ns();
    for (int64_t sent = 0; sent < count; sent++) {
        int status = amqp_basic_publish(connection, CHANNEL, amqp_empty_bytes, queue, 0, 0, &properties, body);
        if (status != AMQP_STATUS_OK)
            fail("publish", amqp_error_string2(status));
        amqp_maybe_release_buffers(connection);
        while (sent + 1 - (int64_t)confirmations.total >= window)
            read_confirmation(connection, &confirmations);
    }
    while ((int64_t)confirmations.total < count)
        read_confirmation(connection, &confirmations);
    printf("{\"records\": %lld, \"seconds\": %.6f}\n", (long long)count, (now_ns() - start) / 1e9);
}

static void consume(int argc, char **argv) {
    int64_t count = number(argc, argv, "count", NULL);
    int is_stream = strcmp(argument(argc, argv, "type", NULL), "stream") == 0;
    amqp_connection_state_t connection = open_channel((int)number(argc, argv, "port", NULL));
    amqp_basic_qos(connection, CHANNEL, 0, PREFETCH, 0);
    check(amqp_get_rpc_reply(connection), "qos");
    amqp_table_entry_t entry = {.key = amqp_cstring_bytes("x-stream-offset")};
    entry.value.kind = AMQP_FIELD_KIND_UTF8;
    entry.value.value.bytes = amqp_cstring_bytes("first");
    amqp_table_t arguments = {is_stream, &entry};
    int64_t start = now_ns();
    amqp_basic_consume(connection, CHANNEL, amqp_cstring_bytes(argument(argc, argv, "queue", NULL)), amqp_empty_bytes, 0, 0,
                       0, arguments);
    check(amqp_get_rpc_reply(connection), "consume");
    for (int64_t received = 1; received <= count; received++) {
        amqp_envelope_t envelope;
        struct timeval timeout = {SILENCE_SECONDS, 0};
        amqp_maybe_release_buffers(connection);
        check(amqp_consume_message(connection, &envelope, &timeout, 0), "message");
        if (received % (PREFETCH / 10) == 0)
            amqp_basic_ack(connection, CHANNEL, envelope.delivery_tag, 1);
        amqp_destroy_envelope(&envelope);
    }
    printf("{\"records\": %lld, \"seconds\": %.6f}\n", (long long)count, (now_ns() - start) / 1e9);
}

static void delete_queue(int argc, char **argv) {
    amqp_connection_state_t connection = open_channel((int)number(argc, argv, "port", NULL));
    amqp_queue_delete(connection, CHANNEL, amqp_cstring_bytes(argument(argc, argv, "queue", NULL)), 0, 0);
    check(amqp_get_rpc_reply(connection), "delete");
    printf("{}\n");
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "publish") == 0)
        publish(argc, argv);
    else if (argc > 1 && strcmp(argv[1], "consume") == 0)
        consume(argc, argv);
    else if (argc > 1 && strcmp(argv[1], "delete") == 0)
        delete_queue(argc, argv);
    else
        fail("usage", "amqp publish|consume|delete name=value…");
    return 0;
}
