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

Each table is a CSV file in [measurements](measurements/). Its entry in the
[index](measurements/index.json) has the command that makes it:

    grep -A9 '"Batches"' docs/measurements/index.json

Nothing was measured on a GPU: times for GB10 are predictions of the cost model, and the rest was
measured on CPUs. CPUs differ, so compare figures within a table, not between tables. *Stale* marks
a table whose programs or packages have changed since.
` + "`make measurements` writes these pages and lists stale tables.\n"

// pages renders measurements.md and the page of each group, by their names in dir.
func pages(dir string, all []*measurement) (map[string]string, error) {
	var contents strings.Builder
	out := map[string]string{}
	group, name := "", ""
	for _, m := range all {
		if m.Group != group {
			group, name = m.Group, "measurements/"+anchor(m.Group)+".md"
			if out[name] != "" {
				return nil, fmt.Errorf("%s: entries of %q are not together: move them", index, group)
			}
			fmt.Fprintf(&contents, "- [%s](%s)\n", group, name)
			out[name] = fmt.Sprintf("<!-- Written by make measurements. -->\n\n# %s\n\nCommands: [index.json](index.json).\n", group)
		}
		state := ""
		if m.stale {
			state = ", **stale**"
		}
		rows, err := m.table(dir)
		if err != nil {
			return nil, err
		}
		out[name] += fmt.Sprintf("\n## %s\n\n%s\n%s\n%s\n", m.Title, wrap(m.Conclusion), rows, m.made()+state)
	}
	out["measurements.md"] = pageHead + "\n" + contents.String()
	return out, nil
}

// made says when, at which commit and from what a table was made.
func (m *measurement) made() string {
	text := fmt.Sprintf("[%s.csv](%s.csv), %s", m.Table, m.Table, m.Date)
	if m.Commit != "" {
		text += " at `" + m.Commit + "`"
	}
	return text
}

// table reads a CSV file and renders the rows and columns that the entry shows.
func (m *measurement) table(dir string) (string, error) {
	file := filepath.Join(dir, "measurements", m.Table+".csv")
	f, err := os.Open(file)
	if err != nil {
		return "", fmt.Errorf("%s: %q: %w", index, m.Title, err)
	}
	defer f.Close()
	all, err := csv.NewReader(f).ReadAll()
	if err != nil || len(all) < 2 {
		return "", fmt.Errorf("%s: %d rows, %v: write a header and rows of as many fields", file, len(all), err)
	}
	for i, name := range all[0] {
		if name == "" || slices.Contains(all[0][:i], name) {
			return "", fmt.Errorf("%s: column %d is called %q: give each column a name of its own, with its unit", file, i+1, name)
		}
	}
	if len(m.Columns) == 0 {
		return "", nil
	}
	var at []int
	for _, name := range m.Columns {
		i := slices.Index(all[0], name)
		if i < 0 {
			return "", fmt.Errorf("%s: %q shows the column %q, which %s does not have", index, m.Title, name, file)
		}
		at = append(at, i)
	}
	rows := all[1:]
	if m.Rows != "" {
		shown, err := regexp.Compile(m.Rows)
		if err != nil {
			return "", fmt.Errorf("%s: %q: rows: %w", index, m.Title, err)
		}
		rows = slices.DeleteFunc(rows, func(r []string) bool { return !shown.MatchString(strings.Join(r, ",")) })
	}
	if len(rows) == 0 || len(rows) > longest {
		return "", fmt.Errorf("%s: %q shows %d rows of %s: select 1 to %d", index, m.Title, len(rows), file, longest)
	}
	return markdown(all[0], rows, at), nil
}

const longest = 16 // rows of a page's table

// markdown renders columns of a table. Those of numbers are aligned to the right.
func markdown(head []string, rows [][]string, at []int) string {
	ends := make([]string, len(head))
	for i := range ends {
		ends[i] = "---:"
		for _, r := range rows {
			if r[i] != "" && !number.MatchString(r[i]) {
				ends[i] = "---"
			}
		}
	}
	var out strings.Builder
	for _, r := range slices.Insert(rows, 0, head, ends) {
		out.WriteString("\n|")
		for _, i := range at {
			fmt.Fprintf(&out, " %s |", strings.ReplaceAll(r[i], "|", `\|`))
		}
	}
	return "\n" + strings.TrimPrefix(out.String(), "\n") + "\n"
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
