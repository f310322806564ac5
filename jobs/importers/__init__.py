"""Published data sets of questions, in their own file formats, as a log with answers, judgements and a corpus."""
