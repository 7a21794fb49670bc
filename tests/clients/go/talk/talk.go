// Package talk is how the programs of this module talk to the test that runs them; see tests/kit/foreign_client.py.
package talk

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"sync"
)

// Chunk is how many records a program produces at a time.
const Chunk = 50

var printing sync.Mutex

// Say prints one line: words between tabs.
func Say(words ...any) {
	texts := make([]string, len(words))
	for index, word := range words {
		texts[index] = fmt.Sprint(word)
	}
	printing.Lock()
	defer printing.Unlock()
	fmt.Println(strings.Join(texts, "\t"))
}

// Told is closed when the test has written a line.
func Told() <-chan struct{} {
	told := make(chan struct{})
	go func() {
		_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
		close(told)
	}()
	return told
}

// Must ends the program if there is an error.
func Must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// Value is the value of record number n.
func Value(number int) string {
	return fmt.Sprintf("%d:%s", number, strings.Repeat("v", 200))
}
