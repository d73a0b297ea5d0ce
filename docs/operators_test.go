package docs_test

import (
	"os"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/frontend/onnx"
)

// TestOperatorsOfMicrosoftAreListed holds the list in operators.md against the import table.
func TestOperatorsOfMicrosoftAreListed(t *testing.T) {
	page, err := os.ReadFile("operators.md")
	require.NoError(t, err)
	list := regexp.MustCompile(`(?s)kernels do it:\n\n(.*?)\.\n`).FindSubmatch(page)
	require.NotNil(t, list)
	require.ElementsMatch(t, onnx.Operators("com.microsoft", 0), regexp.MustCompile(`\w+`).FindAllString(string(list[1]), -1))
}
