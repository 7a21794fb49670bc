// kfake, franz-go's in-memory Kafka, as a process: a peer of the broker benchmark.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"strings"

	"github.com/twmb/franz-go/pkg/kfake"
)

func main() {
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.AllowAutoTopicCreation(), kfake.DefaultNumPartitions(1))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Printf("ready bootstrap=%s\n", strings.Join(c.ListenAddrs(), ","))
	s := make(chan os.Signal, 1)
	signal.Notify(s, os.Interrupt)
	<-s
}
