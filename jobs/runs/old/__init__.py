"""Old runs: which of them go, what they alone have of the store's facts, and how a folder is removed."""
