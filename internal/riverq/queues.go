package riverq

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// River takes letters a-z and digits, with single - or _ between them, at most 64.
var (
	riverQueue = regexp.MustCompile(`^[a-z0-9]+([_-][a-z0-9]+)*$`)
	notInQueue = regexp.MustCompile(`[^a-z0-9]+`)
)

const (
	longestRiverQueue = 64
	longestQueue      = 200 // of a name that we take
)

// ByHand begins the name of a queue for one call, at which nobody looks once who made it is gone.
const ByHand = "by-hand-"

// QueueName is the name that a queue has in River's tables. A name that River would
// refuse is spelled with what it would not refuse, and with a part of the name's
// hash, so that no two names become one. QueueName of what it returns is the same.
func QueueName(name string) string {
	if name == "" {
		return Interactive
	}
	if len(name) <= longestRiverQueue && riverQueue.MatchString(name) {
		return name
	}
	hash := sha256.Sum256([]byte(name))
	word := strings.Trim(notInQueue.ReplaceAllString(strings.ToLower(name), "-"), "-")
	if len(word) > 40 {
		word = strings.TrimRight(word[:40], "-")
	}
	if word == "" {
		word = "queue"
	}
	return word + "-" + hex.EncodeToString(hash[:6])
}

func checkQueue(name string) error {
	switch {
	case name == "":
		return errors.New("a queue without a name")
	case len(name) > longestQueue:
		return fmt.Errorf("the queue's name has %d bytes, at most %d", len(name), longestQueue)
	}
	return nil
}

// queueOf is the name of a queue that River calls so: as this process knows it, or
// else River's.
func (c *Client) queueOf(river string) string {
	if name, ok := c.names[river]; ok {
		return name
	}
	return river
}
