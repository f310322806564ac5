"""Comparison of the arms of an ablation: measures, significance, slices, funnel, costs, exports."""
