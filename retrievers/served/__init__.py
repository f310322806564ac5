"""Encoders and rerankers at a server: text-embeddings-inference, vLLM, or another with OpenAI's Embeddings or Jina's Rerank."""
