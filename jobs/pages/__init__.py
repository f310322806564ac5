"""Pages of jobs and runs for a person: HTML reports, closing tables, and the wording of their figures."""
