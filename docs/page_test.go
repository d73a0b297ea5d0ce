package docs_test

import (
	"encoding/csv"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

const pageHead = `<!-- Written by make measurements from docs/measurements/. -->

# Measurements

Each table comes from the command above it. Nothing here was measured on a GPU: times for GB10 are
predictions of the cost model, and everything else was measured on CPUs. CPUs differ, so compare
figures within a table, not between tables. *Stale* marks a table whose programs or packages have
changed since. Data and [index](measurements/index.json) are in [measurements](measurements/);
` + "`make measurements` writes this page from them and lists stale tables with their commands.\n"

const (
	columns = 100 // of a line of text
	longest = 40  // rows of a table that is shown
)

// page renders measurements.md.
func page(dir string, all []*measurement) (string, error) {
	var contents, out strings.Builder
	group := ""
	for _, m := range all {
		if m.Group != group {
			group = m.Group
			fmt.Fprintf(&contents, "\n%s:\n\n", group)
			fmt.Fprintf(&out, "\n## %s\n", group)
		}
		state := ""
		if m.stale {
			state = ", **stale**"
		}
		fmt.Fprintf(&contents, "- [%s](#%s)%s\n", m.Title, anchor(m.Title), strings.ReplaceAll(state, "*", ""))
		fmt.Fprintf(&out, "\n### %s\n\n%s\n\n%s:\n\n", m.Title, wrap(m.Conclusion), m.made()+state)
		for _, c := range m.Commands {
			fmt.Fprintf(&out, "    %s\n", c)
		}
		if err := m.table(&out, dir); err != nil {
			return "", err
		}
	}
	return pageHead + contents.String() + out.String(), nil
}

// made says when, at which commit and from what a table was made.
func (m *measurement) made() string {
	text := fmt.Sprintf("[%s.csv](measurements/%s.csv), %s", m.Table, m.Table, m.Date)
	if m.Commit != "" {
		text += " at `" + m.Commit + "`"
	}
	return text
}

// table renders a CSV file. Columns of numbers are aligned to the right.
func (m *measurement) table(out *strings.Builder, dir string) error {
	file := filepath.Join(dir, "measurements", m.Table+".csv")
	f, err := os.Open(file)
	if err != nil {
		return fmt.Errorf("%s: %q: %w", index, m.Title, err)
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil || len(rows) < 2 {
		return fmt.Errorf("%s: %d rows, %v: write a header and rows of as many fields", file, len(rows), err)
	}
	for i, name := range rows[0] {
		if name == "" || slices.Contains(rows[0][:i], name) {
			return fmt.Errorf("%s: column %d is called %q: give each column a name of its own, with its unit", file, i+1, name)
		}
	}
	if len(rows) > longest {
		_, err := fmt.Fprintf(out, "\n%d rows, in [%s.csv](measurements/%s.csv).\n", len(rows)-1, m.Table, m.Table)
		return err
	}
	ends := make([]string, len(rows[0]))
	for i := range ends {
		ends[i] = "---:"
		for _, r := range rows[1:] {
			if r[i] != "" && !number.MatchString(r[i]) {
				ends[i] = "---"
			}
		}
	}
	rows = append(rows[:1], append([][]string{ends}, rows[1:]...)...)
	out.WriteByte('\n')
	for _, r := range rows {
		for i, cell := range r {
			r[i] = strings.ReplaceAll(cell, "|", `\|`)
		}
		fmt.Fprintf(out, "| %s |\n", strings.Join(r, " | "))
	}
	return nil
}

var number = regexp.MustCompile(`^-?[0-9.]+(e-?[0-9]+)?$`)

// wrap breaks a paragraph into lines.
func wrap(text string) string {
	var out strings.Builder
	width := 0
	for i, word := range strings.Fields(text) {
		n := utf8.RuneCountInString(word)
		switch {
		case i == 0:
		case width+1+n > columns:
			out.WriteByte('\n')
			width = 0
		default:
			out.WriteByte(' ')
			width++
		}
		out.WriteString(word)
		width += n
	}
	return out.String()
}

// proseWords counts the words of a page without tables and commands.
func proseWords(text string) (n int) {
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "|") && !strings.HasPrefix(line, "    ") {
			n += len(strings.Fields(line))
		}
	}
	return n
}
