package task_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"curfew.dev/curfew/task"
)

// A task is declared once, where its work is, and called by its typed arguments.
func ExampleNew() {
	type Member struct {
		Address string `json:"address"`
	}
	welcome := task.New("mail.welcome", func(ctx context.Context, call task.Call[Member]) error {
		fmt.Printf("attempt %d of %d: welcome, %s\n", call.Attempt, call.Attempts, call.Args.Address)
		return call.SetResult(map[string]bool{"sent": true})
	}, task.Options{Priority: 2})

	// What the engine does with it:
	args, err := welcome.Encode(Member{Address: "ada@example.org"})
	if err != nil {
		fmt.Println(err)
		return
	}
	result, err := welcome.Do(context.Background(), task.Info{Task: welcome.Name(), ID: 7, Attempt: 1, Attempts: 5}, args)
	fmt.Println(string(args), string(result), err)
	// Output:
	// attempt 1 of 5: welcome, ada@example.org
	// {"address":"ada@example.org"} {"sent":true} <nil>
}

// A periodic task: its calls carry the instant that they are for, and one that
// is made by hand carries none.
func ExampleNew_periodic() {
	report := task.New("reports.daily", func(ctx context.Context, call task.Call[struct{}]) error {
		day := call.Scheduled
		if day.IsZero() {
			day = time.Date(2026, 3, 3, 12, 0, 0, 0, time.UTC) // by hand: of now
		}
		fmt.Println("the report of", day.Format(time.DateOnly))
		return nil
	}, task.Options{Cron: "42 6 * * *", Timezone: "Europe/Berlin", CatchUp: task.All})

	at := time.Date(2026, 3, 2, 5, 42, 0, 0, time.UTC)
	fmt.Println(report.Do(context.Background(), task.Info{Scheduled: at, Attempt: 1, Attempts: 5}, nil))
	fmt.Println(report.Do(context.Background(), task.Info{Attempt: 1, Attempts: 5}, nil))
	// Output:
	// the report of 2026-03-02
	// [] <nil>
	// the report of 2026-03-03
	// [] <nil>
}

// Which errors are worth another attempt is the handler's to say.
func ExampleFail() {
	send := func(status int) error {
		switch {
		case status == http.StatusTooManyRequests:
			return task.RetryAfter(time.Minute, errors.New("too many requests"))
		case status >= 400 && status < 500:
			return task.Fail(fmt.Errorf("the receiver answers %d, and will again", status))
		case status >= 500:
			return fmt.Errorf("the receiver answers %d", status)
		}
		return nil
	}
	for _, status := range []int{204, 404, 429, 502} {
		err := send(status)
		wait, asked := task.After(err)
		fmt.Println(status, "final:", task.IsFinal(err), "asked for a wait:", asked, wait)
	}
	// Output:
	// 204 final: false asked for a wait: false 0s
	// 404 final: true asked for a wait: false 0s
	// 429 final: false asked for a wait: true 1m0s
	// 502 final: false asked for a wait: false 0s
}

func ExampleRetry_Wait() {
	r := task.DefaultRetry()
	for attempt := 1; attempt < r.Attempts; attempt++ {
		fmt.Println(attempt, "failed: again after", r.Wait(attempt))
	}
	// Output:
	// 1 failed: again after 10s
	// 2 failed: again after 1m40s
	// 3 failed: again after 16m40s
	// 4 failed: again after 2h46m40s
}

func ExampleOptions_Check() {
	fmt.Println(task.Options{Overlap: "never", Priority: 7}.Check())
	// Output:
	// Overlap: there is no "never"; write skip, queue or allow
	// Priority: 7; it must be from 1, which goes first, to 4
}
