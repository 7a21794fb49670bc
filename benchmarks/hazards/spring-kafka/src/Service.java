import java.nio.ByteBuffer;
import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.header.Headers;
import org.apache.kafka.common.serialization.IntegerDeserializer;
import org.apache.kafka.common.serialization.IntegerSerializer;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.springframework.kafka.core.DefaultKafkaConsumerFactory;
import org.springframework.kafka.core.DefaultKafkaProducerFactory;
import org.springframework.kafka.core.KafkaTemplate;
import org.springframework.kafka.listener.ConcurrentMessageListenerContainer;
import org.springframework.kafka.listener.ContainerProperties;
import org.springframework.kafka.listener.DeadLetterPublishingRecoverer;
import org.springframework.kafka.listener.DefaultErrorHandler;
import org.springframework.kafka.listener.MessageListener;
import org.springframework.util.backoff.FixedBackOff;

/**
 * A listener of spring-kafka with the defaults of its container.
 *
 * <p>bootstrap=, topic=, group=; fails=VALUE (its handler always throws), slow=VALUE and slow_ms=, each_ms= (how long the
 * handler takes); values=int (four bytes, else text); dead_letters=true (its own recoverer, with its own names, after one
 * attempt); any Kafka setting of the consumer under its own name.
 */
public class Service {
    public static void main(String[] args) throws Exception {
        Map<String, String> told = new HashMap<>();
        Map<String, Object> consumer = new HashMap<>(Map.of("auto.offset.reset", "earliest"));
        for (String arg : args) {
            String[] pair = arg.split("=", 2);
            (pair[0].contains(".") ? consumer : (Map) told).put(pair[0], pair[1]);
        }
        boolean isInt = "int".equals(told.get("values"));
        consumer.put(ConsumerConfig.BOOTSTRAP_SERVERS_CONFIG, told.get("bootstrap"));
        consumer.put(ConsumerConfig.GROUP_ID_CONFIG, told.get("group"));
        consumer.put("key.deserializer", StringDeserializer.class);
        consumer.put("value.deserializer", isInt ? Four.class : StringDeserializer.class);
        ContainerProperties properties = new ContainerProperties(told.get("topic"));
        properties.setMessageListener((MessageListener<Object, Object>) record -> handle(told, record));
        var container = new ConcurrentMessageListenerContainer<>(new DefaultKafkaConsumerFactory<>(consumer), properties);
        if (told.containsKey("dead_letters")) {
            var producers = new DefaultKafkaProducerFactory<Object, Object>(Map.of(
                    "bootstrap.servers", told.get("bootstrap"),
                    "key.serializer", StringSerializer.class,
                    "value.serializer", isInt ? IntegerSerializer.class : StringSerializer.class,
                    "max.block.ms", 1_000, "delivery.timeout.ms", 2_000, "request.timeout.ms", 1_000, "linger.ms", 0));
            var recoverer = new DeadLetterPublishingRecoverer(new KafkaTemplate<>(producers));
            container.setCommonErrorHandler(new DefaultErrorHandler(recoverer, new FixedBackOff(0, 0)));
        }
        container.start();
        while (System.in.read() >= 0) {}
        container.stop();
        System.exit(0);
    }

    static void handle(Map<String, String> told, ConsumerRecord<Object, Object> record) {
        String value = String.valueOf(record.value());
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
