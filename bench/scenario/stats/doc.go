// Package stats compares two algorithms that ran the same scenarios: A/B statistics of paired samples.
//
//	Compare         every metric of two batches, with a verdict
//	McNemar         failures: did B fail where A passed more often than the reverse?
//	Wilcoxon        costs: is the difference symmetric about 0?
//	Bootstrap       an interval of any statistic; BootstrapMean, of a mean
//	ClopperPearson  an interval of a rate; PairedRates, of the difference of two
//	Holm            p-values adjusted for the number of metrics
//	DetectableCost  the smallest difference that n pairs can show; DetectableRate, of failures
//
// Pairs must be independent of each other: two loops that share their noise count as one. All results are functions
// of the input and the seed alone, with the same bits on every machine.
package stats
