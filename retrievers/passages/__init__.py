"""Folders of text, Markdown, HTML and PDF as a corpus: documents are read, and split into passages."""
