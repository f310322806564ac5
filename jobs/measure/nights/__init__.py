"""The runs of a name night by night: cost, quality, coverage, new queries, and whether what they make drifts."""
