"""What words and letters tell, in many languages: talk about the answer, refusals, scripts, languages, sentences."""
