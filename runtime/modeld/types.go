package modeld

import (
	"fmt"
	"math"
	"time"

	"github.com/spark-compile/spark-compile/internal/openpilot/generation"
)

// Picture is a camera's picture as NV12: Height rows of luma with a pitch of Stride bytes, then from UV on
// Height/2 rows of interleaved U and V with the same pitch.
type Picture struct {
	Data          []byte
	Width, Height int // in pixels, both even
	Stride        int // bytes from row to row; 0: Width
	UV            int // offset of the chroma rows; 0: Stride*Height
}

// Frame is what the cameras saw at one time.
type Frame struct {
	Road, Wide Picture // a car with one camera has its picture in both
	ID         uint32  // of the road camera's frame; a gap to the frame before is of missed frames
	// Captured is the end of the exposure; Outputs carry it.
	Captured time.Duration
}

// Inputs are what a driving model wants to know besides the pictures.
type Inputs struct {
	Desire         int  // what the driver wants: Desire…
	RightHandDrive bool // traffic keeps left
	// Calibration is how the device is mounted; nil: not known yet. The model runs all the same, as openpilot's: the
	// matrices are zero, so its pictures are a pixel, and Outputs.Valid is false.
	Calibration *Calibration
	VEgo        float64 // speed, m/s
	// Delays of the actuators, in seconds. Models that take action_t or lateral_control_params read them.
	LateralDelay, LongitudinalDelay float64
}

// finite returns an error if a number is not finite: models that read it would return NaN, and the filters of
// their outputs would keep it.
func (in *Inputs) finite() error {
	for _, q := range []struct {
		name, unit string
		value      float64
	}{{"VEgo", "m/s", in.VEgo}, {"LateralDelay", "s", in.LateralDelay}, {"LongitudinalDelay", "s", in.LongitudinalDelay}} {
		if math.IsNaN(q.value) || math.IsInf(q.value, 0) {
			return fmt.Errorf("%s is %v: want a finite number (%s)", q.name, q.value, q.unit)
		}
	}
	return nil
}

// Desires, as openpilot counts them.
const (
	DesireNone = iota
	DesireTurnLeft
	DesireTurnRight
	DesireLaneChangeLeft
	DesireLaneChangeRight
	DesireKeepLeft
	DesireKeepRight
)

// Calibration is how the device is mounted in the car.
type Calibration struct {
	// RPY are roll, pitch and yaw of the device against the car, in radians (liveCalibration.rpyCalib). openpilot warps both cameras'
	// pictures by them: it does not use wideFromDeviceEuler for that.
	RPY  [3]float64
	Road Intrinsics
	// WideCamera are the wide camera's; where there is only one camera, those of that.
	WideCamera Intrinsics
}

// Intrinsics of a camera without distortion, in pixels.
type Intrinsics struct {
	Focal         float64
	Width, Height int
}

// Points of a path or line.
const Points = generation.Points

// TIndex are the times of a path's points, in seconds from now (T_IDXS).
func TIndex() [Points]float64 { return squares(10) }

// XIndex are the forward distances of a line's points, in metres (X_IDXS).
func XIndex() [Points]float64 { return squares(192) }

// squares grow from 0 to the last.
func squares(last float64) (x [Points]float64) {
	for i := range x {
		x[i] = last * float64(i*i) / ((Points - 1) * (Points - 1))
	}
	return x
}

// Outputs are what a driving model says of a frame. What the model does not have is nil.
type Outputs struct {
	FrameID  uint32
	Captured time.Duration
	// Missed is how many frames were missed before this one. Where it is not 0 openpilot only moves the pictures on, depending on the
	// release: then the model was not run, Ran is false, and everything below is nil.
	Missed    int
	Ran       bool
	Valid     bool    // the calibration was known
	DropRatio float64 // of missed frames, filtered over 10 s, in 0 to 1

	Plan                *Plan
	LaneLines           []Line // far left, left, right, far right
	RoadEdges           []Line // left, right
	Leads               []Lead // for 0, 2 and 4 s from now
	Meta                *Meta
	Pose                *Pose
	WideFromDevice      *Euler
	RoadTransform       *Pose
	DesireState         []float64   // probabilities, by desire
	DesirePrediction    [][]float64 // of 4 times, the same
	DesiredCurvature    *Number     // 1/m
	Action              []float64   // of models that have it, as it is
	HiddenState         []float64
	HardBrakePredicted  bool
	Confidence          Confidence
	AccelerationCommand float64 // m/s², from the plan or the model's action
	CurvatureCommand    float64 // 1/m, likewise
	ShouldStop          bool

	Raw   map[string][]float64 // the program's outputs, by name
	Stats Stats
}

