package dlopen

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOpen_CallsFunctionsOfLibraries(t *testing.T) {
	if !Supported {
		_, err := Open("libc.so.6")
		require.ErrorIs(t, err, ErrUnsupported)
		require.NotEmpty(t, err.Error())
		_, err = OpenGlobal("libc.so.6")
		require.ErrorIs(t, err, ErrUnsupported)
		return
	}
	for _, open := range []func(string) (Library, error){Open, OpenGlobal} {
		lib, err := open("libc.so.6")
		require.NoError(t, err)
		toupper, err := lib.Symbol("toupper")
		require.NoError(t, err)
		require.Equal(t, uintptr('Q'), Call(toupper, 'q'))
		_, err = lib.Symbol("no_such_function")
		require.ErrorContains(t, err, "no_such_function")
		_, err = open("libnone.so")
		require.ErrorContains(t, err, "libnone.so")
	}
}
