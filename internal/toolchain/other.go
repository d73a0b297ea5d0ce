//go:build !unix

package toolchain

import "os/exec"

// OwnProcessGroup does nothing here.
func OwnProcessGroup(*exec.Cmd) {}
