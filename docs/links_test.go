package docs_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestLinks_LeadToFilesAndHeadings follows the links of every page to other files of the repository, and to their headings.
func TestLinks_LeadToFilesAndHeadings(t *testing.T) {
	list, err := exec.Command("git", "-C", "..", "ls-files", "--cached", "--others", "--exclude-standard", "*.md").Output()
	if err != nil {
		t.Skip("not a git checkout: pages are not known")
	}
	link := regexp.MustCompile(`\]\(([^)#\s]*)(?:#([^)\s]*))?\)`)
	pages := strings.Fields(string(list))
	require.Greater(t, len(pages), 20)
	for _, page := range pages {
		page = filepath.Join("..", page)
		for _, m := range link.FindAllStringSubmatch(prose(t, page), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			to := page
			if m[1] != "" {
				to = filepath.Join(filepath.Dir(page), m[1])
			}
			if _, err := os.Stat(to); err != nil {
				t.Errorf("%s: %v", page, err)
			} else if m[2] != "" && !slices.Contains(headings(t, to), m[2]) {
				t.Errorf("%s: %s has no heading %s", page, to, m[2])
			}
		}
	}
}

var codeOrFence = regexp.MustCompile("(?ms)^```.*?^```$|`[^`\n]*`")

// prose is a page without code.
func prose(t *testing.T, page string) string {
	raw, err := os.ReadFile(page)
	require.NoError(t, err)
	return codeOrFence.ReplaceAllString(string(raw), "")
}

// headings are the anchors that GitHub gives a page's headings.
func headings(t *testing.T, page string) (out []string) {
	raw, err := os.ReadFile(page)
	require.NoError(t, err)
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(string(raw), -1) {
		out = append(out, anchor(m[1]))
	}
	return out
}

var unnamed = regexp.MustCompile(`[^\p{L}\p{N}\- _]`)

// anchor is the name that GitHub gives a heading.
func anchor(heading string) string {
	return strings.ReplaceAll(unnamed.ReplaceAllString(strings.ToLower(strings.TrimSpace(heading)), ""), " ", "-")
}
