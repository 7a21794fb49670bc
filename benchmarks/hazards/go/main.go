// A record of 20 kB for a topic that takes 10 kB, with franz-go and with sarama: who says so, and when?
// Arguments: bootstrap servers, topic.
package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	servers, topic := strings.Split(os.Args[1], ","), os.Args[2]
	value := make([]byte, 20_000)
	_, _ = rand.Read(value) // not to be compressed
	info, _ := debug.ReadBuildInfo()
	for _, module := range info.Deps {
		if strings.HasSuffix(module.Path, "sarama") || strings.HasSuffix(module.Path, "franz-go") {
			fmt.Printf("%s %s, ", module.Path, module.Version)
		}
	}

	client, err := kgo.NewClient(kgo.SeedBrokers(servers...))
	if err != nil {
		panic(err)
	}
	context, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	begun := time.Now()
	err = client.ProduceSync(context, &kgo.Record{Topic: topic, Value: value}).FirstErr()
	fmt.Printf("franz-go: %q after %d ms; ", fmt.Sprint(err), time.Since(begun).Milliseconds())
	client.Close()

	config := sarama.NewConfig()
	config.Producer.Return.Successes = true
	producer, err := sarama.NewSyncProducer(servers, config)
	if err != nil {
		panic(err)
	}
	begun = time.Now()
	_, _, err = producer.SendMessage(&sarama.ProducerMessage{Topic: topic, Value: sarama.ByteEncoder(value)})
	fmt.Printf("sarama: %q after %d ms\n", fmt.Sprint(err), time.Since(begun).Milliseconds())
	_ = producer.Close()
}
