package profile

var StampedBlocks = stampedBlocks

const StampWords = words
