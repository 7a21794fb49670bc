import java.util.HashMap;
import java.util.Map;
import org.springframework.jdbc.core.JdbcTemplate;
import org.springframework.jdbc.datasource.DataSourceTransactionManager;
import org.springframework.jdbc.datasource.SingleConnectionDataSource;
import org.springframework.kafka.core.DefaultKafkaConsumerFactory;
import org.springframework.kafka.listener.ConcurrentMessageListenerContainer;
import org.springframework.kafka.listener.ContainerProperties;
import org.springframework.kafka.listener.MessageListener;
import org.springframework.transaction.support.TransactionTemplate;

/**
 * A listener of spring-kafka whose work is a transaction of a database, as with {@code @Transactional} on its method.
 *
 * <p>bootstrap=, topic=, group=, file= (a SQLite database with a table work(n)); ack=RECORD (or BATCH, the default of the
 * container); dies_at= (the process halts once so many rows are committed); any Kafka setting of the consumer.
 */
public class BesideADatabase {
    public static void main(String[] args) throws Exception {
        Map<String, String> told = new HashMap<>();
        Map<String, Object> consumer = new HashMap<>(Map.of("auto.offset.reset", "earliest"));
        for (String arg : args) {
            String[] pair = arg.split("=", 2);
            (pair[0].contains(".") ? consumer : (Map) told).put(pair[0], pair[1]);
        }
        consumer.put("bootstrap.servers", told.get("bootstrap"));
        consumer.put("group.id", told.get("group"));
        consumer.put("key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        consumer.put("value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        var source = new SingleConnectionDataSource("jdbc:sqlite:" + told.get("file"), true);
        var transaction = new TransactionTemplate(new DataSourceTransactionManager(source));
        var rows = new JdbcTemplate(source);
        int diesAt = Integer.parseInt(told.getOrDefault("dies_at", "0"));
        int[] handled = {0};
        ContainerProperties properties = new ContainerProperties(told.get("topic"));
        properties.setAckMode(ContainerProperties.AckMode.valueOf(told.getOrDefault("ack", "BATCH")));
        properties.setMessageListener((MessageListener<String, String>) record -> {
            transaction.executeWithoutResult(
                    status -> rows.update("insert into work values (?)", Integer.parseInt(record.value())));
            System.out.println("handled " + record.value());
            if (++handled[0] == diesAt) Runtime.getRuntime().halt(137);
        });
        var container = new ConcurrentMessageListenerContainer<>(new DefaultKafkaConsumerFactory<>(consumer), properties);
        container.start();
        while (System.in.read() >= 0) {}
        container.stop();
        System.exit(0);
    }
}
