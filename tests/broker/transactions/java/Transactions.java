import java.time.Duration;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.ProducerFencedException;

/** Commits and aborts in turn, offsets included; then a second producer takes over while a transaction is open. */
public class Transactions {
    public static void main(String[] arguments) throws Exception {
        String servers = arguments[0], topic = arguments[1], group = arguments[2];
        KafkaProducer<String, String> first = producer(servers, group);
        for (int number = 0; number < 6; number++) {
            first.beginTransaction();
            for (int partition = 0; partition < 3; partition++) {
                first.send(new ProducerRecord<>(topic, partition, null, "" + number)).get();
            }
            Map<TopicPartition, OffsetAndMetadata> offsets =
                Map.of(new TopicPartition(topic, 0), new OffsetAndMetadata(number));
            first.sendOffsetsToTransaction(offsets, new ConsumerGroupMetadata(group));
            if (number % 2 == 0) {
                first.commitTransaction();
            } else {
                first.abortTransaction();
            }
        }
        first.beginTransaction();
        first.send(new ProducerRecord<>(topic, 0, null, "zombie")).get();
        KafkaProducer<String, String> second = producer(servers, group);
        try {
            first.commitTransaction();
            System.out.println("not fenced");
        } catch (ProducerFencedException | InvalidProducerEpochException expected) {
            System.out.println("fenced");
        }
        first.close(Duration.ZERO);
        second.beginTransaction();
        second.send(new ProducerRecord<>(topic, 0, null, "living"));
        second.commitTransaction();
        second.close();
    }

    private static KafkaProducer<String, String> producer(String servers, String transactionalId) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", servers);
        settings.put("transactional.id", transactionalId);
        settings.put("key.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        settings.put("value.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        KafkaProducer<String, String> made = new KafkaProducer<>(settings);
        made.initTransactions();
        return made;
    }
}
