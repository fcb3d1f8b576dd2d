package target

import "strings"

// SQLite keeps its schema as the text that made it, and some facts are nowhere else: what fires a trigger, the name of a
// foreign key and whether it is deferred. MySQL tells a role with few rights the rule of a foreign key in such a text only.
// This file reads just that much of it.

// sqlTokens splits SQL text into words, names, literals and punctuation. Comments and blanks go. A quoted name comes with its
// opening quote, so that it is never taken for a word: "delete" is the name delete.
func sqlTokens(s string) []string {
	var out []string
	for i := 0; i < len(s); {
		c := s[i]
		switch {
		case c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f':
			i++
		case strings.HasPrefix(s[i:], "--"):
			i = after(s, i, "\n")
		case strings.HasPrefix(s[i:], "/*"):
			i = after(s, i+2, "*/")
		case c == '\'' || c == '"' || c == '`' || c == '[':
			end := c
			if c == '[' {
				end = ']'
			}
			text, next := quotedText(s, i+1, end)
			out = append(out, string(c)+text)
			i = next
		case wordByte(c):
			j := i
			for j < len(s) && wordByte(s[j]) {
				j++
			}
			out = append(out, s[i:j])
			i = j
		default:
			out = append(out, string(c))
			i++
		}
	}
	return out
}

func wordByte(c byte) bool {
	return c == '_' || c == '$' || c >= 0x80 || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

func after(s string, i int, mark string) int {
	if n := strings.Index(s[i:], mark); n >= 0 {
		return i + n + len(mark)
	}
	return len(s)
}

// quotedText reads up to the closing quote, which is written twice where it is meant itself; ] cannot be.
func quotedText(s string, i int, end byte) (text string, next int) {
	var sb strings.Builder
	for ; i < len(s); i++ {
		if s[i] == end {
			if end == ']' || i+1 >= len(s) || s[i+1] != end {
				return sb.String(), i + 1
			}
			i++
		}
		sb.WriteByte(s[i])
	}
	return sb.String(), len(s)
}

// tokensAt says whether the words stand at place i.
func tokensAt(tokens []string, i int, words ...string) bool {
	if i < 0 || i+len(words) > len(tokens) {
		return false
	}
	for n, w := range words {
		if !strings.EqualFold(tokens[i+n], w) {
			return false
		}
	}
	return true
}

func tokenName(t string) string {
	if t != "" && strings.ContainsRune("'\"`[", rune(t[0])) {
		return t[1:]
	}
	return t
}

// triggerHead reads CREATE [TEMP] TRIGGER [IF NOT EXISTS] [schema.]name [BEFORE|AFTER|INSTEAD OF] event … as far as the event.
func triggerHead(text string) (timing, event string) {
	t := sqlTokens(text)
	i := 0
	for i < len(t) && !strings.EqualFold(t[i], "TRIGGER") {
		i++
	}
	i++
	if tokensAt(t, i, "IF", "NOT", "EXISTS") {
		i += 3
	}
	i++ // the name, which may be a word that we look for
	if tokensAt(t, i, ".") {
		i += 2
	}
	timing = "BEFORE" // what SQLite does when told nothing
	switch {
	case tokensAt(t, i, "BEFORE"):
		i++
	case tokensAt(t, i, "AFTER"):
		timing = "AFTER"
		i++
	case tokensAt(t, i, "INSTEAD", "OF"):
		timing = "INSTEAD OF"
		i += 2
	}
	if i < len(t) {
		event = strings.ToUpper(t[i])
	}
	return timing, event
}

type referenceClause struct {
	name     string
	deferred bool
}

// referenceClauses lists the foreign keys of a CREATE TABLE in the order in which they are declared.
func referenceClauses(text string) []referenceClause {
	t := sqlTokens(text)
	var out []referenceClause
	name, depth := "", 0
	for i := 0; i < len(t); i++ {
		switch {
		case t[i] == "(":
			depth++
		case t[i] == ")":
			depth--
		case depth == 1 && tokensAt(t, i, "CONSTRAINT") && i+1 < len(t):
			name = ""
			if tokensAt(t, i+2, "REFERENCES") || tokensAt(t, i+2, "FOREIGN", "KEY") {
				name = tokenName(t[i+1])
			}
			i++
		case depth == 1 && tokensAt(t, i, "REFERENCES"):
			c := referenceClause{name: name}
			name = ""
			i++ // the parent's name, which may be any word
			c.deferred = deferredClause(t, i+1)
			out = append(out, c)
		}
	}
	return out
}

// deferredClause says whether the reference whose parent's name ends before place i is INITIALLY DEFERRED. NOT DEFERRABLE
// INITIALLY DEFERRED is not: SQLite takes it and does not defer.
func deferredClause(t []string, i int) bool {
	depth := 0
	for ; i < len(t); i++ {
		switch {
		case t[i] == "(":
			depth++
		case t[i] == ")":
			if depth--; depth < 0 {
				return false
			}
		case depth > 0:
		case t[i] == "," || tokensAt(t, i, "REFERENCES") || tokensAt(t, i, "CONSTRAINT"):
			return false
		case tokensAt(t, i, "DEFERRABLE", "INITIALLY", "DEFERRED"):
			return !tokensAt(t, i-1, "NOT")
		}
	}
	return false
}

// deleteRule finds what the named foreign key of a CREATE TABLE does on DELETE.
func deleteRule(text, constraint string) Rule {
	t := sqlTokens(text)
	inside := false
	for i := range t {
		switch {
		case tokensAt(t, i, "CONSTRAINT") && i+1 < len(t):
			inside = tokenName(t[i+1]) == constraint
		case !inside || !tokensAt(t, i, "ON", "DELETE"):
		case tokensAt(t, i+2, "CASCADE"):
			return Cascade
		case tokensAt(t, i+2, "SET", "NULL"):
			return SetNull
		case tokensAt(t, i+2, "SET", "DEFAULT"):
			return SetDefault
		case tokensAt(t, i+2, "NO", "ACTION"):
			return NoAction
		}
	}
	return Restrict // what MySQL does when told nothing
}
