package onnx

// Operators that the compiler does not support by design, with the reason.
var refusedOperators = refuse(
	refusal{"", "it draws random numbers", "give them to the model as an input", []string{
		"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}},
	refusal{"", "strings are not supported", "compute what depends on strings outside of the model", []string{
		"RegexFullMatch", "StringConcat", "StringNormalizer", "StringSplit", "TfIdfVectorizer"}},
	refusal{"", "it decodes image files", "give the decoded image to the model as an input", []string{"ImageDecoder"}},
	refusal{"", "it applies a graph to each tensor of a sequence", "apply it to one tensor that holds them all", []string{"SequenceMap"}},
	refusal{"", "optional values are not supported", "export it with the value, or without it", []string{"Optional", "OptionalGetElement", "OptionalHasElement"}},
	refusal{"ai.onnx.ml", "it yields a dictionary for each row", "export it without, by skl2onnx's options={\"zipmap\": False}", []string{"ZipMap"}},
	refusal{"ai.onnx.ml", "classical machine learning operators other than trees and linear models are not supported",
		"end the model before them, or express them by tensors", []string{
			"CastMap", "CategoryMapper", "DictVectorizer", "FeatureVectorizer", "Imputer", "OneHotEncoder", "SVMClassifier", "SVMRegressor"}},
	refusal{"ai.onnx.preview.training", "training operators are not supported", "export the model for inference", []string{
		"Adagrad", "Adam", "Gradient", "Momentum"}},
)

type refusal struct {
	domain, reason, remedy string
	names                  []string
}

func refuse(list ...refusal) []operator {
	var rows []operator
	for _, r := range list {
		for _, name := range r.names {
			rows = append(rows, operator{domain: r.domain, name: name, since: 1, refused: true, convert: func(s *site) { s.refuse(r.remedy, "%s", r.reason) }})
		}
	}
	return rows
}
