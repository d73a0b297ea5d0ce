package console

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestText_HasNoEscapeSequences(t *testing.T) {
	for text, want := range map[string]string{
		"\x1b[31mred\x1b[0m": "?[31mred?[0m", "a\rb\nc\td\x00\x7f": "a?b?c?d??", "\u009b2J": "?2J", "größe µ 5·10⁻⁶ …": "größe µ 5·10⁻⁶ …", "": "",
	} {
		require.Equal(t, want, Escape(text))
	}
	require.Equal(t, "a?b\nc\td?", EscapeLines("a\rb\nc\td\x1b"))
}

func TestWriter_CountsWhatItWasGiven(t *testing.T) {
	var b bytes.Buffer
	n, err := fmt.Fprint(EscapeWriter{&b}, "\x9b\x1b[2Jname\n")
	require.NoError(t, err)
	require.Equal(t, 10, n)
	require.Equal(t, "\ufffd?[2Jname\n", b.String())
}
