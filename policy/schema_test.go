package policy_test

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"curfew.dev/curfew/policy"
	"github.com/goccy/go-yaml"
	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

func TestPublishedSchema(t *testing.T) {
	golden(t, "../curfew.schema.json", policy.Schema())
	if !bytes.Equal(policy.Schema(), policy.Schema()) {
		t.Error("two calls give two schemas")
	}
}

func compileSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(policy.Schema()))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	if err := c.AddResource("curfew.schema.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("curfew.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// instance reads a YAML file as an editor would, by way of JSON.
func instance(t *testing.T, data []byte) (any, error) {
	t.Helper()
	text, err := yaml.YAMLToJSON(data)
	if err != nil {
		return nil, err
	}
	return jsonschema.UnmarshalJSON(bytes.NewReader(text))
}

func TestSchemaAcceptsGoodFiles(t *testing.T) {
	s := compileSchema(t)
	files := map[string][]byte{"valid": []byte(valid)}
	for _, path := range glob(t, "testdata/good/*.yaml", 4) {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		files[path] = data
	}
	for name, data := range files {
		doc, err := instance(t, data)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Validate(doc); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// beyondSchema are the starts of the names of bad files whose fault no schema
// can see: it is in the SQL, in the calendar, in the environment, in another
// part of the file, or in how the YAML is written.
var beyondSchema = []string{
	"after_", "alerts_ping_fragment", "alerts_secret_", "alerts_webhook_expanded", "alerts_webhook_host", "alerts_webhook_scheme", "alerts_webhook_space",
	"alerts_webhook_unset", "cron_", "database_unknown", "engine_reserved", "keep_iso_", "keep_too_long", "keep_overflow", "keep_exact_overflow",
	"key_file_empty", "ledger_mysql", "policy_names_one_variable", "since_expression_as_column", "since_quoted_column",
	"since_semicolon", "table_", "timezone_bad", "trigger_expr_now", "trigger_implausible", "trigger_zone_", "trigger_timestamp", "trigger_date",
	"trigger_compact_no_zone", "unless_", "url_", "variable_", "version_float", "where_", "yaml_", "batch_target_long", "batch_rows_hex", "batch_rows_underscore",
	"anonymise_as_of_plus", "anonymise_column_quoted", "archive_bad_table", "call_timeout", "call_url_", "dependents_both_subjects", "dependents_on_now",
	"mail_", "notify_from_bad", "notify_template_", "notify_without_mail", "privacy_empty", "privacy_never_stages", "privacy_twice", "set_hash", "set_only_moving",
	"stage_after_delete", "stage_at_calendar_before", "stage_delete_before", "stage_notice_nobody", "stage_twice",
	"task_argv_variable", "task_cron_", "task_env_beside", "task_env_unset", "task_exit_codes_twice", "task_http_header_", "task_http_scheme",
	"task_named_as_policy", "task_names_one_variable", "task_overlap_concurrency", "task_queue_unknown", "task_start_within", "task_timeout", "task_timezone",
	"windows_day_twice", "windows_same", "windows_twice", "workers_http", "workers_query", "workers_scheme", "workers_token_", "workers_user",
}

func TestSchemaRefusesBadFiles(t *testing.T) {
	s := compileSchema(t)
	used := make(map[string]bool)
	for _, path := range glob(t, "testdata/bad/*.yaml", 75) {
		name := strings.TrimSuffix(filepath.Base(path), ".yaml")
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		doc, err := instance(t, data)
		if err != nil {
			continue // not even YAML
		}
		if err := s.Validate(doc); err != nil {
			continue
		}
		i := slices.IndexFunc(beyondSchema, func(start string) bool { return strings.HasPrefix(name, start) })
		if i < 0 {
			t.Errorf("%s: the schema accepts it, and could know better", name)
			continue
		}
		used[beyondSchema[i]] = true
	}
	for _, start := range beyondSchema {
		if !used[start] {
			t.Errorf("no file %s… is accepted by the schema; remove it from the list", start)
		}
	}
}

// TestSchemaDescribesEverything keeps the schema a manual.
func TestSchemaDescribesEverything(t *testing.T) {
	doc, err := instance(t, policy.Schema())
	if err != nil {
		t.Fatal(err)
	}
	var missing []string
	fields := 0
	for def, d := range doc.(map[string]any)["$defs"].(map[string]any) {
		for name, p := range d.(map[string]any)["properties"].(map[string]any) {
			fields++
			if text, _ := p.(map[string]any)["description"].(string); !strings.HasSuffix(text, ".") {
				missing = append(missing, def+"."+name)
			}
		}
	}
	if diff := cmp.Diff([]string(nil), missing); diff != "" || fields < 50 {
		t.Errorf("%d fields; without a description:\n%s", fields, diff)
	}
}
