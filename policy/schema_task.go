package policy

import (
	"reflect"

	"github.com/invopop/jsonschema"
)

// The schema of tasks: lists and mappings that are no structs, and which settings
// go together.

const (
	taskNamePattern  = `^[A-Za-z][A-Za-z0-9_.-]{0,99}$`
	queueNamePattern = `^[a-z0-9]+([_-][a-z0-9]+)*$`
	variablePattern  = `^[A-Za-z_][A-Za-z0-9_]*$`
)

// taskLeafSchema is the schema of the values that only tasks have, nil of any
// other.
func taskLeafSchema(t reflect.Type) *jsonschema.Schema {
	one := uint64(1)
	switch t {
	case reflect.TypeFor[argv]():
		return &jsonschema.Schema{Type: "array", MinItems: &one, PrefixItems: []*jsonschema.Schema{{Type: "string", Pattern: `\S`}}, Items: &jsonschema.Schema{Type: "string"}}
	case reflect.TypeFor[variables]():
		return &jsonschema.Schema{Type: "object", MinProperties: &one, AdditionalProperties: &jsonschema.Schema{Type: "string"}}
	case reflect.TypeFor[codes]():
		return &jsonschema.Schema{Type: "array", MinItems: &one, UniqueItems: true, Items: &jsonschema.Schema{Type: "integer", Minimum: "1", Maximum: "255"}}
	case reflect.TypeFor[numbers]():
		return &jsonschema.Schema{Type: "object", MinProperties: &one, AdditionalProperties: &jsonschema.Schema{Type: "integer", Minimum: "1", Maximum: "256"}}
	}
	return nil
}

// tuneTasks adds what struct tags cannot say of tasks.
func tuneTasks(s *jsonschema.Schema, property func(def, name string) *jsonschema.Schema) {
	one := uint64(1)
	without := func(names ...string) *jsonschema.Schema {
		var some []*jsonschema.Schema
		for _, name := range names {
			some = append(some, &jsonschema.Schema{Required: []string{name}})
		}
		return &jsonschema.Schema{Not: &jsonschema.Schema{AnyOf: some}}
	}
	tasks := when("tasks", &jsonschema.Schema{MinProperties: &one})
	tasks.Required = []string{"tasks"}
	s.Definitions["file"].DependentRequired = map[string][]string{"policies": {"databases"}}
	s.Definitions["file"].AnyOf = []*jsonschema.Schema{
		{Required: []string{"databases", "policies"}},
		tasks,
		{Required: []string{"ledger", "tasks"}},
	}
	property("file", "tasks").PropertyNames = &jsonschema.Schema{Pattern: taskNamePattern}
	property("engine", "queues").PropertyNames = &jsonschema.Schema{Pattern: queueNamePattern, Not: &jsonschema.Schema{Enum: []any{CommonQueue, "cleanup"}}}
	property("task", "queue").Pattern = queueNamePattern
	property("task", "env").PropertyNames = &jsonschema.Schema{Pattern: variablePattern, Not: &jsonschema.Schema{Pattern: "^" + EnvPrefix}}
	for _, def := range []string{"task", "policy"} {
		property(def, "lock").Pattern = taskNamePattern
	}
	s.Definitions["task"].OneOf = []*jsonschema.Schema{
		{Required: []string{"command"}, AllOf: []*jsonschema.Schema{without("http")}},
		{Required: []string{"http"}, AllOf: []*jsonschema.Schema{without("command", "dir", "env", "kill_after", "exit_codes")}},
	}
	s.Definitions["task"].AllOf = []*jsonschema.Schema{{Not: &jsonschema.Schema{Required: []string{"queue", "concurrency"}}}}
	s.Definitions["exitCodes"].MinProperties = &one
	s.Definitions["taskHTTP"].DependentSchemas = map[string]*jsonschema.Schema{
		"body": when("method", &jsonschema.Schema{Not: &jsonschema.Schema{Const: "GET"}}),
	}
}

// when is the schema of an object with one more demand on one property.
func when(name string, of *jsonschema.Schema) *jsonschema.Schema {
	props := jsonschema.NewProperties()
	props.Set(name, of)
	return &jsonschema.Schema{Properties: props}
}
