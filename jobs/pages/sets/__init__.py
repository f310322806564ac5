"""An ablation over several data sets as a table, as values, and as a page."""
