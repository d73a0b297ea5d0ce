package memory

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestBudget_Text(t *testing.T) {
	for text, want := range map[string]Budget{"8GiB": 8 << 30, "0.5 MiB": 1 << 19, "1e3": 1000, "7": 7} {
		var b Budget
		require.NoError(t, b.UnmarshalText([]byte(text)))
		require.Equal(t, want, b)
	}
	for _, text := range []string{"", "GiB", "-1", "0", "1e40", "8GB", "NaN"} {
		require.Error(t, new(Budget).UnmarshalText([]byte(text)), text)
	}
	require.Equal(t, "1.5 GiB", Budget(3<<29).String())
	require.Equal(t, "12 bytes", Budget(12).String())
}

func TestBudget_OfAContext(t *testing.T) {
	require.Equal(t, Budget(5), Of(With(t.Context(), 5)))
	require.Equal(t, Default(), Of(t.Context()))
	require.Greater(t, Default(), Budget(64<<20))
	require.NoError(t, Budget(5).Check(5, "it"))
	require.EqualError(t, Budget(5).Check(6, "it"), "it needs 6 bytes of memory, more than the 5 bytes that it may take (--memory)")
}
