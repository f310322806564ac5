"""Text analysis of local indexes: words in any script, stop words, stems, and the language of a corpus."""
