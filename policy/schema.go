package policy

import (
	"encoding/json"
	"reflect"
	"strings"
	"unicode"

	"github.com/invopop/jsonschema"
)

// schemaID is where the schema is published, as the repository's
// curfew.schema.json.
const schemaID = "https://curfew.dev/curfew.schema.json"

// The texts of periods and durations, for editors. What they cannot say, such
// as "not zero", [Parse] says.
const (
	periodPattern   = `^([1-9][0-9]*(s|m|h|d|w|mo|y)|P([0-9]+Y)?([0-9]+M)?([0-9]+W)?([0-9]+D)?(T([0-9]+H)?([0-9]+M)?([0-9]+S)?)?)$`
	durationPattern = `^[1-9][0-9]*(ms|s|m|h|d)$`
	namePattern     = `^[a-z][a-z0-9_-]{0,62}$`
	datePattern     = `^[0-9]{4}-[0-9]{2}-[0-9]{2}$`
	sharePattern    = `^(([1-9][0-9]?)(\.[0-9]{1,3})?|0\.[0-9]{1,3}|100(\.0{1,3})?)%$`
	factorPattern   = `^(([2-9]|[1-9][0-9]{1,5})(\.[0-9]{1,3})?|1\.[0-9]{1,3})x$`
	windowPattern   = `^(` + dayPattern + `(-` + dayPattern + `)?(,` + dayPattern + `(-` + dayPattern + `)?)* )?([01][0-9]|2[0-3]):[0-5][0-9]-(([01][0-9]|2[0-3]):[0-5][0-9]|24:00)$`
	dayPattern      = `(mon|tue|wed|thu|fri|sat|sun)`
)

// Schema is the JSON Schema (draft 2020-12) of the policy file, generated from
// the structs that the strict decoder uses. It accepts every file that [Parse]
// accepts; the reverse is not true, as a schema knows no zones, no SQL and no
// other policies.
func Schema() []byte {
	r := &jsonschema.Reflector{
		FieldNameTag:               "yaml",
		RequiredFromJSONSchemaTags: true,
		Mapper:                     leafSchema,
		Namer: func(t reflect.Type) string {
			name := []rune(strings.TrimPrefix(t.Name(), "raw"))
			if len(name) == 0 {
				return "" // a map has no name of its own
			}
			name[0] = unicode.ToLower(name[0])
			return string(name)
		},
	}
	s := r.Reflect(new(rawFile))
	s.ID = schemaID
	s.Title = "curfew.yaml, the retention schedule of curfew"
	tune(s)
	out, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		panic("policy: the schema is always representable: " + err.Error())
	}
	return append(out, '\n')
}

// leafSchema is the schema of the values of the raw structs.
func leafSchema(t reflect.Type) *jsonschema.Schema {
	switch t {
	case reflect.TypeFor[text](), reflect.TypeFor[secret](), reflect.TypeFor[amount]():
		return &jsonschema.Schema{Type: "string", Pattern: `\S`}
	case reflect.TypeFor[integer]():
		return &jsonschema.Schema{Type: "integer"}
	case reflect.TypeFor[boolean]():
		return &jsonschema.Schema{Type: "boolean"}
	case reflect.TypeFor[values]():
		one := uint64(1)
		return &jsonschema.Schema{Type: "array", MinItems: &one, Items: constantSchema(false)}
	case reflect.TypeFor[columns]():
		return columnsSchema()
	case reflect.TypeFor[rawDependents]():
		return nil
	case reflect.TypeFor[list]():
		one := uint64(1)
		return &jsonschema.Schema{Type: "array", MinItems: &one, UniqueItems: true, Items: &jsonschema.Schema{Type: "string", Pattern: `\S`}}
	case reflect.TypeFor[children]():
		return childrenSchema()
	}
	return taskLeafSchema(t)
}

