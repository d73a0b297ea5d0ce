package generation

import "github.com/spark-compile/spark-compile/runtime"

// Names of inputs and slices of driving models, whatever the generation.
const (
	Features       = "features_buffer" // history of HiddenState
	HiddenState    = "hidden_state"
	PrevCurvatures = "prev_desired_curv" // history of Curvature
	Curvature      = "desired_curvature"
	Action         = "action"
	Plan           = "plan"
	Padding        = "pad"
)

// Names of inputs of driver-monitoring models.
const (
	DriverPicture = "input_img"
	Calibration   = "calib" // roll, pitch and yaw of the device, in radians
)

// Sizes of openpilot's outputs and histories (ModelConstants).
const (
	Points      = 33 // of a path or line
	PlanColumns = 15
	LeadTimes   = 3 // of which there is a lead each
	LeadPoints  = 6
	LeadColumns = 4 // x, y, velocity, acceleration
	LaneLines   = 4
	RoadEdges   = 2
	Desires     = 8

	// Group is how many steps of 20 Hz a step of histories at 5 Hz has. A history at the full rate has fullRows
	// rows at least: one at 5 Hz has 25 for the same time.
	Group    = 4
	fullRows = 50
)

var (
	openCL   = Pictures{"input_imgs", "big_input_imgs", runtime.Linear} // up to 0.10.0, sampled by OpenCL
	pictures = Pictures{"img", "big_img", runtime.Nearest}
	warped   = Pictures{"warped", "warped", runtime.Nearest} // the graph keeps the pictures
)

// Vectors that models are told.
var (
	convention = Vector{"traffic_convention", []Term{{Signal: LeftHandDrive}, {Signal: RightHandDrive}}}
	lateral    = Vector{"lateral_control_params", []Term{{Signal: ForwardSpeed}, {Signal: LateralDelay}}}
	// lagged adds the lag that modeld assumed for the actuator.
	lagged = Vector{lateral.Name, []Term{{Signal: Speed}, {LateralDelay, .2}}}
	// actionTimes add a frame and a half: the model's own time, and half of what is between two commands.
	actionTimes = Vector{"action_t", []Term{{LateralDelay, 1.5 * FramePeriod}, {LongitudinalDelay, 1.5 * FramePeriod}}}
)

// Slices of driving models: what all have, then the forms that differ.
var (
	common = []Slice{
		{Name: "lane_lines", Kind: Distribution, Shape: []int{LaneLines, Points, 2}},
		{Name: "lane_lines_prob", Kind: Sigmoids, Shape: []int{2 * LaneLines}},
		{Name: "road_edges", Kind: Distribution, Shape: []int{RoadEdges, Points, 2}},
		{Name: "lead_prob", Kind: Sigmoids, Shape: []int{LeadTimes}},
		{Name: "pose", Kind: Distribution, Shape: []int{6}},
		{Name: "road_transform", Kind: Distribution, Shape: []int{6}},
		{Name: "sim_pose", Kind: Distribution, Shape: []int{6}},
		{Name: "wide_from_device_euler", Kind: Distribution, Shape: []int{3}},
		{Name: "desire_state", Kind: Softmax, Shape: []int{Desires}},
		{Name: "desire_pred", Kind: Softmax, Shape: []int{4, Desires}},
		{Name: Curvature, Kind: Distribution, Shape: []int{1}},
		{Name: HiddenState},
	}
	plans = Slice{Name: Plan, Kind: Distribution, Shape: []int{Points, PlanColumns}, Hypotheses: 5, Weights: 1}
	plan  = Slice{Name: Plan, Kind: Distribution, Shape: []int{Points, PlanColumns}}
	leads = Slice{Name: "lead", Kind: Distribution, Shape: []int{LeadPoints, LeadColumns},
		Hypotheses: 2, Weights: LeadTimes}
	lead     = Slice{Name: "lead", Kind: Distribution, Shape: []int{LeadTimes, LeadPoints, LeadColumns}}
	metaOld  = Slice{Name: "meta", Kind: Sigmoids, Shape: []int{48}} // before the brake pedal was predicted
	metaNew  = Slice{Name: "meta", Kind: Sigmoids, Shape: []int{55}}
	commands = Slice{Name: Action, Shape: []int{2}}
)

// metas are the layouts of meta: engaged, then five times of six events and one more of the older one, then pedals
// and blinkers.
var metas = []Meta{
	{Len: 55, Stride: 6, GasPress: Series{31, 4, 6}, BrakePress: Series{32, 4, 6},
		Left: Series{33, 4, 6}, Right: Series{34, 4, 6}},
	{Len: 48, Stride: 7, GasPress: Series{7, 7, 5}, Left: Series{36, 2, 6}, Right: Series{37, 2, 6}},
}

