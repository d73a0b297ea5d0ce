package detect

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/internal/dlopen"
)

// TestExplain_ProgramWithoutDriver: installing a driver would not help.
func TestExplain_ProgramWithoutDriver(t *testing.T) {
	const remedy = "install the NVIDIA driver"
	require.ErrorContains(t, Explain(hal.ErrNoDriver), remedy)
	err := fmt.Errorf("%w: %w", hal.ErrNoDriver, dlopen.ErrUnsupported)
	require.Equal(t, err, Explain(err))
	require.True(t, deviceFault(err))
}
