import io.confluent.parallelconsumer.ParallelConsumerOptions;
import io.confluent.parallelconsumer.ParallelStreamProcessor;
import java.nio.ByteBuffer;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.header.Headers;
import org.apache.kafka.common.serialization.IntegerDeserializer;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * A Confluent Parallel Consumer with its defaults and order by key.
 *
 * <p>bootstrap=, topic=, group=; fails=VALUE (its handler always throws), slow=VALUE and slow_ms=, each_ms= (how long the
 * handler takes); values=int (four bytes, else text); workers=N; any Kafka setting of the consumer under its own name.
 */
public class Service {
    public static void main(String[] args) throws Exception {
        Map<String, String> told = new HashMap<>();
        Map<String, Object> consumer = new HashMap<>(Map.of("auto.offset.reset", "earliest", "enable.auto.commit", false));
        for (String arg : args) {
            String[] pair = arg.split("=", 2);
            (pair[0].contains(".") ? consumer : (Map) told).put(pair[0], pair[1]);
        }
        consumer.put("bootstrap.servers", told.get("bootstrap"));
        consumer.put("group.id", told.get("group"));
        consumer.put("key.deserializer", StringDeserializer.class);
        consumer.put("value.deserializer", "int".equals(told.get("values")) ? Four.class : StringDeserializer.class);
        var options = ParallelConsumerOptions.<Object, Object>builder()
                .consumer(new KafkaConsumer<>(consumer))
                .ordering(ParallelConsumerOptions.ProcessingOrder.KEY)
                .maxConcurrency(Integer.parseInt(told.getOrDefault("workers", "16")))
                .build();
        var processor = ParallelStreamProcessor.createEosStreamProcessor(options);
        processor.subscribe(List.of(told.get("topic")));
        processor.poll(context -> handle(told, String.valueOf(context.value())));
        Thread watcher = new Thread(() -> watch(processor));
        watcher.setDaemon(true);
        watcher.start();
        while (System.in.read() >= 0) {}
        try {
            processor.closeDrainFirst();
        } catch (Throwable error) {
            System.out.println("close failed: " + error);
        }
        System.exit(0);
    }

    static void watch(ParallelStreamProcessor<Object, Object> processor) {
        while (!((io.confluent.parallelconsumer.internal.AbstractParallelEoSStreamProcessor<?, ?>) processor).isClosedOrFailed()) {
            sleep("50");
        }
        System.out.println("closed or failed");
    }

    static void handle(Map<String, String> told, String value) {
        System.out.println("call " + value);
        sleep(told.getOrDefault("each_ms", "0"));
        if (value.equals(told.get("slow"))) sleep(told.get("slow_ms"));
        if (value.equals(told.get("fails"))) throw new IllegalStateException("never");
        System.out.println("handled " + value);
    }

    /** Four bytes to an int; says so when it cannot. */
    public static class Four extends IntegerDeserializer {
        @Override
        public Integer deserialize(String topic, Headers headers, ByteBuffer data) {
            if (data.remaining() != 4) System.out.println("undecodable");
            return super.deserialize(topic, headers, data);
        }
    }

    static void sleep(String ms) {
        try {
            Thread.sleep(Long.parseLong(ms));
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }
}
