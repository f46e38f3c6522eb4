import java.time.Duration;
import java.util.Map;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * A member of a share group that does with each record what its value requests, and prints what it did.
 *
 * <p>A line is: what was done, partition, offset, delivery count, value. Standard input ends the work.
 */
public final class ShareWorker {
    public static void main(String[] arguments) throws Exception {
        Map<String, Object> settings = Map.of(
            "bootstrap.servers", arguments[0],
            "group.id", arguments[1],
            "share.acknowledgement.mode", "explicit",
            "max.poll.records", 20);
        try (var consumer = new KafkaShareConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.setAcknowledgementCommitCallback((offsets, error) -> {
                if (error != null) {
                    System.out.println("failed " + error.getClass().getSimpleName() + " " + offsets.values());
                }
            });
            consumer.subscribe(java.util.List.of(arguments[2]));
            System.out.println("ready");
            while (System.in.available() == 0) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200))) {
                    int count = record.deliveryCount().orElse((short) -1);
                    AcknowledgeType type = typeOf(record.value(), count);
                    consumer.acknowledge(record, type);
                    System.out.println(type.name() + " " + record.partition() + " " + record.offset() + " " + count + " "
                        + record.value());
                }
                consumer.commitSync();
            }
        }
        System.out.println("done");
    }

    private static AcknowledgeType typeOf(String value, int count) {
        if (value.startsWith("reject")) {
            return AcknowledgeType.REJECT;
        }
        if (value.startsWith("never") || value.startsWith("later") && count < 3) {
            return AcknowledgeType.RELEASE;
        }
        return AcknowledgeType.ACCEPT;
    }
}
