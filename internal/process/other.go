//go:build !unix

// Package process is what other programs that are run have in common.
package process

import "os/exec"

// Apart does nothing here.
func Apart(*exec.Cmd) {}
