package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"curfew.dev/curfew/api"
)

// scheduler is the one outside, which only knows a URL and a token.
type scheduler struct {
	url, token string
}

// impatience is how long it waits for an answer when it is in a hurry.
const impatience = 300 * time.Millisecond

// losing is a network that loses the answer to the first request: that arrives, and who sent it waits in vain.
type losing struct{ lost atomic.Bool }

func (l *losing) RoundTrip(req *http.Request) (*http.Response, error) {
	if l.lost.Swap(true) {
		return http.DefaultTransport.RoundTrip(req)
	}
	res, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	<-req.Context().Done()
	res.Body.Close()
	return nil, req.Context().Err()
}

// call asks for a run of the policy, under a key of the scheduler's own if there is one.
func (s scheduler) call(ctx context.Context, client *http.Client, key string) (status int, run api.Run, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/v1/policies/sessions/runs", strings.NewReader("{}"))
	if err != nil {
		return 0, run, err
	}
	req.Header.Set("Content-Type", "application/json")
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	status, text, err := s.do(client, req)
	if err == nil && status == http.StatusAccepted {
		err = json.Unmarshal(text, &run)
	}
	return status, run, err
}

// run looks up a run.
func (s scheduler) run(ctx context.Context, id string) (run api.Run, err error) {
	text, err := s.get(ctx, "/v1/runs/"+id)
	if err != nil {
		return run, err
	}
	return run, json.Unmarshal(text, &run)
}

func (s scheduler) get(ctx context.Context, path string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+path, nil)
	if err != nil {
		return nil, err
	}
	status, text, err := s.do(http.DefaultClient, req)
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("GET %s: %d", path, status)
	}
	return text, err
}

// do sends a request with the token, if there is one.
func (s scheduler) do(client *http.Client, req *http.Request) (int, []byte, error) {
	if s.token != "" {
		req.Header.Set("Authorization", "Bearer "+s.token)
	}
	res, err := client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	return res.StatusCode, text, err
}

// twice calls two times at once.
func (s scheduler) twice(ctx context.Context, key string) ([2]api.Run, error) {
	type answer struct {
		run api.Run
		err error
	}
	answers := make(chan answer, 2)
	for range 2 {
		go func() {
			status, run, err := s.call(ctx, http.DefaultClient, key)
			if err == nil && status != http.StatusAccepted {
				err = fmt.Errorf("the call was answered with %d", status)
			}
			answers <- answer{run, err}
		}()
	}
	one, two := <-answers, <-answers
	if one.err != nil {
		return [2]api.Run{}, one.err
	}
	return [2]api.Run{one.run, two.run}, two.err
}
