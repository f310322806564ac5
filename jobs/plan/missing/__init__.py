"""What a job would find missing in the store: the chain's own stages look, and nothing is asked, searched or scored."""
