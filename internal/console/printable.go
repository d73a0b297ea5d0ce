package console

import (
	"io"
	"strings"
)

// Escape is text without control characters.
func Escape(text string) string { return clean(text, "") }

// EscapeLines is text of several lines, which may have tabs too.
func EscapeLines(text string) string { return clean(text, "\n\t") }

func clean(text, kept string) string {
	return strings.Map(func(r rune) rune {
		if (r < ' ' || r >= 0x7f && r < 0xa0) && !strings.ContainsRune(kept, r) {
			return '?'
		}
		return r
	}, text)
}

// EscapeWriter is a writer of lines of printable text.
type EscapeWriter struct{ io.Writer }

func (w EscapeWriter) Write(p []byte) (int, error) {
	if _, err := io.WriteString(w.Writer, EscapeLines(string(p))); err != nil {
		return 0, err
	}
	return len(p), nil
}
