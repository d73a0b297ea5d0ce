package collectives

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
)

// place is where a process stands in its job.
type place struct {
	launcher   string // torchrun, Open MPI, MPICH or Slurm; "": none
	rank, size int
	local      int    // rank among those of this machine
	address    string // host:port of the first rank; "": the launcher does not say
	job        string // name of the job, which tells its ranks from those of others
}

// Variables of launchers. torchrun's come first: others may stand in the environment that it was started from.
var launchers = []struct {
	name, rank, size, local, job string
}{
	{"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "TORCHELASTIC_RUN_ID"},
	{"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "PMIX_NAMESPACE"},
	{"MPICH", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", ""},
	{"Slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_JOB_ID"},
}

// defaultPort is torch's.
const defaultPort = 29500

// find reads the environment. Slurm's variables also stand in the shell of a batch script, where there are tasks but no job step: a rank counts only
// if there are several.
func find(ctx context.Context, getenv func(string) string) (place, error) {
	for _, l := range launchers {
		if getenv(l.rank) == "" || getenv(l.size) == "" {
			continue
		}
		if l.name == "Slurm" && (getenv("SLURM_NTASKS") == "1" || getenv("SLURM_STEP_ID") == "") {
			continue
		}
		p := place{launcher: l.name}
		if l.job != "" {
			p.job = getenv(l.job)
		}
		for name, into := range map[string]*int{l.rank: &p.rank, l.size: &p.size, l.local: &p.local} {
			text := getenv(name)
			if name == l.local && text == "" {
				continue
			}
			n, err := strconv.Atoi(text)
			if err != nil || n < 0 {
				return p, fmt.Errorf("%s=%s: want a number: %s sets it", name, text, l.name)
			}
			*into = n
		}
		if p.size < 1 || p.rank >= p.size {
			return p, fmt.Errorf("%s=%d with %s=%d: want a rank less than the number of ranks", l.rank, p.rank, l.size, p.size)
		}
		return p, p.meet(ctx, getenv)
	}
	return place{size: 1}, nil
}

// meet finds where the first rank listens.
func (p *place) meet(ctx context.Context, getenv func(string) string) error {
	host, port := getenv("MASTER_ADDR"), getenv("MASTER_PORT")
	if host == "" && p.launcher == "Slurm" && p.size > 1 {
		nodes := getenv("SLURM_JOB_NODELIST")
		out, err := exec.CommandContext(ctx, "scontrol", "show", "hostnames", nodes).Output()
		if err != nil {
			return fmt.Errorf("scontrol show hostnames %s: %w: set MASTER_ADDR to the first node's name", nodes, err)
		}
		host, _, _ = strings.Cut(string(out), "\n")
	}
	if host == "" {
		if p.launcher == "torchrun" && p.size > 1 {
			return errors.New("RANK and WORLD_SIZE are set, MASTER_ADDR is not: name the first rank's machine in it, as torchrun does, or unset RANK")
		}
		return nil
	}
	number := defaultPort
	if port != "" {
		n, err := strconv.Atoi(port)
		if err != nil || n < 1 || n > 65535 {
			return fmt.Errorf("MASTER_PORT=%s: want a port from 1 to 65535", port)
		}
		number = n
	}
	if strings.EqualFold(getenv("TORCHELASTIC_USE_AGENT_STORE"), "true") {
		number++ // torchrun itself listens at MASTER_PORT
	}
	p.address = fmt.Sprintf("%s:%d", host, number)
	if strings.Contains(host, ":") { // IPv6
		p.address = fmt.Sprintf("[%s]:%d", host, number)
	}
	return nil
}
