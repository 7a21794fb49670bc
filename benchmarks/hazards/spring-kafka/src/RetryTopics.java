import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.springframework.context.annotation.AnnotationConfigApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.kafka.annotation.BackOff;
import org.springframework.kafka.annotation.EnableKafkaRetryTopic;
import org.springframework.kafka.annotation.KafkaListener;
import org.springframework.kafka.annotation.RetryableTopic;
import org.springframework.kafka.config.ConcurrentKafkaListenerContainerFactory;
import org.springframework.kafka.core.ConsumerFactory;
import org.springframework.kafka.core.DefaultKafkaConsumerFactory;
import org.springframework.kafka.core.DefaultKafkaProducerFactory;
import org.springframework.kafka.core.KafkaAdmin;
import org.springframework.kafka.core.KafkaTemplate;
import org.springframework.scheduling.TaskScheduler;
import org.springframework.scheduling.concurrent.ThreadPoolTaskScheduler;

/** A listener of spring-kafka with a retry topic, five seconds late. bootstrap=, topic=, group=, fails_once=VALUE. */
@Configuration
@EnableKafkaRetryTopic
public class RetryTopics {
    static final Map<String, String> told = new HashMap<>();
    final Set<String> failed = new HashSet<>();

    public static void main(String[] args) throws Exception {
        for (String arg : args) {
            String[] pair = arg.split("=", 2);
            told.put(pair[0], pair[1]);
            System.setProperty("hazard." + pair[0], pair[1]);
        }
        var context = new AnnotationConfigApplicationContext(RetryTopics.class);
        while (System.in.read() >= 0) {}
        context.close();
        System.exit(0);
    }

    @RetryableTopic(attempts = "3", backOff = @BackOff(delay = 5000))
    @KafkaListener(topics = "#{systemProperties['hazard.topic']}", groupId = "#{systemProperties['hazard.group']}")
    public void handle(ConsumerRecord<String, String> record) {
        System.out.println("call " + record.value());
        if (record.value().equals(told.get("fails_once")) && failed.add(record.value())) {
            throw new IllegalStateException("not yet");
        }
        System.out.println("handled " + record.value());
    }

    @Bean
    ConsumerFactory<String, String> consumers() {
        return new DefaultKafkaConsumerFactory<>(Map.of(
                "bootstrap.servers", told.get("bootstrap"), "auto.offset.reset", "earliest",
                "key.deserializer", StringDeserializer.class, "value.deserializer", StringDeserializer.class));
    }

    @Bean
    ConcurrentKafkaListenerContainerFactory<String, String> kafkaListenerContainerFactory() {
        var factory = new ConcurrentKafkaListenerContainerFactory<String, String>();
        factory.setConsumerFactory(consumers());
        return factory;
    }

    @Bean
    KafkaTemplate<String, String> defaultRetryTopicKafkaTemplate() {
        return new KafkaTemplate<>(new DefaultKafkaProducerFactory<>(Map.of(
                "bootstrap.servers", told.get("bootstrap"),
                "key.serializer", StringSerializer.class, "value.serializer", StringSerializer.class)));
    }

    @Bean
    KafkaAdmin admin() {
        return new KafkaAdmin(Map.of("bootstrap.servers", told.get("bootstrap")));
    }

    @Bean
    TaskScheduler taskScheduler() {
        return new ThreadPoolTaskScheduler();
    }
}
