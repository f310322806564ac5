"""Export of a finished run as a version of the rows that a search looks up."""
