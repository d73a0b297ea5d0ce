//go:build linux

package compile

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	"github.com/spark-compile/spark-compile/testdata/gen/driving"
)

// TestNothingOfTheProgressIsLeftOnTheScreen runs the command on a pseudo-terminal that is narrower than its lines: after
// success, between warnings, and before an error.
func TestNothingOfTheProgressIsLeftOnTheScreen(t *testing.T) {
	fulltest.Long(t)
	src, err := driving.Made("policy", driving.Small)
	require.NoError(t, err)
	dir := t.TempDir()
	file := filepath.Join(dir, "policy.onnx")
	require.NoError(t, os.WriteFile(file, src.ONNX, 0o644))
	for name, c := range map[string]struct {
		args []string
		code int
		last string // line of the screen
	}{
		"success": {[]string{"--precision", "fp8", "--min-cosine", "0"}, 0, "predicted on gb10: fp8 "},
		"error":   {[]string{"--precision", "bf16", "--min-cosine", "0.99999999"}, 2, "spark-compile: "},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScreen(t, 30)
			code := Main("spark-compile", append([]string{file, "-o", filepath.Join(dir, strings.ReplaceAll(name, " ", ""))}, c.args...), s.tty, s.tty)
			lines, raw := s.close(t)
			require.Equal(t, c.code, code, "%s", lines)
			require.Contains(t, raw, "passes", "progress was shown")
			for _, line := range lines {
				require.NotRegexp(t, `^ ?\d+ %,|left: |^(importing|sm_121: |fitting|evaluating|computing|comparing|compiling)`, line, "%q", lines)
			}
			require.Contains(t, strings.Join(lines, ""), c.last)
			require.NotEmpty(t, lines[0], "the first line of the screen is what is left")
		})
	}
}

// screen is a terminal of a width, and what it shows.
type screen struct {
	tty   *os.File
	width int
	raw   chan string
}

func newScreen(t *testing.T, width int) *screen {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip("no pseudo-terminals: ", err)
	}
	require.NoError(t, unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	require.NoError(t, err)
	s := &screen{width: width, raw: make(chan string)}
	s.tty, err = os.OpenFile(fmt.Sprint("/dev/pts/", n), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	require.NoError(t, unix.IoctlSetWinsize(int(s.tty.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: uint16(width)}))
	go func() {
		var all strings.Builder
		io.Copy(&all, master) // ends with an error when the other side is closed
		master.Close()
		s.raw <- all.String()
	}()
	return s
}

// close ends the writing and returns the lines of the screen, as if it were long enough, and all that was written.
func (s *screen) close(t *testing.T) (lines []string, raw string) {
	require.NoError(t, s.tty.Close())
	raw = <-s.raw
	grid := [][]rune{{}}
	row, col := 0, 0
	put := func(r rune) {
		if col == s.width { // wraps
			row, col = row+1, 0
		}
		for row >= len(grid) {
			grid = append(grid, nil)
		}
		for col >= len(grid[row]) {
			grid[row] = append(grid[row], ' ')
		}
		grid[row][col] = r
		col++
	}
	text := []rune(raw)
	for i := 0; i < len(text); i++ {
		switch {
		case text[i] == '\r':
			col = 0
		case text[i] == '\n':
			row++
		case strings.HasPrefix(string(text[i:min(i+3, len(text))]), "\x1b[K"):
			if row < len(grid) {
				grid[row] = grid[row][:min(col, len(grid[row]))]
			}
			i += 2
		default:
			put(text[i])
		}
	}
	for _, r := range grid {
		lines = append(lines, strings.TrimRight(string(r), " "))
	}
	return lines, raw
}
