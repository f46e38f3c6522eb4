import java.time.Duration;
import java.util.Arrays;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;

/**
 * Counts words: lines are split, repartitioned by word and counted, with a changelog of the counts.
 *
 * <p>Arguments: bootstrap servers, application id, source topic, sink topic, then settings as name=value. Prints its
 * states, and what it is assigned when it runs. Standard input ends the work.
 */
public final class WordCount {
    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("application.id", arguments[1]);
        settings.put("commit.interval.ms", "200");
        settings.put("statestore.cache.max.bytes", "0");
        for (String setting : Arrays.asList(arguments).subList(4, arguments.length)) {
            String[] parts = setting.split("=", 2);
            settings.put(parts[0], parts[1]);
        }
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(arguments[2], Consumed.with(Serdes.String(), Serdes.String()))
            .flatMapValues(line -> Arrays.asList(line.split(" ")))
            .groupBy((key, word) -> word, Grouped.with("words", Serdes.String(), Serdes.String()))
            .count(Materialized.as("counts"))
            .toStream()
            .to(arguments[3], Produced.with(Serdes.String(), Serdes.Long()));
        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        streams.setStateListener((state, former) -> System.out.println("state " + state));
        streams.setUncaughtExceptionHandler(error -> {
            System.out.println("failed " + error);
            return org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        streams.start();
        String told = "";
        while (System.in.available() == 0) {
            StringBuilder tasks = new StringBuilder("tasks");
            streams.metadataForLocalThreads().forEach(thread -> {
                thread.activeTasks().forEach(task -> tasks.append(" a").append(task.taskId()));
                thread.standbyTasks().forEach(task -> tasks.append(" s").append(task.taskId()));
            });
            if (!told.contentEquals(tasks)) {
                told = tasks.toString();
                System.out.println(told);
            }
            Thread.sleep(100);
        }
        streams.close(Duration.ofSeconds(30));
        System.out.println("done");
        System.exit(0);
    }
}
