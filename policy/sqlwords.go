package policy

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// What a word means is a matter of lists. A name that is not on them may still
// be volatile (a function of the database's own); the catalogue knows, we here
// do not.

func words(s string) map[string]bool {
	m := make(map[string]bool)
	for w := range strings.FieldsSeq(s) {
		m[w] = true
	}
	return m
}

// nowWords are the time even without parentheses.
var nowWords = words(`current_timestamp current_date current_time localtimestamp localtime
	utc_timestamp utc_date utc_time sysdate systimestamp`)

// nowFunctions are the time when they are called.
var nowFunctions = words(`now getdate getutcdate curdate curtime clock_timestamp statement_timestamp
	transaction_timestamp timeofday sysdatetime`)

// volatileFunctions differ from call to call, from session to session or from
// server to server, or do something.
var volatileFunctions = words(`
	random random_normal rand randomblob random_bytes setseed uuid uuid_short uuidv4 uuidv7 gen_random_uuid gen_random_bytes
	nextval currval lastval setval sys_guid
	sleep benchmark get_lock release_lock release_all_locks is_free_lock is_used_lock
	master_pos_wait source_pos_wait master_gtid_wait wait_for_executed_gtid_set wait_until_sql_thread_after_gtids
	load_file load_extension readfile writefile edit fts3_tokenizer sys_exec sys_eval
	changes total_changes last_insert_rowid last_insert_id row_count found_rows
	connection_id current_user session_user system_user user current_role current_catalog current_schema current_schemas database schema version
	current_setting set_config current_query inet_client_addr inet_client_port inet_server_addr inet_server_port
	query_to_xml query_to_xmlschema query_to_xml_and_xmlschema table_to_xml cursor_to_xml schema_to_xml database_to_xml
	txid_current txid_current_if_assigned txid_current_snapshot txid_snapshot_xmin txid_status
	dblink postgres_fdw_get_connections lo_import lo_export xpath_table master_gtid`)

// volatilePrefixes are families of such functions.
var volatilePrefixes = []string{"pg_", "lo_", "dblink_", "txid_", "uuid_generate_", "sqlite_", "ps_", "wsrep_"}

// emptyIsNow are the time when they are called without an argument.
var emptyIsNow = words(`unix_timestamp date time datetime timestamp julianday unixepoch strftime to_days`)

// sqliteDate are the functions whose modifiers may name a zone.
var sqliteDate = words(`date time datetime julianday unixepoch strftime timediff`)

// statementWords begin or extend a statement and have no place in a condition.
// Those that make good column names are left out where the parentheses around
// the text already make them a syntax error.
var statementWords = words(`insert update delete drop alter create truncate merge grant revoke execute prepare deallocate
	into outfile dumpfile returning pragma attach detach vacuum reindex commit rollback savepoint begin declare call lock handler`)

// checkFunction judges the word before a parenthesis.
func checkFunction(fn string) error {
	switch {
	case nowFunctions[fn] || nowWords[fn]:
		return nowFault(fn + "()")
	case volatileFunctions[fn] || hasAnyPrefix(fn, volatilePrefixes):
		return &fault{fmt.Sprintf("%s() is not the same in every statement of a run, or acts", fn), "state the condition by the row's own values"}
	}
	return nil
}

func nowFault(what string) error {
	return &fault{what + " is the time of the statement, not of the run", "the clock of a run is its cutoff; use since, until and keep"}
}

func hasAnyPrefix(s string, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(s, p) })
}

// checkArguments judges a call by the number of its arguments.
func checkArguments(b bracket) error {
	switch {
	case b.char != '(' || b.fn == "":
	case b.empty && emptyIsNow[b.fn]:
		return nowFault(b.fn + "()")
	case !b.empty && b.commas == 0 && b.fn == "strftime":
		return nowFault("strftime with a format only")
	case !b.empty && b.commas == 0 && b.fn == "age":
		return nowFault("age() with one argument")
	}
	return nil
}

// checkWord judges a word by itself and by the one before it.
func (s *sqlScanner) checkWord(word string) error {
	if nowWords[word] {
		return nowFault(word)
	}
	if s.prev.text == "." {
		return nil // t.delete is a column
	}
	before := ""
	if s.prev.kind == "word" {
		before = s.prev.text
	}
	switch {
	case word == "truncate" && strings.HasPrefix(strings.TrimLeft(s.text[s.at:], " \t\r\n"), "("):
		return nil // MySQL's TRUNCATE(number, digits)
	case statementWords[word]:
		return &fault{fmt.Sprintf("%s is a statement, not a condition", strings.ToUpper(word)), "remove it; a column of that name must be quoted or written after its table's name and a dot"}
	case word == "tablesample":
		return &fault{"TABLESAMPLE takes other rows each time", "state the condition by the row's own values"}
	case before == "for" && (word == "share" || word == "key" || word == "no"):
		return &fault{"FOR " + strings.ToUpper(word) + " locks rows", "remove it; curfew locks what it needs"}
	case before == "value" && word == "for":
		return &fault{"NEXT VALUE FOR takes a number from a sequence", "state the condition by the row's own values"}
	}
	return nil
}

var nowWord = regexp.MustCompile(`(?i)^(now|today|tomorrow|yesterday)$`)
var besideNow = regexp.MustCompile(`(?i)^([0-9:.,+-]*|allballs|am|pm|z|zulu|utc|gmt|[ecmp][sd]t|cest|cet|eest|eet|wet|west|msk|bst|ist|jst|localtime|.*/.*)$`)

// readsAsNow reports whether a database would read a string as the present
// time: 'now', ' NOW ', 'today 12:00', 'now Europe/Berlin'.
func readsAsNow(s string) bool {
	found := false
	for w := range strings.FieldsSeq(s) {
		if nowWord.MatchString(w) {
			found = true
		} else if !besideNow.MatchString(w) {
			return false
		}
	}
	return found
}
