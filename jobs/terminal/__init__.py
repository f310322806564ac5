"""Display, log and closing table of a job."""
