import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Kafka's own client. What the programs of this folder do and print is said in tests/kit/foreign_client.py. */
public class Client {
    static final List<String> COMPRESSIONS = List.of("none", "gzip", "snappy", "lz4", "zstd");
    static final int CHUNK = 50;
    static final AtomicBoolean told = new AtomicBoolean();

    public static void main(String[] args) throws Exception {
        switch (args[0]) {
            case "produce" -> produce(args[1], args[2]);
            case "consume" -> consume(args[1], args[2], args[3], args[4]);
            case "transact" -> transact(args[1], args[2], args[3], args[4]);
            case "share" -> Share.share(args[1], args[2], args[3], args[4]);
            default -> throw new IllegalArgumentException(args[0]);
        }
    }

    // --- produce

    static void produce(String bootstrap, String topic) throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            NewTopic wanted = new NewTopic(topic, 3, (short) 3).configs(Map.of("min.insync.replicas", "2"));
            admin.createTopics(List.of(wanted)).all().get();
            say("created", admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().size());
        }
        int sent = 0;
        for (String compression : COMPRESSIONS) sent = chunk(bootstrap, topic, compression, sent);
        say("half", sent);
        listen();
        try (KafkaProducer<String, String> producer = producer(bootstrap, "lz4")) {
            while (!told.get()) sent = chunk(producer, topic, sent);
        }
        for (String compression : COMPRESSIONS) sent = chunk(bootstrap, topic, compression, sent);
        say("produced", sent);
    }

    static KafkaProducer<String, String> producer(String bootstrap, String compression) {
        return new KafkaProducer<>(
            Map.of("bootstrap.servers", bootstrap, "compression.type", compression, "linger.ms", 20),
            new StringSerializer(), new StringSerializer());
    }

    static int chunk(String bootstrap, String topic, String compression, int from) throws Exception {
        try (KafkaProducer<String, String> producer = producer(bootstrap, compression)) {
            return chunk(producer, topic, from);
        }
    }

    static int chunk(KafkaProducer<String, String> producer, String topic, int from) throws Exception {
        List<Future<RecordMetadata>> answers = new ArrayList<>();
        for (int number = from; number < from + CHUNK; number++) answers.add(producer.send(record(topic, number)));
        for (Future<RecordMetadata> answer : answers) answer.get();
        return from + CHUNK;
    }

    static ProducerRecord<String, String> record(String topic, int number) {
        ProducerRecord<String, String> record =
            new ProducerRecord<>(topic, "k" + number, number + ":" + "v".repeat(200));
        record.headers().add("n", Integer.toString(number).getBytes(StandardCharsets.UTF_8));
        return record;
    }

    // --- consume

    static void consume(String bootstrap, String topic, String group, String protocol) {
        listen();
        boolean cooperates = protocol.equals("cooperative");
        if (cooperates) protocol = "classic";
        Map<String, Object> settings = new java.util.HashMap<>(Map.of(
            "bootstrap.servers", bootstrap, "group.id", group, "group.protocol", protocol,
            "enable.auto.commit", false, "auto.offset.reset", "earliest", "max.poll.records", 50));
        if (protocol.equals("classic")) settings.put("session.timeout.ms", 6000);
        if (cooperates)
            settings.put("partition.assignment.strategy",
                "org.apache.kafka.clients.consumer.CooperativeStickyAssignor");
        try (KafkaConsumer<String, String> consumer =
                 new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(topic), new ConsumerRebalanceListener() {
                @Override public void onPartitionsAssigned(Collection<TopicPartition> added) {
                    say("assigned", consumer.assignment().stream()
                        .map(each -> Integer.toString(each.partition())).sorted().collect(Collectors.joining(",")));
                }
                @Override public void onPartitionsRevoked(Collection<TopicPartition> revoked) { }
            });
            while (!told.get()) {
                ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(200));
                for (ConsumerRecord<String, String> each : records) {
                    String n = new String(each.headers().lastHeader("n").value(), StandardCharsets.UTF_8);
                    say("record", each.partition(), each.offset(), each.key(), n, each.value().split(":")[0]);
                }
                if (!records.isEmpty() && committed(consumer)) {
                    for (TopicPartition each : records.partitions())
                        say("committed", each.partition(), consumer.position(each));
                }
            }
        }
        say("closed");
    }

    static boolean committed(KafkaConsumer<String, String> consumer) {
        try {
            consumer.commitSync();
            return true;
        } catch (org.apache.kafka.clients.consumer.CommitFailedException rebalanced) {
            return false;
        }
    }

    // --- transact

    static void transact(String bootstrap, String topic, String id, String phase) throws Exception {
        KafkaProducer<String, String> producer = new KafkaProducer<>(
            Map.of("bootstrap.servers", bootstrap, "transactional.id", id, "compression.type", "zstd"),
            new StringSerializer(), new StringSerializer());
        producer.initTransactions();
        if (phase.equals("second")) {
            transaction(producer, topic, id, "taken-over", 0, true);
            producer.close();
            readCommitted(bootstrap, topic);
            return;
        }
        for (int number = 0; number < 6; number++) {
            transaction(producer, topic, id, "t" + number, number + 1, number % 2 == 0);
            if (number == 2) {
                say("half", number);
                awaitLine();
            }
        }
        producer.beginTransaction();
        send(producer, topic, "open");
        producer.flush();
        say("open");
        Thread.sleep(600_000);
    }

    static void transaction(
            KafkaProducer<String, String> producer, String topic, String id, String name, int offset, boolean commit)
            throws Exception {
        producer.beginTransaction();
        send(producer, topic, name);
        if (offset > 0) {
            producer.sendOffsetsToTransaction(
                Map.of(new TopicPartition(topic, 0), new OffsetAndMetadata(offset, Optional.empty(), "")),
                new ConsumerGroupMetadata(id + "-group"));
        }
        if (commit) producer.commitTransaction();
        else producer.abortTransaction();
    }

    static void send(KafkaProducer<String, String> producer, String topic, String name) {
        for (int number = 0; number < 9; number++)
            producer.send(new ProducerRecord<>(topic, number % 3, name, name + "-" + number));
    }

    static void readCommitted(String bootstrap, String topic) {
        Map<String, Object> settings = Map.of(
            "bootstrap.servers", bootstrap, "isolation.level", "read_committed", "auto.offset.reset", "earliest");
        try (KafkaConsumer<String, String> consumer =
                 new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            List<TopicPartition> all = List.of(
                new TopicPartition(topic, 0), new TopicPartition(topic, 1), new TopicPartition(topic, 2));
            consumer.assign(all);
            Set<String> last = IntStream.range(0, 9).mapToObj(n -> "taken-over-" + n).collect(Collectors.toSet());
            while (!last.isEmpty()) {
                for (ConsumerRecord<String, String> each : consumer.poll(Duration.ofMillis(200))) {
                    say("value", each.value());
                    last.remove(each.value());
                }
            }
        }
        say("closed");
    }

    // --- talking to the test

    static synchronized void say(Object... words) {
        System.out.println(List.of(words).stream().map(Object::toString).collect(Collectors.joining("\t")));
        System.out.flush();
    }

    static void awaitLine() throws Exception {
        new BufferedReader(new InputStreamReader(System.in)).readLine();
    }

    static void listen() {
        Thread thread = new Thread(() -> {
            try {
                awaitLine();
            } catch (Exception error) {
                error.printStackTrace();
            }
            told.set(true);
        });
        thread.setDaemon(true);
        thread.start();
    }
}
