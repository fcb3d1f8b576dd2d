module curfew.dev/curfew

go 1.26.0

require (
	github.com/go-sql-driver/mysql v1.10.1 // MariaDB and MySQL: the one maintained pure Go driver (MPL-2.0)
	github.com/goccy/go-yaml v1.19.2 // the policy file: errors that know line and column; yaml.v3 is archived
	github.com/invopop/jsonschema v0.14.0 // the published schema, from the very structs that are decoded
	github.com/jackc/pgx/v5 v5.12.0 // PostgreSQL, through database/sql; error fields, so that no message is parsed
	github.com/pressly/goose/v3 v3.30.0 // the ledger's migrations, embedded, on both engines
	github.com/spf13/cobra v1.10.2 // commands, help and completion
	github.com/spf13/pflag v1.0.9 // cobra's flags, named in our own error for a wrong one
	github.com/wneessen/go-mail v0.8.1 // e-mail: headers as they should be encoded, and a net/smtp that is kept up and logs in by more ways
	golang.org/x/term v0.48.0 // is this a terminal, and how wide
	modernc.org/sqlite v1.62.0 // SQLite without cgo: one static binary
)

// Tests only.
require (
	github.com/emersion/go-sasl v0.0.0-20241020182733-b788ff22d5a6 // and lets in who has a password
	github.com/emersion/go-smtp v0.25.1 // a mail server that speaks the protocol for real
	github.com/google/go-cmp v0.7.0 // differences that can be read
	github.com/riverqueue/river/riverdriver/riverpgxv5 v0.51.2 // the benchmark: plain River at its best, beside ours
	github.com/rogpeppe/go-internal v1.16.0 // testscript: commands driven from text
	github.com/santhosh-tekuri/jsonschema/v6 v6.0.3 // an independent validator for the published schema
	go.uber.org/goleak v1.3.0 // no goroutine stays behind
	pgregory.net/rapid v1.3.0 // properties
)

require (
	github.com/prometheus/client_golang v1.25.0 // /metrics: the reference implementation of the format
	github.com/riverqueue/river v0.51.2 // the queue of batches, in the ledger's own database and transactions (MPL-2.0)
	github.com/riverqueue/river/riverdriver/riverdatabasesql v0.51.2 // River over database/sql on PostgreSQL: one transaction type for ledger and queue
	github.com/riverqueue/river/riverdriver/riversqlite v0.51.2 // the same on SQLite
	github.com/riverqueue/river/rivertype v0.51.2 // River's job rows
	golang.org/x/time v0.16.0 // rate limits of the HTTP interface
)

require github.com/riverqueue/river/riverdriver v0.51.2

require (
	filippo.io/edwards25519 v1.2.0 // indirect
	github.com/bahlo/generic-list-go v0.2.0 // indirect
	github.com/beorn7/perks v1.0.1 // indirect
	github.com/buger/jsonparser v1.1.2 // indirect
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/dustin/go-humanize v1.1.0 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/inconshreveable/mousetrap v1.1.0 // indirect
	github.com/jackc/pgpassfile v1.0.0 // indirect
	github.com/jackc/pgservicefile v0.0.0-20240606120523-5a60cdf6a761 // indirect
	github.com/jackc/puddle/v2 v2.2.3 // indirect
	github.com/kylelemons/godebug v1.1.0 // indirect
	github.com/lib/pq v1.12.3 // indirect
	github.com/mattn/go-isatty v0.0.24 // indirect
	github.com/mfridman/interpolate v0.0.2 // indirect
	github.com/munnerz/goautoneg v0.0.0-20191010083416-a7dc8b61c822 // indirect
	github.com/ncruces/go-strftime v1.1.0 // indirect
	github.com/pb33f/ordered-map/v2 v2.3.1 // indirect
	github.com/prometheus/client_model v0.6.3 // indirect
	github.com/prometheus/common v0.72.0 // indirect
	github.com/prometheus/procfs v0.23.0 // indirect
	github.com/remyoudompheng/bigfft v0.0.0-20230129092748-24d4a6f8daec // indirect
	github.com/riverqueue/river/rivershared v0.51.2 // indirect
	github.com/sethvargo/go-retry v0.5.0 // indirect
	github.com/tidwall/gjson v1.20.0 // indirect
	github.com/tidwall/match v1.2.0 // indirect
	github.com/tidwall/pretty v1.2.1 // indirect
	github.com/tidwall/sjson v1.2.5 // indirect
	go.uber.org/multierr v1.11.0 // indirect
	go.yaml.in/yaml/v4 v4.0.0-rc.2 // indirect
	golang.org/x/crypto v0.58.0 // indirect
	golang.org/x/sync v0.25.0 // indirect
	golang.org/x/sys v0.50.0 // indirect
	golang.org/x/text v0.44.0 // indirect
	golang.org/x/tools v0.52.0 // indirect
	google.golang.org/protobuf v1.36.12 // indirect
	modernc.org/libc v1.80.2 // indirect
	modernc.org/mathutil v1.7.1 // indirect
	modernc.org/memory v1.12.1 // indirect
)
