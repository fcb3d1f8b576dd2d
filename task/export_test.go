package task

// TailOf is the tail of an output that was written byte by byte.
func TailOf(env []string, output string) string {
	t := newTail(secretsOf(env), nil)
	for i := range len(output) {
		_, _ = t.Write([]byte{output[i]})
	}
	return t.String()
}
