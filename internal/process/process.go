//go:build unix

// Package process is what other programs that are run have in common.
package process

import (
	"os/exec"
	"syscall"
)

// Apart keeps a terminal's signals from a program that is about to be run. Interrupted together with this process, it would end before this one
// knows why, as if it had failed; its context, or who started it, ends it.
func Apart(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