// tune adds what struct tags cannot say.
func tune(s *jsonschema.Schema) {
	property := func(def, name string) *jsonschema.Schema {
		p, ok := s.Definitions[def].Properties.Get(name)
		if !ok {
			panic("policy: the schema has no " + def + "." + name)
		}
		return p
	}
	property("policy", "keep").Pattern = periodPattern
	property("trigger", "implausible_before").Pattern = datePattern
	for _, d := range []struct{ def, name string }{
		{"batch", "target"}, {"retry", "backoff"}, {"schedule", "start_within"}, {"schedule", "grace"}, {"limits", "retention_lag"},
		{"stage", "min_notice"}, {"call", "timeout"}, {"task", "start_within"}, {"task", "timeout"}, {"task", "kill_after"}, {"taskRetry", "backoff"},
		{"retention", "finished_calls"}, {"retention", "failed_calls"},
	} {
		property(d.def, d.name).Pattern = durationPattern
	}
	property("limits", "max_share").Pattern = sharePattern
	property("limits", "spike").Pattern = factorPattern
	property("policy", "windows").Items.Pattern = windowPattern
	version := property("file", "version")
	version.Enum, version.Const = nil, 1
	for _, e := range []struct{ def, name string }{
		{"policy", "mode"}, {"call", "method"}, {"call", "per"}, {"policy", "at_cutoff"}, {"trigger", "type"}, {"trigger", "unit"}, {"trigger", "format"},
		{"trigger", "null"}, {"schedule", "overlap"}, {"schedule", "catch_up"}, {"schedule", "by"},
		{"task", "overlap"}, {"task", "catch_up"}, {"taskHTTP", "method"},
	} {
		property(e.def, e.name).Pattern = "" // the enumeration says it
	}
	pace := property("batch", "pace")
	pace.Type, pace.Pattern, pace.Default = "", "", 50000
	pace.OneOf = []*jsonschema.Schema{{Type: "integer", Minimum: "1", Maximum: "100000000"}, {Const: "none"}}

	tuneActions(s, property)
	tuneTasks(s, property)
	for _, name := range []string{"since", "until"} {
		p := property("policy", name)
		p.OneOf = []*jsonschema.Schema{{Type: "string", Pattern: `\S`}, {Ref: p.Ref}}
		p.Ref = ""
	}
	s.Definitions["policy"].OneOf = []*jsonschema.Schema{
		{Required: []string{"since", "keep"}, Not: &jsonschema.Schema{Required: []string{"until"}}},
		{Required: []string{"until"}, Not: &jsonschema.Schema{Required: []string{"since"}}},
	}
	s.Definitions["policy"].AllOf = []*jsonschema.Schema{{OneOf: []*jsonschema.Schema{
		{Required: []string{"action"}, Not: &jsonschema.Schema{Required: []string{"stages"}}},
		{Required: []string{"stages"}, Not: &jsonschema.Schema{Required: []string{"action"}}},
	}}}
	without := func(name string) *jsonschema.Schema {
		return &jsonschema.Schema{Not: &jsonschema.Schema{Required: []string{name}}}
	}
	s.Definitions["trigger"].OneOf = []*jsonschema.Schema{
		{Required: []string{"column"}, AllOf: []*jsonschema.Schema{without("expr"), without("type")}},
		{Required: []string{"expr"}, Not: &jsonschema.Schema{Required: []string{"column"}}, OneOf: []*jsonschema.Schema{
			{Required: []string{"type"}}, {Required: []string{"unit"}}, {Required: []string{"format"}},
		}},
	}
	s.Definitions["trigger"].DependentSchemas = map[string]*jsonschema.Schema{
		"unit": {AllOf: []*jsonschema.Schema{without("format"), without("zone")}},
	}
	for _, name := range []string{"databases", "policies"} {
		property("file", name).PropertyNames = &jsonschema.Schema{Pattern: namePattern}
	}
	s.Definitions["database"].OneOf = []*jsonschema.Schema{
		{Required: []string{"url"}, Not: &jsonschema.Schema{Required: []string{"workers"}}},
		{Required: []string{"workers"}, AllOf: []*jsonschema.Schema{without("url"), without("max_workers")}},
	}
	s.Definitions["schedule"].DependentRequired = map[string][]string{"grace": {"by"}}
	harmless := jsonschema.NewProperties()
	harmless.Set("overlap", &jsonschema.Schema{Const: "skip"})
	harmless.Set("catch_up", &jsonschema.Schema{Const: "none"})
	s.Definitions["schedule"].DependentSchemas = map[string]*jsonschema.Schema{
		"by": {Not: &jsonschema.Schema{Required: []string{"start_within"}}, Properties: harmless},
	}
	one := uint64(1)
	s.Definitions["alerts"].MinProperties = &one
}
