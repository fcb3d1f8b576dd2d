package policy

// The file as it is written. These structs are the one list of settings: the
// strict decoder refuses what is not in them, and the JSON Schema is generated
// from them, descriptions included. What a setting means is judged in the
// sections of build*.go.

// leaf is a place in the file that holds one value.
type leaf struct {
	n     *node
	field string
}

func (l leaf) set() bool { return l.n != nil }

// text is a string.
type text struct{ leaf }

func (t text) String() string {
	if t.n == nil {
		return ""
	}
	return t.n.text
}

// amount is one plain value that is read by its own rules: a period, a
// duration, a rate. A number reaches those rules as text, so that 90 is
// answered with "needs a unit".
type amount struct{ text }

// secret is a string in which ${VAR} and ${file:PATH} are expanded and that no
// message repeats.
type secret struct{ text }

// integer is a whole number.
type integer struct {
	leaf
	value int
}

// list is a list of strings.
type list struct {
	leaf
	items []text
}

// later is a setting that is designed but not built: to accept and ignore it
// could delete what it was meant to protect.
type later struct{}

// place is what every mapping remembers of where it stood.
type place struct {
	at    *node // its key, or the file's first line
	field string
}

func (p *place) locate(at place) { *p = at }

type rawFile struct {
	place     `yaml:"-"`
	Version   integer                 `yaml:"version" jsonschema:"required,enum=1" jsonschema_description:"The version of the file format."`
	Ledger    secret                  `yaml:"ledger" jsonschema:"default=sqlite:curfew.db" jsonschema_description:"Where runs, batches and the audit log are kept: sqlite:PATH, or postgres://… for several machines. ${VAR} and ${file:PATH} are expanded."`
	Key       secret                  `yaml:"key" jsonschema_description:"The installation's key, from which record hashes and cursors are derived: ${file:PATH} or ${VAR}. CURFEW_KEY is used when it is left out."`
	Databases map[string]*rawDatabase `yaml:"databases" jsonschema_description:"The governed databases, by name."`
	Engine    *rawEngine              `yaml:"engine" jsonschema_description:"The worker pool of the daemon."`
	Policies  map[string]*rawPolicy   `yaml:"policies" jsonschema_description:"The retention schedule: one policy for each record class, by name (a-z, 0-9, _ and -)."`
	Tasks     map[string]*rawTask     `yaml:"tasks" jsonschema_description:"Periodic and deferred work besides retention, by name (letters, digits, _, - and .)."`
	Mail      *rawMail                `yaml:"mail" jsonschema_description:"The mail server, for notify by e-mail."`
	Alerts    *rawAlerts              `yaml:"alerts" jsonschema_description:"Who is told what nobody may miss."`
	Retention *rawRetention           `yaml:"retention" jsonschema_description:"How long what is over stays in curfew's own lists."`
}

type rawDatabase struct {
	place      `yaml:"-"`
	URL        secret      `yaml:"url" jsonschema_description:"postgres://…, mysql://… (MariaDB too) or sqlite:PATH. ${VAR} and ${file:PATH} are expanded."`
	MaxWorkers integer     `yaml:"max_workers" jsonschema:"minimum=1,maximum=64,default=4" jsonschema_description:"The most batches at work in this database at once, those of all processes together; also the most connections of each process."`
	Workers    *rawWorkers `yaml:"workers" jsonschema_description:"A worker pool beside the database (curfew worker --listen), for data that must not leave its region. Instead of url."`
}

type rawWorkers struct {
	place `yaml:"-"`
	URL   secret `yaml:"url" jsonschema:"required" jsonschema_description:"https://host, where the pool answers; http on this machine only. ${VAR} and ${file:PATH} are expanded."`
	Token secret `yaml:"token" jsonschema:"required" jsonschema_description:"The pool's CURFEW_POOL_TOKEN, 32 characters or more. ${VAR} and ${file:PATH} are expanded."`
}

type rawEngine struct {
	place    `yaml:"-"`
	Workers  integer `yaml:"workers" jsonschema:"minimum=1,maximum=256,default=8" jsonschema_description:"All workers of the process."`
	Reserved integer `yaml:"reserved" jsonschema:"minimum=0,maximum=255,default=2" jsonschema_description:"How many of them cleanup may never take."`
	Queues   numbers `yaml:"queues" jsonschema_description:"Further queues of tasks, by name, each with the number of its workers in the process."`
}

