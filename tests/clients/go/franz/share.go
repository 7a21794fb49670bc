package main

import (
	"context"
	"fmt"
	"os"
	"sync"

	"clients/talk"

	"github.com/twmb/franz-go/pkg/kgo"
)

// share is a member of a share group.
func share(seeds kgo.Opt, topic, group, mode string) {
	told := talk.Told()
	ctx, stop := context.WithCancel(context.Background())
	go func() { <-told; stop() }()

	var lock sync.Mutex
	failed := map[int32]bool{}
	consumer := client(
		seeds, kgo.ConsumeTopics(topic), kgo.ShareGroup(group), kgo.ShareMaxRecords(20),
		kgo.ShareAckCallback(func(_ *kgo.Client, results kgo.ShareAckResults) {
			lock.Lock()
			defer lock.Unlock()
			for _, each := range results {
				if each.Err != nil {
					failed[each.Partition] = true
				}
			}
		}),
	)
	for {
		fetches := consumer.PollRecords(ctx, 20)
		if ctx.Err() != nil {
			break
		}
		fetches.EachError(func(_ string, partition int32, err error) {
			fmt.Fprintln(os.Stderr, "partition", partition, err)
		})
		leased := fetches.Records()
		if mode == "hold" && len(leased) > 0 {
			for _, record := range leased {
				talk.Say("held", record.Partition, record.Offset)
			}
			select {}
		}
		for _, record := range leased {
			status, _ := outcome(record)
			record.Ack(status)
		}
		if consumer.FlushAcks(ctx) != nil {
			break
		}
		lock.Lock()
		for _, record := range leased {
			_, name := outcome(record)
			said := "settled"
			if failed[record.Partition] {
				said = "unknown"
			}
			talk.Say(said, record.Partition, record.Offset, record.DeliveryCount(), name)
		}
		clear(failed)
		lock.Unlock()
	}
	consumer.Close()
	talk.Say("closed")
}

func outcome(record *kgo.Record) (kgo.AckStatus, string) {
	switch {
	case record.Offset%10 == 3 && record.DeliveryCount() == 1:
		return kgo.AckRelease, "release"
	case record.Offset%10 == 5:
		return kgo.AckReject, "reject"
	default:
		return kgo.AckAccept, "accept"
	}
}
