import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/** A member of a share group. What it does and prints is said in tests/kit/foreign_client.py. */
class Share {
    static void share(String bootstrap, String topic, String group, String mode) throws Exception {
        Client.listen();
        Map<String, Object> settings = Map.of(
            "bootstrap.servers", bootstrap, "group.id", group, "share.acknowledgement.mode", "explicit",
            "max.poll.records", 20);
        try (KafkaShareConsumer<String, String> consumer =
                 new KafkaShareConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(topic));
            while (!Client.told.get()) {
                List<ConsumerRecord<String, String>> leased = new ArrayList<>();
                consumer.poll(Duration.ofMillis(200)).forEach(leased::add);
                if (mode.equals("hold") && !leased.isEmpty()) {
                    for (ConsumerRecord<String, String> each : leased)
                        Client.say("held", each.partition(), each.offset());
                    Thread.sleep(Long.MAX_VALUE);
                }
                for (ConsumerRecord<String, String> each : leased) consumer.acknowledge(each, outcome(each));
                Set<Integer> failed = failures(consumer.commitSync());
                for (ConsumerRecord<String, String> each : leased) {
                    String said = failed.contains(each.partition()) ? "unknown" : "settled";
                    Client.say(said, each.partition(), each.offset(), count(each), outcome(each).toString());
                }
            }
        }
        Client.say("closed");
    }

    static AcknowledgeType outcome(ConsumerRecord<String, String> record) {
        if (record.offset() % 10 == 3 && count(record) == 1) return AcknowledgeType.RELEASE;
        return record.offset() % 10 == 5 ? AcknowledgeType.REJECT : AcknowledgeType.ACCEPT;
    }

    static short count(ConsumerRecord<String, String> record) {
        return record.deliveryCount().orElseThrow();
    }

    static Set<Integer> failures(Map<TopicIdPartition, Optional<KafkaException>> answers) {
        return answers.entrySet().stream().filter(each -> each.getValue().isPresent())
            .map(each -> each.getKey().partition()).collect(Collectors.toSet());
    }
}
