package policy

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxSQL bounds an operator's SQL text.
const maxSQL = 16 << 10

// CheckSQL judges an operator's SQL expression (where, unless, a trigger's
// expr) before it is put, in parentheses, into a statement of ours. It is no
// parser: what is merely wrong the database refuses. It refuses what would be
// accepted and mean something else there:
//
//   - what ends or swallows the statement around it: comments, semicolons,
//     unbalanced quotes, brackets or parentheses;
//   - what PostgreSQL, MySQL and SQLite delimit differently, so that a text
//     balanced on one is not on another: backslashes, dollar quotes, prefixed
//     strings such as E'…', nested brackets;
//   - what shifts or adds bound values: ?, $1, :name, @name;
//   - what is not the same for every statement of a run: now() and its kin,
//     random and session-dependent functions, TABLESAMPLE;
//   - what acts: functions with side effects, statement keywords, row locks.
//
// The text must be safe on all three engines, whichever it is for, because a
// policy can be moved. Functions of the database's own making cannot be judged
// here.
func CheckSQL(text string) error {
	switch {
	case strings.TrimSpace(text) == "":
		return &fault{"the SQL text is blank", "leave the line out, or state the condition"}
	case len(text) > maxSQL:
		return &fault{"the SQL text is too long", fmt.Sprintf("at most %d bytes; put it into a view or a function", maxSQL)}
	case !utf8.ValidString(text):
		return &fault{"the SQL text is not UTF-8", "save the file as UTF-8"}
	}
	for _, r := range text {
		if unicode.IsControl(r) && r != '\n' && r != '\t' && r != '\r' {
			return &fault{fmt.Sprintf("the SQL text contains the control character %U", r), "remove it"}
		}
		if unicode.Is(unicode.Bidi_Control, r) {
			return &fault{fmt.Sprintf("the SQL text contains %U, which changes the direction of what you read", r), "remove it"}
		}
		if r == '\\' {
			return &fault{`the SQL text contains a backslash, which MySQL reads as an escape and others do not`, "express it without one, for example with chr(92)"}
		}
	}
	s := &sqlScanner{text: text}
	if err := s.scan(); err != nil {
		return err
	}
	return s.end()
}

// sqlScanner walks the text once, byte by byte; all that matters is ASCII.
type sqlScanner struct {
	text string
	at   int
	open []bracket // what is open, innermost last
	prev sqlToken  // the token before this one
}

// bracket is an open ( or [.
type bracket struct {
	char   byte
	fn     string // the function whose arguments it holds, lower case
	commas int
	empty  bool
}

type sqlToken struct {
	kind string // "word", "number", "string", "quoted" or "" for the rest
	text string // lower case
	end  int    // where it ended, to see whether the next one touches it
}

