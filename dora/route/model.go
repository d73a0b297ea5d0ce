package route

// Times of lists over time are those of openpilot's T_IDXS unless a T is there; positions are in m in the device's frame (x
// forward, y right, z down), orientations in rad, speeds in m/s, accelerations in m/s².

// ModelV2 is what the driving model saw at a frame of the road camera. Not in a qlog.
type ModelV2 struct {
	_ struct{} `capnp:"6 17"`

	FrameID            uint32    `capnp:"frameId 0"`
	FrameAge           uint32    `capnp:"frameAge 32"`
	FrameDropPerc      float32   `capnp:"frameDropPerc 64"`
	ModelExecutionTime float32   `capnp:"modelExecutionTime 96"` // s
	TimestampEOF       uint64    `capnp:"timestampEof 128"`
	FrameIDExtra       uint32    `capnp:"frameIdExtra 224"` // of the wide camera
	Confidence         uint16    `capnp:"confidence 272"`
	Position           XYZT      `capnp:"position p0"`
	Orientation        XYZT      `capnp:"orientation p1"`
	Velocity           XYZT      `capnp:"velocity p2"`
	OrientationRate    XYZT      `capnp:"orientationRate p3"`
	LaneLines          []XYZT    `capnp:"laneLines p4"` // far left, left, right, far right
	LaneLineProbs      []float32 `capnp:"laneLineProbs p5"`
	RoadEdges          []XYZT    `capnp:"roadEdges p6"` // left, right
	Meta               Meta      `capnp:"meta p8"`
	LaneLineStds       []float32 `capnp:"laneLineStds p9"`
	RoadEdgeStds       []float32 `capnp:"roadEdgeStds p10"`
	RawPredictions     []byte    `capnp:"rawPredictions p11"` // all outputs as f32; only if openpilot ran with SEND_RAW_PRED
	Leads              []Lead    `capnp:"leadsV3 p12"`
	Acceleration       XYZT      `capnp:"acceleration p13"`
	Action             Action    `capnp:"action p16"`
}

// XYZT are points over time, all lists of one length or empty.
type XYZT struct {
	_ struct{} `capnp:"0 7"`

	X    []float32 `capnp:"x p0"`
	Y    []float32 `capnp:"y p1"`
	Z    []float32 `capnp:"z p2"`
	T    []float32 `capnp:"t p3"` // s
	XStd []float32 `capnp:"xStd p4"`
	YStd []float32 `capnp:"yStd p5"`
	ZStd []float32 `capnp:"zStd p6"`
}

// Lead is a hypothesis of the leading car, ProbTime from now.
type Lead struct {
	_ struct{} `capnp:"1 9"`

	Prob     float32   `capnp:"prob 0"`
	ProbTime float32   `capnp:"probTime 32"` // s
	T        []float32 `capnp:"t p0"`
	X        []float32 `capnp:"x p1"`
	XStd     []float32 `capnp:"xStd p2"`
	Y        []float32 `capnp:"y p3"`
	YStd     []float32 `capnp:"yStd p4"`
	V        []float32 `capnp:"v p5"`
	VStd     []float32 `capnp:"vStd p6"`
	A        []float32 `capnp:"a p7"`
	AStd     []float32 `capnp:"aStd p8"`
}

// Meta is what the model says of the driver, and the state of a lane change.
type Meta struct {
	_ struct{} `capnp:"3 3"`

	EngagedProb          float32              `capnp:"engagedProb 0"`
	HardBrakePredicted   bool                 `capnp:"hardBrakePredicted 128"`
	LaneChangeState      LaneChangeState      `capnp:"laneChangeState 144"`
	LaneChangeDirection  LaneChangeDirection  `capnp:"laneChangeDirection 160"`
	DesirePrediction     []float32            `capnp:"desirePrediction p0"` // 4 horizons × 8 desires
	DesireState          []float32            `capnp:"desireState p1"`      // 8 desires
	DisengagePredictions DisengagePredictions `capnp:"disengagePredictions p2"`
}

// DisengagePredictions are the probabilities, over T, of what the driver may do.
type DisengagePredictions struct {
	_ struct{} `capnp:"0 9"`

	T                     []float32 `capnp:"t p0"`
	BrakeDisengageProbs   []float32 `capnp:"brakeDisengageProbs p1"`
	GasDisengageProbs     []float32 `capnp:"gasDisengageProbs p2"`
	SteerOverrideProbs    []float32 `capnp:"steerOverrideProbs p3"`
	Brake3MetersPerSecond []float32 `capnp:"brake3MetersPerSecondSquaredProbs p4"`
	Brake4MetersPerSecond []float32 `capnp:"brake4MetersPerSecondSquaredProbs p5"`
	Brake5MetersPerSecond []float32 `capnp:"brake5MetersPerSecondSquaredProbs p6"`
	GasPressProbs         []float32 `capnp:"gasPressProbs p7"`
	BrakePressProbs       []float32 `capnp:"brakePressProbs p8"`
}

