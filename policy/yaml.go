package policy

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// The bounds of a file. A retention schedule that needs more is not read by
// anyone, and a parser that recurses must not be led without end.
const (
	maxFile  = 1 << 20
	maxDepth = 32
	maxLine  = 16 << 10 // the parser's time grows with the square of it
)

type nodeKind int

const (
	scalarNode nodeKind = iota
	listNode
	mapNode
)

type scalarType int

const (
	stringScalar scalarType = iota
	integerScalar
	otherScalar // a float or a boolean
	nullScalar
)

// node is the part of YAML that a policy file may use: mappings, lists and
// scalars.
type node struct {
	kind      nodeKind
	line, col int
	text      string // of a scalar, as written
	scalar    scalarType
	pairs     []pair
	items     []*node
}

type pair struct{ key, value *node }

// reader turns the text of a file into nodes and collects what is wrong.
type reader struct {
	path  string
	lines []string
	blank map[int]bool // lines that hold nothing but a secret
	errs  Errors
}

func (r *reader) fail(at *node, field, problem, hint string) {
	e := &Error{Path: r.path, Field: field, Problem: problem, Hint: hint}
	if at != nil {
		e.Line, e.Column = at.line, at.col
		r.source(e)
	}
	r.errs = append(r.errs, e)
}

// source fills in the source line, without secrets.
func (r *reader) source(e *Error) {
	if e.Line < 1 || e.Line > len(r.lines) {
		return
	}
	line := strings.TrimRight(r.lines[e.Line-1], " \t\r")
	line = strings.Map(func(c rune) rune { // a terminal obeys control characters
		if c < ' ' && c != '\t' || c == 0x7f {
			return utf8.RuneError
		}
		return c
	}, strings.ToValidUTF8(line, string(utf8.RuneError)))
	shown := mask(line)
	if r.blank[e.Line] {
		shown = "…"
	}
	const most = 200
	if utf8.RuneCountInString(shown) > most {
		shown = firstRunes(shown, most) + "…"
	}
	e.Source, e.caret = shown, moved([]rune(line), []rune(shown), e.Column)
}

// moved is where column col of line stands in the shown line, which differs
// from it in one stretch; 0 when it is within that stretch.
func moved(line, shown []rune, col int) int {
	least := min(len(line), len(shown))
	head, tail := 0, 0
	for head < least && line[head] == shown[head] {
		head++
	}
	for tail < least-head && line[len(line)-1-tail] == shown[len(shown)-1-tail] {
		tail++
	}
	switch fromEnd := len(line) - col + 1; {
	case col <= head+1:
		return col
	case fromEnd <= tail:
		return len(shown) - fromEnd + 1
	}
	return 0
}

var (
	userinfo    = regexp.MustCompile(`://[^\s"']*@`)
	secretValue = regexp.MustCompile(`(?i)\b(key|url|secret|password|token|ledger)(["']?\s*:\s*)("[^"]*(?:"|$)|'[^']*(?:'|$)|(?:\$\{[^}]*\}|[^\s,}])+)`)
	// bareAddress is what somebody wrote who left out the url: below it.
	bareAddress = regexp.MustCompile(`(?i)\b(webhook|ping)(["']?\s*:\s*)("[^"]*"?|'[^']*'?|[^\s,{}"'][^\s,}]*)`)
	bareRequest = regexp.MustCompile(`(?i)\b(http)(["']?\s*:\s+)("[^"]*"?|'[^']*'?|[^\s,{}"'][^\s,}]*)`)
	onlyVar     = regexp.MustCompile(`^["']?(\$\{[^}"']*\})?["']?$`)
)

