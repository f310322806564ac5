"""What of a run is worth a person's look, as a sheet to fill in, and what is made of the filled sheet."""
