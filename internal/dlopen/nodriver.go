//go:build nodriver

package dlopen

const reason = "this program was built without the NVIDIA driver (-tags nodriver); the build for glibc has it"