type rawPolicy struct {
	place       `yaml:"-"`
	Description text         `yaml:"description" jsonschema_description:"What the policy does, in words; shown in reports."`
	Authority   text         `yaml:"authority" jsonschema_description:"Who approved it: statute, records schedule number, date. Shown in reports."`
	Database    text         `yaml:"database" jsonschema:"required" jsonschema_description:"One of the names under databases."`
	Table       text         `yaml:"table" jsonschema:"required" jsonschema_description:"The table, or schema.table, exactly as the database spells it."`
	Key         list         `yaml:"key" jsonschema_description:"The columns that identify a row. Default: the primary key, else a unique key over NOT NULL columns."`
	Keep        amount       `yaml:"keep" jsonschema_description:"How long a row is kept: 90s, 36h, 730d, 2w, 6mo, 2y, P1Y6M. With since it is required; with until it is a grace period."`
	Since       *rawTrigger  `yaml:"since" jsonschema_description:"What starts the clock of a row: a column, or a mapping."`
	Until       *rawTrigger  `yaml:"until" jsonschema_description:"What states the end of a row's time: a column, or a mapping. Instead of since."`
	Where       text         `yaml:"where" jsonschema_description:"The scope: an SQL condition on the row. A row outside it is not touched. Left out, the policy covers the whole table."`
	Unless      text         `yaml:"unless" jsonschema_description:"The guard: an SQL condition that protects a due row."`
	Subject     text         `yaml:"subject" jsonschema_description:"The column that names the data subject, for legal holds."`
	Action      *rawAction   `yaml:"action" jsonschema_description:"What is done to a due row: delete, or a mapping with one action and its settings."`
	Stages      []*rawStage  `yaml:"stages" jsonschema_description:"Several actions, each at an offset from the due instant. Instead of action."`
	Cascade     children     `yaml:"cascade" jsonschema_description:"Child tables whose ON DELETE CASCADE or SET NULL (transitively) is accepted: by name, or as a mapping that says how they name the data subject."`
	Triggers    list         `yaml:"triggers" jsonschema_description:"Deleting or archiving triggers of the database that are accepted, by name."`
	After       text         `yaml:"after" jsonschema_description:"A policy whose run of the same as_of this one waits for."`
	Mode        text         `yaml:"mode" jsonschema:"required,enum=shadow,enum=enforce" jsonschema_description:"shadow plans, counts and records, and changes nothing; enforce deletes."`
	Timezone    text         `yaml:"timezone" jsonschema:"default=UTC" jsonschema_description:"The IANA time zone in which years and months are counted."`
	AtCutoff    text         `yaml:"at_cutoff" jsonschema:"enum=due" jsonschema_description:"due: a row exactly at the cutoff goes. By default it stays."`
	Schedule    *rawSchedule `yaml:"schedule" jsonschema_description:"When the daemon starts the policy."`
	Batch       *rawBatch    `yaml:"batch" jsonschema_description:"The bounds of one transaction."`
	Retry       *rawRetry    `yaml:"retry" jsonschema_description:"How a failed batch is tried again."`
	Limits      *rawLimits   `yaml:"limits" jsonschema_description:"What is out of the ordinary: a run that would change more waits for approval."`
	KeepLast    *rawKeepLast `yaml:"keep_last" jsonschema_description:"Rows that stay however old they are: the last few of each."`
	Privacy     *rawPrivacy  `yaml:"privacy" jsonschema_description:"The data subject's own choice: never, default or forever."`
	Lock        text         `yaml:"lock" jsonschema_description:"A lock, by name: of all policies and tasks that name it, one is executed at a time."`
	Windows     list         `yaml:"windows" jsonschema_description:"The times of the day, in the policy's time zone, in which batches may begin: 22:00-05:00, or with days sat,sun 00:00-24:00. Left out, they may at any time."`
	Approve     later        `yaml:"approve" jsonschema:"-"`
}

type rawTrigger struct {
	place             `yaml:"-"`
	Column            text   `yaml:"column" jsonschema_description:"The column."`
	Expr              text   `yaml:"expr" jsonschema_description:"An SQL expression instead of a column. It needs a type, a unit or a format."`
	Type              text   `yaml:"type" jsonschema:"enum=timestamptz,enum=timestamp,enum=datetime,enum=date" jsonschema_description:"The type of the expression."`
	Zone              text   `yaml:"zone" jsonschema_description:"The IANA time zone of values that carry none."`
	Unit              text   `yaml:"unit" jsonschema:"enum=s,enum=ms,enum=us,enum=ns,enum=julian_day" jsonschema_description:"The unit of a number: since 1970, or a Julian day."`
	Format            text   `yaml:"format" jsonschema:"enum=iso8601,enum=yyyymmddhhmmss" jsonschema_description:"The format of a text."`
	Null              text   `yaml:"null" jsonschema:"enum=never,enum=due" jsonschema_description:"What NULL means: never due, or due at once. A nullable trigger needs it."`
	ImplausibleBefore amount `yaml:"implausible_before" jsonschema_description:"A date; rows whose trigger is before it stay, because nobody meant it."`
}

