package sim

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spark-compile/spark-compile/bench/scenario"
	"github.com/spark-compile/spark-compile/dora/route"
	"github.com/spark-compile/spark-compile/internal/cli"
)

// isLog reports whether a file of a trace is to be an openpilot log.
func isLog(path string) bool {
	base := filepath.Base(path)
	return strings.HasSuffix(base, "rlog") && filepath.Ext(base) == "" || strings.HasSuffix(base, "rlog.zst")
}

// openpilot's state of engagement (SelfdriveState.OpenpilotState).
const (
	stateEnabled    = 2
	stateOverriding = 4
)

// writeLog writes a trace as openpilot logs a drive, an event of each kind at each step. As openpilot has it, angles
// of the steering wheel and yaw rates of CarState are positive to the left, curvatures and the device's frame to the
// right.
func writeLog(path string, trace *scenario.Trace) error {
	w, err := route.Create(path)
	if err != nil {
		return err
	}
	l := &logWriter{Trace: trace, w: w}
	l.write(route.KindInitData, 0, route.InitData{DeviceType: route.PC, Version: "spark-sim " + cli.Version()})
	l.write(route.KindSentinel, 0, route.Sentinel{Type: route.StartOfRoute})
	s := trace.Scenario
	l.write(route.KindCarParams, 0, route.CarParams{
		Brand: "mock", CarFingerprint: "spark-sim", OpenpilotLongitudinalControl: true, Mass: float32(s.Get("mass")),
		Wheelbase: float32(s.Get("wheelbase")), SteerRatio: float32(s.Get("steer_ratio")),
		SteerActuatorDelay: float32(s.Get("steer_delay")), LongitudinalActuatorDelay: float32(s.Get("accel_delay")),
	})
	l.write(route.KindLiveCalibration, 0, route.LiveCalibration{
		CalPerc: 100, CalStatus: route.Calibrated, RPYCalib: make([]float32, 3),
		WideFromDeviceEuler: make([]float32, 3),
	})
	for k := range trace.Rows {
		l.step(k)
	}
	l.write(route.KindSentinel, len(trace.Rows)-1, route.Sentinel{Type: route.EndOfRoute})
	if l.err != nil {
		return l.err
	}
	return w.Close()
}

// logWriter writes the events of a trace.
type logWriter struct {
	*scenario.Trace
	w   *route.Writer
	yaw float64 // rad, left positive: of the road, where there is one, from that at the start
	err error
}

// boot is when the trace begins, on the device's clock.
const boot = 1_000_000_000 // ns

// time is when a row was, in ns since boot.
func (l *logWriter) time(k int) uint64 {
	return boot + uint64(math.Round(float64(l.at(k, "time")*1e9)))
}

// at is a value of a row; 0: the tier has none.
func (l *logWriter) at(k int, column string) float64 {
	if i := l.Column(column); i >= 0 {
		return l.Rows[k][i]
	}
	return 0
}

func (l *logWriter) write(kind route.Kind, k int, message any) {
	err := l.w.Write(route.Event{Time: l.time(k), Kind: kind, Valid: true}, message)
	l.err = errors.Join(l.err, err)
}

