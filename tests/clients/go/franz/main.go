// franz-go. What the programs of this folder do and print is said in tests/kit/foreign_client.py.
package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"clients/talk"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

var compressions = []kgo.CompressionCodec{
	kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression(),
}

func main() {
	args := os.Args[1:]
	seeds := kgo.SeedBrokers(strings.Split(args[1], ",")...)
	switch args[0] {
	case "produce":
		produce(seeds, args[2])
	case "consume":
		consume(seeds, args[2], args[3], args[4])
	case "transact":
		transact(seeds, args[2], args[3], args[4])
	case "share":
		share(seeds, args[2], args[3], args[4])
	case "chain":
		chain(seeds, args[2], args[3], args[4], args[5])
	}
}

func client(options ...kgo.Opt) *kgo.Client {
	made, err := kgo.NewClient(options...)
	talk.Must(err)
	return made
}

func produce(seeds kgo.Opt, topic string) {
	admin := kadm.NewClient(client(seeds))
	two := "2"
	answer, err := admin.CreateTopic(context.Background(), 3, 3, map[string]*string{"min.insync.replicas": &two}, topic)
	talk.Must(err)
	talk.Must(answer.Err)
	talk.Say("created", answer.NumPartitions)
	admin.Close()

	sent := 0
	each := func() {
		for _, codec := range compressions {
			producer := client(seeds, kgo.ProducerBatchCompression(codec))
			sent = chunk(producer, topic, sent)
			producer.Close()
		}
	}
	each()
	talk.Say("half", sent)
	told := talk.Told()
	producer := client(seeds, kgo.ProducerBatchCompression(kgo.Lz4Compression()))
	for running := true; running; {
		sent = chunk(producer, topic, sent)
		select {
		case <-told:
			running = false
		default:
		}
	}
	producer.Close()
	each()
	talk.Say("produced", sent)
}

func chunk(producer *kgo.Client, topic string, from int) int {
	records := make([]*kgo.Record, talk.Chunk)
	for index := range records {
		number := from + index
		records[index] = &kgo.Record{
			Topic:   topic,
			Key:     fmt.Appendf(nil, "k%d", number),
			Value:   []byte(talk.Value(number)),
			Headers: []kgo.RecordHeader{{Key: "n", Value: fmt.Appendf(nil, "%d", number)}},
		}
	}
	talk.Must(producer.ProduceSync(context.Background(), records...).FirstErr())
	return from + talk.Chunk
}

func consume(seeds kgo.Opt, topic, group, protocol string) {
	told := talk.Told()
	ctx, stop := context.WithCancel(context.Background())
	go func() { <-told; stop() }()

	options := []kgo.Opt{
		seeds, kgo.ConsumeTopics(topic), kgo.ConsumerGroup(group), kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, added map[string][]int32) {
			talk.Say("assigned", numbers(added[topic]))
		}),
	}
	if protocol == "consumer" {
		options = append(options, kgo.ServerSideBalancer())
	} else {
		options = append(options, kgo.SessionTimeout(6_000_000_000))
	}
	consumer := client(options...)
	for {
		fetches := consumer.PollRecords(ctx, 50)
		if ctx.Err() != nil {
			break
		}
		fetches.EachError(func(_ string, partition int32, err error) {
			fmt.Fprintln(os.Stderr, "partition", partition, err)
		})
		ends := map[int32]int64{}
		fetches.EachRecord(func(record *kgo.Record) {
			value, _, _ := strings.Cut(string(record.Value), ":")
			header := string(record.Headers[0].Value)
			talk.Say("record", record.Partition, record.Offset, string(record.Key), header, value)
			ends[record.Partition] = record.Offset + 1
		})
		if consumer.CommitRecords(ctx, fetches.Records()...) == nil {
			for partition, end := range ends {
				talk.Say("committed", partition, end)
			}
		}
		consumer.AllowRebalance()
	}
	consumer.AllowRebalance()
	consumer.Close()
	talk.Say("closed")
}

func numbers(partitions []int32) string {
	slices.Sort(partitions)
	texts := make([]string, len(partitions))
	for index, partition := range partitions {
		texts[index] = fmt.Sprint(partition)
	}
	return strings.Join(texts, ",")
}

func transact(seeds kgo.Opt, topic, id, phase string) {
	producer := client(
		seeds, kgo.TransactionalID(id), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.DefaultProduceTopic(topic),
		kgo.ProducerBatchCompression(kgo.ZstdCompression()),
	)
	if phase == "second" {
		transaction(producer, "taken-over", kgo.TryCommit)
		producer.Close()
		readCommitted(seeds, topic)
		return
	}
	told := talk.Told()
	for number := range 6 {
		transaction(producer, fmt.Sprintf("t%d", number), kgo.TransactionEndTry(number%2 == 0))
		if number == 2 {
			talk.Say("half", number)
			<-told
		}
	}
	talk.Must(producer.BeginTransaction())
	talk.Must(producer.ProduceSync(context.Background(), records("open")...).FirstErr())
	talk.Say("open")
	select {}
}

func transaction(producer *kgo.Client, name string, end kgo.TransactionEndTry) {
	ctx := context.Background()
	talk.Must(producer.BeginTransaction())
	talk.Must(producer.ProduceSync(ctx, records(name)...).FirstErr())
	talk.Must(producer.EndTransaction(ctx, end))
}

func records(name string) []*kgo.Record {
	made := make([]*kgo.Record, 9)
	for number := range made {
		made[number] = &kgo.Record{
			Partition: int32(number % 3), Key: []byte(name), Value: fmt.Appendf(nil, "%s-%d", name, number),
		}
	}
	return made
}

func readCommitted(seeds kgo.Opt, topic string) {
	consumer := client(seeds, kgo.ConsumeTopics(topic), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	last := map[string]bool{}
	for _, record := range records("taken-over") {
		last[string(record.Value)] = true
	}
	for len(last) > 0 {
		fetches := consumer.PollFetches(context.Background())
		fetches.EachError(func(_ string, partition int32, err error) {
			fmt.Fprintln(os.Stderr, "partition", partition, err)
		})
		fetches.EachRecord(func(record *kgo.Record) {
			talk.Say("value", string(record.Value))
			delete(last, string(record.Value))
		})
	}
	consumer.Close()
	talk.Say("closed")
}
