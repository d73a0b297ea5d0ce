//go:build (!linux || (!amd64 && !arm64)) && !nodriver

package dlopen

import "runtime"

const reason = "shared libraries are not opened on " + runtime.GOOS + "/" + runtime.GOARCH
