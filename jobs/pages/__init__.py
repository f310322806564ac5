"""What a person sees of jobs and runs: HTML reports, closing tables, and the wording of their figures."""
