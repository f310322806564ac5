"""The stages and parts of stages that search the web."""
