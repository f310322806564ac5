"""The page over the nights of one name."""
