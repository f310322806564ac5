"""Code that is no part of this project: how it is found, known by its content, and sent to other processes."""
