// An S3 server in memory: gofakes3. Prints its address, and ends with its standard input.
package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
)

func main() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(listener.Addr())
	go func() {
		log.Fatal(http.Serve(listener, whole(gofakes3.New(s3mem.New()).Server())))
	}()
	io.Copy(io.Discard, os.Stdin)
}

// whole gives the server each body in one piece, as it wants it: AWS's clients send some in chunks of HTTP, and in
// chunks of their own with a checksum at the end (aws-chunked).
func whole(server http.Handler) http.Handler {
	return http.HandlerFunc(func(answer http.ResponseWriter, request *http.Request) {
		body, err := io.ReadAll(request.Body)
		if err == nil && strings.HasPrefix(request.Header.Get("X-Amz-Content-Sha256"), "STREAMING-") {
			body, err = joined(body)
			request.Header.Set("X-Amz-Content-Sha256", "UNSIGNED-PAYLOAD")
			request.Header.Del("Content-Encoding")
		}
		if err != nil {
			http.Error(answer, err.Error(), http.StatusBadRequest)
			return
		}
		request.Body = io.NopCloser(bytes.NewReader(body))
		request.ContentLength = int64(len(body))
		request.Header.Set("Content-Length", strconv.Itoa(len(body)))
		server.ServeHTTP(answer, request)
	})
}

// joined returns what is in chunks of the form "size in hex[;signature]\r\ndata\r\n", up to the one of size 0.
func joined(framed []byte) ([]byte, error) {
	var content bytes.Buffer
	reader := bufio.NewReader(bytes.NewReader(framed))
	for {
		line, err := reader.ReadString('\n')
		if err != nil {
			return nil, err
		}
		size, err := strconv.ParseInt(strings.TrimSpace(strings.SplitN(line, ";", 2)[0]), 16, 32)
		if err != nil || size == 0 {
			return content.Bytes(), err
		}
		if _, err := io.CopyN(&content, reader, size); err != nil {
			return nil, err
		}
		reader.Discard(len("\r\n"))
	}
}
