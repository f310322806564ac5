"""Comparison of the arms of an ablation: measures, significance, funnel, costs, exports, report."""
