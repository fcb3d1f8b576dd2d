package target

import (
	"slices"
	"strings"
	"unicode"
)

// leastScore is from where on a column is proposed.
const leastScore = 40

// A reading is what a column's name says about when its row may go.
type reading struct {
	score int // how surely, up to about 100
	until bool
	keep  string // a starting point, for a clock that the column starts
	why   string
}

// columnNames are the ways in which schemas name the end or the start of a row's time, the surest first: words that stand
// together somewhere in the name.
var columnNames = []struct {
	words []string // joined; any of them
	reading
}{
	{[]string{"expiresin", "expirein", "expiryseconds", "ttl", "expirytype"}, reading{}}, // lengths, not instants
	{[]string{"expiresat", "expireat", "expiresdate", "expiredate", "expirydate", "expirationdate", "expirationtime", "expiretime", "expiresontime",
		"expireson", "expiration", "expires", "expiry", "expiredat", "expire", "notafter", "validuntil", "validtill", "usableuntil"},
		reading{score: 90, until: true, why: "says when the row expires"}},
	{[]string{"scheduleddeletion", "deletionscheduled", "deleteafter", "deleteon", "purgeafter", "purgeat", "removeafter", "destroyafter", "deletiondate"},
		reading{score: 90, until: true, why: "says when the row is to be deleted"}},
	{[]string{"deletedat", "deletedon", "deleteddate", "datedeleted", "softdeleted", "removedat", "trashedat", "deletetime"},
		reading{score: 80, keep: "30d", why: "says when the row was marked as deleted"}},
	{[]string{"lastactivity", "lastactive", "lastseen", "lastaccess", "lastused", "lastping", "accessedat", "refreshedat"},
		reading{score: 70, keep: "90d", why: "says when the row was last used"}},
	{[]string{"trialends", "trialend", "trialexpir"}, reading{score: 70, until: true, why: "says when a trial ends"}},
	{[]string{"returndate", "returnedat", "datereturned", "closedat", "completedat", "finishedat", "endedat", "processedat", "resolvedat",
		"cancelledat", "canceledat", "cancellationdate", "archivedat", "checkinat", "deliveredat"},
		reading{score: 60, keep: "2y", why: "says when the matter was over"}},
	{[]string{"occurredat", "eventtime", "eventdate", "loggedat", "logdate", "logtime", "requestedat", "senton", "sentat", "datesent", "queuedat", "timequeued",
		"visitedat", "viewedat", "attemptedat",
		"actiontime", "actiondate", "happenedat", "recordedat", "receivedat", "loggedon", "at"}, reading{score: 45, keep: "1y", why: "says when it happened"}},
	{[]string{"createdat", "createdon", "createtime", "created", "datecreated", "createddate", "insertedat", "addedat", "timestamp", "datetime", "updatedat", "updatedon",
		"modified", "modifiedat", "modifiedon", "lastmodified", "creationdate", "creationtime"},
		reading{score: 25, keep: "1y", why: "says when the row was written"}},
}

// alone are those that must be the whole name: they are parts of other words.
var alone = []string{"created", "modified", "ttl", "at"}

// passing are words of tables whose rows are made to be dropped; lasting are words of those that are not.
var (
	passing = []string{"session", "token", "log", "audit", "event", "history", "verification", "otp", "code", "nonce", "cache", "queue", "job",
		"notification", "message", "statistic", "visit", "request", "attempt", "challenge", "flow", "state", "circulation", "old", "archive", "trash", "debarment"}
	lasting = []string{"user", "account", "customer", "patron", "borrower", "member", "person", "people", "realm", "organization", "organisation", "tenant",
		"invoice", "order", "payment", "biblio", "item", "product"}
)

// readName reads a column's name in its table.
func readName(table, column string) reading {
	name := strings.Join(words(column), "")
	for _, n := range columnNames {
		for _, w := range n.words {
			at := strings.Index(name, w)
			if at < 0 || slices.Contains(alone, w) && name != w {
				continue
			}
			if n.score == 0 {
				return reading{}
			}
			r := n.reading
			r.score += tableScore(table, r)
			if rest := name[:at] + name[at+len(w):]; rest != "" && !saysTime(rest) && !sharesWord(rest, table) {
				// access_token_expires_at of an account: the end of something in the row, not of the row.
				r.score -= 55
			}
			return r
		}
	}
	return reading{}
}

func tableScore(table string, r reading) int {
	_, name := parts(table)
	n := 0
	for _, w := range words(name) {
		for _, p := range passing {
			if w == p || w == p+"s" {
				n = 20
			}
		}
		for _, l := range lasting {
			if (w == l || w == l+"s") && n == 0 && !r.until {
				n = -15
			}
		}
	}
	return n
}

// saysTime says whether what is left of a name is only a word of time.
func saysTime(s string) bool {
	switch s {
	case "at", "on", "date", "time", "ts", "utc", "s", "ms", "unix", "epoch", "dt", "d", "timestamp", "by":
		return true
	}
	return false
}

func sharesWord(rest, table string) bool {
	for _, w := range words(table) {
		if len(w) > 2 && strings.Contains(rest, strings.TrimSuffix(w, "s")) {
			return true
		}
	}
	return false
}

// words splits a name at underscores, other punctuation and capitals, in lower case.
func words(name string) []string {
	var out []string
	var sb strings.Builder
	flush := func() {
		if sb.Len() > 0 {
			out = append(out, strings.ToLower(sb.String()))
			sb.Reset()
		}
	}
	lower := false
	for _, r := range name {
		switch {
		case !unicode.IsLetter(r) && !unicode.IsDigit(r):
			flush()
			lower = false
			continue
		case unicode.IsUpper(r) && lower:
			flush()
		}
		lower = !unicode.IsUpper(r)
		sb.WriteRune(r)
	}
	flush()
	return out
}

// subjectNames are columns that name the person a row is about, the surest first.
var subjectNames = []string{"userid", "patronid", "borrowernumber", "customerid", "memberid", "accountid", "personid", "userprofileid", "ownerid", "subjectid", "user"}

// persons are words of tables in which a row is a person.
var persons = []string{"user", "patron", "borrower", "customer", "member", "person", "people", "account", "userprofile"}

func subjectOf(t *Table, key []string) string {
	if w := words(t.Name); len(w) > 0 && len(key) == 1 {
		for _, p := range persons {
			if last := w[len(w)-1]; last == p || last == p+"s" {
				return key[0]
			}
		}
	}
	for _, want := range subjectNames {
		for _, c := range t.Columns {
			if strings.Join(words(c.Name), "") == want {
				return c.Name
			}
		}
	}
	return ""
}

// policyName makes a name for the policy file of a table's: lower case letters, digits and underscores.
func policyName(table string) string {
	_, name := parts(table)
	name = strings.Join(words(name), "_")
	clean := strings.Map(func(r rune) rune {
		if r == '_' || r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return -1
	}, name)
	if clean == "" || clean[0] >= '0' && clean[0] <= '9' {
		clean = "table_" + clean
	}
	return strings.TrimSuffix(clean[:min(len(clean), 60)], "_") // the file takes 63 characters; a number may follow
}
