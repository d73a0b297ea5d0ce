package backendtest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/spark-compile/spark-compile/internal/toolchain"
)

// ErrNoPython says that there is no onnx package, which generates the cases.
var ErrNoPython = errors.New("no Python with the onnx package: set SPARK_PYTHON, or run make tools")

// Written runs testdata/nodecases.py of the repository at root, which writes the onnx package's cases (kind "nodecases") or
// light models ("light"). It returns their folder, in $SPARK_CACHE or the user's cache.
func Written(root, kind string) (string, error) {
	interpreter, err := toolchain.FindPython()
	if err != nil || exec.Command(interpreter, "-c", "import onnx").Run() != nil {
		return "", ErrNoPython
	}
	cache := os.Getenv("SPARK_CACHE")
	if cache == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return "", err
		}
		cache = filepath.Join(user, "spark-compile")
	}
	dir := filepath.Join(cache, kind)
	args := []string{filepath.Join(root, "testdata", "nodecases.py")}
	if kind == "light" {
		args = append(args, "--light")
	}
	if out, err := exec.Command(interpreter, append(args, dir)...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("writing %s: %w\n%s", kind, err, out)
	}
	return dir, nil
}

// LightModels are the onnx package's light models, starting with the two that run quickly.
func LightModels() []string {
	return []string{"light_squeezenet", "light_shufflenet", "light_bvlc_alexnet", "light_densenet121", "light_inception_v1", "light_inception_v2",
		"light_resnet50", "light_vgg19", "light_zfnet512"}
}
