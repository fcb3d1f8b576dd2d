package deliver

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/template"
	"text/template/parse"
)

// mostText bounds a text that was filled in.
const mostText = 1 << 20

// A Text is a template: {{.column}} stands for a value of the row, {{.due}}, {{.as_of}}, {{.policy}} and {{.stage}} for what
// curfew knows.
type Text struct {
	t      *template.Template
	fields []string
}

// Reserved are the fields that are no columns. A column of that name is out of a template's reach.
var Reserved = []string{"as_of", "due", "policy", "stage"}

// ParseText reads a template.
func ParseText(text string) (*Text, error) {
	t, err := template.New("").Option("missingkey=error").Parse(text)
	if err != nil {
		return nil, fmt.Errorf("the template cannot be read: %s", strings.TrimPrefix(err.Error(), "template: "))
	}
	fields := map[string]bool{}
	for _, sub := range t.Templates() {
		if sub.Tree != nil {
			walk(sub.Root, fields)
		}
	}
	return &Text{t, slices.Sorted(maps.Keys(fields))}, nil
}

// Columns are the columns of the row that the text shows.
func (t *Text) Columns() []string {
	return slices.DeleteFunc(slices.Clone(t.fields), func(f string) bool { return slices.Contains(Reserved, f) })
}

// walk collects the names after dots, and what index asks of the dot.
func walk(n parse.Node, into map[string]bool) {
	switch n := n.(type) {
	case *parse.ListNode:
		if n != nil {
			for _, c := range n.Nodes {
				walk(c, into)
			}
		}
	case *parse.ActionNode:
		walk(n.Pipe, into)
	case *parse.IfNode:
		branch(&n.BranchNode, into)
	case *parse.RangeNode:
		branch(&n.BranchNode, into)
	case *parse.WithNode:
		branch(&n.BranchNode, into)
	case *parse.TemplateNode:
		walk(n.Pipe, into)
	case *parse.PipeNode:
		if n != nil {
			for _, c := range n.Cmds {
				walk(c, into)
			}
		}
	case *parse.CommandNode:
		if len(n.Args) == 3 && n.Args[0].String() == "index" && (n.Args[1].Type() == parse.NodeDot || n.Args[1].String() == "$") {
			if s, ok := n.Args[2].(*parse.StringNode); ok {
				into[s.Text] = true
			}
		}
		for _, a := range n.Args {
			walk(a, into)
		}
	case *parse.ChainNode:
		walk(n.Node, into)
	case *parse.FieldNode:
		into[n.Ident[0]] = true
	case *parse.VariableNode:
		if n.Ident[0] == "$" && len(n.Ident) > 1 {
			into[n.Ident[1]] = true
		}
	}
}

func branch(n *parse.BranchNode, into map[string]bool) {
	walk(n.Pipe, into)
	walk(n.List, into)
	walk(n.ElseList, into)
}

// ErrFill says that a template could not be filled in with a row's values. The cause would show them.
var ErrFill = errors.New("the template cannot be filled in with this row")

// Fill writes the text with these values.
func (t *Text) Fill(values map[string]any) (string, error) {
	var b limited
	if err := t.t.Execute(&b, values); err != nil {
		return "", ErrFill
	}
	return b.String(), nil
}

type limited struct{ strings.Builder }

func (l *limited) Write(p []byte) (int, error) {
	if l.Len()+len(p) > mostText {
		return 0, errors.New("too long")
	}
	return l.Builder.Write(p)
}