// step writes the events of a row.
func (l *logWriter) step(k int) {
	s, at := l.Trace.Scenario, func(column string) float64 { return l.at(k, column) }
	turning := at("yaw_rate")
	rate := 0.0 // of the steering
	if k > 0 {
		rate = (at("steer") - l.at(k-1, "steer")) / scenario.Step
		l.yaw += l.turned(k)
	}
	since := at("time") - s.Get("takeover_start")
	driver := l.Column("offset") >= 0 && since >= 0 && since < s.Get("takeover_length")
	wheel := float64(s.Get("steer_ratio") * 180 / math.Pi)
	cruise := at("ask_speed")
	if l.Column("ask_speed") < 0 {
		cruise = s.Get("cruise")
	}
	speed := float32(at("speed"))
	l.write(route.KindCarState, k, route.CarState{
		VEgo: speed, VEgoRaw: speed, AEgo: float32(at("accel")), YawRate: float32(turning), Standstill: speed < 0.01,
		SteeringAngleDeg: float32(at("steer") * wheel), SteeringRateDeg: float32(rate * wheel), SteeringPressed: driver,
		GearShifter: route.Drive, CANValid: true, CruiseState: route.CruiseState{Enabled: true, Speed: float32(cruise)},
	})
	curvature := float32(-turning / math.Max(at("speed"), 1))
	wanted := float32(-at("command"))
	l.write(route.KindCarControl, k, route.CarControl{
		Enabled: true, LatActive: !driver, LongActive: true, CurrentCurvature: curvature,
		Actuators: route.Actuators{Curvature: wanted, Accel: float32(at("accel_command"))},
	})
	l.write(route.KindControlsState, k, route.ControlsState{Curvature: curvature, DesiredCurvature: wanted})
	state := uint16(stateEnabled)
	if driver {
		state = stateOverriding
	}
	l.write(route.KindSelfdriveState, k, route.SelfdriveState{State: state, Enabled: true, Active: true,
		Engageable: true})
	measured := func(x, y, z float64) route.XYZ {
		return route.XYZ{X: float32(x), Y: float32(y), Z: float32(z), Valid: true}
	}
	l.write(route.KindLivePose, k, route.LivePose{
		OrientationNED: measured(0, 0, -(l.yaw + at("heading"))), VelocityDevice: measured(at("speed"), 0, 0),
		AccelerationDevice: measured(at("accel"), -at("lateral"), 0), AngularVelocityDevice: measured(0, 0, -turning),
		InputsOK: true, PosenetOK: true, SensorsOK: true, Timestamp: l.time(k),
	})
	if l.Column("model_curvature") >= 0 {
		l.write(route.KindDrivingModelData, k, route.DrivingModelData{FrameID: uint32(k), FrameIDExtra: uint32(k),
			Action: route.Action{DesiredCurvature: float32(-at("model_curvature")),
				DesiredAcceleration: float32(at("model_accel"))}})
	}
	if l.Column("offset") >= 0 {
		l.write(route.KindRadarState, k, l.leads(k))
	}
}

// turned is how far the road has turned in the step before a row, or the car where there is no road; in rad.
func (l *logWriter) turned(k int) float64 {
	if l.Column("road") < 0 {
		return float64(scenario.Step / 2 * (l.at(k, "yaw_rate") + l.at(k-1, "yaw_rate")))
	}
	return float64((l.at(k, "road") + l.at(k-1, "road")) / 2 * (l.at(k, "station") - l.at(k-1, "station")))
}

// leads are the leading cars whose path is less than half a lane from the ego car's, nearest first.
func (l *logWriter) leads(k int) (r route.RadarState) {
	var leading []route.LeadData
	for car := range scenario.Cars {
		gap, speed := l.at(k, fmt.Sprintf("gap%d", car)), l.at(k, fmt.Sprintf("car_speed%d", car))
		side := l.at(k, fmt.Sprintf("lateral%d", car)) - l.at(k, "offset")
		present := l.Trace.Scenario.Get(fmt.Sprintf("car%d_present", car)) > 0.5
		if !present || gap <= 0 || math.Abs(side) > l.Trace.Scenario.Get("lane_width")/2 {
			continue
		}
		leading = append(leading, route.LeadData{DRel: float32(gap), YRel: float32(side),
			VRel:  float32(speed - l.at(k, "speed")),
			VLead: float32(speed), VLeadK: float32(speed), Status: true, ModelProb: 1})
	}
	slices.SortFunc(leading, func(a, b route.LeadData) int { return cmp.Compare(a.DRel, b.DRel) })
	for i, to := range []*route.LeadData{&r.LeadOne, &r.LeadTwo} {
		if i < len(leading) {
			*to = leading[i]
		}
	}
	return r
}
