//go:build unix

package camera

import (
	"os/exec"
	"syscall"
)

// apart keeps a terminal's signals from a process: an interrupt would end it as if the file were cut off, perhaps before this process knows of the interrupt. The context ends it.
func apart(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
