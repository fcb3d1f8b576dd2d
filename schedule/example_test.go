package schedule_test

import (
	"fmt"
	"time"

	"curfew.dev/curfew/schedule"
)

// The night in which clocks go forward has no 02:30, and the job comes all the
// same.
func Example() {
	cron, err := schedule.Parse("30 2 * * *")
	if err != nil {
		fmt.Println(err)
		return
	}
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		fmt.Println(err)
		return
	}
	s := schedule.Schedule{Cron: cron, Location: berlin}
	fmt.Println(s.Words())
	from := time.Date(2026, 3, 28, 0, 0, 0, 0, berlin)
	for t := range s.Between(from, from.AddDate(0, 0, 3)) {
		fmt.Println(t.In(berlin).Format(time.RFC3339))
	}
	// Output:
	// every day at 02:30 Europe/Berlin
	// 2026-03-28T02:30:00+01:00
	// 2026-03-29T03:00:00+02:00
	// 2026-03-30T02:30:00+02:00
}
