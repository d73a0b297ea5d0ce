package browser

import (
	"flag"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var width, height = flag.Int64("width", 1280, "of pictures, in pixels"), flag.Int64("height", 1300, "of pictures at most")

// TestPictures takes the pictures that arguments PAGE.html=PICTURE.png ask for (make pictures).
func TestPictures(t *testing.T) {
	if flag.NArg() == 0 {
		t.Skip("no pictures asked for")
	}
	for _, pair := range flag.Args() {
		page, picture, ok := strings.Cut(pair, "=")
		require.True(t, ok, pair)
		path, err := filepath.Abs(page)
		require.NoError(t, err)
		Open(t, "file://"+path, *width, *height).Picture(picture, *width, *height)
	}
}
