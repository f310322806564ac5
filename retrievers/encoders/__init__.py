"""The parts around an encoder's network: the recipe of the model's own files, pooling, and the layers after pooling."""