// mask takes passwords and keys out of a line of a policy file.
func mask(line string) string {
	line = secretValue.ReplaceAllStringFunc(line, func(m string) string {
		part := secretValue.FindStringSubmatch(m)
		value := strings.Trim(part[3], `"'`)
		if onlyVar.MatchString(part[3]) || strings.HasPrefix(value, "[") || strings.HasPrefix(value, "sqlite:") || strings.HasPrefix(value, "{") {
			return m
		}
		return part[1] + part[2] + "…"
	})
	line = bareAddress.ReplaceAllString(line, "$1$2…")
	line = bareRequest.ReplaceAllString(line, "$1$2…")
	return userinfo.ReplaceAllString(line, "://…@")
}

// read parses data into one mapping. A nil result has errors to explain it.
func (r *reader) read(data []byte) *node {
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	data = bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n"))
	if len(data) > maxFile {
		r.fail(nil, "", "the file is larger than 1 MiB", "split the installation, or move long SQL into views")
		return nil
	}
	if len(bytes.TrimSpace(data)) == 0 {
		r.fail(nil, "", "the file is empty", "start with: version: 1")
		return nil
	}
	r.lines = strings.Split(string(data), "\n")
	if !r.readable(data) {
		return nil
	}
	file, err := parseYAML(data)
	if err != nil {
		r.syntax(err)
		return nil
	}
	var body ast.Node
	for _, doc := range file.Docs {
		switch {
		case doc.Body == nil:
		case doc.Body.Type() == ast.DirectiveType:
			r.fail(position(doc.Body), "", "the file has a YAML directive", "remove the line that starts with %")
			return nil
		case body != nil:
			r.fail(position(doc.Body), "", "the file holds more than one YAML document", "remove the --- or ... before this line")
			return nil
		default:
			body = doc.Body
		}
	}
	if body == nil {
		r.fail(nil, "", "the file is empty", "start with: version: 1")
		return nil
	}
	root := r.convert(body, "", 0)
	if len(r.errs) > 0 {
		return nil // what is missing then, nobody knows
	}
	if root.kind != mapNode {
		r.fail(root, "", "the file is not a mapping", "start with: version: 1 (a space follows each colon)")
		return nil
	}
	return root
}

// readable refuses what no policy file needs and a YAML parser might choke on.
func (r *reader) readable(data []byte) bool {
	depth := 0
	for i, line := range r.lines {
		if !utf8.ValidString(line) {
			r.fail(&node{line: i + 1, col: 1}, "", "the line is not UTF-8", "save the file as UTF-8")
			return false
		}
		if len(line) > maxLine {
			r.fail(&node{line: i + 1, col: 1}, "", "the line is too long", fmt.Sprintf("at most %d bytes; fold it", maxLine))
			return false
		}
		if strings.HasPrefix(strings.TrimSpace(line), "#") {
			line = strings.Map(func(c rune) rune { // a divider nests nothing
				if c < ' ' && c != '\t' || c == 0x7f {
					return c
				}
				return ' '
			}, line)
		}
		col, run := 0, 0
		for _, c := range line {
			col++
			switch {
			case c < ' ' && c != '\t' || c == 0x7f:
				r.fail(&node{line: i + 1, col: col}, "", fmt.Sprintf("the line contains the control character %U", c), "remove it")
				return false
			case c == '[' || c == '{':
				depth++
			case c == ']' || c == '}':
				depth = max(0, depth-1)
			}
			switch c {
			case '-', '?', '&', '!', ':':
				run++
			case ' ', '\t':
			default:
				run = 0
			}
			// Dashes count too: "- - - -" nests once for each.
			if depth > 8*maxDepth || run > 8*maxDepth {
				r.fail(&node{line: i + 1, col: col}, "", "the file is nested too deeply", "no setting is; look for an unclosed bracket above")
				return false
			}
		}
	}
	return true
}

// parseYAML is the YAML parser with its panics, should it have any left, as
// errors: a file must never take a daemon down that reloads it.
func parseYAML(data []byte) (file *ast.File, err error) {
	defer func() {
		if p := recover(); p != nil {
			file, err = nil, errors.New("the YAML parser gave up")
		}
	}()
	return parser.ParseBytes(data, 0, parser.AllowDuplicateMapKey())
}

