package policy

import (
	"github.com/invopop/jsonschema"
)

// The schema of what is done to rows: where the file takes a word or a mapping,
// or names of the operator's choice.

const (
	offsetPattern = `^(0(s|m|h|d|w)|[-+]?[1-9][0-9]*(s|m|h|d|w|mo|y)|[-+]?P[0-9YMWDTHS]+)$`
	clockPattern  = `^([01][0-9]|2[0-3]):[0-5][0-9]$`
)

// constantSchema accepts what can be stored in a column as it is written.
func constantSchema(null bool) *jsonschema.Schema {
	s := &jsonschema.Schema{OneOf: []*jsonschema.Schema{{Type: "string"}, {Type: "number"}, {Type: "boolean"}}}
	if null {
		s.OneOf = append(s.OneOf, &jsonschema.Schema{Type: "null"})
	}
	return s
}

// columnsSchema accepts what can become of columns.
func columnsSchema() *jsonschema.Schema {
	way := func(name string, of *jsonschema.Schema) *jsonschema.Schema {
		props := jsonschema.NewProperties()
		props.Set(name, of)
		return &jsonschema.Schema{Type: "object", Properties: props, Required: []string{name}, AdditionalProperties: jsonschema.FalseSchema}
	}
	becomes := constantSchema(true)
	becomes.OneOf = append(becomes.OneOf,
		way("sentinel", constantSchema(false)),
		way("hash", &jsonschema.Schema{Const: true}),
		way("truncate", &jsonschema.Schema{Enum: []any{string(ToMonth), string(ToYear)}}),
		way("prefix", &jsonschema.Schema{Type: "integer", Minimum: "1"}),
		way("band", &jsonschema.Schema{Type: "integer", Minimum: "1"}),
		way("as_of_plus", &jsonschema.Schema{Type: "string", Pattern: periodPattern}))
	one := uint64(1)
	return &jsonschema.Schema{Type: "object", MinProperties: &one, AdditionalProperties: becomes}
}

// tuneActions adds what struct tags cannot say of actions and stages.
func tuneActions(s *jsonschema.Schema, property func(def, name string) *jsonschema.Schema) {
	one := uint64(1)
	// either makes a property that is a reference one that may also be what word says.
	either := func(def, name string, word *jsonschema.Schema) {
		p := property(def, name)
		p.OneOf = []*jsonschema.Schema{word, {Ref: p.Ref}}
		p.Ref = ""
	}
	for _, def := range []string{"policy", "stage"} {
		either(def, "action", &jsonschema.Schema{Const: string(Delete)})
	}
	s.Definitions["action"].MinProperties, s.Definitions["action"].MaxProperties = &one, &one
	either("notify", "email", &jsonschema.Schema{Type: "string", Pattern: `\S`})
	s.Definitions["email"].MinProperties, s.Definitions["email"].MaxProperties = &one, &one

	delete(s.Definitions, "dependents")
	d := property("delete", "dependents")
	item := &jsonschema.Reflector{FieldNameTag: "yaml", RequiredFromJSONSchemaTags: true, Mapper: leafSchema, DoNotReference: true, Anonymous: true}
	dependent := item.Reflect(new(rawDependent))
	dependent.Version, dependent.ID = "", ""
	d.Ref, d.OneOf = "", []*jsonschema.Schema{{Const: "auto"}, {Type: "array", MinItems: &one, Items: dependent}}

	property("policy", "stages").MinItems = &one
	property("stage", "at").Pattern = offsetPattern
	property("stage", "snap").Pattern = clockPattern
	property("stage", "name").Pattern = namePattern
	without := func(name string) *jsonschema.Schema {
		return &jsonschema.Schema{Not: &jsonschema.Schema{Required: []string{name}}}
	}
	s.Definitions["notify"].OneOf = []*jsonschema.Schema{
		{Required: []string{"webhook"}, AllOf: []*jsonschema.Schema{without("email"), without("from"), without("subject"), without("template"), without("text")}},
		{Required: []string{"email", "subject"}, AllOf: []*jsonschema.Schema{without("webhook")}, OneOf: []*jsonschema.Schema{{Required: []string{"template"}}, {Required: []string{"text"}}}},
	}
	s.Definitions["privacy"].OneOf = []*jsonschema.Schema{
		{Required: []string{"column"}, Not: &jsonschema.Schema{Required: []string{"expr"}}},
		{Required: []string{"expr"}, Not: &jsonschema.Schema{Required: []string{"column"}}},
	}
}
