import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;

/**
 * Reads lines of "name version hex", lets Apache Kafka's own class of that name read the bytes, and prints what it
 * writes for them as hex: the same bytes, if they were that message.
 */
public class MessageOracle {
    private static final String[] PLACES = {
        "org.apache.kafka.common.message.%sData",
        "org.apache.kafka.common.message.%s",
        "org.apache.kafka.common.metadata.%s",
        "org.apache.kafka.coordinator.group.generated.%s",
        "org.apache.kafka.coordinator.transaction.generated.%s",
        "org.apache.kafka.coordinator.share.generated.%s",
        "org.apache.kafka.raft.generated.%s",
        "org.apache.kafka.server.log.remote.metadata.storage.generated.%s",
    };

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] parts = line.split(" ", -1);
            System.out.println(rewrite(parts[0], Short.parseShort(parts[1]), HexFormat.of().parseHex(parts[2])));
        }
    }

    private static String rewrite(String name, short version, byte[] data) throws Exception {
        try {
            Message message = find(name);
            ByteBuffer input = ByteBuffer.wrap(data);
            message.read(new ByteBufferAccessor(input), version);
            ObjectSerializationCache cache = new ObjectSerializationCache();
            ByteBuffer output = ByteBuffer.allocate(message.size(cache, version));
            message.write(new ByteBufferAccessor(output), cache, version);
            return input.hasRemaining() ? "bytes are left over" : HexFormat.of().formatHex(output.array());
        } catch (RuntimeException problem) {
            return problem.toString().replace('\n', ' ');
        }
    }

    private static Message find(String name) throws Exception {
        for (String place : PLACES) {
            try {
                return (Message) Class.forName(String.format(place, name)).getDeclaredConstructor().newInstance();
            } catch (ClassNotFoundException elsewhere) {
                continue;
            }
        }
        throw new IllegalArgumentException("no class " + name);
    }
}