type rawSchedule struct {
	place       `yaml:"-"`
	Cron        text   `yaml:"cron" jsonschema:"required" jsonschema_description:"Five fields as in crontab(5), in the policy's time zone, or @daily and its kin."`
	StartWithin amount `yaml:"start_within" jsonschema:"default=1h" jsonschema_description:"How late a run may start. Not with by: external."`
	Overlap     text   `yaml:"overlap" jsonschema:"enum=skip,enum=queue,default=skip" jsonschema_description:"What happens when the last run is still under way: skip leaves the instant out, queue starts it afterwards, within start_within."`
	CatchUp     text   `yaml:"catch_up" jsonschema:"enum=latest,enum=all,enum=none,default=latest" jsonschema_description:"What makes up for missed instants: latest is one run, for the last of them; all is one run each; none is nothing."`
	By          text   `yaml:"by" jsonschema:"enum=external" jsonschema_description:"external: curfew starts nothing; somebody else calls, and the schedule says when the call is expected."`
	Grace       amount `yaml:"grace" jsonschema:"default=15m" jsonschema_description:"How late an expected call may be. Only with by: external."`
}

type rawBatch struct {
	place    `yaml:"-"`
	Rows     integer `yaml:"rows" jsonschema:"minimum=1,maximum=100000,default=1000" jsonschema_description:"The most rows of a batch."`
	InFlight integer `yaml:"in_flight" jsonschema:"minimum=1,maximum=64,default=2" jsonschema_description:"Batches under way at once."`
	Target   amount  `yaml:"target" jsonschema:"default=500ms" jsonschema_description:"How long a batch should take; its size adapts."`
	Pace     amount  `yaml:"pace" jsonschema_description:"Rows a second, or none for flat out."`
}

type rawRetry struct {
	place    `yaml:"-"`
	Attempts integer `yaml:"attempts" jsonschema:"minimum=1,maximum=100,default=5" jsonschema_description:"How often a batch is tried, the first time included."`
	Backoff  amount  `yaml:"backoff" jsonschema:"default=10s" jsonschema_description:"The wait before the second attempt."`
	Factor   integer `yaml:"factor" jsonschema:"minimum=1,maximum=100,default=10" jsonschema_description:"By what each further wait is longer."`
}

type rawLimits struct {
	place        `yaml:"-"`
	RetentionLag amount  `yaml:"retention_lag" jsonschema_description:"How far the oldest due row may be past its due instant."`
	MaxRows      integer `yaml:"max_rows" jsonschema:"minimum=1,maximum=2000000000" jsonschema_description:"The most rows that a run changes without approval."`
	MaxShare     amount  `yaml:"max_share" jsonschema_description:"The largest share of the rows in the policy's scope that a run changes without approval: 20%."`
	Spike        amount  `yaml:"spike" jsonschema_description:"How many times as many rows as the policy's runs usually change, for the instants it covers, a run changes without approval: 5x."`
}

type rawAlerts struct {
	place   `yaml:"-"`
	Webhook *rawWebhook `yaml:"webhook" jsonschema_description:"Gets every alert as a JSON document, by POST."`
	Ping    *rawPing    `yaml:"ping" jsonschema_description:"Is told the start and the end of every enforcing run, by the protocol of healthchecks.io."`
	Email   later       `yaml:"email" jsonschema:"-"`
}

type rawWebhook struct {
	place  `yaml:"-"`
	URL    secret `yaml:"url" jsonschema:"required" jsonschema_description:"https://…. ${VAR} and ${file:PATH} are expanded."`
	Secret secret `yaml:"secret" jsonschema_description:"What signs, as Standard Webhooks says: whsec_ and 24 to 64 bytes in base64. Left out, nothing is signed. ${VAR} and ${file:PATH} are expanded."`
}

type rawPing struct {
	place `yaml:"-"`
	URL   secret `yaml:"url" jsonschema:"required" jsonschema_description:"https://…, to which /start or /fail is added. {policy} in it stands for the policy's name. ${VAR} and ${file:PATH} are expanded."`
}
