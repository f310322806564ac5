"""What is around an encoder's network: what the model's own files say of it, pooling, and the layers after pooling."""
