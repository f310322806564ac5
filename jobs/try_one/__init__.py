"""The verb try: one query through every stage."""
