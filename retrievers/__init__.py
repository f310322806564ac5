"""A text in, ranked hits out: lexical and dense search, fusion of ranked lists, reranking."""