// curvatures are the commands of 0.9.9 and 0.10.0. They smooth nothing, so that only the frame's own time adds to
// the delays: that follows from how later releases add them up. Those of 0.9.x were not seen and are taken to be
// the same.
var curvatures = Commands{Lateral: FramePeriod, Longitudinal: FramePeriod, Curvature: true}

// rows are the generations. Of takes the first driving one with a fitting mark.
var rows = []Row{
	{
		Name: "old", Releases: "0.9.x: vision and policy in one file", Kind: Driving,
		Marks:    []Mark{{FullRate: true}, {Input: openCL.Road, OneFile: true}},
		Pictures: []Pictures{openCL}, Desires: []string{"desire"}, Told: []Vector{convention, lagged},
		Missed: MissedMovesDesires, Slices: with(plans, leads, metaOld, metaNew), Commands: curvatures,
		Unclipped: true, Probabilities: true,
	},
	{
		Name: "action", Releases: "mid 2026: one file again, with an action", Kind: Driving,
		Marks:    []Mark{{Slice: Action}, {Input: actionTimes.Name}},
		Pictures: []Pictures{pictures, warped}, Desires: []string{"desire_pulse", "desire"},
		Told:   []Vector{convention, lateral, actionTimes},
		Missed: MissedSkips, Slices: with(plan, lead, metaNew, commands),
		Commands: Commands{Lateral: 1.5 * FramePeriod, Longitudinal: .3 + 1.5*FramePeriod,
			LongitudinalTau: .3, Stable: .3, Slow: true},
	},
	{
		Name: "curvature", Releases: "0.9.9 and 0.10.0: vision and policy; commands desired_curvature", Kind: Driving,
		Marks:    []Mark{{Slice: Curvature}},
		Pictures: []Pictures{openCL, pictures}, Desires: []string{"desire"}, Told: []Vector{convention, lateral},
		Missed: MissedMovesDesires, Slices: with(plans, leads, metaNew), Commands: curvatures,
	},
	{
		Name: "plan", Releases: "0.10.2 and 0.10.3: commands follow from the plan", Kind: Driving,
		Marks:    []Mark{{}},
		Pictures: []Pictures{pictures}, Desires: []string{"desire_pulse"}, Told: []Vector{convention, lateral},
		Missed: MissedSkips, Slices: with(plan, lead, metaNew),
		// It smooths: the time that this takes is added to the delays.
		Commands: Commands{Lateral: .1 + FramePeriod, Longitudinal: .3 + FramePeriod,
			LateralTau: .1, LongitudinalTau: .3},
	},
	{
		Name: "luma", Releases: "driver monitoring since 2022: both seats, luma alone", Kind: Monitoring,
		// What lies outside is black in limited range.
		Face:   &Face{Aspect: [2]int{3, 2}, Sampling: runtime.Nearest, Fill: 16},
		Slices: seats("lhd", "rhd"),
		Seat: &Seat{Len: 41, Seats: 2, Total: 2*41 + 2 + 512, Wheel: 2*41 + 1,
			Offsets: SeatOffsets{Face: 12, LeftEye: 21, RightEye: 30, LeftBlink: 31, RightBlink: 32, Sunglasses: 33,
				Occluded: 34,
				Ready:    [2]int{35, 39}, NotReady: [2]int{39, 41}}},
	},
	{
		Name: "seat", Releases: "driver monitoring of 2021: six planes of one seat (dmonitoring.cc)",
		Kind: Monitoring,
		// Columns 1 and 2 twice, and no odd rows; shown as (level - Grey) / Grey.
		Face: &Face{Planes: 6, Phases: []int{0, 0, 0, 1, 0, 1, 0, 2},
			Sampling: runtime.Linear, Fill: -1, Grey: 128, OneSeat: true},
		// What lies at 34 differs between releases.
		Seat: &Seat{Len: 39, Seats: 1, Total: 39, Softplus: true, Probabilities: true,
			Offsets: SeatOffsets{Face: 12, LeftEye: 21, RightEye: 30, LeftBlink: 31, RightBlink: 32, Sunglasses: 33}},
	},
}

// Phases of the four planes of luma (openpilot's loadyuv): row and column.
func Phases() []int { return []int{0, 0, 1, 0, 0, 1, 1, 1} }

// with are slices besides those that all driving models have.
func with(more ...Slice) []Slice { return append(more, common...) }

// seats are the slices of driver-monitoring models by side (dmonitoringmodeld.py since 2025).
func seats(sides ...string) []Slice {
	out := []Slice{{Name: "wheel_on_right", Kind: Sigmoids, Shape: []int{1}}}
	for _, side := range sides {
		out = append(out, Slice{Name: "face_descs_" + side, Kind: Distribution, Shape: []int{FaceLen}})
		for _, of := range []string{"face", "left_eye", "right_eye", "left_blink", "right_blink", "sunglasses",
			"using_phone"} {
			out = append(out, Slice{Name: of + "_prob_" + side, Kind: Sigmoids, Shape: []int{1}})
		}
	}
	return out
}
