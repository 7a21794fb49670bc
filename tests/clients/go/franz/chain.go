package main

import (
	"context"
	"fmt"
	"os"

	"clients/talk"

	"github.com/twmb/franz-go/pkg/kgo"
)

// One stage of a chain: what is committed in one topic is written into the next, in transactions with the offsets of
// the group, as short as they come and one right behind the other.
func chain(seeds kgo.Opt, from, to, id, protocol string) {
	told := talk.Told()
	ctx, stop := context.WithCancel(context.Background())
	go func() { <-told; stop() }()

	options := []kgo.Opt{
		seeds, kgo.TransactionalID(id), kgo.ConsumeTopics(from), kgo.ConsumerGroup(from + "-to-" + to),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.RequireStableFetchOffsets(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DefaultProduceTopic(to),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
	}
	if protocol == "consumer" {
		options = append(options, kgo.ServerSideBalancer())
	}
	session, err := kgo.NewGroupTransactSession(options...)
	talk.Must(err)
	for {
		fetches := session.PollRecords(ctx, 7)
		if ctx.Err() != nil {
			break
		}
		fetches.EachError(func(_ string, partition int32, err error) {
			fmt.Fprintln(os.Stderr, "partition", partition, err)
		})
		talk.Must(session.Begin())
		moved := 0
		fetches.EachRecord(func(record *kgo.Record) {
			copied := &kgo.Record{Partition: int32(moved % 3), Key: record.Key, Value: record.Value}
			moved++
			session.Produce(ctx, copied, func(_ *kgo.Record, err error) {
				if err != nil {
					talk.Say("failed", err)
				}
			})
		})
		committed, err := session.End(context.Background(), kgo.TryCommit)
		talk.Must(err)
		if committed {
			talk.Say("moved", moved)
		} else {
			talk.Say("aborted", moved)
		}
	}
	session.Close()
	talk.Say("closed")
}
