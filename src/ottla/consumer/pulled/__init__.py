"""The core of the pulled consumers, for callers who take records and say later what became of each."""
