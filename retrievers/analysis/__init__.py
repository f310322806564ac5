"""What the local index makes of a text: its words in any script, stop words, stems, and the language of a corpus."""
