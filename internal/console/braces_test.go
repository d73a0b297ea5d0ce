package console

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestBraces(t *testing.T) {
	for want, names := range map[string][]string{
		"/stem/Conv":                   {"/stem/Conv"},
		"/{narrow,wide}/stem/Conv":     {"/narrow/stem/Conv", "/wide/stem/Conv"},
		"/{a,b}/{x,y}":                 {"/a/x", "/a/y", "/b/x", "/b/y"},
		"/a/x and 1 more":              {"/a/x", "/b/y"},
		"/narrow/Conv and 1 more":      {"/narrow/Conv", "/Conv"},
		"/head/{plan.0,lead.0}/Gemm":   {"/head/plan.0/Gemm", "/head/lead.0/Gemm"},
		"{Conv_3,Conv_17}":             {"Conv_3", "Conv_17"},
		"/narrow/stem/Conv and 2 more": {"/narrow/stem/Conv", "/wide/stem/Conv", "/wide/Conv"},
	} {
		require.Equal(t, want, Braces(names))
	}
}
