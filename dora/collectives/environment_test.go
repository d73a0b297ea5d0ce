package collectives

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestPlaces: as launchers say them, by the facts that were seen.
func TestPlaces(t *testing.T) {
	type env = map[string]string
	for name, c := range map[string]struct {
		env  env
		want place
	}{
		"nothing":  {env{}, place{size: 1}},
		"torchrun": {env{"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "MASTER_ADDR": "host", "MASTER_PORT": "1234", "TORCHELASTIC_RUN_ID": "7"}, place{"torchrun", 1, 2, 1, "host:1234", "7"}},
		"torchrun that listens itself": {env{"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "fe80::1", "MASTER_PORT": "1234", "TORCHELASTIC_USE_AGENT_STORE": "True"},
			place{"torchrun", 0, 2, 0, "[fe80::1]:1235", ""}},
		"Open MPI":       {env{"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_RANK": "1", "PMIX_NAMESPACE": "n"}, place{"Open MPI", 3, 4, 1, "", "n"}},
		"MPICH":          {env{"PMI_RANK": "0", "PMI_SIZE": "2", "MPI_LOCALRANKID": "0", "MASTER_ADDR": "a"}, place{"MPICH", 0, 2, 0, "a:29500", ""}},
		"srun":           {env{"SLURM_PROCID": "1", "SLURM_NTASKS": "2", "SLURM_STEP_ID": "0", "SLURM_LOCALID": "0", "SLURM_JOB_ID": "9", "MASTER_ADDR": "n1"}, place{"Slurm", 1, 2, 0, "n1:29500", "9"}},
		"sbatch's shell": {env{"SLURM_PROCID": "0", "SLURM_NTASKS": "2", "SLURM_JOB_ID": "9"}, place{size: 1}},
		"one task":       {env{"SLURM_PROCID": "0", "SLURM_NTASKS": "1", "SLURM_STEP_ID": "0"}, place{size: 1}},
	} {
		got, err := find(context.Background(), func(name string) string { return c.env[name] })
		require.NoError(t, err, name)
		assert.Equal(t, c.want, got, name)
	}
	for want, e := range map[string]env{
		"RANK=x: want a number": {"RANK": "x", "WORLD_SIZE": "2"},
		"RANK=2 with WORLD_SIZE=2: want a rank less than the number of ranks": {"RANK": "2", "WORLD_SIZE": "2"},
		"MASTER_ADDR is not: name the first rank's machine in it":             {"RANK": "1", "WORLD_SIZE": "2"},
		"MASTER_PORT=99999: want a port":                                      {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "a", "MASTER_PORT": "99999"},
	} {
		_, err := find(context.Background(), func(name string) string { return e[name] })
		assert.ErrorContains(t, err, want)
	}
}
