//go:build unix

package task_test

import (
	"context"
	"encoding/json"
	"fmt"

	"curfew.dev/curfew/task"
)

// A program is given the call in its environment and on its standard input.
func ExampleCommand_Run() {
	c := task.Command{Argv: []string{"sh", "-c", `echo "call $CURFEW_CALL_ID, attempt $CURFEW_ATTEMPT"; cat; exit 78`}, FailCodes: []int{78}}
	tail, err := c.Run(context.Background(), task.Info{Task: "core.clear", ID: 7, Attempt: 1, Attempts: 5}, json.RawMessage(`{"older":"30d"}`), nil, nil)
	fmt.Print(tail)
	fmt.Println("final:", task.IsFinal(err))
	// Output:
	// call 7, attempt 1
	// {"task":"core.clear","id":7,"scheduled_at":"","attempt":1,"attempts":5,"args":{"older":"30d"}}
	// final: true
}