// LaneChangeState is how far a lane change is.
type LaneChangeState uint16

// How far a lane change is.
const (
	LaneChangeOff LaneChangeState = iota
	PreLaneChange
	LaneChangeStarting
	LaneChangeFinishing
)

// LaneChangeDirection is where a lane change goes.
type LaneChangeDirection uint16

// Where a lane change goes.
const (
	NoLaneChange LaneChangeDirection = iota
	LaneChangeToLeft
	LaneChangeToRight
)

// Action is what the model would do.
type Action struct {
	_ struct{} `capnp:"2 0"`

	DesiredCurvature    float32 `capnp:"desiredCurvature 0"`     // 1/m
	DesiredAcceleration float32 `capnp:"desiredAcceleration 32"` // m/s²
	ShouldStop          bool    `capnp:"shouldStop 64"`
}

// DrivingModelData is the excerpt of ModelV2 that a qlog has.
type DrivingModelData struct {
	_ struct{} `capnp:"2 4"`

	FrameID            uint32       `capnp:"frameId 0"`
	FrameIDExtra       uint32       `capnp:"frameIdExtra 32"`
	FrameDropPerc      float32      `capnp:"frameDropPerc 64"`
	ModelExecutionTime float32      `capnp:"modelExecutionTime 96"` // s
	Action             Action       `capnp:"action p0"`
	LaneLineMeta       LaneLineMeta `capnp:"laneLineMeta p1"`
	Meta               LaneChange   `capnp:"meta p2"`
	Path               PolyPath     `capnp:"path p3"`
}

// LaneLineMeta are the inner lane lines at the car.
type LaneLineMeta struct {
	_ struct{} `capnp:"2 0"`

	LeftY     float32 `capnp:"leftY 0"`
	RightY    float32 `capnp:"rightY 32"`
	LeftProb  float32 `capnp:"leftProb 64"`
	RightProb float32 `capnp:"rightProb 96"`
}

// LaneChange is the state of a lane change.
type LaneChange struct {
	_ struct{} `capnp:"1 0"`

	State     LaneChangeState     `capnp:"laneChangeState 0"`
	Direction LaneChangeDirection `capnp:"laneChangeDirection 16"`
}

// PolyPath are polynomials of degree 4 over T_IDXS, fitted to ModelV2's Position.
type PolyPath struct {
	_ struct{} `capnp:"0 3"`

	X []float32 `capnp:"xCoefficients p0"`
	Y []float32 `capnp:"yCoefficients p1"`
	Z []float32 `capnp:"zCoefficients p2"`
}

// CameraOdometry is how the model saw the camera move.
type CameraOdometry struct {
	_ struct{} `capnp:"2 8"`

	FrameID             uint32    `capnp:"frameId 0"`
	TimestampEOF        uint64    `capnp:"timestampEof 64"`
	Trans               []float32 `capnp:"trans p0"` // m/s
	Rot                 []float32 `capnp:"rot p1"`   // rad/s
	TransStd            []float32 `capnp:"transStd p2"`
	RotStd              []float32 `capnp:"rotStd p3"`
	WideFromDeviceEuler []float32 `capnp:"wideFromDeviceEuler p4"` // rad
	RoadTransformTrans  []float32 `capnp:"roadTransformTrans p6"`
}

// LiveDelay is the measured delay of the steering.
type LiveDelay struct {
	_ struct{} `capnp:"3 1"`

	LateralDelay float32 `capnp:"lateralDelay 0"` // s
	ValidBlocks  int32   `capnp:"validBlocks 32"`
	Status       uint16  `capnp:"status 64"` // unestimated, estimated, invalid
}

// LateralPlan is, in old logs, where the desire is that the model was given.
type LateralPlan struct {
	_ struct{} `capnp:"9 9"`

	Desire Desire `capnp:"desire 176"`
}

// Desire is what the driver wants of the model.
type Desire uint16

// The desires.
const (
	NoDesire Desire = iota
	TurnLeft
	TurnRight
	LaneChangeLeft
	LaneChangeRight
	KeepLeft
	KeepRight
)
