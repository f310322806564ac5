"""The verb tune: weights and a selection learnt from one gathered run, measured on queries that did not choose them."""
