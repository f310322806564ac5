"""The verb tune: weights learnt from one gathered run, measured on queries that did not choose them."""
