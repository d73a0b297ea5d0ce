package onnx

// Operators that the compiler does not support by design, with the reason.
var refusedOperators = refuse(
	refusal{"", "it draws random numbers", []string{
		"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}},
	refusal{"", "the shape of its output depends on data", []string{"NonMaxSuppression", "Unique"}},
	refusal{"", "strings are not supported", []string{
		"RegexFullMatch", "StringConcat", "StringNormalizer", "StringSplit", "TfIdfVectorizer"}},
	refusal{"", "it decodes image files", []string{"ImageDecoder"}},
	refusal{"", "sequences are not supported", []string{
		"ConcatFromSequence", "SequenceAt", "SequenceConstruct", "SequenceEmpty", "SequenceErase", "SequenceInsert",
		"SequenceLength", "SequenceMap", "SplitToSequence"}},
	refusal{"", "optional values are not supported", []string{"Optional", "OptionalGetElement", "OptionalHasElement"}},
	refusal{"ai.onnx.ml", "classical machine learning operators are not supported", []string{
		"CastMap", "CategoryMapper", "DictVectorizer", "FeatureVectorizer", "Imputer", "LabelEncoder", "LinearClassifier",
		"LinearRegressor", "Normalizer", "OneHotEncoder", "SVMClassifier", "SVMRegressor", "Scaler", "TreeEnsemble",
		"TreeEnsembleClassifier", "TreeEnsembleRegressor", "ZipMap"}},
	refusal{"ai.onnx.preview.training", "training operators are not supported", []string{
		"Adagrad", "Adam", "Gradient", "Momentum"}},
)

type refusal struct {
	domain, reason string
	names          []string
}

func refuse(list ...refusal) []operator {
	var rows []operator
	for _, r := range list {
		for _, name := range r.names {
			rows = append(rows, operator{domain: r.domain, name: name, since: 1, convert: func(s *site) { s.refuse("%s", r.reason) }})
		}
	}
	return rows
}