func (r *reader) syntax(err error) {
	problem, at := err.Error(), (*node)(nil)
	if y, ok := errors.AsType[yaml.Error](err); ok {
		problem = y.GetMessage()
		at = tokenPosition(y.GetToken())
	}
	r.fail(at, "", "this is not YAML: "+mask(problem), "check the indentation, the quotes and the space after each colon")
}

func tokenPosition(tk *token.Token) *node {
	if tk == nil || tk.Position == nil {
		return nil
	}
	return &node{line: max(tk.Position.Line, 1), col: max(tk.Position.Column, 1)}
}

// position is where a node begins.
func position(n ast.Node) *node {
	switch n := n.(type) {
	case *ast.MappingNode:
		if !n.IsFlowStyle && len(n.Values) > 0 {
			return position(n.Values[0].Key)
		}
	case *ast.MappingValueNode:
		return position(n.Key)
	}
	if at := tokenPosition(n.GetToken()); at != nil {
		return at
	}
	return &node{line: 1, col: 1}
}

// convert turns a YAML node into ours, or reports why it may not be used.
func (r *reader) convert(n ast.Node, field string, depth int) *node {
	at := position(n)
	if depth > maxDepth {
		r.fail(at, field, "the file is nested too deeply", "no setting is")
		return nil
	}
	switch n := n.(type) {
	case *ast.MappingNode:
		return r.convertMap(at, n.Values, field, depth)
	case *ast.MappingValueNode:
		return r.convertMap(at, []*ast.MappingValueNode{n}, field, depth)
	case *ast.SequenceNode:
		at.kind = listNode
		for i, v := range n.Values {
			if item := r.convert(v, fmt.Sprintf("%s[%d]", field, i), depth+1); item != nil {
				at.items = append(at.items, item)
			}
		}
		return at
	case *ast.AnchorNode, *ast.AliasNode:
		r.fail(at, field, "anchors and aliases are not allowed", "write the value out, or quote it if it begins with & or *")
	case *ast.TagNode:
		r.fail(at, field, "YAML tags are not allowed", "leave the tag out, or quote the value if it begins with !")
	case *ast.MergeKeyNode:
		r.fail(at, field, "merge keys are not allowed", "write the values out")
	case *ast.LiteralNode:
		at.text = n.Value.Value
		return at
	case *ast.StringNode:
		at.text = n.Value
		return at
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode, *ast.NullNode:
		at.text = n.GetToken().Value
		at.scalar = otherScalar
		if n.Type() == ast.IntegerType {
			at.scalar = integerScalar
		}
		if n.Type() == ast.NullType {
			at.scalar = nullScalar
		}
		return at
	default:
		r.fail(at, field, "this kind of YAML is not allowed", "use plain mappings, lists and values")
	}
	return nil
}

func (r *reader) convertMap(at *node, values []*ast.MappingValueNode, field string, depth int) *node {
	at.kind = mapNode
	seen := make(map[string]int)
	for _, v := range values {
		key := position(v.Key)
		switch v.Key.(type) {
		case *ast.StringNode, *ast.NullNode, *ast.IntegerNode, *ast.BoolNode, *ast.FloatNode:
			key.text = v.Key.GetToken().Value // null is a key of ours, and YAML's null
		case *ast.MergeKeyNode:
			r.fail(key, field, "merge keys are not allowed", "write the values out")
			continue
		default:
			r.fail(key, field, "a key must be a plain word", "write it without anchors, tags or brackets")
			continue
		}
		if line, twice := seen[key.text]; twice {
			r.fail(key, join(field, key.text), fmt.Sprintf("it is given twice, first on line %d", line), "remove one of them")
			continue
		}
		seen[key.text] = key.line
		if value := r.convert(v.Value, join(field, key.text), depth+1); value != nil {
			at.pairs = append(at.pairs, pair{key, value})
		}
	}
	return at
}

func join(field, name string) string {
	if field == "" {
		return name
	}
	return field + "." + name
}
