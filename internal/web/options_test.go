package web

import (
	"bufio"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"time"
)

// TestServerIsNotHeld: a client that sends half a request and waits gets an answer, and its row.
func TestServerIsNotHeld(t *testing.T) {
	onBoth(t, func(s *site) {
		t := s.t
		server := Server(s.h, slog.New(slog.DiscardHandler))
		if server.ReadHeaderTimeout <= 0 || server.ReadTimeout <= 0 || server.WriteTimeout <= 0 || server.IdleTimeout <= 0 || server.MaxHeaderBytes <= 0 {
			t.Errorf("a limit is missing: %+v", server)
		}
		server.ReadTimeout = 100 * time.Millisecond
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		served := make(chan error, 1)
		go func() { served <- server.Serve(listener) }()
		conn, err := net.Dial("tcp", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: 100\r\n\r\n{", runsOf, s.tokens["trigger"]); err != nil {
			t.Fatal(err)
		}
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != http.StatusBadRequest {
			t.Errorf("answered %d", res.StatusCode)
		}
		if err := server.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		if err := <-served; err != http.ErrServerClosed {
			t.Error(err)
		}
		if calls := s.calls(); len(calls) != 1 || calls[0].Answer != http.StatusBadRequest || len(s.e.requests) != 0 {
			t.Errorf("%+v", calls)
		}
	})
}