// Number is an estimate and its standard deviation.
type Number struct{ Value, Std float64 }

// Plan is where the car goes, at the times of TIndex. In each row are x forward, y right and z down, or roll, pitch and yaw.
type Plan struct {
	Position, Velocity, Acceleration, Orientation, OrientationRate                [Points][3]float64
	PositionStd, VelocityStd, AccelerationStd, OrientationStd, OrientationRateStd [Points][3]float64

	Probability float64 // of this hypothesis; 1 of models that have one
	// Others are the other hypotheses, by falling probability.
	Others []Plan
}

// Line is a lane line or road edge at the distances of XIndex: y to the right and z down, in metres.
type Line struct {
	Y, Z, YStd, ZStd [Points]float64
	Probability      float64 // that it is there; NaN of models that do not say, 1 of road edges, for which none does
}

// LeadPoints are the times of a Lead: 0, 2 … 10 s from now.
const LeadPoints = generation.LeadPoints

// Lead is the leading car.
type Lead struct {
	Offset                 float64             // s from now, of which it is the lead
	X, Y, V, A             [LeadPoints]float64 // m, m, m/s, m/s²
	XStd, YStd, VStd, AStd [LeadPoints]float64
	Probability            float64 // that there is one; NaN of models that do not say
	Hypothesis             int     // of those that the model has; 0 if it has one
	HypothesisProbability  float64
}

// Meta are probabilities of what driver and car do next.
type Meta struct {
	Engaged float64
	// Of the 5 times 2, 4 … 10 s: that the driver takes over by gas, brake or steering, and that the car brakes harder than 3, 4 or 5 m/s².
	GasDisengage, BrakeDisengage, SteerDisengage, Brake3, Brake4, Brake5 [5]float64
	// Of 6 times 0, 2 … 10 s: that a pedal is pressed, or a blinker on. Models of 48 values have GasPress of 2, 4 … 10 s only, and no
	// BrakePress.
	GasPress, BrakePress, LeftBlinker, RightBlinker []float64
}

// Pose is a motion: of the camera between frames (m and rad a frame), or of the road's plane against it.
type Pose struct{ Translation, Rotation, TranslationStd, RotationStd [3]float64 }

// Euler is a rotation in radians and its standard deviations.
type Euler struct{ Angles, Std [3]float64 }

// Confidence in the plan, as openpilot shows it.
type Confidence int

// Confidences.
const (
	Red Confidence = iota
	Yellow
	Green
)

// Stats is how long the stages of a step took on the host's clock.
type Stats struct {
	Prepare time.Duration // matrices, pulses, and the copy of pictures to the inputs
	Run     time.Duration // on the device; where memory is not shared, with the transfer of inputs and outputs
	Parse   time.Duration
	InPlace int // pictures that the device read in the caller's memory; the others were copied
}

// DriverFrame is what the driver camera saw.
type DriverFrame struct {
	Picture  Picture
	ID       uint32
	Captured time.Duration
}

// MonitoringInputs are what a driver-monitoring model wants to know besides the picture.
type MonitoringInputs struct {
	RPY            [3]float64 // of the device, in radians
	RightHandDrive bool       // of models that see one seat only: the driver sits on the right
	Camera         Intrinsics
}

// MonitoringOutputs are what a driver-monitoring model says.
type MonitoringOutputs struct {
	FrameID      uint32
	Captured     time.Duration
	Left, Right  *Driver // in the left and right seat; of models that see one seat, the other is nil
	WheelOnRight float64 // probability; NaN of models that do not say
	Raw          map[string][]float64
	Stats        Stats
}

// Driver is what is seen of a person in a seat.
type Driver struct {
	Orientation, OrientationStd       [3]float64 // pitch, yaw, roll as the network has them, before calibration
	Position, PositionStd             [2]float64
	Size, SizeStd                     float64 // NaN of models that do not say
	Face, LeftEye, RightEye           float64 // probabilities that they are visible
	LeftBlink, RightBlink, Sunglasses float64
	Phone, Occluded                   float64   // NaN of models that do not say
	Ready, NotReady                   []float64 // probabilities; nil of models that do not say
}
