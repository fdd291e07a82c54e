"""Which words of a response are wrong: texts with labelled spans, what a model reads at each word, and verdicts."""
