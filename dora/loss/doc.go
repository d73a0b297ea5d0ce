// Package loss builds losses of driving models as graphs, so that they are compiled with the model and differentiated.
//
// Driving reads a model's output_slices and gives the Terms of its loss: of each named part of the output, one that holds it to the
// teacher's; Parse reads their weights from text, as plan=1,lead=0.5,features=0.1. Terms.Build is a dora.StepOptions.Loss. It adds inputs: dora.Target(NAME), the
// teacher's value of the output or inner value NAME, and truth:plan, what was measured. Every term comes back in dora.Result.Terms.
// A term is a mean over the batch's samples of what each sample gives alone.
//
//	NAME          of parts with means and log scales (plan, lane_lines, road_edges, lead, pose, road_transform, wide_from_device_euler,
//	              sim_pose, desired_curvature): the divergence from the teacher's distribution, in nats (kl)
//	NAME_nll      of the same: the negative log likelihood of the teacher's means; with hypotheses, the winner takes all
//	plan_truth    the same of the path that was driven, truth:plan, as far as it is known
//	lane_lines_prob, lead_prob, meta: the divergence of probabilities that sigmoids give, in nats
//	desire_state, desire_pred: that of probabilities that a softmax gives, in nats
//	features      hidden_state: the part of its variation that the student's leaves unexplained
//	features:NAME the same of any inner value, or of an output of its own
//	NAME          the same of any other part, and of the outputs of models without output_slices
//
// Divergences are 0 where the student is the teacher, and sums over a part's numbers: with all weights 1 the loss is the divergence of
// the joint distribution of all outputs. That is the default, with 100 for features and other parts, whose unexplained part is a ratio: a hundredth of it counts
// as one nat. Likelihoods are 0 by default: they beat the divergence for models that learn a path from nothing (openpilot-pipeline),
// but are not least where the student is the teacher.
package loss
