"""What a verb does from its values to its result, whoever asks: the command line, or a program that imports `dmqr`."""