func (s *sqlScanner) scan() error {
	for s.at < len(s.text) {
		c := s.text[s.at]
		var err error
		switch {
		case c == ' ' || c == '\t' || c == '\n' || c == '\r':
			s.at++
		case c == '\'':
			err = s.stringLiteral()
		case c == '"' || c == '`':
			err = s.quotedIdentifier(c)
		case c == '(' || c == '[':
			err = s.opening(c)
		case c == ')' || c == ']':
			err = s.closing(c)
		case c >= '0' && c <= '9':
			s.number()
		case isWordByte(c):
			err = s.bareWord()
		default:
			err = s.symbol(c)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func isWordByte(c byte) bool {
	return c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c >= utf8.RuneSelf
}

// push makes t the previous token.
func (s *sqlScanner) push(t sqlToken) {
	t.end = s.at
	s.prev = t
	if n := len(s.open); n > 0 {
		s.open[n-1].empty = false
	}
}

// stringLiteral reads '…' with ” inside, which all engines delimit alike once
// backslashes are gone.
func (s *sqlScanner) stringLiteral() error {
	if err := s.untouched("a string"); err != nil {
		return err
	}
	body, err := s.quoted('\'', "string")
	if err != nil {
		return err
	}
	if readsAsNow(body) {
		return &fault{fmt.Sprintf("the string '%s' reads as the time of the statement", body), "the clock of a run is its cutoff; state the condition without one"}
	}
	if n := len(s.open); n > 0 && sqliteDate[s.open[n-1].fn] {
		if l := strings.ToLower(strings.TrimSpace(body)); l == "localtime" || l == "utc" {
			return &fault{fmt.Sprintf("the modifier '%s' depends on the time zone of the process", body), "leave it out"}
		} else if l == "subsec" || l == "subsecond" {
			return &fault{fmt.Sprintf("'%s' can stand for the time of the statement", body), "leave it out"}
		}
	}
	s.push(sqlToken{kind: "string"})
	return nil
}

// untouched refuses E'…', N'…', U&"…", _utf8'…': a prefix changes how the
// string is read. x'53' is a plain blob everywhere.
func (s *sqlScanner) untouched(what string) error {
	touching := s.prev.end == s.at && s.at > 0
	if touching && s.prev.kind == "word" {
		if what == "a string" && s.prev.text == "x" {
			return nil
		}
		return &fault{fmt.Sprintf("%s is written right after %q, which can change how it is read", what, s.prev.text), "put a space between them, or leave the prefix out"}
	}
	if touching && (s.prev.kind == "string" || s.prev.kind == "quoted" || s.prev.kind == "number") {
		return &fault{what + " touches what is written before it", "put an operator or a space between them"}
	}
	if s.at > 1 && s.text[s.at-1] == '&' && (s.text[s.at-2] == 'u' || s.text[s.at-2] == 'U') {
		return &fault{what + " with the prefix U& is read with escapes", "write it without the prefix"}
	}
	return nil
}

// inBrackets reports whether a [ is open.
func (s *sqlScanner) inBrackets() bool {
	return slices.ContainsFunc(s.open, func(b bracket) bool { return b.char == '[' })
}

// quoted reads up to the closing quote; a doubled quote stands for one.
func (s *sqlScanner) quoted(q byte, what string) (string, error) {
	var body strings.Builder
	for i := s.at + 1; i < len(s.text); i++ {
		if s.text[i] != q {
			body.WriteByte(s.text[i])
			continue
		}
		if i+1 < len(s.text) && s.text[i+1] == q {
			body.WriteByte(q)
			i++
			continue
		}
		s.at = i + 1
		if s.inBrackets() && strings.Contains(body.String(), "]") {
			return "", &fault{fmt.Sprintf("a %s between [ and ] contains a ]", what), "SQLite ends a name there, and PostgreSQL does not; use a function instead"}
		}
		return body.String(), nil
	}
	return "", &fault{fmt.Sprintf("a %s opened with %c is never closed", what, q), "close it; a quote inside is written twice"}
}

// quotedIdentifier reads "…" or `…`. MySQL takes the first for a string, and to
// PostgreSQL the second is an operator, so between backquotes only what cannot
// mean anything else is allowed.
func (s *sqlScanner) quotedIdentifier(q byte) error {
	if err := s.untouched("a quoted name"); err != nil {
		return err
	}
	body, err := s.quoted(q, "quoted name")
	if err != nil {
		return err
	}
	if q == '`' && strings.ContainsFunc(body, func(r rune) bool {
		return r != '_' && r != ' ' && !unicode.IsLetter(r) && !unicode.IsDigit(r) && !unicode.IsMark(r)
	}) {
		return &fault{"a name between backquotes holds more than letters, digits, _ and spaces", "quote it with double quotes, or rename it"}
	}
	if readsAsNow(body) { // SQLite falls back to a string where no column has the name
		return &fault{fmt.Sprintf("the name %q can be read as the time of the statement", body), "the clock of a run is its cutoff; state the condition without one"}
	}
	s.push(sqlToken{kind: "quoted", text: strings.ToLower(body)})
	return nil
}

func (s *sqlScanner) opening(c byte) error {
	b := bracket{char: c, empty: true}
	if c == '[' {
		if s.inBrackets() {
			return &fault{"brackets are nested", "SQLite and PostgreSQL read them differently; use a function instead"}
		}
	} else {
		switch s.prev.kind {
		case "quoted":
			return &fault{"a function is called by a quoted name", "write the name without quotes"}
		case "word":
			b.fn = s.prev.text
			if err := checkFunction(b.fn); err != nil {
				return err
			}
		}
	}
	s.at++
	s.push(sqlToken{})
	s.open = append(s.open, b)
	return nil
}

func (s *sqlScanner) closing(c byte) error {
	want := byte('(')
	if c == ']' {
		want = '['
	}
	n := len(s.open)
	if n == 0 {
		return &fault{fmt.Sprintf("a %c closes what was never opened", c), "the text is put in parentheses of its own; remove it"}
	}
	b := s.open[n-1]
	if b.char != want {
		return &fault{fmt.Sprintf("a %c closes a %c", c, b.char), "balance the brackets"}
	}
	if err := checkArguments(b); err != nil {
		return err
	}
	s.open = s.open[:n-1]
	s.at++
	s.push(sqlToken{kind: "close"})
	return nil
}

func (s *sqlScanner) number() {
	start := s.at
	for s.at < len(s.text) && (isWordByte(s.text[s.at]) || s.text[s.at] == '.') {
		s.at++
	}
	s.push(sqlToken{kind: "number", text: s.text[start:s.at]})
}

// bareWord reads an identifier or a keyword. Whether it is also a function is
// judged at the parenthesis after it.
func (s *sqlScanner) bareWord() error {
	start := s.at
	for s.at < len(s.text) && isWordByte(s.text[s.at]) {
		s.at++
	}
	word := s.text[start:s.at]
	for _, r := range word {
		if r >= utf8.RuneSelf && !unicode.IsLetter(r) && !unicode.IsDigit(r) && !unicode.IsMark(r) {
			return &fault{fmt.Sprintf("%q contains %U, which only looks like a space or a sign", word, r), "type it anew, or quote the name"}
		}
	}
	if err := s.checkWord(strings.ToLower(word)); err != nil {
		return err
	}
	s.push(sqlToken{kind: "word", text: strings.ToLower(word)})
	return nil
}

// symbol reads one operator character.
func (s *sqlScanner) symbol(c byte) error {
	rest := s.text[s.at:]
	next := byte(0)
	if len(rest) > 1 {
		next = rest[1]
	}
	switch {
	case strings.HasPrefix(rest, "--"), strings.HasPrefix(rest, "/*"), strings.HasPrefix(rest, "*/"):
		return &fault{fmt.Sprintf("%s is a comment mark: a comment could swallow the cutoff that follows the text", rest[:2]), "remove it; write remarks as YAML comments, and - - with a space between for a double minus"}
	case c == '#':
		return &fault{"# starts a comment in MySQL, which could swallow the cutoff that follows the text", "remove it; in PostgreSQL write jsonb_extract_path_text(…) for #>>"}
	case c == ';':
		return &fault{"a semicolon ends the statement", "remove it; the text is one condition"}
	case c == '?':
		return &fault{"? stands for a bound value and would shift ours", "in PostgreSQL write jsonb_exists(…) for the jsonb operator"}
	case c == '$':
		return &fault{"$ starts a bound value or a dollar quote", "quote the name, or use a plain string"}
	case c == ':' && next == ':':
		s.at++ // a cast
	case c == ':':
		return &fault{": starts a bound value", "write a cast as CAST(… AS …) or ::type, without a space"}
	case c == '@' && (isWordByte(next) || strings.IndexByte("@'\"`", next) >= 0):
		return &fault{"@ starts a bound value or a variable", "put a space after an operator that ends in @"}
	case c == '{' || c == '}':
		return &fault{fmt.Sprintf("%c is read as an escape by some databases", c), "write the function without it"}
	case c == ',':
		if n := len(s.open); n > 0 {
			s.open[n-1].commas++
		}
	}
	s.at++
	s.push(sqlToken{text: string(c)})
	return nil
}

func (s *sqlScanner) end() error {
	if n := len(s.open); n > 0 {
		return &fault{fmt.Sprintf("a %c is never closed", s.open[n-1].char), "balance the brackets"}
	}
	return nil
}
