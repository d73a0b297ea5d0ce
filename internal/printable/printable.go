// Package printable makes text of files and of other processes safe for a terminal: control characters, of which escape
// sequences begin with one, become question marks.
package printable

import (
	"io"
	"strings"
)

// Text is text without control characters.
func Text(text string) string { return clean(text, "") }

// Lines is text of several lines, which may have tabs too.
func Lines(text string) string { return clean(text, "\n\t") }

func clean(text, kept string) string {
	return strings.Map(func(r rune) rune {
		if (r < ' ' || r >= 0x7f && r < 0xa0) && !strings.ContainsRune(kept, r) {
			return '?'
		}
		return r
	}, text)
}

// Writer is a writer of lines of printable text.
type Writer struct{ io.Writer }

func (w Writer) Write(p []byte) (int, error) {
	if _, err := io.WriteString(w.Writer, Lines(string(p))); err != nil {
		return 0, err
	}
	return len(p), nil
}
