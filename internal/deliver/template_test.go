package deliver

import (
	"slices"
	"testing"
)

func TestText(t *testing.T) {
	for _, tc := range []struct {
		text    string
		columns []string
		want    string
	}{
		{"Dear {{.name}}, {{.due}}", []string{"name"}, "Dear Ada, soon"},
		{"{{if .paid}}thanks{{else}}{{.name}} owes {{.sum}}{{end}}", []string{"name", "paid", "sum"}, "Ada owes 3"},
		{`{{with .name}}<{{.}}>{{end}}{{index . "odd name"}}{{printf "%03d" .sum}}`, []string{"name", "odd name", "sum"}, "<Ada>x003"},
		{`{{define "x"}}{{.name}}{{end}}{{template "x" .}}{{$.sum}}`, []string{"name", "sum"}, "Ada3"},
		{"{{if gt .sum 2}}much{{end}}", []string{"sum"}, "much"},
	} {
		x, err := ParseText(tc.text)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(x.Columns(), tc.columns) {
			t.Errorf("%s: columns %q", tc.text, x.Columns())
		}
		got, err := x.Fill(map[string]any{"name": "Ada", "due": "soon", "paid": false, "sum": int64(3), "odd name": "x"})
		if err != nil || got != tc.want {
			t.Errorf("%s: %q %v", tc.text, got, err)
		}
	}
	for _, bad := range []string{"{{.name", "{{nofunc .x}}"} {
		if _, err := ParseText(bad); err == nil {
			t.Errorf("%q is read", bad)
		}
	}
	for _, bad := range []string{"{{.missing}}", "{{.name.first}}", `{{range $i, $x := .name}}{{end}}{{index .name 99}}`} {
		x, err := ParseText(bad)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := x.Fill(map[string]any{"name": "s3cret"}); err != ErrFill {
			t.Errorf("%s: %v", bad, err)
		}
	}
}
