//go:build unix

package toolchain

import (
	"os/exec"
	"syscall"
)

// OwnProcessGroup keeps a terminal's signals from a program that is about to be run. Interrupted together with this process, it would end before this one
// knows why, as if it had failed; its context, or who started it, ends it.
func OwnProcessGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
