// What franz-go's administration client needs for what a command line tool shows:
//
//	kadm BOOTSTRAP topics          a line per topic
//	kadm BOOTSTRAP lag GROUP       a line per partition
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	client, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(os.Args[1], ",")...))
	check(err)
	defer client.Close()
	admin := kadm.NewClient(client)
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	switch os.Args[2] {
	case "topics":
		topics, err := admin.ListTopics(context.Background())
		check(err)
		for _, topic := range topics.Sorted() {
			fmt.Fprintf(out, "%s\t%d\t%d\n", topic.Topic, len(topic.Partitions), topic.Partitions.NumReplicas())
		}
	case "lag":
		lags, err := admin.Lag(context.Background(), os.Args[3])
		check(err)
		for _, group := range lags.Sorted() {
			for _, each := range group.Lag.Sorted() {
				fmt.Fprintf(out, "%s\t%d\t%d\t%d\n", each.Topic, each.Partition, each.Commit.At, each.Lag)
			}
		}
	}
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
