// sarama. What the programs of this folder do and print is said in tests/kit/foreign_client.py.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"clients/talk"

	"github.com/IBM/sarama"
)

var compressions = []sarama.CompressionCodec{
	sarama.CompressionNone, sarama.CompressionGZIP, sarama.CompressionSnappy, sarama.CompressionLZ4,
	sarama.CompressionZSTD,
}

func main() {
	args := os.Args[1:]
	seeds := strings.Split(args[1], ",")
	switch args[0] {
	case "produce":
		produce(seeds, args[2])
	case "consume":
		consume(seeds, args[2], args[3])
	case "transact":
		transact(seeds, args[2], args[3], args[4])
	}
}

func settings() *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	config.Producer.Idempotent = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Return.Successes = true
	config.Producer.Retry.Max = 60
	config.Net.MaxOpenRequests = 1
	config.Metadata.Retry.Max = 60
	return config
}

func produce(seeds []string, topic string) {
	admin, err := sarama.NewClusterAdmin(seeds, settings())
	talk.Must(err)
	two := "2"
	talk.Must(admin.CreateTopic(topic, &sarama.TopicDetail{
		NumPartitions: 3, ReplicationFactor: 3, ConfigEntries: map[string]*string{"min.insync.replicas": &two},
	}, false))
	described, err := admin.DescribeTopics([]string{topic})
	talk.Must(err)
	talk.Say("created", len(described[0].Partitions))
	talk.Must(admin.Close())

	sent := 0
	each := func() {
		for _, codec := range compressions {
			producer := newProducer(seeds, codec)
			sent = chunk(producer, topic, sent)
			talk.Must(producer.Close())
		}
	}
	each()
	talk.Say("half", sent)
	told := talk.Told()
	producer := newProducer(seeds, sarama.CompressionLZ4)
	for running := true; running; {
		sent = chunk(producer, topic, sent)
		select {
		case <-told:
			running = false
		default:
		}
	}
	talk.Must(producer.Close())
	each()
	talk.Say("produced", sent)
}

func newProducer(seeds []string, codec sarama.CompressionCodec) sarama.SyncProducer {
	config := settings()
	config.Producer.Compression = codec
	producer, err := sarama.NewSyncProducer(seeds, config)
	talk.Must(err)
	return producer
}

func chunk(producer sarama.SyncProducer, topic string, from int) int {
	messages := make([]*sarama.ProducerMessage, talk.Chunk)
	for index := range messages {
		number := from + index
		messages[index] = &sarama.ProducerMessage{
			Topic:   topic,
			Key:     sarama.StringEncoder(fmt.Sprintf("k%d", number)),
			Value:   sarama.StringEncoder(talk.Value(number)),
			Headers: []sarama.RecordHeader{{Key: []byte("n"), Value: fmt.Appendf(nil, "%d", number)}},
		}
	}
	talk.Must(producer.SendMessages(messages))
	return from + talk.Chunk
}

type member struct{ topic string }

func (m member) Setup(session sarama.ConsumerGroupSession) error {
	partitions := slices.Sorted(slices.Values(session.Claims()[m.topic]))
	talk.Say("assigned", strings.Trim(strings.ReplaceAll(fmt.Sprint(partitions), " ", ","), "[]"))
	return nil
}

func (m member) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (m member) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for message := range claim.Messages() {
		value, _, _ := strings.Cut(string(message.Value), ":")
		talk.Say("record", message.Partition, message.Offset, string(message.Key), string(message.Headers[0].Value), value)
		session.MarkMessage(message, "")
		if message.Offset%10 == 9 {
			session.Commit()
		}
	}
	session.Commit()
	return nil
}

func consume(seeds []string, topic, group string) {
	config := settings()
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Interval = 50 * time.Millisecond
	config.Consumer.Group.Session.Timeout = 6 * time.Second
	config.Consumer.Group.Heartbeat.Interval = 500 * time.Millisecond
	consumer, err := sarama.NewConsumerGroup(seeds, group, config)
	talk.Must(err)
	told := talk.Told()
	ctx, stop := context.WithCancel(context.Background())
	go func() { <-told; stop() }()
	for ctx.Err() == nil {
		if err := consumer.Consume(ctx, []string{topic}, member{topic}); err != nil {
			if errors.Is(err, sarama.ErrClosedConsumerGroup) {
				break
			}
			fmt.Fprintln(os.Stderr, err)
		}
	}
	talk.Must(consumer.Close())
	talk.Say("closed")
}

func transact(seeds []string, topic, id, phase string) {
	config := settings()
	config.Producer.Transaction.ID = id
	config.Producer.Transaction.Retry.Max = 300
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Producer.Compression = sarama.CompressionZSTD
	producer, err := sarama.NewSyncProducer(seeds, config)
	talk.Must(err)
	if phase == "second" {
		transaction(producer, topic, id, "taken-over", 0, true)
		talk.Must(producer.Close())
		readCommitted(seeds, topic)
		return
	}
	told := talk.Told()
	for number := range 6 {
		transaction(producer, topic, id, fmt.Sprintf("t%d", number), int64(number+1), number%2 == 0)
		if number == 2 {
			talk.Say("half", number)
			<-told
		}
	}
	talk.Must(producer.BeginTxn())
	talk.Must(producer.SendMessages(messages(topic, "open")))
	talk.Say("open")
	select {}
}

func transaction(producer sarama.SyncProducer, topic, id, name string, offset int64, commit bool) {
	talk.Must(producer.BeginTxn())
	talk.Must(producer.SendMessages(messages(topic, name)))
	if offset > 0 {
		offsets := map[string][]*sarama.PartitionOffsetMetadata{topic: {{Partition: 0, Offset: offset, LeaderEpoch: -1}}}
		talk.Must(producer.AddOffsetsToTxn(offsets, id+"-group"))
	}
	if commit {
		talk.Must(producer.CommitTxn())
	} else {
		talk.Must(producer.AbortTxn())
	}
}

func messages(topic, name string) []*sarama.ProducerMessage {
	made := make([]*sarama.ProducerMessage, 9)
	for number := range made {
		made[number] = &sarama.ProducerMessage{
			Topic: topic, Partition: int32(number % 3), Key: sarama.StringEncoder(name),
			Value: sarama.StringEncoder(fmt.Sprintf("%s-%d", name, number)),
		}
	}
	return made
}

func readCommitted(seeds []string, topic string) {
	config := settings()
	config.Consumer.IsolationLevel = sarama.ReadCommitted
	consumer, err := sarama.NewConsumer(seeds, config)
	talk.Must(err)
	for partition := range int32(3) {
		reader, err := consumer.ConsumePartition(topic, partition, sarama.OffsetOldest)
		talk.Must(err)
		for {
			message := <-reader.Messages()
			talk.Say("value", string(message.Value))
			// The transaction that was committed last is the last that is seen: three records in each partition.
			if string(message.Value) == fmt.Sprintf("taken-over-%d", 6+partition) {
				break
			}
		}
		talk.Must(reader.Close())
	}
	talk.Must(consumer.Close())
	talk.Say("closed")
}
