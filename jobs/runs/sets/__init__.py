"""An ablation over several data sets as it lies in storage."""
