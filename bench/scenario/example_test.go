package scenario_test

import (
	"context"
	"fmt"
	"log"

	"github.com/spark-compile/spark-compile/bench/scenario"
	"github.com/spark-compile/spark-compile/hal/emu"
)

// openpilot's longitudinal maneuvers, of a vehicle whose delay and lag are drawn, on the CPU device.
func ExampleRunner_controls() {
	device, err := emu.Open(emu.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer device.Close()
	var list []scenario.Scenario
	for i := range scenario.ControlFamilies {
		s, err := scenario.ControlFamilies[i].Draw(1, 0)
		if err != nil {
			log.Fatal(err)
		}
		list = append(list, s)
	}
	r := scenario.Runner{Device: device, Tier: scenario.Controls}
	result, err := r.RunBatch(context.Background(), list, scenario.Asked, 1, 1)
	if err != nil {
		log.Fatal(err)
	}
	for i, s := range list {
		for k, m := range result.Tier.Metrics() {
			if m.Name == "accel_error" {
				fmt.Printf("%s: %.2f %s\n", s.Name, result.Metrics[i][k], m.Unit)
			}
		}
	}
	// Output:
	// come-to-stop: 0.08 m/s²
	// start-from-stop: 0.55 m/s²
	// creep: 0.64 m/s²
	// brake-1: 0.29 m/s²
	// brake-4: 1.38 m/s²
	// gas-1: 0.28 m/s²
	// gas-4: 1.41 m/s²
	// steer: 0.00 m/s²
}
